"""What is new in each model call: the conversation repeats with every call, a step must not.

A call is compared with the previous call of the same agent, message by message,
wherever they stand (limits evict from the front); an agent's first call with all
that was heard before by anybody.
The agent's own last words are left out too: they are the previous step's output.
Where limits evicted an output, the next call of the same agent still quotes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from collector_processor.trajectory.acts import Act
from semconv.dialects import Message
from semconv.dialects.conversation import body_of, render
from semconv.model import UNKNOWN_AGENT

_Print: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]
"""A message without its role, which changes as it is passed from agent to agent."""

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

    _last: dict[tuple[str, str], _Memory] = field(default_factory=dict)
    _heard: set[_Print] = field(default_factory=set)
    recovered: dict[int, str] = field(default_factory=dict)
    """Outputs that only a later call quotes, by the position of the step that said them."""

    def take(self, act: Act) -> str:
        """Return what is new in the call's input, in words, and remember the call."""
        messages = [message for message in act.action.heard if message.role != "system"]
        prints = [_print(message) for message in messages]
        line = (act.agent or UNKNOWN_AGENT, act.action.instructions)
        before = self._last.get(line)
        fresh = self._since(before, messages, prints) if before else self._unheard(messages, prints)
        self._last[line] = _Memory(prints, act)
        self._heard.update(prints)
        return render(fresh)

    def _unheard(self, messages: Sequence[Message], prints: Sequence[_Print]) -> Sequence[Message]:
        fresh = [message for message, each in zip(messages, prints, strict=True) if each not in self._heard]
        return fresh or messages[-1:]

    def _since(
        self, before: _Memory, messages: Sequence[Message], prints: Sequence[_Print]
    ) -> Sequence[Message]:
        left = Counter(before.heard)
        fresh: list[Message] = []
        for message, each in zip(messages, prints, strict=True):
            if left[each] > 0:
                left[each] -= 1
            else:
                fresh.append(message)
        self._recover(before, fresh)
        while before.act.action.said and fresh and _is_own(fresh[0], before.act):
            fresh.pop(0)
        return fresh

    def _recover(self, before: _Memory, fresh: list[Message]) -> None:
        if before.act.action.said or before.act.action.output or not fresh or fresh[0].role != "assistant":
            return
        if before.act.span.dropped_attributes:
            self.recovered[before.act.position] = body_of(fresh.pop(0))


def _is_own(message: Message, act: Act) -> bool:
    """Say whether a message right after what was heard is the agent's last words, told anew (smolagents)."""
    return message.role == "assistant" and message.name in {"", act.agent}


def _print(message: Message) -> _Print:
    return message.text, tuple((call.name, call.arguments) for call in message.calls)


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
