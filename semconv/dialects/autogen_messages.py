"""What AutoGen's agents told each other, out of the spans of their message runtime.

Source: ``autogen_core/_telemetry`` and ``autogen_agentchat/teams/_group_chat/_events.py``, 0.5 to
0.7. Who publishes leaves a span ``autogen create <topic>`` without a text below the agent that
speaks; who receives, a span ``autogen process <agent>`` with the text in ``message``, in a trace of
its own, that links to the ``create``. A container of an agent keeps what it hears until its turn.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakKeyDictionary

from semconv.attributes import GEN_AI_OPERATION_NAME
from semconv.dialects.reading import mapping, text, words
from semconv.dialects.surroundings import Key, Surroundings, key_of, moment
from semconv.model import Span

RUNTIME_SCOPE: Final = "autogen "
"""Begins the scopes of the runtimes, ``autogen SingleThreadedAgentRuntime``."""
CORE_SCOPE: Final = "autogen-core"
MESSAGE: Final = "message"
RECIPIENT: Final = "recipient_agent_type"
MESSAGE_TYPE: Final = "messaging.message.type"
STARTING: Final = "GroupChatStart"

_PROCESS: Final = "autogen process "
_CREATE: Final = "autogen create "
_NOT_OWN_WORDS: Final = frozenset({"HandoffMessage", "ToolCallSummaryMessage"})
"""Final messages of a turn that no model wrote: a transfer's note, a tool's result."""
_EVENTS: Final = frozenset(
    {"ToolCallRequestEvent", "ToolCallExecutionEvent", "ThoughtEvent", "MemoryQueryEvent"}
    | {"ModelClientStreamingChunkEvent", "CodeGenerationEvent", "CodeExecutionEvent"}
    | {"UserInputRequestedEvent", "SelectSpeakerEvent", "SelectorEvent"}
)
"""What happens inside a turn; all else is said to the others."""


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A tool's call and its result, as the agent reported them."""

    arguments: str = ""
    result: str = ""
    failed: bool = False


@dataclass(slots=True)
class Turn:
    """What one agent's span heard and said."""

    heard: list[str] = field(default_factory=list)
    said: list[Mapping[str, Any]] = field(default_factory=list)
    """Messages of agentchat, each once."""

    @property
    def _last(self) -> Mapping[str, Any]:
        nothing: Mapping[str, Any] = {}
        return next((each for each in reversed(self.said) if _type(each) not in _EVENTS), nothing)

    @property
    def closing(self) -> str:
        """The last message to the others, in words."""
        return _content(self._last)

    @property
    def own_words(self) -> str:
        """The closing message, where it is the agent's own."""
        return "" if _type(self._last) in _NOT_OWN_WORDS else _content(self._last)

    @property
    def asks_a_person(self) -> bool:
        """Whether the turn waited for somebody's input."""
        return any(_type(each) == "UserInputRequestedEvent" for each in self.said)

    def tool_use(self, call_id: str) -> ToolUse:
        """Return what the agent reported of a call."""
        found = ToolUse()
        for message in self.said:
            for part in _parts(message):
                if part.get("id") == call_id and "arguments" in part:
                    found = ToolUse(words(part["arguments"]), found.result, found.failed)
                elif part.get("call_id") == call_id:
                    failed = part.get("is_error") is True
                    found = ToolUse(found.arguments, words(part.get("content")), failed)
        return found


class Talk:
    """The turns of a run, by the span that took them."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._turns: defaultdict[Key, Turn] = defaultdict(Turn)
        self._speakers: dict[Key, Key | None] = {}
        received: list[Span] = []
        for span in surroundings.walk():
            parent = surroundings.parent(span)
            inherited = self._speakers.get(key_of(parent)) if parent is not None else None
            self._speakers[key_of(span)] = key_of(span) if takes_turns(span) else inherited
            if is_speech(span) and inherited is not None:
                self._note(self._turns[inherited], span, surroundings)
            if is_processing(span):
                received.append(span)
        self._hear(sorted(received, key=moment), surroundings)

    def turn(self, span: Span) -> Turn:
        """Return the turn of the nearest agent at or above ``span``; an empty one where there is none."""
        speaker = self._speakers.get(key_of(span))
        return self._turns.get(speaker, Turn()) if speaker is not None else Turn()

    def _note(self, turn: Turn, speech: Span, surroundings: Surroundings) -> None:
        known = {words(message.get("id")) for message in turn.said if message.get("id")}
        received = (surroundings.once(payload_of, span) for span in surroundings.linking(speech))
        payload = next((found for found in received if found), {})
        for message in _messages(payload):
            if words(message.get("id")) not in known:
                turn.said.append(message)

    def _hear(self, received: Iterable[Span], surroundings: Surroundings) -> None:
        waiting: defaultdict[str, list[str]] = defaultdict(list)
        for span in received:
            recipient = text(span.attributes, RECIPIENT) or span.name
            messages = _messages(surroundings.once(payload_of, span))
            told = [_content(each) for each in messages if _type(each) not in _EVENTS]
            waiting[recipient].extend(filter(None, told))
            turn = next(
                (self._turns[key_of(each)] for each in surroundings.children(span) if takes_turns(each)),
                self._turns.get(key_of(span)),
            )
            if turn is not None:
                turn.heard.extend(waiting.pop(recipient, ()))


_TALKS: WeakKeyDictionary[Surroundings, Talk] = WeakKeyDictionary()


def talk_in(surroundings: Surroundings) -> Talk:
    """Return what was said in a run; read once a run."""
    talk = _TALKS.get(surroundings)
    if talk is None:
        talk = _TALKS[surroundings] = Talk(surroundings)
    return talk


def is_processing(span: Span) -> bool:
    """Say whether ``span`` is an agent's receiving a message."""
    return span.scope.name.startswith(RUNTIME_SCOPE) and span.name.startswith(_PROCESS)


def is_speech(span: Span) -> bool:
    """Say whether ``span`` makes a message of whoever is above it; what starts a team is its asker's."""
    return span.name.startswith(_CREATE) and span.attributes.get(MESSAGE_TYPE) != STARTING


def takes_turns(span: Span) -> bool:
    """Say whether messages created below ``span`` are said by it."""
    if span.scope.name == CORE_SCOPE:
        return span.attributes.get(GEN_AI_OPERATION_NAME) == "invoke_agent"
    return is_processing(span)


def payload_of(span: Span) -> Mapping[str, Any]:
    """Return the message that a span processes; empty where it has none."""
    return mapping(span.attributes.get(MESSAGE))


def _messages(payload: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return agentchat's messages in a payload: a start, a message, an agent's or a team's response."""
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
