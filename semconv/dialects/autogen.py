"""AutoGen's own spans: ``autogen-core`` (agents and tools) and its message runtime.

Source: ``autogen_core/_telemetry`` of 0.7.5, recorded; 0.5 (no agent spans, tools under the scope
``base_tool``) recorded too. No model call has a span, so an agent's turn stands for what it said
beside its tools. A run of a team is dozens of traces that ``collector_processor.runs`` joins by
their links; its texts are in the runtime's messages (``autogen_messages``).

What is a step: a turn, unless tools show all it did; a tool; a transfer. The process spans of
managers and of containers are none, but a manager that speaks under its own name (Magentic-One's
orchestrator) is an agent, and so is every agent of plain autogen-core.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from semconv.attributes import GEN_AI_OPERATION_NAME
from semconv.dialects.action import Action, ActionKind, Dialect
from semconv.dialects.autogen_messages import (
    CORE_SCOPE,
    MESSAGE,
    MESSAGE_TYPE,
    RECIPIENT,
    RUNTIME_SCOPE,
    STARTING,
    is_processing,
    payload_of,
    takes_turns,
    talk_in,
)
from semconv.dialects.otel_genai import KINDS, read_operation
from semconv.dialects.reading import error_of, is_failed, text, words
from semconv.dialects.support import Support, gives, partly
from semconv.dialects.surroundings import Surroundings
from semconv.dialects.transfers import transfer_target
from semconv.model import AgentSource, Span

NAME: Final = "autogen"

OLD_TOOL_SCOPE: Final = "base_tool"
OLD_TOOL_NAME: Final = "tool_name"
OLD_TOOL_ARGUMENTS: Final = "tool_args"

_UUID: Final = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_OF_A_TEAM: Final = re.compile(rf"^(?P<name>.+)_{_UUID}$")
"""A type that agentchat registers: the participant's or manager's name, and the team's uuid."""
_DESTINATION: Final = re.compile(r"^autogen process (?P<type>.+?)\.\(")
_ACK: Final = "autogen ack"
_NO_MESSAGE: Final = frozenset({"", "No Message", "Message could not be serialized"})
"""What stands in ``message`` where there is none to show."""
_SPEAKING: Final = frozenset({"GroupChatAgentResponse", "GroupChatError"})
"""Message types that end an agent's turn; a team's response ends what its own agents' turns show."""


def read_autogen(span: Span, surroundings: Surroundings) -> Action | None:
    """Read a span of one of AutoGen's own scopes."""
    if span.scope.name == CORE_SCOPE:
        return _read_core(span, surroundings)
    if span.scope.name == OLD_TOOL_SCOPE and OLD_TOOL_NAME in span.attributes:
        return _read_old_tool(span)
    if not span.scope.name.startswith(RUNTIME_SCOPE):
        return None
    if is_processing(span):
        return _read_processing(span, surroundings)
    return _read_delivery(span, surroundings)


def _read_core(span: Span, surroundings: Surroundings) -> Action | None:
    operation = text(span.attributes, GEN_AI_OPERATION_NAME)
    if operation is None:
        return None
    action = read_operation(span, KINDS.get(operation, ActionKind.CONTAINER), NAME)
    match action.kind:
        case ActionKind.AGENT:
            return _with_turn(action, span, surroundings)
        case ActionKind.TOOL | ActionKind.HANDOFF:
            if _runs_a_team(span, surroundings) and not action.failed:
                return replace(action, kind=ActionKind.CONTAINER)
            used = talk_in(surroundings).turn(span).tool_use(action.call_id)
            return replace(
                action,
                input=action.input or used.arguments,
                output=action.output or used.result,
                failed=action.failed or used.failed,
                error=action.error or (used.result if used.failed else ""),
            )
        case _:
            return action


def _runs_a_team(span: Span, surroundings: Surroundings) -> bool:
    """Say whether a tool has a team work, in traces of its own."""
    return any(child.attributes.get(MESSAGE_TYPE) == STARTING for child in surroundings.children(span))


def _with_turn(action: Action, span: Span, surroundings: Surroundings) -> Action:
    turn = talk_in(surroundings).turn(span)
    return replace(
        action,
        kind=ActionKind.HUMAN if turn.asks_a_person else action.kind,
        input="\n".join(turn.heard),
        output=turn.own_words,
        answer=turn.closing,
    )


def _read_old_tool(span: Span) -> Action:
    name, arguments = words(span.attributes[OLD_TOOL_NAME]), text(span.attributes, OLD_TOOL_ARGUMENTS) or ""
    target = transfer_target(name, arguments)
    failed = is_failed(span)
    return Action(
        dialect=NAME,
        kind=ActionKind.TOOL if target is None else ActionKind.HANDOFF,
        tool=name,
        target=target,
        input=arguments,
        failed=failed,
        error=error_of(span) if failed else "",
    )


def _read_processing(span: Span, surroundings: Surroundings) -> Action:
    """Read an agent's receiving a message: its turn, or only how the message reached it."""
    found = _DESTINATION.match(span.name)
    agent_type = text(span.attributes, RECIPIENT) or (found["type"] if found else "")
    of_a_team = _OF_A_TEAM.match(agent_type)
    failed = is_failed(span)
    action = Action(
        dialect=NAME,
        kind=ActionKind.CONTAINER,
        agent=(of_a_team["name"] if of_a_team else agent_type) or None,
        agent_source=AgentSource.SPAN_NAME,
    )
    if of_a_team and not _is_turn(span, surroundings):
        return action
    action = replace(action, kind=ActionKind.AGENT, failed=failed, error=error_of(span) if failed else "")
    if of_a_team:
        return _with_turn(action, span, surroundings)
    reply = _reply_to(span, surroundings)
    return replace(action, input=_shown_message(span), output=reply, answer=reply)


def _reply_to(span: Span, surroundings: Surroundings) -> str:
    """Return what an agent of plain core answered: it is with whoever sent the message."""
    sent = surroundings.parent(span)
    told = () if sent is None else surroundings.linking(sent)
    replies = (_shown_message(each) for each in told if each.name.startswith(_ACK))
    return next(filter(None, replies), "")


def _shown_message(span: Span) -> str:
    message = text(span.attributes, MESSAGE) or ""
    return "" if message in _NO_MESSAGE else message


def _is_turn(span: Span, surroundings: Surroundings) -> bool:
    """Say whether a team's member answers to the others in ``span``, and no agent's span shows it."""
    children = surroundings.children(span)
    return not any(map(takes_turns, children)) and any(
        text(child.attributes, MESSAGE_TYPE) in _SPEAKING for child in children
    )


def _read_delivery(span: Span, surroundings: Surroundings) -> Action:
    """Read how a message is made, sent or acknowledged; the one that starts a team is the run's top."""
    for child in surroundings.children(span):
        started = payload_of(child).get("messages") if span.name.startswith("autogen send ") else None
        if isinstance(started, list):
            asked = [message.get("content") for message in started if isinstance(message, dict)]
            task = "\n".join(filter(None, map(words, asked)))
            return Action(dialect=NAME, kind=ActionKind.WORKFLOW, task=task)
    return Action(dialect=NAME, kind=ActionKind.CONTAINER)


AUTOGEN: Final = Dialect(
    name=NAME,
    read=read_autogen,
    support=(
        Support(
            framework="autogen-agentchat, autogen-core",
            instrumentation="built in, 0.7.5; before 0.7 without texts",
            source="recorded",
            agent=gives("`gen_ai.agent.name` on turns; managers that speak by the message runtime's spans"),
            text=partly("no spans of model calls: a turn's messages, out of the runtime's spans"),
            tools=partly("arguments and result out of the runtime's messages; an agent alone has no runtime"),
            handoff=gives("tool `transfer_to_X`"),
            task=partly("the runtime's first message; of an agent alone nowhere"),
            errors=gives("status and exception"),
            recordings=("autogen-native", "autogen_native"),
        ),
    ),
)
