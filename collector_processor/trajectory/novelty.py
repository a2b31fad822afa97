"""What is new in each model call: the conversation repeats with every call, a step must not.

A call is compared with the previous call of the same agent, message by message,
wherever they stand (limits evict from the front); an agent's first call with all
that was heard before by anybody.
The agent's own last words are left out too: they are the previous step's output.
Where limits evicted an output, the next call of the same agent still quotes it, and an agent's last is
its answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from collector_processor.trajectory.acts import Act
from semconv.dialects import ActionKind, Message
from semconv.dialects.conversation import body_of, render
from semconv.model import UNKNOWN_AGENT

_Print: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]
"""A message without its role, which changes as it is passed from agent to agent."""
_Line: TypeAlias = tuple[str, str]
"""An agent with its instructions: one line of conversation."""

_MAX_CHARS: Final = 256_000
"""Most characters of one text that a step keeps; more is no help to any reader, human or model."""
_TAIL_CHARS: Final = 64_000


@dataclass(slots=True)
class _Memory:
    """One agent's last call."""

    heard: Sequence[_Print]
    act: Act


@dataclass(slots=True)
class Novelty:
    """Tells what is new, call by call, in order."""

    _last: dict[_Line, _Memory] = field(default_factory=dict)
    _heard: Counter[_Print] = field(default_factory=Counter)
    """How often each message was heard in one call, at most: the same words may be said twice."""
    _said_by: dict[_Print, _Line] = field(default_factory=dict)
    """Who said it last."""
    _latest: dict[str, _Line] = field(default_factory=dict)
    recovered: dict[int, str] = field(default_factory=dict)
    """Outputs that only a later call quotes, by the position of the step that said them."""

    def take(self, act: Act) -> str:
        """Return what is new in the call's input, in words, and remember the call."""
        messages = [message for message in act.action.heard if message.role != "system"]
        prints = [_print(message) for message in messages]
        line = self._line_of(act)
        before = self._last.get(line)
        if before is None:
            fresh = _without(messages, prints, self._heard) or list(messages[-1:])
        else:
            fresh = self._since(before, line, messages, prints)
        self._remember(act, line, prints)
        return render(fresh)

    def _line_of(self, act: Act) -> _Line:
        """Return whose line of conversation a call is; limits evict the instructions first."""
        agent = act.agent or UNKNOWN_AGENT
        if act.span.dropped_attributes and not act.action.instructions:
            return self._latest.get(agent, (agent, ""))
        line = self._latest[agent] = (agent, act.action.instructions)
        return line

    def _remember(self, act: Act, line: _Line, prints: Sequence[_Print]) -> None:
        self._last[line] = _Memory(prints, act)
        for each, count in Counter(prints).items():  # ``|=`` would go through all that was ever heard
            if count > self._heard.get(each, 0):  # ``Counter`` asks Python for what it does not have
                self._heard[each] = count
        for message in act.action.said:
            self._said_by[_print(message)] = line

    def _since(
        self, before: _Memory, line: _Line, messages: Sequence[Message], prints: Sequence[_Print]
    ) -> list[Message]:
        fresh = _without(messages, prints, Counter(before.heard))
        self._recover(before, fresh)
        while before.act.action.said and fresh and self._is_own(fresh[0], before.act, line):
            fresh.pop(0)
        return fresh

    def _is_own(self, message: Message, act: Act, line: _Line) -> bool:
        """Say whether a message right after what was heard is the agent's last words.

        They may be told anew (smolagents); but what another agent said is not this one's.
        """
        is_spoken = message.role == "assistant" and message.name in {"", act.agent}
        return is_spoken and self._said_by.get(_print(message), line) == line

    def _recover(self, before: _Memory, fresh: list[Message]) -> None:
        if _lost_output(before.act) and fresh and fresh[0].role == "assistant":
            self.recovered[before.act.position] = body_of(fresh.pop(0))

    def recover_answers(self, acts: Sequence[Act]) -> None:
        """Give last calls of agents that lost their output what their agent answered."""
        answered: set[int] = set()
        for act in reversed(acts):
            turn = act.runner
            if turn is None or act.action.kind is not ActionKind.LLM or turn.position in answered:
                continue
            answered.add(turn.position)
            if _lost_output(act) and turn.action.output:
                self.recovered.setdefault(act.position, turn.action.output)


def _lost_output(act: Act) -> bool:
    """Whether what was said is in none of the span's attributes: evicted, or never written."""
    action = act.action
    if action.said or action.output or action.failed or action.redacted:
        return False
    return bool(act.span.dropped_attributes) or (action.kind is ActionKind.LLM and bool(action.heard))


def _without(messages: Sequence[Message], prints: Sequence[_Print], known: Counter[_Print]) -> list[Message]:
    """Return the messages that are not known, each as often as it is more often there than known.

    The result of a call that is new is new too, though another tool once said the same ("ok").
    """
    left = {each: known.get(each, 0) for each in prints}
    fresh: list[Message] = []
    asked: set[str] = set()
    for message, each in zip(messages, prints, strict=True):
        if left[each] > 0 and asked.isdisjoint(message.answers):
            left[each] -= 1
        else:
            fresh.append(message)
            if message.calls:
                asked.update(call.call_id for call in message.calls if call.call_id)
    return fresh


def _print(message: Message) -> _Print:
    if not message.calls:
        return message.text, ()
    return message.text, tuple([(call.name, call.arguments) for call in message.calls])


def shortened(text: str) -> str:
    """Return ``text``, its middle left out where it is too long."""
    if len(text) <= _MAX_CHARS:
        return text
    left_out = len(text) - _MAX_CHARS
    head = text[: _MAX_CHARS - _TAIL_CHARS]
    return f"{head}\n[{left_out} characters left out]\n{text[-_TAIL_CHARS:]}"


def said_in_words(messages: Iterable[Message]) -> str:
    """Return what a model said, its tool calls included."""
    return "\n".join(body_of(message) for message in messages)
