"""Wire format: the functions that each provider's API needs, and common parts. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, TypeAlias

from analyzer.experiment.replay.tape import Answer, CallKind
from analyzer.experiment.replay.trial import Edit
from semconv.dialects.reading.action import Message
from semconv.dialects.reading.tools import is_delegation, is_plain_transfer, transfer_target
from semconv.json_text import read_json
from semconv.model import ToolCall
from semconv.record import record

Body: TypeAlias = Mapping[str, Any]


class Provider(StrEnum):
    """The upstream that speaks a wire format."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"


class UnreadableRequest(Exception):  # noqa: N818 - a noun reads better at the ``except``
    """A request that cannot be replayed or has another format; the message says what was expected."""


@record
class Asked:
    """A request's content, independent of its API."""

    messages: tuple[Message, ...]
    model: str = ""
    kind: CallKind = CallKind.CHAT
    tools: tuple[str, ...] = ()
    """Names of the functions that the model may call."""
    transfers: frozenset[str] = frozenset()
    """Those named like a handoff that take no arguments but a handoff's."""
    provider_tools: tuple[str, ...] = ()
    """Tools that the provider itself runs."""
    wants_stream: bool = False
    wants_usage: bool = True
    """Chat completions send the usage of a stream only on request."""
    wants_base64: bool = False
    """Whether embeddings are packed floats, as OpenAI's clients request by default."""


@record
class Wire:
    """One API of one provider."""

    provider: Provider
    read: Callable[[Body], Asked]
    """Reads a request; raises ``UnreadableRequest``."""
    whole: Callable[[Asked, Answer, int], Body]
    """Returns a whole answer; the number makes ids unique within a trial."""
    stream: Callable[[Asked, Answer, int], Iterator[bytes]]
    """Yields an answer's server-sent events."""
    edited: Callable[[Body, Edit], Body]
    """Returns the request with an edit applied."""
    error: Callable[[str], Body]
    """Returns an error whose message reaches the user of the provider's client."""


STREAM_PIECE: Final = 256
"""Characters of text per event of a stream; a client must join several, as with a live model."""


@record
class Offered:
    """Names of the tools that a request offers to the model."""

    functions: tuple[str, ...]
    transfers: frozenset[str]
    """Functions named like a delegation, or like a handoff if they take only a handoff's arguments."""
    hosted: tuple[str, ...]
    """Tools that the provider itself runs."""


def read_tools(definitions: Any, ours: Callable[[Body], str]) -> Offered:
    """Return the tools of a request.

    Args:
        definitions: the request's ``tools``.
        ours: returns a function's name; an empty string for one of the provider's tools.

    Raises:
        UnreadableRequest: it is no list of objects, so tools that might run cannot be named.
    """
    functions: list[str] = []
    hosted: list[str] = []
    transfers: set[str] = set()
    for each in objects_in(definitions, "tools"):
        name = ours(each)
        (functions if name else hosted).append(name or str(each.get("name") or each.get("type") or "?"))
        is_transfer = transfer_target(name, "{}") and is_plain_transfer(_parameters(each))
        if is_transfer or is_delegation(name):
            transfers.add(name)
    return Offered(functions=tuple(functions), transfers=frozenset(transfers), hosted=tuple(hosted))


def objects_in(value: Any, name: str) -> Sequence[Body]:
    """Return a list of objects that a request may leave out.

    Raises:
        UnreadableRequest: the value is anything else.
    """
    listed = [] if value is None else value
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise UnreadableRequest(f"expected a list of objects as `{name}`")
    return listed


def _parameters(definition: Body) -> Any:
    inner = definition.get("function")
    function = inner if isinstance(inner, dict) else definition
    schema = function.get("parameters") or function.get("input_schema")
    return schema.get("properties") or {} if isinstance(schema, dict) else {}


def is_one_of(value: Any, names: Container[str]) -> bool:
    """Say whether a value of a request is one of these names; it may be of any type."""
    return isinstance(value, str) and value in names


def pieces(text: str) -> Iterator[str]:
    """Yield a text in the pieces of a stream."""
    for begin in range(0, len(text), STREAM_PIECE):
        yield text[begin : begin + STREAM_PIECE]


def call_ids(calls: Sequence[ToolCall], number: int) -> tuple[str, ...]:
    """Return the ids of requested calls: the recorded ones, else new ones."""
    return tuple(call.call_id or f"call_{number:06}_{place}" for place, call in enumerate(calls))


def data_event(document: Body) -> bytes:
    """Return a server-sent event without a name."""
    return f"data: {json.dumps(document, ensure_ascii=False)}\n\n".encode("utf-8", "replace")


def named_event(name: str, document: Body) -> bytes:
    """Return a server-sent event whose name is also the document's ``type``."""
    body = json.dumps({"type": name, **document}, ensure_ascii=False)
    return f"event: {name}\ndata: {body}\n\n".encode("utf-8", "replace")


def arguments_object(call: ToolCall) -> Body:
    """Return a call's arguments as an object, for formats that require one."""
    try:
        value = read_json(call.arguments) if call.arguments.strip() else {}
    except ValueError:
        return {"arguments": call.arguments}
    return value if isinstance(value, dict) else {"arguments": value}


def arguments_text(call: ToolCall) -> str:
    """Return a call's arguments as JSON text; a call without arguments gets an empty object."""
    return call.arguments.strip() or "{}"
