"""Agents' messages and texts as attribute values, and the setting that allows recording them.

The application's values may be anything: huge, circular, not text, or raising in ``__str__``. Nothing here
raises: a value that raises is replaced by its type's name, and long ones are cut.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import cache
from itertools import islice
from json.encoder import encode_basestring
from typing import Any, Final, TypeVar

logger = logging.getLogger(__name__)

CAPTURE_VARIABLE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
MAX_TEXT: Final = 32_768
"""Characters per text; a long document fits, a dumped file does not."""
MAX_MESSAGES: Final = 262_144
"""Characters per attribute that holds messages: a few such spans in a batch fit into gRPC's 4 MiB."""

_MAX_MEDIA: Final = 1_024
"""Characters per part that is not text, such as an image: enough for its address and type."""
_MAX_ROLE: Final = 64
_MAX_ITEMS: Final = 32
"""Fields per part that is not text; upstream's largest has six."""
_PLAIN_KEYS: Final = frozenset({"role", "content"})
_MESSAGE_KEYS: Final = frozenset({"role", "parts", "content", "tool_calls", "tool_call_id"})
_MAX_COUNT: Final = 2**63 - 1
"""OTLP integers have 64 bits; a larger one would make the exporter fail."""

T = TypeVar("T")
Message = dict[str, Any]


class ContentCapture(StrEnum):
    """Places for content, by OpenTelemetry's values."""

    NO_CONTENT = "NO_CONTENT"
    SPAN_ONLY = "SPAN_ONLY"
    EVENT_ONLY = "EVENT_ONLY"
    SPAN_AND_EVENT = "SPAN_AND_EVENT"

    @property
    def on_spans(self) -> bool:
        """Whether content goes into span attributes."""
        return self is ContentCapture.SPAN_ONLY or self is ContentCapture.SPAN_AND_EVENT

    @property
    def in_events(self) -> bool:
        """Whether content goes into log events."""
        return self is ContentCapture.EVENT_ONLY or self is ContentCapture.SPAN_AND_EVENT


def capture_mode(wish: str | None = None) -> ContentCapture:
    """Return the mode named by ``wish``, else by the environment; by default no content, as upstream."""
    return _capture_mode(os.environ.get(CAPTURE_VARIABLE, "") if wish is None else wish)


@cache  # warns once of a wrong value
def _capture_mode(value: str) -> ContentCapture:
    word = value.strip().upper()
    if word == "TRUE":  # the only value in earlier versions: content everywhere
        return ContentCapture.SPAN_AND_EVENT
    if word in ("", "FALSE"):
        return ContentCapture.NO_CONTENT
    if word in set(ContentCapture):
        return ContentCapture(word)
    logger.warning(
        "%s is %r, expected one of %s: no content is recorded",
        CAPTURE_VARIABLE,
        value,
        ", ".join(ContentCapture),
    )
    return ContentCapture.NO_CONTENT


def name_of(value: object) -> str:
    """Return a name as a span attribute, cut at 256 characters."""
    return contained(lambda: _clean(_shown(value)[:256]), lambda: "unknown")


def text_of(value: object) -> str:
    """Return ``value`` as text: strings unchanged, all else as JSON or ``repr``."""
    return contained(lambda: _clean(_cut(_shown(value), MAX_TEXT)), lambda: _unprintable(value))


def count_of(value: object) -> int | None:
    """Return a valid token count, else ``None``."""
    return value if isinstance(value, int) and 0 <= value <= _MAX_COUNT else None


def messages_of(value: object, role: str) -> str:
    """Return messages as JSON in upstream's schema of roles and parts.

    Takes a text (one message of ``role``), a message, or a sequence of messages, in upstream's format or
    that of the OpenAI or Anthropic API. Iterators are not consumed, since the application needs them. Over
    ``MAX_MESSAGES`` the oldest messages are dropped, except the first.
    """
    return contained(
        lambda: _messages(value, role),
        lambda: json.dumps([{"role": role, "parts": [{"type": "text", "content": _unprintable(value)}]}]),
    )


def instructions_of(value: object) -> str:
    """Return system instructions as JSON in upstream's schema: a list of parts."""
    return contained(
        lambda: _clean(_JSON.encode(_fitting(_parts(value)))),
        lambda: json.dumps([{"type": "text", "content": _unprintable(value)}]),
    )


def contained(render: Callable[[], T], otherwise: Callable[[], T]) -> T:
    """Return ``render()``, or ``otherwise()`` if the application's objects make it raise."""
    try:
        return render()
    # The package's only broad except: the application's __str__ and __iter__ may raise anything.
    except Exception:
        logger.debug("a value could not be recorded", exc_info=True)
        return otherwise()


def _messages(value: object, role: str) -> str:
    messages: Sequence[object]
    if type(value) is list:  # fast path, as below: this runs in the application's process
        messages = value
    else:
        several = isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray)
        messages = value if several and isinstance(value, Sequence) else [value]
    encoded = [
        _clean(_plain_text(message, role) or _JSON.encode(_message(message, role))) for message in messages
    ]
    excess = sum(map(len, encoded)) - MAX_MESSAGES
    left_out = 0
    while excess > 0 and len(encoded) - left_out > 2:
        left_out += 1
        excess -= len(encoded[left_out])
    if left_out:
        gap = {"role": "system", "parts": [_text_part(f"[{left_out} messages left out]")]}
        encoded[1 : 1 + left_out] = [_JSON.encode(gap)]
    return f"[{','.join(encoded)}]"


def _plain_text(value: object, role: str) -> str:
    """Return the encoding of a message that is one text, the most frequent kind; empty for any other."""
    text: object = value
    if type(value) is dict:
        if value.keys() != _PLAIN_KEYS:
            return ""
        text, role = value["content"], value["role"]
    if type(text) is not str or type(role) is not str or not text:
        return ""
    quoted = encode_basestring(text if len(text) <= MAX_TEXT else _cut(text, MAX_TEXT))
    said_by = encode_basestring(role[:_MAX_ROLE])
    return f'{{"role": {said_by}, "parts": [{{"type": "text", "content": {quoted}}}]}}'


def _message(value: object, role: str) -> Message:
    """Return one message in upstream's format."""
    value = _plain(value)
    if not isinstance(value, Mapping) or not _MESSAGE_KEYS.intersection(value):
        return {"role": role, "parts": [_text_part(value)]}
    said_by = value.get("role")
    if not isinstance(said_by, str):
        said_by = name_of(said_by) if said_by else role
    said_by = said_by[:_MAX_ROLE]
    named = {"name": name_of(value["name"])} if value.get("name") else {}
    if "parts" in value:
        return {"role": said_by, "parts": _fitting(_parts(value["parts"])), **named}
    content = value.get("content")
    if "tool_call_id" in value:  # OpenAI's tool result
        return {"role": said_by, "parts": [_tool_response(value["tool_call_id"], content)], **named}
    parts = _parts(content) if content not in (None, "") else []
    parts += [_tool_call(_plain(call)) for call in value.get("tool_calls") or ()]
    return {"role": said_by, "parts": _fitting(parts), **named}


def _fitting(parts: list[Message]) -> list[Message]:
    """Return the leading parts that fit into one attribute."""
    if len(parts) <= MAX_MESSAGES // MAX_TEXT:
        return parts
    room = MAX_MESSAGES
    for taken, part in enumerate(parts):
        room -= len(_JSON.encode(part))
        if room < 0:
            return [*parts[:taken], _text_part(f"[{len(parts) - taken} parts left out]")]
    return parts


def _parts(content: object) -> list[Message]:
    if isinstance(content, str):
        return [_text_part(content)]
    if isinstance(content, list | tuple):
        return [_part(_plain(part)) for part in content]
    return [_text_part(content)]


def _part(part: object) -> Message:
    """Return one part in upstream's format; images and other media are named, not dumped."""
    if not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
        return _text_part(part)
    match part["type"]:
        case "text" | "input_text" | "output_text":
            return _text_part(part.get("content", part.get("text", "")))
        case "tool_use":  # Anthropic's
            return _tool_call({**part, "arguments": part.get("input")})
        case "tool_result":  # Anthropic's
            return _tool_response(part.get("tool_use_id"), part.get("content"))
        case "tool_call" | "tool_call_response" | "reasoning" | "thinking":
            return _bounded_part(part, MAX_TEXT)
        case _:
            return _bounded_part(part, _MAX_MEDIA)


def _bounded_part(part: Mapping[Any, Any], limit: int) -> Message:
    items = islice(part.items(), _MAX_ITEMS)
    return {str(key)[:_MAX_MEDIA]: _bounded(item, limit) for key, item in items}


def _tool_call(call: object) -> Message:
    """Return a tool call; OpenAI nests it under ``function`` with its arguments as JSON text."""
    if not isinstance(call, Mapping):
        return _text_part(call)
    function = _plain(call.get("function"))
    function = function if isinstance(function, Mapping) else call
    arguments = function.get("arguments")
    return {
        "type": "tool_call",
        "id": _bounded(call.get("id"), _MAX_MEDIA),
        "name": name_of(function.get("name", "unknown")),
        "arguments": _bounded(_unquoted(arguments), MAX_TEXT),
    }


def _tool_response(call_id: object, content: object) -> Message:
    answered = {"type": "tool_call_response", "id": _bounded(call_id, _MAX_MEDIA)}
    return {**answered, "response": _bounded(content, MAX_TEXT)}


def _text_part(value: object) -> Message:
    return {"type": "text", "content": _cut(value, MAX_TEXT) if isinstance(value, str) else text_of(value)}


def _unquoted(value: object) -> object:
    """Return the value of a JSON text; text that is not JSON, which models also write, unchanged."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _bounded(value: object, limit: int) -> object:
    """Return ``value`` if it is short and valid JSON, else its text, cut."""
    if value is None or isinstance(value, bool):
        return value
    if not isinstance(value, str):
        encoded = _json(value)
        if encoded is not None and len(encoded) <= limit:
            return value
    return _cut(text_of(value), limit)


def _plain(value: object) -> object:
    """Return pydantic models, the replies of vendors' clients, as dictionaries."""
    if isinstance(value, str | dict):
        return value
    dump = getattr(value, "model_dump", None)
    return dump(exclude_none=True) if callable(dump) else value


def _shown(value: object) -> str:
    if isinstance(value, str):
        return value
    encoded = _json(value)
    return repr(value) if encoded is None else encoded


def _json(value: object) -> str | None:
    """Return ``value`` as JSON; ``None`` for odd keys, NaN, cycles and deep nesting."""
    try:
        return _JSON.encode(value)
    except (TypeError, ValueError, RecursionError):
        return None


def _foreign(value: object) -> object:
    """Return a JSON-compatible replacement for ``value``."""
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{len(value)} bytes>"
    if isinstance(value, set | frozenset):
        return list(value)
    plain = _plain(value)
    return plain if plain is not value else repr(value)


_JSON: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=_foreign)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}… [cut, {len(text)} characters]"


def _clean(text: str) -> str:
    """Replace lone surrogates: protobuf accepts only UTF-8, and one of them would cost the whole batch."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _unprintable(value: object) -> str:
    return f"<unprintable {type(value).__name__}>"
