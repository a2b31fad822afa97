"""Alignment of the steps of two runs. Pure.

Steps are aligned by what they are (agent, kind, tool or next agent) with the longest common subsequence, and
among equals by their text. Hirschberg's algorithm (Communications of the ACM 18(6), 1975) needs memory linear
in the steps; equal beginnings and ends are paired first, which leaves little of most pairs of runs. Longer
runs are aligned section by section, so that two runs of 100,000 steps take seconds.

Siblings of one parallel group have no order: before the alignment both runs list them in the same order, by
agent, and an agent's own overlapping steps by action and text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, Protocol

from semconv.model import StepKind

_SAME_STEP: Final = 2
_SAME_TEXT: Final = 1
"""Scores: a pair of equal steps counts more than equal texts, so texts only decide between such pairs."""
_MOST_CELLS: Final = 4_000_000
"""Most pairs of steps in a section, as in two runs of 2,000 steps; Hirschberg compares each twice."""


class Alignable(Protocol):
    """A step as the alignment reads it."""

    @property
    def index(self) -> int:
        """Its number in the run."""
        ...

    @property
    def agent(self) -> str:
        """Its agent."""
        ...

    @property
    def kind(self) -> str:
        """Its kind."""
        ...

    @property
    def target(self) -> str | None:
        """The tool or next agent."""
        ...

    @property
    def input(self) -> str:
        """The input."""
        ...

    @property
    def output(self) -> str:
        """The output."""
        ...

    @property
    def error(self) -> str:
        """Its error."""
        ...

    @property
    def status(self) -> str:
        """Its status."""
        ...

    @property
    def group(self) -> int | None:
        """Number of its parallel group, if any."""
        ...

    @property
    def start_ns(self) -> int:
        """When it began."""
        ...

    @property
    def end_ns(self) -> int:
        """When it ended."""
        ...


def align(left: Sequence[Alignable], right: Sequence[Alignable]) -> list[tuple[int | None, int | None]]:
    """Return the places of aligned steps; ``None`` where one run has no such step.

    Places of the first run ascend; those of the second ascend except within a parallel group.
    """
    shared = {_text(step) for step in left} & {_text(step) for step in right}
    our_order, their_order = _order(left, shared), _order(right, shared)
    paired = _align_in_order([left[place] for place in our_order], [right[place] for place in their_order])
    found = [
        (None if one is None else our_order[one], None if other is None else their_order[other])
        for one, other in paired
    ]
    return found if our_order == [*range(len(left))] else _by_first(found)


def _order(run: Sequence[Alignable], shared: set[tuple[str | None, ...]]) -> list[int]:
    """Return the places of a run's steps, those of each parallel group in an order that both runs share."""
    ordered: list[int] = []
    for group, members in groupby(range(len(run)), key=lambda place: run[place].group):
        places = [*members]
        ordered += places if group is None else _siblings(run, places, shared)
    return ordered


def _siblings(run: Sequence[Alignable], places: list[int], shared: set[tuple[str | None, ...]]) -> list[int]:
    """Sort the steps of a parallel group: by agent; an agent's steps that overlap by action and text.

    Texts that both runs have come first among equal actions, so that they meet.
    """
    blocks: dict[int, int] = {}
    ends: dict[str, int] = {}
    numbers: dict[str, int] = {}
    for place in places:
        step = run[place]
        is_overlapping = step.start_ns < ends.get(step.agent, 0)
        blocks[place] = numbers[step.agent] = numbers.get(step.agent, 0) + (not is_overlapping)
        ends[step.agent] = max(step.end_ns, ends.get(step.agent, 0))

    def key(place: int) -> tuple[object, ...]:
        step, text = run[place], _text(run[place])
        action = (step.kind, step.target or "")
        return step.agent, blocks[place], action, text not in shared, step.input, output_of(step), step.error

    return sorted(places, key=key)


def _by_first(pairs: Sequence[tuple[int | None, int | None]]) -> list[tuple[int | None, int | None]]:
    """Sort pairs by the first run's places; a step of the second run alone stays behind its predecessor."""
    keyed, last = [], -1
    for pair in pairs:
        last = last if pair[0] is None else pair[0]
        keyed.append(((last, pair[0] is None), pair))
    return [pair for _, pair in sorted(keyed, key=lambda one: one[0])]


def _align_in_order(
    left: Sequence[Alignable], right: Sequence[Alignable]
) -> list[tuple[int | None, int | None]]:
    ours, theirs = _Marks.of(left, right)
    start = 0
    end_left, end_right = len(left), len(right)
    while start < min(end_left, end_right) and ours.text[start] == theirs.text[start]:
        start += 1
    while start < min(end_left, end_right) and ours.text[end_left - 1] == theirs.text[end_right - 1]:
        end_left, end_right = end_left - 1, end_right - 1
    matched = [(place, place) for place in range(start)]
    for section in _sections((start, end_left), (start, end_right)):
        matched += _matched(ours, theirs, *section)
    matched += zip(range(end_left, len(left)), range(end_right, len(right)), strict=True)
    return list(_with_rest(matched, len(left), len(right)))


def _sections(
    left: tuple[int, int], right: tuple[int, int]
) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Cut both ranges into the same number of sections, so that the pairs to compare stay bounded."""
    (low, high), (first, last) = left, right
    count = max(1, -(-(high - low) * (last - first) // _MOST_CELLS))
    for number in range(count):
        yield (
            (low + (high - low) * number // count, low + (high - low) * (number + 1) // count),
            (first + (last - first) * number // count, first + (last - first) * (number + 1) // count),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Marks:
    """Steps as numbers: equal ones have equal numbers."""

    step: list[int]
    """By agent, kind and target."""
    text: list[int]
    """The same with all texts."""

    @staticmethod
    def of(*runs: Sequence[Alignable]) -> list[_Marks]:
        names: dict[object, int] = {}

        def number(key: object) -> int:
            return names.setdefault(key, len(names))

        return [
            _Marks(
                step=[number(_what(step)) for step in run],
                text=[number(_text(step)) for step in run],
            )
            for run in runs
        ]


def output_of(step: Alignable) -> str:
    """Return a step's output; empty for a handoff, since frameworks put new ids and states there."""
    return "" if step.kind is StepKind.HANDOFF else step.output


def _what(step: Alignable) -> tuple[str, str, str | None]:
    return step.agent, step.kind, step.target


def _text(step: Alignable) -> tuple[str | None, ...]:
    return (*_what(step), step.input, output_of(step), step.error, step.status)


def _matched(
    ours: _Marks, theirs: _Marks, left: tuple[int, int], right: tuple[int, int]
) -> list[tuple[int, int]]:
    """Return the best matching of two ranges, with a stack instead of recursion: the left one is halved."""
    found: list[tuple[int, int]] = []
    waiting = [(left, right)]
    while waiting:
        (low, high), (first, last) = waiting.pop()
        if low >= high or first >= last:
            continue
        if high - low == 1:
            found += _best_single(ours, theirs, low, range(first, last))
            continue
        middle = (low + high) // 2
        before = _scores(ours, theirs, range(low, middle), range(first, last))
        after = _scores(ours, theirs, range(high - 1, middle - 1, -1), range(last - 1, first - 1, -1))
        sums = [one + other for one, other in zip(before, reversed(after), strict=True)]
        cut = first + sums.index(max(sums))
        waiting += [((middle, high), (cut, last)), ((low, middle), (first, cut))]
    return found


def _best_single(ours: _Marks, theirs: _Marks, at: int, places: range) -> list[tuple[int, int]]:
    mark, text = ours.step[at], ours.text[at]
    same = [place for place in places if theirs.step[place] == mark]
    best = next((place for place in same if theirs.text[place] == text), same[0] if same else None)
    return [] if best is None else [(at, best)]


def _scores(ours: _Marks, theirs: _Marks, rows: range, columns: range) -> list[int]:
    """Return the best score of all rows against each beginning of the columns: the last row of the table."""
    marks, texts = [theirs.step[place] for place in columns], [theirs.text[place] for place in columns]
    above = [0] * (len(columns) + 1)
    for row in rows:
        mark, text = ours.step[row], ours.text[row]
        line = [0]
        best = diagonal = 0
        for other, other_text, up in zip(marks, texts, above[1:], strict=True):
            if other == mark:
                best = max(best, diagonal + _SAME_STEP + (_SAME_TEXT if other_text == text else 0))
            best = max(best, up)
            line.append(best)
            diagonal = up
        above = line
    return above


def _with_rest(
    matched: Sequence[tuple[int, int]], lefts: int, rights: int
) -> Iterator[tuple[int | None, int | None]]:
    """Yield the matches with the unmatched steps between them, those of the first run first."""
    left = right = 0
    for next_left, next_right in [*sorted(matched), (lefts, rights)]:
        yield from ((place, None) for place in range(left, next_left))
        yield from ((None, place) for place in range(right, next_right))
        if next_left < lefts and next_right < rights:
            yield next_left, next_right
        left, right = next_left + 1, next_right + 1
