"""Two runs side by side: aligned steps, where they part, differences of text, tokens, time and cost. Pure.

Steps are aligned by what they are (agent, kind, tool or next agent) with the longest common subsequence, and
among equals by their text. Hirschberg's algorithm (Communications of the ACM 18(6), 1975) needs memory linear
in the steps; equal beginnings and ends are paired first, which leaves little of most pairs of runs. Longer
runs are aligned section by section, so that two runs of 100,000 steps take seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final, Protocol

from analyzer.inquiry.whole_run import WholeRun, WholeStep
from semconv.model import StepKind


class Change(StrEnum):
    """Relation of a step to the other run."""

    SAME = "same"
    TEXT = "text"
    """The same agent does the same, with another text or outcome."""
    ONLY_LEFT = "only_left"
    ONLY_RIGHT = "only_right"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPair:
    """Two aligned steps, or one that the other run does not have."""

    change: Change
    left: int | None
    """Step of the first run."""
    right: int | None
    """Step of the second run."""
    agent: str
    kind: str
    target: str | None
    differs: tuple[str, ...]
    """The fields that differ: `input`, `output`, `error`, `status`, `model`."""
    duration_s: float | None
    """Second run minus first, as the numbers below; null where one of them is not known."""
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None


class Way(StrEnum):
    """Kind of the first difference between two runs."""

    EXTRA = "extra"
    """The first run has a step that the second does not have."""
    MISSING = "missing"
    """The first run lacks a step of the second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """The first step of two runs without a counterpart in the other."""

    way: Way
    step: int | None
    """Step of the first run; if it lacks the step, the one that came instead; null if the run had ended."""
    expected: str
    """The second run's action at that point, as prose; empty if it had ended."""
    found: str
    """The first run's action there; empty if it had ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTotals:
    """Sums over a run's steps; null where no step has the number."""

    steps: int
    errors: int
    duration_s: float
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDiff:
    """Two runs compared."""

    left: str
    """Id of the first run."""
    right: str
    same_task: bool
    same_output: bool
    first_divergence: int | None
    """Place in `pairs` of the first one that is not the same; null if all are."""
    departure: Departure | None
    """The first step without a counterpart; null if all are paired."""
    distance: float
    """Share of both runs' steps without a counterpart, 0 to 1."""
    compared: int
    """Runs among which the second one is the nearest; 1 if it was named."""
    pairs: tuple[StepPair, ...]
    left_totals: RunTotals
    right_totals: RunTotals

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON for programs, always with the same keys."""
        return asdict(self)


def nearest_run(left: WholeRun, candidates: Sequence[WholeRun]) -> WholeRun:
    """Return the candidate whose steps are nearest to a run's, by ``distance_of``; of equals, the first."""

    def distance(each: WholeRun) -> float:
        return distance_of(align(left.steps, each.steps), len(left.steps), len(each.steps))

    return min(candidates, key=distance)


def compare_runs(left: WholeRun, right: WholeRun, compared: int = 1) -> RunDiff:
    """Compare two runs; ``compared`` is the number of runs among which the second is the nearest.

    Equal steps at both ends cost little; of the others, at most about 4 million pairs are compared.
    """
    places = align(left.steps, right.steps)
    pairs = tuple(_pair(left.steps, right.steps, *place) for place in places)
    changed = (place for place, pair in enumerate(pairs) if pair.change is not Change.SAME)
    return RunDiff(
        left=left.run_id,
        right=right.run_id,
        same_task=left.task == right.task,
        same_output=left.output == right.output,
        first_divergence=next(changed, None),
        departure=departure_of(left.steps, right.steps, places),
        distance=distance_of(places, len(left.steps), len(right.steps)),
        compared=compared,
        pairs=pairs,
        left_totals=totals_of(left.steps),
        right_totals=totals_of(right.steps),
    )


def distance_of(places: Sequence[tuple[int | None, int | None]], lefts: int, rights: int) -> float:
    """Return the share of two runs' steps without a counterpart, 0 to 1, from their aligned places."""
    paired = sum(left is not None and right is not None for left, right in places)
    return round(1 - 2 * paired / (lefts + rights), 4) if lefts + rights else 0.0


def departure_of(
    lefts: Sequence[Alignable], rights: Sequence[Alignable], places: Sequence[tuple[int | None, int | None]]
) -> Departure | None:
    """Return the first step of two aligned runs without a counterpart; ``None`` if all are paired."""
    at = next((place for place, pair in enumerate(places) if None in pair), None)
    if at is None:
        return None
    step = next((left for left, _ in places[at:] if left is not None), None)
    other = next((right for _, right in places[at:] if right is not None), None)
    return Departure(
        way=Way.MISSING if places[at][0] is None else Way.EXTRA,
        step=None if step is None else lefts[step].index,
        expected="" if other is None else action_in_words(rights[other]),
        found="" if step is None else action_in_words(lefts[step]),
    )


def departure_in_words(departure: Departure, distance: float) -> str:
    """Return where the steps of two runs part, as a sentence."""
    if departure.way is Way.EXTRA:
        instead = f"the second does {departure.expected}" if departure.expected else "the second has ended"
        told = f"the first run does {departure.found} (step {departure.step}), {instead}"
    else:
        instead = f"does {departure.found} (step {departure.step})" if departure.found else "has ended"
        told = f"the second run does {departure.expected}, the first {instead}"
    return f"The first step without a counterpart: {told}. {distance:.0%} of the steps have none."


def action_in_words(step: Alignable) -> str:
    """Describe a step's action as prose, without its texts."""
    target = f" {step.target}" if step.target else ""
    return f"{step.agent}: {step.kind}{target}"


def totals_of(steps: Sequence[WholeStep]) -> RunTotals:
    """Return sums over steps; the duration is from the first start to the last end."""
    starts = [step.start_ns for step in steps if step.start_ns]
    ends = [step.end_ns for step in steps if step.end_ns]
    return RunTotals(
        steps=len(steps),
        errors=sum(step.status == "error" for step in steps),
        duration_s=max(0, max(ends) - min(starts)) / 1e9 if starts and ends else 0.0,
        input_tokens=_sum(step.input_tokens for step in steps),
        output_tokens=_sum(step.output_tokens for step in steps),
        cost_usd=_sum(step.cost_usd for step in steps),
    )


_COMPARED: Final = ("input", "output", "error", "status", "model")


def _pair(
    lefts: Sequence[WholeStep], rights: Sequence[WholeStep], left: int | None, right: int | None
) -> StepPair:
    ours = None if left is None else lefts[left]
    theirs = None if right is None else rights[right]
    shown = ours or theirs
    assert shown is not None
    differs: tuple[str, ...] = ()
    if ours is not None and theirs is not None:
        differs = tuple(name for name in _COMPARED if _field(ours, name) != _field(theirs, name))
        change = Change.TEXT if differs else Change.SAME
    else:
        change = Change.ONLY_LEFT if theirs is None else Change.ONLY_RIGHT
    return StepPair(
        change=change,
        left=left,
        right=right,
        agent=shown.agent,
        kind=shown.kind,
        target=shown.target,
        differs=differs,
        duration_s=_more(ours and ours.duration_s, theirs and theirs.duration_s),
        input_tokens=_more(ours and ours.input_tokens, theirs and theirs.input_tokens),
        output_tokens=_more(ours and ours.output_tokens, theirs and theirs.output_tokens),
        cost_usd=_more(ours and ours.cost_usd, theirs and theirs.cost_usd),
    )


def _field(step: WholeStep, name: str) -> object:
    return output_of(step) if name == "output" else getattr(step, name)


def _more(left: Any, right: Any) -> Any:
    return None if left is None or right is None else right - left


def _sum(numbers: Iterable[Any]) -> Any:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def in_words(differs: Sequence[str]) -> str:
    """Return which fields of two steps differ: ``other output``, ``other input, output and status``."""
    *first, last = differs
    return f"other {', '.join(first)} and {last}" if first else f"other {last}"


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


def align(left: Sequence[Alignable], right: Sequence[Alignable]) -> list[tuple[int | None, int | None]]:
    """Return the places of aligned steps, in order; ``None`` where one run has no such step."""
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
                text=[
                    number((*_what(step), step.input, output_of(step), step.error, step.status))
                    for step in run
                ],
            )
            for run in runs
        ]


def output_of(step: Alignable) -> str:
    """Return a step's output; empty for a handoff, since frameworks put new ids and states there."""
    return "" if step.kind is StepKind.HANDOFF else step.output


def _what(step: Alignable) -> tuple[str, str, str | None]:
    return step.agent, step.kind, step.target


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
