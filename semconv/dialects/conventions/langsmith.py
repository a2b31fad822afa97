"""LangSmith's OpenTelemetry export: of langchain and langgraph, ``@traceable``, its integrations.

Source: langsmith 0.3 to 0.15, ``langsmith/_internal/otel/_otel_exporter.py`` (2025-2026), seen from
langgraph 0.6 and 1.2, and from openai-agents 0.24. Input and output stand in ``gen_ai.prompt`` and
``gen_ai.completion`` as JSON of the run's own; langgraph's metadata under ``langsmith.metadata.``.
Of openai-agents it loses a handoff's target; the next agent tells.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from semconv.attributes import GEN_AI_TOOL_CALL_ID, GEN_AI_TOOL_NAME
from semconv.dialects.action import Action, ActionKind, Dialect
from semconv.dialects.function_names import function_agent
from semconv.dialects.guardrails import TRIGGERED
from semconv.dialects.langgraph import Found, graph_agent, prefixed
from semconv.dialects.observations import Observation, action_of, handoff_of
from semconv.dialects.reading import EXCEPTION_EVENT, error_of, mapping, text
from semconv.dialects.support import Support, gives, partly
from semconv.dialects.surroundings import Surroundings
from semconv.model import AgentSource, AttributeValue, Span

NAME: Final = "langsmith"

SCOPE: Final = "langsmith"
SPAN_KIND: Final = "langsmith.span.kind"
METADATA: Final = "langsmith.metadata."
INTEGRATION: Final = "langsmith.metadata.ls_integration"
OPENAI_TRACE: Final = "langsmith.metadata.openai_trace_id"
PROMPT: Final = "gen_ai.prompt"
COMPLETION: Final = "gen_ai.completion"

_KINDS: Final[Mapping[str, ActionKind]] = {
    "llm": ActionKind.LLM,
    "tool": ActionKind.TOOL,
    "retriever": ActionKind.TOOL,
    "agent": ActionKind.AGENT,
}
"""Run types by name; any other (chain, prompt, parser, embedding) is a container."""
_LEAVES: Final = frozenset({ActionKind.LLM, ActionKind.TOOL})
_OPENAI_AGENTS: Final = "openai-agents-sdk"
_HANDOFF: Final = "Handoff"
_UNNAMED: Final = frozenset({"Span", "Response", "Generation", _HANDOFF})
"""What its integration of openai-agents calls spans that have no name: turns, model calls."""
_metadata: Final = prefixed(METADATA)


def read_langsmith(span: Span, surroundings: Surroundings) -> Action | None:
    """Read a span that LangSmith exports."""
    if not _is_run(span):
        return None
    kind = _kind_of(span, surroundings)
    if kind is ActionKind.HANDOFF:
        return handoff_of(span, NAME, mapping(span.attributes.get(PROMPT)))
    given, got = _decoded(span.attributes.get(PROMPT)), _decoded(span.attributes.get(COMPLETION))
    return action_of(
        span,
        Observation(
            dialect=NAME,
            kind=kind,
            agent=_agent_of(span, kind, surroundings),
            given=None if given == "{}" else given,
            got=None if got == "{}" else got,
            tool=text(span.attributes, GEN_AI_TOOL_NAME) or "",
            call_id=text(span.attributes, GEN_AI_TOOL_CALL_ID) or "",
            failed=any(event.name == EXCEPTION_EVENT for event in span.events),  # its status may be OK
            error=error_of(span).removeprefix("Exception: "),
        ),
    )


def _decoded(value: AttributeValue) -> AttributeValue:
    """Return the text of what versions before 0.4 write as bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _kind_of(span: Span, surroundings: Surroundings) -> ActionKind:
    above = surroundings.parent(span)
    kind = _KINDS.get(text(span.attributes, SPAN_KIND) or "", ActionKind.CONTAINER)
    if span.attributes.get(INTEGRATION) == _OPENAI_AGENTS:
        kind = _openai_agents_kind(span, kind, is_inner=above is not None)
    if kind is ActionKind.CONTAINER and above is None and _is_shell(span, surroundings):
        return ActionKind.SETUP
    if kind is ActionKind.CONTAINER and (above is None or above.scope.name != span.scope.name):
        return ActionKind.WORKFLOW
    return kind


def _is_shell(span: Span, surroundings: Surroundings) -> bool:
    """Say whether this is the run that openai-agents' own trace stands for.

    It is posted late, and what it should enclose is exported as a trace of its own, complete.
    """
    is_theirs = span.attributes.get(INTEGRATION) == _OPENAI_AGENTS and OPENAI_TRACE not in span.attributes
    return is_theirs and not surroundings.children(span)


def _openai_agents_kind(span: Span, kind: ActionKind, *, is_inner: bool) -> ActionKind:
    """Tell agents, handoffs and guardrails, which its integration calls chains and tools."""
    if kind is ActionKind.TOOL and mapping(span.attributes.get(COMPLETION)).keys() == {TRIGGERED}:
        return ActionKind.GUARDRAIL
    if kind is not ActionKind.CONTAINER:
        return kind
    if span.name == _HANDOFF:
        return ActionKind.HANDOFF
    is_agent = is_inner and span.name not in _UNNAMED and not mapping(span.attributes.get(PROMPT))
    return ActionKind.AGENT if is_agent else kind


def _agent_of(span: Span, kind: ActionKind, surroundings: Surroundings) -> Found:
    if kind is ActionKind.AGENT:
        return Found(span.name, AgentSource.SPAN_NAME)
    found = graph_agent(span, surroundings, _metadata)
    if found.name is None and kind in _LEAVES and span.attributes.get(INTEGRATION) != _OPENAI_AGENTS:
        return function_agent(span, surroundings, is_traced=_is_run, is_agent=_is_agents)
    return found


def _is_run(span: Span) -> bool:
    return span.scope.name == SCOPE or SPAN_KIND in span.attributes


def _is_agents(span: Span) -> bool:
    return span.attributes.get(SPAN_KIND) == "agent"


LANGSMITH: Final = Dialect(
    name=NAME,
    read=read_langsmith,
    support=(
        Support(
            framework="langgraph, langchain",
            instrumentation="langsmith 0.3 to 0.15 with `LANGSMITH_OTEL_ENABLED`",
            source="recorded",
            agent=gives("langgraph's metadata: agent, node"),
            text=gives("`gen_ai.prompt`, `gen_ai.completion` as JSON"),
            tools=gives("with the call's id"),
            handoff=partly("transfer tools; a graph's own edges are no steps"),
            task=gives("the root run"),
            errors=gives("`exception` event; the status may be OK"),
            scopes=(SCOPE,),
            switches=("LANGSMITH_HIDE_INPUTS=false", "LANGSMITH_HIDE_OUTPUTS=false"),
        ),
        Support(
            framework="openai-agents",
            instrumentation="langsmith 0.15, `OpenAIAgentsTracingProcessor`",
            source="recorded",
            agent=gives("the name of an agent's run"),
            text=gives("`gen_ai.prompt`, `gen_ai.completion` as JSON"),
            tools=gives("without the call's id"),
            handoff=partly("the target is lost: the call that asked, and the next agent, tell"),
            task=partly("first and last model call; nothing on the root"),
            errors=gives("`exception` event; the status may be OK"),
            scopes=(SCOPE,),
        ),
    ),
)
