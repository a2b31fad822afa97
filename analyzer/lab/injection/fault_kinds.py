"""Faults: ways to corrupt one recorded answer of a run, by kind. Pure.

A corrupted answer is made of the words and numbers of passing runs, mostly its own, so that no marker word
gives the fault away.
Kinds from MAST (arXiv:2503.13657) and AgentErrorBench (arXiv:2509.25370), as far as one answer shows them.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from analyzer.experiment.replay.tape import Answer, CallKind, RecordedCall, Tape
from semconv.dialects.reading.tools import transfer_target
from semconv.json_text import read_json
from semconv.model import ToolCall
from semconv.record import replace

_NUMBER: Final = re.compile(r"(?<![\w.])\d+(?:[.,]\d+)*(?![\w%]|\.\d)")
_PART: Final = re.compile(r"(?s).+?(?:[.;,](?=\s|$)\s*|\n+|$)")
_FEWEST_PARTS: Final = 2


class FaultKind(StrEnum):
    """Kinds of faults."""

    WRONG_VALUE = "wrong_value"
    """A number in the answer is changed."""
    INVENTED_RESULT = "invented_result"
    """A number that a tool returned is changed in the answer."""
    DROPPED_CONSTRAINT = "dropped_constraint"
    """A part of the answer is missing."""
    IGNORED_INPUT = "ignored_input"
    """The agent's answer is the one that it gave in another run."""
    PREMATURE_END = "premature_end"
    """The answer keeps its text, but calls no tool."""
    LOOP = "loop"
    """The tool calls of an earlier answer are repeated."""
    WRONG_TOOL = "wrong_tool"
    """Another tool of the run is called, with the same arguments."""
    WRONG_ARGUMENTS = "wrong_arguments"
    """A tool is called with another value."""
    WRONG_HANDOFF = "wrong_handoff"
    """Control goes to another agent of the run."""


def corrupted(
    kind: FaultKind, tape: Tape, call: RecordedCall, coin: random.Random, others: Sequence[Tape] = ()
) -> Answer | None:
    """Return the call's answer with a fault of this kind; ``None`` if it has no place for one.

    Args:
        kind: the kind of fault.
        tape: the run, whose other answers lend their words.
        call: the call whose answer is corrupted.
        coin: chooses among several places.
        others: other passing runs of the workflow.
    """
    if call.kind is not CallKind.CHAT or call.answer.error:
        return None
    answer = _ignored_input(tape, call, others) if others and kind is FaultKind.IGNORED_INPUT else None
    answer = answer or _FAULTS[kind](tape, call, coin)
    return None if answer is None or _says_the_same(answer, call.answer) else answer


def _says_the_same(one: Answer, other: Answer) -> bool:
    calls = [(call.name, call.arguments) for call in one.calls]
    same_calls = calls == [(call.name, call.arguments) for call in other.calls]
    return (same_calls and one.text.strip() == other.text.strip()) or not (one.text.strip() or one.calls)


def _wrong_value(_: Tape, call: RecordedCall, coin: random.Random) -> Answer | None:
    return _with_other_number(call.answer, list(_NUMBER.finditer(call.answer.text)), coin)


def _invented_result(_: Tape, call: RecordedCall, coin: random.Random) -> Answer | None:
    returned = {
        number for each in call.messages if each.role == "tool" for number in _NUMBER.findall(each.text)
    }
    places = [each for each in _NUMBER.finditer(call.answer.text) if each[0] in returned]
    return _with_other_number(call.answer, places, coin)


def _with_other_number(answer: Answer, places: Sequence[re.Match[str]], coin: random.Random) -> Answer | None:
    if not places:
        return None
    chosen = coin.choice(places)
    text = answer.text[: chosen.start()] + _other_number(chosen[0], coin) + answer.text[chosen.end() :]
    return replace(answer, text=text)


def _other_number(number: str, coin: random.Random) -> str:
    """Return a number that differs in one digit, so that its length says nothing."""
    digits = [place for place, each in enumerate(number) if each.isdigit()]
    place = coin.choice(digits)
    least = "1" if place == 0 and len(digits) > 1 else "0"
    others = [each for each in "0123456789" if each >= least and each != number[place]]
    return number[:place] + coin.choice(others) + number[place + 1 :]


def _dropped_constraint(_: Tape, call: RecordedCall, coin: random.Random) -> Answer | None:
    parts = [each for each in _PART.findall(call.answer.text) if each]
    told = [place for place, each in enumerate(parts) if each.strip(" \n.;,")]
    if len(told) < _FEWEST_PARTS:
        return None
    dropped = coin.choice(told)
    text = "".join(each for place, each in enumerate(parts) if place != dropped)
    return replace(call.answer, text=text.rstrip(" ,;"))


def _ignored_input(tape: Tape, call: RecordedCall, others: Sequence[Tape]) -> Answer | None:
    """Return what the agent said in another run at the same place.

    An earlier answer of the same run would do, but is a copy: noticing a copy needs no diagnosis. The runs
    lend in a circle, one step further at each call, so that no answer is lent to two runs: a number that
    many failures share would give the fault away.
    """
    place = len(_own(tape, call, call.agent))
    for other in () if call.answer.calls else _lenders(tape, call, others):
        calls = _own(other, None, call.agent)[place : place + 1]
        if calls and calls[0].answer.text.strip() and not calls[0].answer.calls:
            return replace(call.answer, text=calls[0].answer.text)
    return None


def _lenders(tape: Tape, call: RecordedCall, others: Sequence[Tape]) -> Iterator[Tape]:
    """Yield the other runs, beginning with the one that lends to this call."""
    circle = sorted((each for each in others if each.run_id != tape.run_id), key=lambda one: one.run_id)
    first = sum(each.run_id < tape.run_id for each in circle) + call.index
    for step in range(len(circle)):
        yield circle[(first + step) % len(circle)]


def _own(tape: Tape, before: RecordedCall | None, agent: str) -> list[RecordedCall]:
    """Return an agent's model calls in the order of the run, up to a call."""
    calls = tape.calls if before is None else tape.calls[: before.index]
    return [call for call in calls if call.kind is CallKind.CHAT and call.agent == agent]


def _earlier_answer(tape: Tape, call: RecordedCall, coin: random.Random) -> Answer | None:
    texts = [each for each in _earlier(tape, call) if each.answer.text and not each.answer.calls]
    own = [text for text in texts if text.agent == call.agent]
    if call.answer.calls or not texts:
        return None
    return replace(call.answer, text=coin.choice(own or texts).answer.text)


def _premature_end(_: Tape, call: RecordedCall, __: random.Random) -> Answer | None:
    return replace(call.answer, calls=()) if call.answer.calls and call.answer.text else None


def _loop(tape: Tape, call: RecordedCall, coin: random.Random) -> Answer | None:
    called = [each.answer for each in _earlier(tape, call) if each.answer.calls and each.agent == call.agent]
    return replace(call.answer, text="", calls=_anew(coin.choice(called).calls)) if called else None


def _wrong_tool(tape: Tape, call: RecordedCall, coin: random.Random) -> Answer | None:
    names = {tool_call.name for other in tape.calls for tool_call in other.answer.calls} - tape.delegations
    return _with_other_name(call.answer, names, coin)


def _wrong_handoff(tape: Tape, call: RecordedCall, coin: random.Random) -> Answer | None:
    every = (each for other in tape.calls for each in other.answer.calls if each.name in tape.delegations)
    targets = {tool_call.name for tool_call in every if transfer_target(tool_call.name, tool_call.arguments)}
    return _with_other_name(call.answer, targets, coin)


def _with_other_name(answer: Answer, names: set[str], coin: random.Random) -> Answer | None:
    places = [place for place, tool_call in enumerate(answer.calls) if tool_call.name in names]
    if not places or len(names) < _FEWEST_PARTS:
        return None
    place = coin.choice(places)
    name = coin.choice(sorted(names - {answer.calls[place].name}))
    return _with_call(answer, place, replace(answer.calls[place], name=name))


def _wrong_arguments(tape: Tape, call: RecordedCall, coin: random.Random) -> Answer | None:
    places = [place for place, each in enumerate(call.answer.calls) if each.name not in tape.delegations]
    if not places:
        return None
    place = coin.choice(places)
    asked = call.answer.calls[place]
    every = (tool_call for other in tape.calls for tool_call in other.answer.calls)
    others = [_object(tool_call.arguments) for tool_call in every if tool_call.name == asked.name]
    changed = _other_arguments(_object(asked.arguments), others, coin)
    return None if changed is None else _with_call(call.answer, place, replace(asked, arguments=changed))


def _other_arguments(
    given: Mapping[str, Any], others: Sequence[Mapping[str, Any]], coin: random.Random
) -> str | None:
    """Return the arguments with one value changed: a number in one digit, a text to another call's."""
    changes: list[tuple[str, Any]] = []
    for name, value in given.items():
        known = [other[name] for other in others if name in other and other[name] != value]
        if isinstance(value, int) and not isinstance(value, bool):
            changes.append((name, int(_other_number(str(abs(value)), coin))))
        elif isinstance(value, str) and _NUMBER.fullmatch(value):
            changes.append((name, _other_number(value, coin)))
        elif known:
            changes.append((name, coin.choice(known)))
    if not changes:
        return None
    name, value = coin.choice(changes)
    return json.dumps({**given, name: value}, ensure_ascii=False)


def _object(arguments: str) -> Mapping[str, Any]:
    try:
        found = read_json(arguments or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _with_call(answer: Answer, place: int, call: ToolCall) -> Answer:
    return replace(answer, calls=(*answer.calls[:place], call, *answer.calls[place + 1 :]))


def _anew(calls: Iterable[ToolCall]) -> tuple[ToolCall, ...]:
    """Return calls without ids: the gateway makes new ones."""
    return tuple(replace(call, call_id="") for call in calls)


def _earlier(tape: Tape, call: RecordedCall) -> list[RecordedCall]:
    before = tape.calls[: call.index]
    return [each for each in before if each.kind is CallKind.CHAT and each.end_ns <= call.start_ns]


_Fault = Callable[[Tape, RecordedCall, random.Random], Answer | None]
_FAULTS: Final[Mapping[FaultKind, _Fault]] = {
    FaultKind.WRONG_VALUE: _wrong_value,
    FaultKind.INVENTED_RESULT: _invented_result,
    FaultKind.DROPPED_CONSTRAINT: _dropped_constraint,
    FaultKind.IGNORED_INPUT: _earlier_answer,
    FaultKind.PREMATURE_END: _premature_end,
    FaultKind.LOOP: _loop,
    FaultKind.WRONG_TOOL: _wrong_tool,
    FaultKind.WRONG_ARGUMENTS: _wrong_arguments,
    FaultKind.WRONG_HANDOFF: _wrong_handoff,
}
