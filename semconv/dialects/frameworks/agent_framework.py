"""Microsoft's agent-framework: the GenAI conventions for agents, and its own workflow spans.

Source: ``agent_framework/observability.py`` and ``agent_framework_orchestrations`` 1.0 to 1.23; recorded
(handoff, sequential, concurrent, group chat, Magentic-One).

A workflow is ``workflow.run`` with an ``executor.process X`` for every message to an executor, including
broadcasts that only fill its memory: these are not steps, nor are edge groups; ``workflow.build`` is setup.
A transfer has no tool span: the framework intercepts the tool, and the agent's executor then sends a
message with a destination, which is the handoff. A group chat's manager sends such messages too; there the
choice is its model call's answer, so they are not handoffs.
"""

from __future__ import annotations

from typing import Final

from semconv.attributes import GEN_AI_AGENT_NAME, GEN_AI_OPERATION_NAME
from semconv.dialects.conventions.otel_genai import KINDS, read_operation
from semconv.dialects.reading.action import Action, ActionKind, Dialect, Surroundings
from semconv.dialects.reading.values import error_of, is_failed, text
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
    """Read a workflow's own span: an executor is a step only if it fails and no span below shows why."""
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
    """Return the name of an executor's agent; the executor's id if the agent has no name."""
    children = surroundings.children(executor)
    named = (text(child.attributes, GEN_AI_AGENT_NAME) for child in children)
    return next(filter(None, named), text(executor.attributes, EXECUTOR_ID))


AGENT_FRAMEWORK: Final = Dialect(name=NAME, read=read_agent_framework, scopes=(SCOPE,))
