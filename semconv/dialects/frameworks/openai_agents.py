"""openai-agents, as the OpenTelemetry contrib instrumentation ``openai-agents-v2`` writes it.

Source: opentelemetry-instrumentation-openai-agents-v2 0.1.0 (2025), ``span_processor.py``, seen with
openai-agents 0.24. It shares its scope with Traceloop's instrumentation, which sets a scope version. It
writes the ``gen_ai`` attributes with these deviations: spans without an agent are named ``OpenAI Agent``; a
model's tool calls are the ``repr`` of the SDK's objects inside a text part; hidden content is
``readacted``; tasks and turns have the operation ``unknown``; the root is an agent without a name.
"""

from __future__ import annotations

from typing import Any, Final

from semconv.attributes import GEN_AI_AGENT_NAME, GEN_AI_INPUT_MESSAGES, GEN_AI_OUTPUT_MESSAGES
from semconv.dialects.conventions.otel_genai import operation_kind, read_operation
from semconv.dialects.reading.action import Action, ActionKind, Dialect, Surroundings
from semconv.dialects.reading.messages import last_answer
from semconv.dialects.reading.python_repr import object_in
from semconv.dialects.reading.values import REDACTED, items, mapping, words
from semconv.model import Span
from semconv.record import replace

NAME: Final = "openai_agents_v2"

SCOPE: Final = "opentelemetry.instrumentation.openai_agents"
TRACELOOP_KIND: Final = "traceloop.span.kind"
_PLACEHOLDER: Final = "OpenAI Agent"
"""Placeholder for spans without an agent and for agents without a name."""
_HIDDEN: Final = "readacted"
"""Spelled like this by the instrumentation."""


def read_openai_agents_v2(span: Span, _: Surroundings) -> Action | None:
    """Read a span of the contrib instrumentation."""
    if span.scope.name != SCOPE or span.scope.version or TRACELOOP_KIND in span.attributes:
        return None
    kind = operation_kind(span) or ActionKind.CONTAINER
    if kind is ActionKind.AGENT and span.attributes.get(GEN_AI_AGENT_NAME) is None:
        kind = ActionKind.WORKFLOW
    action = read_operation(_mended(span), kind, NAME)
    if action.agent == _PLACEHOLDER:
        action = replace(action, agent=None)
    if kind is ActionKind.AGENT:
        action = replace(action, answer=last_answer(action.output_messages))
    return action


def _mended(span: Span) -> Span:
    """Return the span with its messages in the ``gen_ai`` format."""
    mended: dict[str, Any] = {
        name: [_message(each) for each in items(span.attributes[name])]
        for name in (GEN_AI_INPUT_MESSAGES, GEN_AI_OUTPUT_MESSAGES)
        if name in span.attributes
    }
    return replace(span, attributes={**span.attributes, **mended}) if mended else span


def _message(value: Any) -> Any:
    message = mapping(value)
    return {**message, "parts": [_part(each) for each in items(message.get("parts"))]} if message else value


def _part(value: Any) -> Any:
    part = mapping(value)
    content = part.get("content")
    if part.get("type") != "text" or not isinstance(content, str):
        return value
    if content == _HIDDEN:
        return {"type": "text", "content": REDACTED}
    item = object_in(content)
    match item.get("type"):
        case "function_call":
            return {
                "type": "tool_call",
                "name": item.get("name"),
                "arguments": item.get("arguments"),
                "id": item.get("call_id"),
            }
        case "message":
            texts = [words(mapping(each).get("text")) for each in items(item.get("content"))]
            return {"type": "text", "content": "\n".join(texts)}
        case "reasoning":
            texts = [words(mapping(each).get("text")) for each in items(item.get("summary"))]
            return {"type": "reasoning", "content": "\n".join(texts)}
        case _:
            return value


OPENAI_AGENTS_V2: Final = Dialect(name=NAME, read=read_openai_agents_v2, scopes=(SCOPE,))
