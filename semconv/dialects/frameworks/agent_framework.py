"""Microsoft's agent-framework: the GenAI conventions for agents, and workflow spans of its own.

Source: ``agent_framework/observability.py`` and ``agent_framework_orchestrations`` 1.0 to 1.23;
recorded (handoff, sequential, concurrent, group chat, Magentic-One).

A workflow is ``workflow.run`` with an ``executor.process X`` for every message that an executor is
given, broadcasts that only fill its memory included: none is a step. Nor are edge groups, and
``workflow.build`` is set-up. A transfer has no tool span: the tool is intercepted, and the agent's
executor then sends a message with a destination, which is the handoff. A group chat's manager sends
such messages too, but its choice is its model call's answer, so there they are no handoff.
"""

from __future__ import annotations

from typing import Final

from semconv.attributes import GEN_AI_AGENT_NAME, GEN_AI_OPERATION_NAME
from semconv.dialects.action import Action, ActionKind, Dialect
from semconv.dialects.otel_genai import KINDS, read_operation
from semconv.dialects.reading import error_of, is_failed, text
from semconv.dialects.support import Support, gives, partly
from semconv.dialects.surroundings import Surroundings
from semconv.model import AgentSource, Span

NAME: Final = "agent_framework"

SCOPE: Final = "agent_framework"
EXECUTOR_ID: Final = "executor.id"
EXECUTOR_TYPE: Final = "executor.type"
MESSAGE_TYPE: Final = "message.type"
DESTINATION: Final = "message.destination_executor_id"

_RUN: Final = "workflow.run"
_BUILD: Final = "workflow.build"
_SEND: Final = "message.send"
_HANDS_OVER: Final = "HandoffAgentExecutor"
_REQUEST: Final = "AgentExecutorRequest"


def read_agent_framework(span: Span, surroundings: Surroundings) -> Action | None:
    """Read a span of the framework's own scope."""
    if span.scope.name != SCOPE:
        return None
    operation = text(span.attributes, GEN_AI_OPERATION_NAME)
    if operation is not None:
        return read_operation(span, KINDS.get(operation, ActionKind.CONTAINER), NAME)
    if span.name == _SEND and (sender := _handing_over(span, surroundings)) is not None:
        return _read_handoff(span, sender, surroundings)
    return _read_workflow(span)


def _read_workflow(span: Span) -> Action:
    """Read what runs agents: an executor is a step only where it fails and nothing in it shows how."""
    failed = is_failed(span)
    error = error_of(span) if failed else ""
    if span.name == _BUILD:
        return Action(dialect=NAME, kind=ActionKind.SETUP)
    if span.name.startswith(_RUN):
        return Action(dialect=NAME, kind=ActionKind.WORKFLOW, failed=failed, error=error)
    executor = text(span.attributes, EXECUTOR_ID)
    if executor is None or not failed:
        return Action(dialect=NAME, kind=ActionKind.CONTAINER)
    return Action(
        dialect=NAME, kind=ActionKind.OTHER, agent=executor, tool=executor, failed=failed, error=error
    )


def _handing_over(span: Span, surroundings: Surroundings) -> Span | None:
    """Return the executor that hands over in ``span``, or ``None``."""
    sender = surroundings.parent(span)
    if sender is None or sender.attributes.get(EXECUTOR_TYPE) != _HANDS_OVER:
        return None
    if span.attributes.get(MESSAGE_TYPE) != _REQUEST or DESTINATION not in span.attributes:
        return None
    return sender


def _read_handoff(span: Span, sender: Span, surroundings: Surroundings) -> Action:
    return Action(
        dialect=NAME,
        kind=ActionKind.HANDOFF,
        agent=_name_of(sender, surroundings),
        agent_source=AgentSource.ANCESTOR,
        target=text(span.attributes, DESTINATION),
    )


def _name_of(executor: Span, surroundings: Surroundings) -> str | None:
    """Return the name of the agent that an executor runs; nameless agents' executors are known by ids."""
    children = surroundings.children(executor)
    named = (text(child.attributes, GEN_AI_AGENT_NAME) for child in children)
    return next(filter(None, named), text(executor.attributes, EXECUTOR_ID))


AGENT_FRAMEWORK: Final = Dialect(
    name=NAME,
    read=read_agent_framework,
    support=(
        Support(
            framework="agent-framework",
            instrumentation="built in, 1.23",
            source="recorded",
            agent=gives("`gen_ai.agent.name` on `invoke_agent`; an executor's id"),
            text=partly("off by default; a call that failed has no answer"),
            tools=partly("arguments and result with content on"),
            handoff=gives("`message.send` with a destination, content on or off"),
            task=partly("not on the root: the first and the last model call, with content on"),
            errors=gives("status and `error.type`"),
            scopes=(SCOPE,),
            recordings=("agent_framework-handoff",),
            switches=("ENABLE_SENSITIVE_DATA=true",),
        ),
    ),
)
