"""AutoGen's own spans: ``autogen-core`` (agents and tools) and its message runtime.

Source: ``autogen_core/_telemetry`` of 0.7.5, recorded; 0.5 (no agent spans, tools under the scope
``base_tool``), recorded. Model calls have no spans, so an agent's turn stands for them. A team's run is
dozens of traces that ``collector_processor.rebuild.runs`` joins by their links; its texts are in the
runtime's messages.

Steps are turns (unless tools show all they did), tools and transfers. The process spans of managers and
containers are not steps, but a manager that speaks under its own name (Magentic-One's orchestrator) is an
agent, and so is every agent of plain autogen-core.

Messages. Source: also ``autogen_agentchat/teams/_group_chat/_events.py``, 0.5 to 0.7. Publishing leaves a
span ``autogen create <topic>`` without text, below the speaking agent. Each receipt leaves a span
``autogen process <agent>`` with the text in ``message``, in a trace of its own that links to the ``create``.
An agent's container keeps what it receives until the agent's turn.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from semconv.attributes import GEN_AI_AGENT_ID, GEN_AI_OPERATION_NAME
from semconv.dialects.conventions.otel_genai import KINDS, read_operation
from semconv.dialects.reading.action import Action, ActionKind, Dialect, Key, Surroundings, key_of, moment
from semconv.dialects.reading.tools import transfer_target
from semconv.dialects.reading.values import error_of, is_failed, mapping, text, words
from semconv.model import AgentSource, Span
from semconv.record import replace

RUNTIME_SCOPE: Final = "autogen "
"""Prefix of the runtimes' scopes: ``autogen SingleThreadedAgentRuntime``."""
CORE_SCOPE: Final = "autogen-core"
MESSAGE: Final = "message"
RECIPIENT: Final = "recipient_agent_type"
MESSAGE_TYPE: Final = "messaging.message.type"
STARTING: Final = "GroupChatStart"

_PROCESS: Final = "autogen process "
_CREATE: Final = "autogen create "
_NOT_OWN_WORDS: Final = frozenset({"HandoffMessage", "ToolCallSummaryMessage"})
"""Final messages of a turn not written by a model: a transfer's note, a tool's result."""
_EVENTS: Final = frozenset(
    {"ToolCallRequestEvent", "ToolCallExecutionEvent", "ThoughtEvent", "MemoryQueryEvent"}
    | {"ModelClientStreamingChunkEvent", "CodeGenerationEvent", "CodeExecutionEvent"}
    | {"UserInputRequestedEvent", "SelectSpeakerEvent", "SelectorEvent"}
)
"""Message types internal to a turn; all others are addressed to other agents."""


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A tool's call and its result, as the agent reported them."""

    arguments: str = ""
    result: str = ""
    failed: bool = False


@dataclass(slots=True)
class Turn:
    """Messages received and sent within one agent's span."""

    received: list[str] = field(default_factory=list)
    sent: list[Mapping[str, Any]] = field(default_factory=list)
    """agentchat's messages, each once."""

    @property
    def _last(self) -> Mapping[str, Any]:
        nothing: Mapping[str, Any] = {}
        return next((each for each in reversed(self.sent) if _type(each) not in _EVENTS), nothing)

    @property
    def closing(self) -> str:
        """Text of the last message to the other agents."""
        return _content(self._last)

    @property
    def own_words(self) -> str:
        """The closing message, if the agent itself wrote it."""
        return "" if _type(self._last) in _NOT_OWN_WORDS else _content(self._last)

    @property
    def asks_a_person(self) -> bool:
        """Whether the turn waited for input from a person."""
        return any(_type(each) == "UserInputRequestedEvent" for each in self.sent)

    def tool_use(self, call_id: str) -> ToolUse:
        """Return the agent's report of a call."""
        tool_use = ToolUse()
        for message in self.sent:
            for part in _parts(message):
                if part.get("id") == call_id and "arguments" in part:
                    tool_use = ToolUse(words(part["arguments"]), tool_use.result, tool_use.failed)
                elif part.get("call_id") == call_id:
                    failed = part.get("is_error") is True
                    tool_use = ToolUse(tool_use.arguments, words(part.get("content")), failed)
        return tool_use


class Talk:
    """The turns of a run, by the spans that took them."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._turns: defaultdict[Key, Turn] = defaultdict(Turn)
        self._speakers: dict[Key, Key | None] = {}
        received: list[Span] = []
        for span in surroundings.walked:
            parent = surroundings.parent(span)
            inherited = self._speakers.get(key_of(parent)) if parent is not None else None
            self._speakers[key_of(span)] = key_of(span) if takes_turns(span) else inherited
            if is_speech(span) and inherited is not None:
                self._note(self._turns[inherited], span, surroundings)
            if is_processing(span):
                received.append(span)
        self._hear(sorted(received, key=moment), surroundings)

    def turn(self, span: Span) -> Turn:
        """Return the turn of the nearest agent at or above ``span``; an empty turn if there is none."""
        speaker = self._speakers.get(key_of(span))
        return self._turns.get(speaker, Turn()) if speaker is not None else Turn()

    def _note(self, turn: Turn, speech: Span, surroundings: Surroundings) -> None:
        known = {words(message.get("id")) for message in turn.sent if message.get("id")}
        received = (surroundings.once(payload_of, span) for span in surroundings.linking(speech))
        payload = next((found for found in received if found), {})
        for message in _messages(payload):
            if words(message.get("id")) not in known:
                turn.sent.append(message)

    def _hear(self, received: Iterable[Span], surroundings: Surroundings) -> None:
        waiting: defaultdict[str, list[str]] = defaultdict(list)
        for span in received:
            recipient = text(span.attributes, RECIPIENT) or span.name
            messages = _messages(surroundings.once(payload_of, span))
            contents = [_content(message) for message in messages if _type(message) not in _EVENTS]
            waiting[recipient].extend(filter(None, contents))
            turn = next(
                (self._turns[key_of(each)] for each in surroundings.children(span) if takes_turns(each)),
                self._turns.get(key_of(span)),
            )
            if turn is not None:
                turn.received.extend(waiting.pop(recipient, ()))


def is_processing(span: Span) -> bool:
    """Say whether ``span`` is an agent's receipt of a message."""
    return span.scope.name.startswith(RUNTIME_SCOPE) and span.name.startswith(_PROCESS)


def is_speech(span: Span) -> bool:
    """Say whether ``span`` creates a message of the agent above it.

    The message that starts a team is its caller's and does not count.
    """
    return span.name.startswith(_CREATE) and span.attributes.get(MESSAGE_TYPE) != STARTING


def takes_turns(span: Span) -> bool:
    """Say whether messages created below ``span`` are its own."""
    if span.scope.name == CORE_SCOPE:
        return span.attributes.get(GEN_AI_OPERATION_NAME) == "invoke_agent"
    return is_processing(span)


def payload_of(span: Span) -> Mapping[str, Any]:
    """Return the message that a span processes; empty if there is none."""
    return mapping(span.attributes.get(MESSAGE))


def _messages(payload: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return agentchat's messages in a payload: a start, a message, an agent's or team's response."""
    response = mapping(payload.get("response") or payload.get("agent_response"))
    result = mapping(payload.get("result"))
    found = [
        *_list(payload.get("messages")),
        payload.get("message"),
        *_list(response.get("inner_messages")),
        response.get("chat_message"),
        *_list(result.get("messages")),
    ]
    return [message for message in found if isinstance(message, Mapping)]


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else ()


def _type(message: Mapping[str, Any]) -> str:
    return words(message.get("type"))


def _content(message: Mapping[str, Any]) -> str:
    return words(message.get("content"))


def _parts(message: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    return (part for part in _list(message.get("content")) if isinstance(part, Mapping))


NAME: Final = "autogen"

OLD_TOOL_SCOPE: Final = "base_tool"
OLD_TOOL_NAME: Final = "tool_name"
OLD_TOOL_ARGUMENTS: Final = "tool_args"

_UUID: Final = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_AGENT_ID: Final = re.compile(rf"_(?P<team>{_UUID})/{_UUID}$")
"""AutoGen's agent id, ``<name>_<team uuid>/<run uuid>``; other frameworks' ids outlive the run."""
_OF_A_TEAM: Final = re.compile(rf"^(?P<name>.+)_{_UUID}$")
"""An agent type registered by agentchat: the participant's or manager's name, and the team's uuid."""
_DESTINATION: Final = re.compile(r"^autogen process (?P<type>.+?)\.\(")
_ACK: Final = "autogen ack"
_NO_MESSAGE: Final = frozenset({"", "No Message", "Message could not be serialized"})
"""Values of ``message`` that stand for no message."""
_SPEAKING: Final = frozenset({"GroupChatAgentResponse", "GroupChatError"})
"""Message types that end an agent's turn; a team's response only repeats its agents' turns."""


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
            used = surroundings.once_a_run(Talk).turn(span).tool_use(action.call_id)
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
    """Say whether a tool runs a team, whose spans are in traces of their own."""
    return any(child.attributes.get(MESSAGE_TYPE) == STARTING for child in surroundings.children(span))


def _with_turn(action: Action, span: Span, surroundings: Surroundings) -> Action:
    turn = surroundings.once_a_run(Talk).turn(span)
    return replace(
        action,
        kind=ActionKind.HUMAN if turn.asks_a_person else action.kind,
        input="\n".join(turn.received),
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
    """Read an agent's receipt of a message: its turn, or only the delivery."""
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
    """Return the reply of a plain autogen-core agent, which is recorded at the sender."""
    sent = surroundings.parent(span)
    contents = () if sent is None else surroundings.linking(sent)
    replies = (_shown_message(content) for content in contents if content.name.startswith(_ACK))
    return next(filter(None, replies), "")


def _shown_message(span: Span) -> str:
    message = text(span.attributes, MESSAGE) or ""
    return "" if message in _NO_MESSAGE else message


def _is_turn(span: Span, surroundings: Surroundings) -> bool:
    """Say whether a team member replies in ``span`` and no agent span shows it."""
    children = surroundings.children(span)
    return not any(map(takes_turns, children)) and any(
        text(child.attributes, MESSAGE_TYPE) in _SPEAKING for child in children
    )


def _read_delivery(span: Span, surroundings: Surroundings) -> Action:
    """Read the creation, sending or acknowledgement of a message.

    The message that starts a team is the run's top.
    """
    for child in surroundings.children(span):
        started = payload_of(child).get("messages") if span.name.startswith("autogen send ") else None
        if isinstance(started, list):
            asked = [message.get("content") for message in started if isinstance(message, dict)]
            task = "\n".join(filter(None, map(words, asked)))
            return Action(dialect=NAME, kind=ActionKind.WORKFLOW, task=task)
    return Action(dialect=NAME, kind=ActionKind.CONTAINER)


def team_keys(spans: Iterable[Span]) -> Iterator[str]:
    """Yield the teams in the agent ids of roots: a team's run has traces of its own for each request."""
    for span in spans:
        agent_id = span.attributes.get(GEN_AI_AGENT_ID) if span.parent_id is None else None
        if isinstance(agent_id, str) and (found := _AGENT_ID.search(agent_id)):
            yield f"{NAME}:{found['team']}"


AUTOGEN: Final = Dialect(
    name=NAME,
    read=read_autogen,
    scopes=(CORE_SCOPE, OLD_TOOL_SCOPE, RUNTIME_SCOPE),
    run_keys=team_keys,
    message_scopes=(RUNTIME_SCOPE,),
)
