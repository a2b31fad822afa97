"""OpenLIT's additions to the ``gen_ai`` conventions.

Source: openlit 1.45, ``instrumentation/openai_agents/utils.py`` and ``instrumentation/crewai``, seen with
openai-agents 0.20 and crewai 1.15. It uses ``invoke_agent`` for several things: agents; turns and the
methods of CrewAI's flows (including its agents' own loop), which have no name; handoffs, which have the
target's name and ``gen_ai.agent.source``; guardrails, with ``gen_ai.guardrail.triggered``. An Agno team's
run, and so its leader's, is a workflow. Its langgraph instrumentation writes the agents, its langchain
instrumentation the calls, which are not below the agents.
"""

from __future__ import annotations

from typing import Final

from semconv.attributes import GEN_AI_AGENT_NAME, GEN_AI_OPERATION_NAME
from semconv.dialects.conventions.otel_genai import read_operation, read_otel_genai
from semconv.dialects.reading.action import Action, ActionKind, Dialect, Surroundings
from semconv.dialects.reading.guardrails import GUARDRAIL_TRIGGERED, as_guardrail
from semconv.dialects.reading.values import text
from semconv.model import AgentSource, Span
from semconv.record import replace

NAME: Final = "openlit"

SCOPE: Final = "openlit."
AGENT_SOURCE: Final = "gen_ai.agent.source"

TEAM_MEMBERS: Final = "gen_ai.agno.team.agents"
WORKFLOW_NAME: Final = "gen_ai.workflow.name"

_CREWAI: Final = "openlit.instrumentation.crewai"
_LANGGRAPH: Final = "openlit.instrumentation.langgraph"


def read_openlit(span: Span, surroundings: Surroundings) -> Action | None:
    """Read spans whose operation has another meaning in OpenLIT; leave others to the ``gen_ai`` dialect."""
    if not span.scope.name.startswith(SCOPE):
        return None
    match span.attributes.get(GEN_AI_OPERATION_NAME):
        case "invoke_agent":
            return _read_agent(span, surroundings)
        case "invoke_workflow" if TEAM_MEMBERS in span.attributes:
            leader = text(span.attributes, WORKFLOW_NAME)
            return replace(read_operation(span, ActionKind.AGENT), agent=leader)
        case "execute_tool" if span.scope.name == _CREWAI and surroundings.children(span):
            return _read_coworker(span)
    return None


def _read_coworker(span: Span) -> Action | None:
    """Read a delegation as the coworker's run: the spans below it belong to the nameless coworker."""
    action = read_operation(span, ActionKind.TOOL)
    if action.target is None:
        return None
    return replace(
        action,
        kind=ActionKind.AGENT,
        agent=action.target,
        agent_source=AgentSource.METADATA,
        tool=None,
        target=None,
    )


def _read_agent(span: Span, surroundings: Surroundings) -> Action | None:
    source, name = text(span.attributes, AGENT_SOURCE), text(span.attributes, GEN_AI_AGENT_NAME)
    if source is not None:
        return _handoff(source, name)
    if name is None:
        return Action(dialect=NAME, kind=ActionKind.CONTAINER)
    action = read_otel_genai(span, surroundings)
    if action is None or GUARDRAIL_TRIGGERED not in span.attributes:
        return action and replace(action, has_calls_beside=span.scope.name == _LANGGRAPH)
    tripped = span.attributes[GUARDRAIL_TRIGGERED] is True
    return as_guardrail(replace(action, agent=None), name=name, tripped=tripped)


def _handoff(source: str, target: str | None) -> Action:
    return Action(
        dialect=NAME,
        kind=ActionKind.HANDOFF,
        agent=source,
        agent_source=AgentSource.HANDOFF,
        target=target,
        input=source,
        output=target or "",
    )


OPENLIT: Final = Dialect(name=NAME, read=read_openlit, scopes=(SCOPE,))
