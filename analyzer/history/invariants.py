"""What a workflow always does: invariants that held in all of its known runs. Pure.

Mined as Daikon does for programs (Ernst et al., 2007: sources of arguments' values, constants, ranges) and
Declare for processes (van der Aalst & Pesic, 2006: existence, precedence, response, counts). Order is that in
the large: an invariant never joins neighbours, between which unrelated calls may come.

Each kind is one function that reads a run: does the invariant hold there, is it broken, and at which step, or
does the run say nothing about it? Candidates are what the runs themselves show; those that no run breaks and
that enough runs hold are the workflow's invariants. Those that one run alone breaks are kept apart: they are
what would have been believed without that run, so they tell how often good runs would be accused.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Final, TypeAlias

from analyzer.history.facts import MANY, TASK, TURN, Argument, Call, Facts
from semconv.record import record


class Kind(StrEnum):
    """Kinds of invariants, in the order in which they may accuse: those with structure first."""

    STANDS = "stands"
    """An argument's value stands at ``values``, paths of earlier results or the task."""
    NEEDS = "needs"
    """A call whose argument equals a path of another tool's result comes after that tool."""
    AMONG = "among"
    """The same, but none of the paths is the only one."""
    HAPPENS = "happens"
    """A tool is called (or the ``other`` in its place), or an answer given."""
    AFTER = "after"
    """A tool is called only after another one."""
    LEADS = "leads"
    """After the last call of a tool comes another one."""
    WHEN = "when"
    """Where a result has a value, a tool is called."""
    WHEN_NOT = "when not"
    """Where a result has a value, a tool is not called."""
    EQUALS = "equals"
    """An argument equals one path of an earlier result; where a result has a value, if ``where`` is given."""
    CARRIES = "carries"
    """Each call of a tool has this argument."""
    CALLER = "caller"
    """A tool is called by these agents only."""
    TIMES = "times"
    """A tool is called between ``low`` and ``high`` times."""
    KNOWN = "known"
    """No other tool than the known ones is called."""
    CONSTANT = "constant"
    """An argument is one of a few values."""
    SUCCEEDS = "succeeds"
    """No call of the tool fails."""
    CONTAINS = "contains"
    """A text contains the value of a path."""
    SOURCED = "sourced"
    """A text has at most ``high`` numbers that stand nowhere before it."""
    LANGUAGE = "language"
    WORDS = "words"
    """A text has at most ``high`` words that neither the run nor any known text of its kind contains."""
    FORMAT = "format"
    LENGTH = "length"
    """A text has between ``low`` and ``high`` words."""
    RANGE = "range"
    """A number lies between ``low`` and ``high``."""


@record
class Invariant:
    """Something that held in all known runs that it applies to."""

    kind: Kind
    tool: str
    """The tool that it is about; empty for the answer."""
    path: str = ""
    """The argument that it is about."""
    other: str = ""
    """The source of the value, or the other tool."""
    where: str = ""
    """Its condition, if it has one: a path that had ``value`` before, or a tool that was called or not."""
    value: str = ""
    low: float = 0.0
    high: float = 0.0
    values: frozenset[str] = frozenset()
    """The known values, tools, agents or digests of words; of a tool that may be missing, those before it."""
    later: frozenset[str] = frozenset()
    """The tools after a tool that may be missing."""
    familiar: frozenset[str] = frozenset()
    """Sources that known runs show: a value from any other one came by a way that is new, not wrong."""


@record
class Held:
    """An invariant with its support."""

    invariant: Invariant
    support: int
    """Runs that hold it."""
    broken: int = 0
    """Runs that break it all the same: few."""
    lone: int = 0
    """Runs without any of which it would say less: that alone have a value, or reach a limit."""
    distinct: int = 0
    """Different values of the argument in these runs."""


@record
class Broken:
    """Where a run breaks an invariant."""

    step: int
    call: Call | None = None
    argument: Argument | None = None
    count: int = 0


CALLED: Final = "called"
NOT_CALLED: Final = "not called"
NOT_SAID: Final = None
"""The run says nothing about the invariant."""


class Run:
    """A run's facts, indexed for checks."""

    def __init__(self, facts: Facts) -> None:
        self.facts: Final = facts
        self.is_cut: Final = facts.is_cut
        self.first: Final[dict[str, int]] = {}
        self.last: Final[dict[str, int]] = {}
        self.of: Final[defaultdict[str, list[tuple[int, Call]]]] = defaultdict(list)
        self.sources: Final[dict[str, int]] = {TASK: -1}
        """Position of the first call that showed each source."""
        self.choices: Final[dict[str, set[str]]] = {}
        tools = [call.tool for call in facts.calls]
        for position, call in enumerate(facts.calls):
            if call.is_failed and call.tool in tools[position + 1 :]:
                continue  # retried
            self.first.setdefault(call.tool, position)
            self.last[call.tool] = position
            self.of[call.tool].append((position, call))
            for path, choice in call.results:
                source = f"{call.tool}\t{path}"
                self.sources.setdefault(source, position)
                if choice:
                    self.choices.setdefault(source, set()).add(choice)
            for argument in call.arguments:
                source = f"{call.tool}\t{argument.path}\t"
                self.sources.setdefault(source, position)
                if argument.kind == "word":
                    self.choices.setdefault(source, set()).add(argument.value)

    def step(self, position: int) -> int:
        """Return the step to blame for the call at a position; that of the last call for the end."""
        calls = self.facts.calls
        return calls[min(position, len(calls) - 1)].step if calls else 0

    def is_said(self, invariant: Invariant, position: int) -> bool:
        """Return whether an invariant's condition, if it has one, holds before the call at a position."""
        where = invariant.where
        if not where:
            return True
        if invariant.value in {CALLED, NOT_CALLED}:
            return (self.first.get(where, position) < position) is (invariant.value == CALLED)
        is_before = self.sources.get(where, position) < position
        return is_before and invariant.value in self.choices.get(where, ())

    def arguments(self, invariant: Invariant) -> Iterator[tuple[int, Call, Argument]]:
        """Yield the arguments that an invariant is about."""
        for position, call in self.of.get(invariant.tool, ()):
            for argument in call.arguments:
                if argument.path == invariant.path:
                    yield position, call, argument

    def place_of(self, missing: Invariant) -> int:
        """Return the first step that came without a missing call, or else the last one before its place."""
        later = [self.first[one] for one in missing.later if one in self.first]
        if later:
            return self.step(min(later))
        known = [self.last[value] for value in missing.values if value in self.last]
        tools = [at for at, call in enumerate(self.facts.calls) if call.tool and call.tool[0] != TURN]
        return self.step(max(known or tools or [0]))


Checked: TypeAlias = "bool | Broken | None"
"""``True`` if the invariant holds, ``NOT_SAID`` if the run says nothing about it."""
Check: TypeAlias = Callable[[Invariant, Run], Checked]


def _stands(invariant: Invariant, run: Run) -> Checked:
    found: Checked = NOT_SAID
    for position, call, argument in run.arguments(invariant):
        if all(run.sources.get(value, position) >= position for value in invariant.values):
            continue
        if invariant.values.isdisjoint(argument.sources) and invariant.familiar.issuperset(argument.sources):
            return Broken(step=call.step, call=call, argument=argument)
        found = True
    return found


def _equals(invariant: Invariant, run: Run) -> Checked:
    found: Checked = NOT_SAID
    for position, call, argument in run.arguments(invariant):
        if run.sources.get(invariant.other, position) >= position or argument.kind == "text":
            continue
        if not run.is_said(invariant, position):
            continue
        if invariant.other not in argument.sources and invariant.familiar.issuperset(argument.sources):
            return Broken(step=call.step, call=call, argument=argument)
        found = True
    return found


def _contains(invariant: Invariant, run: Run) -> Checked:
    found: Checked = NOT_SAID
    for position, call, argument in run.arguments(invariant):
        if run.sources.get(invariant.other, position) >= position or argument.kind != "text":
            continue
        if invariant.other not in argument.sources and MANY not in argument.sources:
            return Broken(step=call.step, call=call, argument=argument)
        found = True
    return found


def _after(invariant: Invariant, run: Run) -> Checked:
    if invariant.tool not in run.first:
        return NOT_SAID
    position = run.first[invariant.tool]
    if run.first.get(invariant.other, position) < position:
        return True
    call = run.facts.calls[position]
    return Broken(step=call.step, call=call)


def _leads(invariant: Invariant, run: Run) -> Checked:
    if run.is_cut or invariant.other not in run.last:
        return NOT_SAID
    if run.last.get(invariant.tool, -1) > run.last[invariant.other]:
        return True
    return Broken(step=run.place_of(invariant))


def _happens(invariant: Invariant, run: Run) -> Checked:
    if invariant.tool in run.first or invariant.other in run.first:
        return True
    return NOT_SAID if run.is_cut else Broken(step=run.place_of(invariant))


def _when(invariant: Invariant, run: Run) -> Checked:
    return _happens(invariant, run) if run.is_said(invariant, len(run.facts.calls)) else NOT_SAID


def _when_not(invariant: Invariant, run: Run) -> Checked:
    position = run.last.get(invariant.tool, len(run.facts.calls))
    if not run.is_said(invariant, position):
        return NOT_SAID
    return (
        Broken(step=run.step(position), call=run.facts.calls[position])
        if invariant.tool in run.last
        else True
    )


def _carries(invariant: Invariant, run: Run) -> Checked:
    found: Checked = NOT_SAID
    for _, call in run.of.get(invariant.tool, ()):
        if all(argument.path != invariant.path for argument in call.arguments):
            return Broken(step=call.step, call=call)
        found = True
    return found


def _caller(invariant: Invariant, run: Run) -> Checked:
    found: Checked = NOT_SAID
    for _, call in run.of.get(invariant.tool, ()):
        if call.agent not in invariant.values:
            return Broken(step=call.step, call=call)
        found = True
    return found


def _times(invariant: Invariant, run: Run) -> Checked:
    calls = run.of.get(invariant.tool, ())
    if not calls:
        return NOT_SAID  # that it is called at all is another invariant
    if len(calls) > invariant.high:
        _, call = calls[int(invariant.high)]
        return Broken(step=call.step, call=call, count=len(calls))
    if len(calls) < invariant.low and not run.is_cut:
        return Broken(step=calls[-1][1].step, call=calls[-1][1], count=len(calls))
    return True


def _known(invariant: Invariant, run: Run) -> Checked:
    for call in run.facts.calls:
        if call.tool not in invariant.values:
            return Broken(step=call.step, call=call)
    return True


def _constant(invariant: Invariant, run: Run) -> Checked:
    found: Checked = NOT_SAID
    for position, call, argument in run.arguments(invariant):
        if invariant.where and not run.is_said(invariant, position):
            continue
        if argument.value not in invariant.values:
            return Broken(step=call.step, call=call, argument=argument)
        found = True
    return found


def _format(invariant: Invariant, run: Run) -> Checked:
    return _each(invariant, run, lambda argument: form_of(argument) in invariant.values)


def _range(invariant: Invariant, run: Run) -> Checked:
    return _each(invariant, run, lambda argument: invariant.low <= number_in(argument) <= invariant.high)


def _sourced(invariant: Invariant, run: Run) -> Checked:
    return _each(invariant, run, lambda argument: argument.unsourced <= invariant.high)


def _language(invariant: Invariant, run: Run) -> Checked:
    return _each(
        invariant, run, lambda argument: not argument.language or argument.language in invariant.values
    )


def _length(invariant: Invariant, run: Run) -> Checked:
    return _each(invariant, run, lambda argument: invariant.low <= argument.length <= invariant.high)


def _words(invariant: Invariant, run: Run) -> Checked:
    return _each(invariant, run, lambda argument: _new_words(argument, invariant.values) <= invariant.high)


def _new_words(argument: Argument, known: frozenset[str]) -> int:
    return sum(f"{word:x}" not in known for word in argument.words)


def form_of(argument: Argument) -> str:
    """Return how an argument's value is written."""
    return argument.value.rpartition("#")[0] if argument.kind == "shape" else argument.kind


def number_in(argument: Argument) -> float:
    """Return an argument's number; infinity if it is none, which no range holds."""
    return float(argument.value) if argument.kind == "number" else math.inf


def _each(invariant: Invariant, run: Run, is_right: Callable[[Argument], bool]) -> Checked:
    found: Checked = NOT_SAID
    for _, call, argument in run.arguments(invariant):
        if not is_right(argument):
            return Broken(step=call.step, call=call, argument=argument)
        found = True
    return found


def _succeeds(invariant: Invariant, run: Run) -> Checked:
    found: Checked = NOT_SAID
    for _, call in run.of.get(invariant.tool, ()):
        if call.is_failed:
            return Broken(step=call.step, call=call)
        found = True
    return found


_CHECKS: Final[Mapping[Kind, Check]] = {
    Kind.STANDS: _stands,
    Kind.AMONG: _stands,
    Kind.EQUALS: _equals,
    Kind.NEEDS: _after,
    Kind.HAPPENS: _happens,
    Kind.AFTER: _after,
    Kind.LEADS: _leads,
    Kind.WHEN: _when,
    Kind.WHEN_NOT: _when_not,
    Kind.CARRIES: _carries,
    Kind.CALLER: _caller,
    Kind.TIMES: _times,
    Kind.KNOWN: _known,
    Kind.CONSTANT: _constant,
    Kind.SUCCEEDS: _succeeds,
    Kind.CONTAINS: _contains,
    Kind.SOURCED: _sourced,
    Kind.LANGUAGE: _language,
    Kind.WORDS: _words,
    Kind.FORMAT: _format,
    Kind.LENGTH: _length,
    Kind.RANGE: _range,
}


def check(invariant: Invariant, run: Run) -> Checked:
    """Return whether a run holds an invariant, or where it breaks it."""
    return _CHECKS[invariant.kind](invariant, run)
