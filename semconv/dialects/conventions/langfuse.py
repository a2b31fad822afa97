"""Langfuse's SDK from version 3 on, whose spans are OpenTelemetry's.

Source: langfuse 3.1 to 5.0, ``langfuse/_client/attributes.py`` and ``langfuse/langchain/CallbackHandler.py``
(2025-2026), seen from its decorator, and from langgraph 0.6 and 1.2. Until 3.2 there were but two types,
``span`` and ``generation``: a tool of langchain's is then told by what langchain adds to its metadata.
The SDK adds ``langfuse.trace.*`` to spans of other instrumentations too, so only its own scope or
its type of observation gives a span to this dialect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from semconv.dialects.action import Action, ActionKind, Dialect
from semconv.dialects.function_names import function_agent
from semconv.dialects.langgraph import NAMELESS_GRAPHS, Found, graph_agent, is_function, prefixed
from semconv.dialects.observations import Observation, action_of
from semconv.dialects.reading import mapping, structured, text
from semconv.dialects.support import Support, gives, lacks, partly
from semconv.dialects.surroundings import Surroundings
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
"""langchain gives its tools, and nothing else, a colour for the console."""

_KINDS: Final[Mapping[str, ActionKind]] = {
    "generation": ActionKind.LLM,
    "completion": ActionKind.LLM,
    "tool": ActionKind.TOOL,
    "retriever": ActionKind.TOOL,
    "agent": ActionKind.AGENT,
    "guardrail": ActionKind.GUARDRAIL,
    "evaluator": ActionKind.EVALUATION,
}
"""Types of observation; any other (span, chain, embedding, event) is a container."""
_LEAVES: Final = frozenset({ActionKind.LLM, ActionKind.TOOL})
_TOOL_MESSAGE: Final = '{"role": "tool", "content": {"type": "function"'
_metadata: Final = prefixed(METADATA)


def read_langfuse(span: Span, surroundings: Surroundings) -> Action | None:
    """Read an observation."""
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
            call_id=(text(span.attributes, CALL_ID) or "").strip('"'),
            failed=failed,
            error=(text(span.attributes, STATUS_MESSAGE) or "") if failed else "",
        ),
    )


def _without_tools(given: AttributeValue) -> Any:
    """Return the input without the tool definitions that its langchain callback appends as messages."""
    if not isinstance(given, str) or _TOOL_MESSAGE not in given:
        return given
    messages = structured(given)
    if not isinstance(messages, list):
        return given
    return [each for each in messages if "function" not in mapping(mapping(each).get("content"))]


def _kind_of(span: Span, surroundings: Surroundings) -> ActionKind:
    kind = _KINDS.get(text(span.attributes, OBSERVATION_TYPE) or "")
    if kind is ActionKind.AGENT and is_function(span, _metadata(span), surroundings):
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
    if found.name is None and kind in _LEAVES:
        return function_agent(span, surroundings, is_traced=_is_observation, is_agent=_is_agents)
    return found


def _is_observation(span: Span) -> bool:
    return span.scope.name == SCOPE or OBSERVATION_TYPE in span.attributes


def _is_agents(span: Span) -> bool:
    return span.attributes.get(OBSERVATION_TYPE) == "agent"


LANGFUSE: Final = Dialect(
    name=NAME,
    read=read_langfuse,
    support=(
        Support(
            framework="functions under `@observe`",
            instrumentation="langfuse 5.0",
            source="recorded",
            agent=gives("the name of the observation of type `agent`; calls below inherit it"),
            text=gives("`langfuse.observation.input`, `.output`"),
            tools=gives("observations of type `tool`"),
            handoff=lacks(
                "an agent's observation encloses what it does; transfers are told from tools' names"
            ),
            task=gives("the root observation"),
            errors=gives("`langfuse.observation.level`, `.status_message`"),
            scopes=(SCOPE,),
            recordings=("langfuse-sdk",),
            switches=('@observe(as_type="agent")',),
        ),
        Support(
            framework="langgraph, langchain",
            instrumentation="langfuse 3.1 to 5.0, `CallbackHandler`",
            source="recorded",
            agent=gives("langgraph's metadata: agent, node"),
            text=gives("`langfuse.observation.input`, `.output`"),
            tools=gives("with the call's id"),
            handoff=partly("transfer tools; a graph's own edges are no steps"),
            task=gives("the root observation"),
            errors=gives("`langfuse.observation.level`, `.status_message`"),
            scopes=(SCOPE,),
        ),
    ),
)
