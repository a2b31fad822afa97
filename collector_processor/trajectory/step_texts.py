"""Texts of steps: content that only other steps show, and the new content of each model call.

A conversation is repeated in every call; a step must not repeat it. A call is compared with the previous call
of the same agent, message by message, independent of position (limits evict from the front); an agent's first
call is compared with everything that any agent received before. The agent's own last words are left out too:
they are the previous step's output. If limits evicted an output, the next call of the same agent still
quotes it, and an agent's last output is its answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from collector_processor.trajectory.acts import LLM, TOOL_KINDS, Act, Ordering
from semconv.dialects import Action, Message, ToolCall
from semconv.dialects.reading.messages import body_of, render
from semconv.dialects.reading.payloads import reported_failure, unwrapped
from semconv.dialects.reading.tools import FINAL_ANSWER_TOOLS, transfer_target
from semconv.dialects.reading.values import mapping
from semconv.model import UNKNOWN_AGENT, Heard
from semconv.record import replace

_Print: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]
"""A message without its role, which changes when it is passed from agent to agent."""
_Line: TypeAlias = tuple[str, str]
"""An agent and its instructions: one line of conversation."""

_MAX_CHARS: Final = 256_000
"""Most characters kept of one text of a step; more would help neither people nor models."""
_TAIL_CHARS: Final = 64_000


def inherit_content(ordering: Ordering) -> Ordering:
    """Give each tool call without content its arguments and result from model calls, by call id.

    Google ADK writes content only into the model calls' log events; others leave it out of tool spans by
    default. The requesting call holds the arguments, the agent's next call the result.
    """
    steps = ordering.chosen()
    silent = [act for act in steps if act.action.kind in TOOL_KINDS and _is_silent(act.action)]
    if not silent:
        return ordering
    asked = {call.call_id: call for act in steps for call in act.action.requested if call.call_id}
    results = _results(steps)
    changed = [
        replace(act, action=_with_content(act.action, call, results))
        for act in silent
        if (call := asked.get(act.action.call_id)) is not None and call.name == act.action.tool
    ]
    return ordering.with_acts(changed) if changed else ordering


def _is_silent(action: Action) -> bool:
    return bool(action.call_id) and not action.redacted and not (action.input or action.output)


def _results(steps: Sequence[Act]) -> Mapping[str, str]:
    """Return the results that model calls received; a message that answers several calls is ambiguous."""
    return {
        message.answers[0]: message.text
        for act in steps
        for message in act.action.input_messages
        if len(message.answers) == 1
    }


def _with_content(action: Action, call: ToolCall, results: Mapping[str, str]) -> Action:
    result = "" if action.output else results.get(action.call_id, "")
    complaint = reported_failure(result)
    return replace(
        action,
        input=action.input or call.arguments,
        output=action.output or unwrapped(result),
        target=action.target or transfer_target(call.name, call.arguments),
        failed=action.failed or (bool(complaint) and action.stop is None),
        error=complaint or action.error,
    )


class NewInput(NamedTuple):
    """The input that is new to a step, as text and with the places of its messages."""

    text: str
    heard: tuple[Heard, ...] = ()

    def shortened(self) -> NewInput:
        """Return the input as it is kept; of a text that is too long, only messages of its head."""
        kept = shortened(self.text)
        if kept is self.text:
            return self
        head = _MAX_CHARS - _TAIL_CHARS
        return NewInput(
            kept, tuple(replace(one, end=min(one.end, head)) for one in self.heard if one.start < head)
        )


@dataclass(slots=True)
class _Memory:
    """State of one agent's last call."""

    prints: Sequence[_Print]
    act: Act


@dataclass(slots=True)
class NewMessages:
    """Finds the new content of each call, in order."""

    _last: dict[_Line, _Memory] = field(default_factory=dict)
    _counts: dict[_Print, int] = field(default_factory=dict)
    """Highest count of each message in one call: a text may be repeated."""
    _speakers: dict[_Print, _Line] = field(default_factory=dict)
    """The agent that said each text last."""
    _latest: dict[str, _Line] = field(default_factory=dict)
    recovered: dict[int, Message] = field(default_factory=dict)
    """Outputs that only a later call quotes, by the index of the act that produced them."""

    def take(self, act: Act) -> NewInput:
        """Return the new content of the call's input, and remember the call."""
        messages = [message for message in act.action.input_messages if message.role != "system"]
        prints = [_print(message) for message in messages]
        line = self._line_of(act)
        before = self._last.get(line)
        if before is None:
            fresh = _without(messages, prints, self._counts) or list(messages[-1:])
        else:
            fresh = self._since(before, line, messages, prints)
        self._remember(act, line, prints)
        return NewInput(*render(fresh))

    def _line_of(self, act: Act) -> _Line:
        """Return the line of conversation a call belongs to; limits evict the instructions first."""
        agent = act.agent or UNKNOWN_AGENT
        if act.span.dropped_attributes and not act.action.instructions:
            return self._latest.get(agent, (agent, ""))
        line = self._latest[agent] = (agent, act.action.instructions)
        return line

    def _remember(self, act: Act, line: _Line, prints: Sequence[_Print]) -> None:
        self._last[line] = _Memory(prints, act)
        counts: dict[_Print, int] = {}
        for each in prints:
            count = counts[each] = counts.get(each, 0) + 1
            if count > self._counts.get(each, 0):
                self._counts[each] = count
        for message in act.action.output_messages:
            self._speakers[_print(message)] = line

    def _since(
        self, before: _Memory, line: _Line, messages: Sequence[Message], prints: Sequence[_Print]
    ) -> list[Message]:
        count = len(before.prints)
        if prints[:count] == before.prints:  # the usual case: the history, then new messages
            fresh = list(messages[count:])
        else:
            fresh = _without(messages, prints, Counter(before.prints))
        self._recover(before, fresh)
        while before.act.action.output_messages and fresh and self._is_own(fresh[0], before.act, line):
            fresh.pop(0)
        return fresh

    def _is_own(self, message: Message, act: Act, line: _Line) -> bool:
        """Say whether a message right after the known history is the agent's own last output.

        It may be reworded (smolagents); but another agent's text is never this agent's.
        """
        is_spoken = message.role == "assistant" and message.name in {"", act.agent}
        return is_spoken and self._speakers.get(_print(message), line) == line

    def _recover(self, before: _Memory, fresh: list[Message]) -> None:
        if _lost_output(before.act) and fresh and fresh[0].role == "assistant":
            self.recovered[before.act.index] = fresh.pop(0)

    def recover_answers(self, ordering: Ordering) -> None:
        """Restore lost outputs of agents' last calls from the agents' answers.

        The answer of an agent that a tool runs is the tool's result (Spring AI records no other text).
        """
        answered: set[int] = set()
        for act in reversed(ordering.chosen()):
            if act.runner is None or act.action.kind is not LLM or act.runner in answered:
                continue
            answered.add(act.runner)
            answer = _answer_of(ordering.acts[act.runner], ordering)
            if answer and _lost_output(act):
                self.recovered.setdefault(act.index, Message(role="assistant", text=answer))


def _answer_of(runner: Act, ordering: Ordering) -> str:
    """Return an agent's answer, or the result of the tool that does nothing but run it."""
    around = None if runner.above is None else ordering.acts[runner.above]
    is_only = (
        around is not None and around.action.kind in TOOL_KINDS and len(ordering.below[around.index]) == 1
    )
    return runner.action.output or (around.action.output if around is not None and is_only else "")


def _lost_output(act: Act) -> bool:
    """Say whether none of the span's attributes holds the output: evicted, or never written."""
    action = act.action
    if action.output_messages or action.output or action.failed or action.redacted:
        return False
    return bool(act.span.dropped_attributes) or action.kind is LLM


def _without(
    messages: Sequence[Message], prints: Sequence[_Print], known: Mapping[_Print, int]
) -> list[Message]:
    """Return the messages that are new, with repeats beyond the known number.

    The result of a new call is new too, even if another tool returned the same text before ("ok").
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


def in_head(messages: Sequence[Heard]) -> tuple[Heard, ...]:
    """Return the messages that are left of a text whose middle is left out."""
    head = _MAX_CHARS - _TAIL_CHARS
    return tuple([replace(one, end=min(one.end, head)) for one in messages if one.start < head])


def shortened(text: str) -> str:
    """Return ``text``, with its middle left out if it is too long."""
    if len(text) <= _MAX_CHARS:
        return text
    left_out = len(text) - _MAX_CHARS
    head = text[: _MAX_CHARS - _TAIL_CHARS]
    return f"{head}\n[{left_out} characters left out]\n{text[-_TAIL_CHARS:]}"


def output_text(messages: Sequence[Message]) -> tuple[str, tuple[Heard, ...]]:
    """Return a model's output as text with its tool calls, and its messages if some are results of tools.

    The call of an answering tool is the answer.
    """
    texts = [_answered_in_words(message) for message in messages]
    if len(messages) == 1 or not any(message.role == "tool" for message in messages):
        return "\n".join(texts), ()
    said: list[Heard] = []
    at = 0
    for message, text in zip(messages, texts, strict=True):
        said.append(
            Heard(
                role=message.role, start=at, end=at + len(text), author=message.name, answers=message.answers
            )
        )
        at += len(text) + 1
    return "\n".join(texts), tuple(said)


def _answered_in_words(message: Message) -> str:
    (call,) = message.calls if len(message.calls) == 1 else (None,)
    if call is None or call.name not in FINAL_ANSWER_TOOLS:
        return body_of(message)
    told = [*mapping(call.arguments).values()]
    is_text = len(told) == 1 and isinstance(told[0], str) and bool(told[0])
    return "\n".join(filter(None, (message.text, told[0]))) if is_text else body_of(message)
