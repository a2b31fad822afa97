"""LangSmith's OpenTelemetry export: langchain, langgraph, ``@traceable`` and its integrations.

Source: langsmith 0.3 to 0.15, ``langsmith/_internal/otel/_otel_exporter.py`` (2025-2026), seen with
langgraph 0.6 and 1.2 and with openai-agents 0.24. Input and output are the run's own JSON in
``gen_ai.prompt`` and ``gen_ai.completion``; langgraph's metadata is under ``langsmith.metadata.``. Handoffs
of openai-agents lose their target; the next agent shows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from semconv.attributes import GEN_AI_TOOL_CALL_ID, GEN_AI_TOOL_NAME
from semconv.dialects.reading.action import FUNCTION_KINDS, Action, ActionKind, Dialect, Surroundings
from semconv.dialects.reading.agent_names import Found, graph_agent, prefixed
from semconv.dialects.reading.guardrails import TRIGGERED
from semconv.dialects.reading.observations import Observation, action_of, handoff_of
from semconv.dialects.reading.values import EXCEPTION_EVENT, error_of, mapping, text
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
"""Run types; any other (chain, prompt, parser, embedding) is a container."""
_OPENAI_AGENTS: Final = "openai-agents-sdk"
_HANDOFF: Final = "Handoff"
_UNNAMED: Final = frozenset({"Span", "Response", "Generation", _HANDOFF})
"""Names that its openai-agents integration gives to unnamed spans: turns, model calls."""
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
            function=_function_of(span, kind),
            given=None if given == "{}" else given,
            got=None if got == "{}" else got,
            tool=text(span.attributes, GEN_AI_TOOL_NAME) or "",
            call_id=text(span.attributes, GEN_AI_TOOL_CALL_ID) or "",
            failed=any(event.name == EXCEPTION_EVENT for event in span.events),  # its status may be OK
            error=error_of(span).removeprefix("Exception: "),
        ),
    )


def _decoded(value: AttributeValue) -> AttributeValue:
    """Return the text of a value; LangSmith before 0.4 writes it as bytes."""
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
    """Say whether this is the empty run that stands for openai-agents' own trace.

    It is posted late; the run it should enclose is exported as a complete trace of its own.
    """
    is_theirs = span.attributes.get(INTEGRATION) == _OPENAI_AGENTS and OPENAI_TRACE not in span.attributes
    return is_theirs and not surroundings.children(span)


def _openai_agents_kind(span: Span, kind: ActionKind, *, is_inner: bool) -> ActionKind:
    """Return the kind of a span that the openai-agents integration exports as a chain or tool."""
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
    return graph_agent(span, surroundings, _metadata)


def _function_of(span: Span, kind: ActionKind) -> str:
    """Return the traced function's name; openai-agents' spans are named after the SDK's own concepts."""
    is_theirs = span.attributes.get(INTEGRATION) == _OPENAI_AGENTS
    return "" if is_theirs or kind not in FUNCTION_KINDS else span.name


def _is_run(span: Span) -> bool:
    return span.scope.name == SCOPE or SPAN_KIND in span.attributes


def workflow_keys(spans: Iterable[Span]) -> Iterator[str]:
    """Yield the workflows of openai-agents: agents called as tools have traces of their own."""
    for span in spans:
        workflow = span.attributes.get(OPENAI_TRACE)
        if isinstance(workflow, str) and workflow:
            yield f"openai:{workflow}"


LANGSMITH: Final = Dialect(
    name=NAME, read=read_langsmith, scopes=(SCOPE,), keys=frozenset({SPAN_KIND}), run_keys=workflow_keys
)
