"""Genkit's own tracing, the same from JavaScript, Go and Python.

Source: genkit-ai/genkit, ``js/core/src/tracing/instrumentation.ts``, ``js/core/src/action.ts`` and
``go/core/tracing/tracing.go`` (2026). A span's kind is ``genkit:metadata:subtype``, its texts are JSON in
``genkit:input`` and ``genkit:output``. Flows are the user's functions, and name the agents in them, as
executable prompts do. ``generate`` is a loop of calls and tools. Messages are
``{role, content: [{text} | {toolRequest} | {toolResponse}]}``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from semconv.dialects.reading.action import Action, ActionKind, Dialect, Message, Surroundings
from semconv.dialects.reading.agent_names import NO_AGENT, Found
from semconv.dialects.reading.messages import messages_of
from semconv.dialects.reading.observations import Observation, action_of
from semconv.dialects.reading.values import items, mapping, structured, text
from semconv.model import AgentSource, Span

NAME: Final = "genkit"

TYPE: Final = "genkit:type"
SUBTYPE: Final = "genkit:metadata:subtype"
SPAN_NAME: Final = "genkit:name"
INPUT: Final = "genkit:input"
OUTPUT: Final = "genkit:output"
STATE: Final = "genkit:state"

_KINDS: Final[Mapping[str, ActionKind]] = {
    "model": ActionKind.LLM,
    "background-model": ActionKind.LLM,
    "tool": ActionKind.TOOL,
    "tool.v2": ActionKind.TOOL,
    "retriever": ActionKind.TOOL,
    "indexer": ActionKind.TOOL,
    "agent": ActionKind.AGENT,
    "executable-prompt": ActionKind.AGENT,
    "evaluator": ActionKind.EVALUATION,
}
"""Subtypes; flows are workflows or functions, and any other (``util``, ``prompt``) groups steps."""


def read_genkit(span: Span, surroundings: Surroundings) -> Action | None:
    """Read a span with Genkit's type."""
    if TYPE not in span.attributes and SUBTYPE not in span.attributes:
        return None
    subtype, kind = text(span.attributes, SUBTYPE) or "", _kind_of(span, surroundings)
    name = text(span.attributes, SPAN_NAME) or span.name
    given, got = (structured(span.attributes.get(key)) for key in (INPUT, OUTPUT))
    is_call = kind is ActionKind.LLM
    input_messages, output_messages = (_input_messages(given), _output_messages(got)) if is_call else ((), ())
    seen = Observation(
        dialect=NAME,
        kind=kind,
        agent=Found(name, AgentSource.SPAN_NAME) if kind is ActionKind.AGENT else NO_AGENT,
        given=None if input_messages else given,
        got=None if output_messages else got,
        input_messages=input_messages,
        output_messages=output_messages,
        tool=name.rpartition("/")[2],
        function=name if subtype == "flow" else "",
        failed=span.attributes.get(STATE) == "error",
    )
    return action_of(span, seen)


def _kind_of(span: Span, surroundings: Surroundings) -> ActionKind:
    kind = _KINDS.get(text(span.attributes, SUBTYPE) or "", ActionKind.CONTAINER)
    if kind is not ActionKind.CONTAINER:
        return kind
    above = surroundings.parent(span)
    is_top = above is None or TYPE not in above.attributes
    return ActionKind.WORKFLOW if is_top else ActionKind.CONTAINER


def _input_messages(given: Any) -> tuple[Message, ...]:
    return messages_of([_plain(each) for each in items(mapping(given).get("messages"))])


def _output_messages(got: Any) -> tuple[Message, ...]:
    fields = mapping(got)
    candidates = [mapping(each).get("message") for each in items(fields.get("candidates"))]
    messages = [fields["message"]] if fields.get("message") else candidates
    return messages_of([_plain(message) for message in messages])


def _plain(message: Any) -> dict[str, Any]:
    """Return a message of Genkit's in OpenTelemetry's shape."""
    fields = mapping(message)
    parts = [_part(mapping(each)) for each in items(fields.get("content"))]
    return {"role": fields.get("role"), "parts": parts}


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    call, result = mapping(part.get("toolRequest")), mapping(part.get("toolResponse"))
    if call:
        asked = {"name": call.get("name"), "arguments": call.get("input"), "id": call.get("ref")}
        return {"type": "tool_call", **asked}
    if result:
        return {"type": "tool_call_response", "id": result.get("ref"), "result": result.get("output")}
    return {"type": "text", "content": part.get("text")}


GENKIT: Final = Dialect(name=NAME, read=read_genkit, keys=frozenset({TYPE, SUBTYPE}))
