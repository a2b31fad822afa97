"""What is OpenLIT's own beside the official conventions.

Source: openlit 1.45, ``instrumentation/openai_agents/utils.py`` and ``instrumentation/crewai``, seen from
openai-agents 0.20 and crewai 1.15. It calls everything of an agent's ``invoke_agent``: turns and the
methods of CrewAI's flows (its agents' own loop is one), which have no name; handoffs, which have the name
of the agent that takes over and ``gen_ai.agent.source``; guardrails, with ``gen_ai.guardrail.triggered``.
An Agno team's run, and so its leader's, is a workflow. Its instrumentation of langgraph writes the agents,
that of langchain the calls, which do not stand below them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from semconv.attributes import GEN_AI_AGENT_NAME, GEN_AI_OPERATION_NAME
from semconv.dialects.action import Action, ActionKind, Dialect
from semconv.dialects.guardrails import GUARDRAIL_TRIGGERED, as_guardrail
from semconv.dialects.otel_genai import read_operation, read_otel_genai
from semconv.dialects.reading import text
from semconv.dialects.support import Support, gives, lacks, partly
from semconv.dialects.surroundings import Surroundings
from semconv.model import AgentSource, Span

NAME: Final = "openlit"

SCOPE: Final = "openlit."
AGENT_SOURCE: Final = "gen_ai.agent.source"

TEAM_MEMBERS: Final = "gen_ai.agno.team.agents"
WORKFLOW_NAME: Final = "gen_ai.workflow.name"

_CREWAI: Final = "openlit.instrumentation.crewai"
_LANGGRAPH: Final = "openlit.instrumentation.langgraph"


def read_openlit(span: Span, surroundings: Surroundings) -> Action | None:
    """Read what OpenLIT calls an agent and is none, and the reverse; the rest is the conventions'."""
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
    """Read a delegation: what is below is the coworker's, whose own span has no name."""
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


OPENLIT: Final = Dialect(
    name=NAME,
    read=read_openlit,
    support=(
        Support(
            framework="openai-agents",
            instrumentation="openlit 1.45",
            source="recorded",
            agent=gives("`gen_ai.agent.name` on agents; calls below inherit it"),
            text=gives("`gen_ai.{input,output}.messages`, of the client's instrumentation"),
            tools=gives("arguments and result, no call id"),
            handoff=gives("`gen_ai.agent.source` on the agent that takes over"),
            task=partly("not on the root: the first and the last model call"),
            errors=gives("status and exception"),
            scopes=("openlit.instrumentation.openai_agents",),
        ),
        Support(
            framework="crewai",
            instrumentation="openlit 1.45",
            source="recorded",
            agent=gives("`gen_ai.agent.name` on agents; calls below inherit it"),
            text=gives("`gen_ai.{input,output}.messages`, of the client's instrumentation"),
            tools=lacks("no spans of crewai 1.15's tools; the next model call has heard what they returned"),
            handoff=lacks("a delegation is a tool, and has no span"),
            task=partly("not on the root: the first and the last model call"),
            errors=gives("status and exception"),
            scopes=("openlit.instrumentation.crewai",),
        ),
        Support(
            framework="agno",
            instrumentation="openlit 1.45",
            source="recorded",
            agent=gives("`gen_ai.agent.name` on agents, a team's by `gen_ai.workflow.name`"),
            text=gives("`gen_ai.{input,output}.messages`, of the client's instrumentation"),
            tools=gives("arguments, result and call id"),
            handoff=partly("`delegate_task_to_member`; the member's run stands beside the call"),
            task=gives("the root's messages"),
            errors=gives("status and exception"),
            scopes=("openlit.instrumentation.agno",),
        ),
    ),
)
