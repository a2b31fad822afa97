"""Langfuse's SDK, version 3 and later, which writes OpenTelemetry spans.

Source: langfuse 3.1 to 5.0, ``langfuse/_client/attributes.py`` and
``langfuse/langchain/CallbackHandler.py`` (2025-2026), seen with its decorator and with langgraph 0.6 and
1.2. Before 3.2 the only types were ``span`` and ``generation``; langchain's tools are then recognised by
the metadata that langchain adds. The SDK also adds ``langfuse.trace.*`` to spans of other instrumentations,
so a span is Langfuse's only by its scope or its observation type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from semconv.dialects.reading.action import FUNCTION_KINDS, Action, ActionKind, Dialect, Surroundings
from semconv.dialects.reading.agent_names import NAMELESS_GRAPHS, Found, graph_agent, is_function, prefixed
from semconv.dialects.reading.observations import Observation, action_of
from semconv.dialects.reading.values import mapping, structured, text
from semconv.model import AgentSource, AttributeValue, Span

NAME: Final = "langfuse"

SCOPE: Final = "langfuse-sdk"
OBSERVATION_TYPE: Final = "langfuse.observation.type"
OBSERVATION_INPUT: Final = "langfuse.observation.input"
OBSERVATION_OUTPUT: Final = "langfuse.observation.output"
LEVEL: Final = "langfuse.observation.level"
STATUS_MESSAGE: Final = "langfuse.observation.status_message"
METADATA: Final = "langfuse.observation.metadata."
CALL_ID: Final = "langfuse.observation.metadata.tool_call_id"
TOOL_COLOR: Final = "langfuse.observation.metadata.color"
"""A console colour, which langchain gives to its tools only."""

_KINDS: Final[Mapping[str, ActionKind]] = {
    "generation": ActionKind.LLM,
    "completion": ActionKind.LLM,
    "tool": ActionKind.TOOL,
    "retriever": ActionKind.TOOL,
    "agent": ActionKind.AGENT,
    "guardrail": ActionKind.GUARDRAIL,
    "evaluator": ActionKind.EVALUATION,
}
"""Observation types; any other (span, chain, embedding, event) is a container."""
_TOOL_MESSAGE: Final = '{"role": "tool", "content": {"type": "function"'
_metadata: Final = prefixed(METADATA)


def read_langfuse(span: Span, surroundings: Surroundings) -> Action | None:
    """Read a Langfuse observation."""
    if not _is_observation(span):
        return None
    kind = _kind_of(span, surroundings)
    failed = span.attributes.get(LEVEL) == "ERROR"
    return action_of(
        span,
        Observation(
            dialect=NAME,
            kind=kind,
            agent=_agent_of(span, kind, surroundings),
            given=_without_tools(span.attributes.get(OBSERVATION_INPUT)),
            got=span.attributes.get(OBSERVATION_OUTPUT),
            tool=span.name,
            function=span.name if kind in FUNCTION_KINDS else "",
            call_id=(text(span.attributes, CALL_ID) or "").strip('"'),
            failed=failed,
            error=(text(span.attributes, STATUS_MESSAGE) or "") if failed else "",
        ),
    )


def _without_tools(given: AttributeValue) -> Any:
    """Return the input without the tool definitions that the langchain callback appends as messages."""
    if not isinstance(given, str) or _TOOL_MESSAGE not in given:
        return given
    messages = structured(given)
    if not isinstance(messages, list):
        return given
    return [message for message in messages if "function" not in mapping(mapping(message).get("content"))]


def _kind_of(span: Span, surroundings: Surroundings) -> ActionKind:
    kind = _KINDS.get(text(span.attributes, OBSERVATION_TYPE) or "")
    got = span.attributes.get(OBSERVATION_OUTPUT)
    if kind is ActionKind.AGENT and is_function(span, _metadata(span), surroundings, got=got):
        return ActionKind.CONTAINER
    if kind is not None:
        return kind
    if CALL_ID in span.attributes or TOOL_COLOR in span.attributes:
        return ActionKind.TOOL
    above = surroundings.parent(span)
    is_top = above is None or above.scope.name != span.scope.name
    return ActionKind.WORKFLOW if is_top else ActionKind.CONTAINER


def _agent_of(span: Span, kind: ActionKind, surroundings: Surroundings) -> Found:
    found = graph_agent(span, surroundings, _metadata)
    if found.name is None and kind is ActionKind.AGENT and span.name not in NAMELESS_GRAPHS:
        return Found(span.name, AgentSource.SPAN_NAME)
    return found


def _is_observation(span: Span) -> bool:
    return span.scope.name == SCOPE or OBSERVATION_TYPE in span.attributes


LANGFUSE: Final = Dialect(name=NAME, read=read_langfuse, scopes=(SCOPE,), keys=frozenset({OBSERVATION_TYPE}))
