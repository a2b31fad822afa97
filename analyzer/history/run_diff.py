"""Two runs side by side: aligned steps, the difference that matters, texts, tokens, time and cost. Pure.

Two runs of one task differ at nearly every step: ids, times and wordings are always new. A difference
matters if the runs do not act alike (one calls a tool or an agent that the other does not), if a step failed
in one run only, or if a step wrote a value that the other run's step did not, and the value goes on into
the answer. A value goes on if the answer has it, or if a later step was given it and wrote a value that goes
on. The request of a call whose result goes on counts, if its arguments differ.

Figures come first: ids and dates of an answer differ between runs that agree. Names and words are compared
only if the answers differ in nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final, Protocol, TypeAlias

from analyzer.history.align_steps import Alignable, align, output_of
from analyzer.inquiry.whole_run import WholeRun, WholeStep
from analyzer.texts.run_view import final_answer
from semconv.model import Outcome, SpanStatus, StepKind
from semconv.record import record

_COMPARED_TEXT: Final = 2_000
"""Characters of a text whose words are compared to find the nearest run."""
_COMPARED: Final = ("input", "output", "error", "status", "model")
"""Fields of a step that may differ."""


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
    matters: Matter | None
    """The first difference that matters for the answers; null if none does."""
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


def nearest_run(left: WholeRun, candidates: Sequence[WholeRun], passed: Collection[str] = ()) -> WholeRun:
    """Return the run nearest to a run, by task and texts; of equals, the first.

    Runs of the same task come first, of these the ones that are known to have passed, and of these the one
    whose steps and texts are most alike.

    Args:
        left: the run.
        candidates: the others, at least one.
        passed: ids of those that passed, beside those that say so themselves.
    """

    def distance(each: WholeRun) -> tuple[bool, bool, float]:
        has_passed = each.outcome is Outcome.SUCCESS or each.run_id in passed
        return not has_same_task(each, left), not has_passed, _difference(left, each)

    return min(candidates, key=distance)


def has_same_task(one: WholeRun, other: WholeRun) -> bool:
    """Tell whether two runs have the same task, up to spaces and the case of letters."""
    return one.task.casefold().split() == other.task.casefold().split()


def _difference(left: WholeRun, right: WholeRun) -> float:
    """Return 1 less the likeness of two runs' steps: a pair counts by the share of words that both have."""
    likeness = sum(
        _likeness(left.steps[one], right.steps[other])
        for one, other in align(left.steps, right.steps)
        if one is not None and other is not None
    )
    both = len(left.steps) + len(right.steps)
    return 1 - 2 * likeness / both if both else 0.0


def _likeness(ours: WholeStep, theirs: WholeStep) -> float:
    """Return 0.5 for a pair of steps with no word in common, up to 1 for the same words."""
    words, others = (
        {*f"{step.input[:_COMPARED_TEXT]} {step.output[:_COMPARED_TEXT]}".casefold().split()}
        for step in (ours, theirs)
    )
    both = len(words) + len(others)
    return 0.5 + len(words & others) / both if both else 1.0


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
        same_task=has_same_task(left, right),
        same_output=left.output == right.output,
        first_divergence=next(changed, None),
        matters=first_that_matters(_side(left), _side(right), places),
        departure=departure_of(left.steps, right.steps, places),
        distance=distance_of(places, len(left.steps), len(right.steps)),
        compared=compared,
        pairs=pairs,
        left_totals=totals_of(left.steps),
        right_totals=totals_of(right.steps),
    )


def _side(run: WholeRun) -> Side:
    return Side(steps=run.steps, task=run.task, answer=final_answer(run.trajectory))


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


def matter_in_words(found: RunDiff) -> str:
    """Return the first difference that matters as a sentence; empty if the runs do not differ."""
    if found.matters is None:
        none = "No difference matters: the runs make the same calls, and their answers have the same values."
        return none if found.first_divergence is not None else ""
    pair = found.pairs[found.matters.place]
    what = action_in_words(pair)
    match found.matters.reach:
        case Reach.VALUE:
            left, right = (value or "no such value" for value in (found.matters.left, found.matters.right))
            told = (
                f"{pair.agent} wrote {left} (step {pair.left}), the second run {right} (step {pair.right}),"
                " and the answer depends on it"
            )
        case Reach.EXTRA:
            told = f"only the first run does {what} (step {pair.left})"
        case Reach.MISSING:
            told = f"only the second run does {what} (its step {pair.right})"
        case Reach.FAILURE:
            which = (
                f"the first run (step {pair.left})"
                if found.matters.left
                else f"the second (step {pair.right})"
            )
            told = f"{what} failed only in {which}"
    return f"The first difference that matters: {told}."


def departure_in_words(departure: Departure, distance: float) -> str:
    """Return where the steps of two runs part, as a sentence."""
    if departure.way is Way.EXTRA:
        instead = f"the second does {departure.expected}" if departure.expected else "the second has ended"
        told = f"the first run does {departure.found} (step {departure.step}), {instead}"
    else:
        instead = f"does {departure.found} (step {departure.step})" if departure.found else "has ended"
        told = f"the second run does {departure.expected}, the first {instead}"
    return f"The first step without a counterpart: {told}. {distance:.0%} of the steps have none."


def action_in_words(step: Alignable | StepPair) -> str:
    """Describe the action of a step, or of two aligned ones, as prose, without its texts."""
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


# --- the first difference that matters ---

MOST_READ: Final = 4_000
"""Characters of a text in which values are looked for."""
MOST_PAIRS: Final = 4_000
"""Pairs of steps whose texts are read, the first ones."""
_MOST_FOLLOWED: Final = 64
"""Steps whose inputs are read as carefully as an answer: that takes about 1 ms a text."""
_EPOCHS: Final = ((1e9, 3e9), (1e12, 3e12), (1e15, 3e15), (1e18, 3e18))
"""Whole numbers that programs write for times: seconds, milli-, micro- and nanoseconds since 1970."""
_NUMBER: Final = re.compile(r"(?<![A-Za-z0-9_#.,])(?<![A-Za-z][/-])\d[\d.,]*")
"""A number, not the digits of an id."""
_GROUPS: Final = re.compile(r"\d{1,3}(?:([.,])\d{3})(?:\1\d{3})*(?!\d)")
_TOKEN: Final = re.compile(r"[\w@:/#.+-]+")
_WORD: Final = re.compile(r"[^\W\d_]{4,}|[^\W\d_a-zA-Z\u00c0-\u024f]{2,}")
"""A word; of two letters in scripts that write whole words with them."""
_SHOWN: Final = 60
_ERROR: Final = "error"

Values: TypeAlias = Mapping[object, str]
"""The values of a text as written, by a key that is equal for equal values."""
Read: TypeAlias = Callable[[str], Values]
Places: TypeAlias = Sequence[tuple[int | None, int | None]]


class Reach(StrEnum):
    """Why a difference matters."""

    VALUE = "value"
    """A step wrote another value, and it goes on into the answer."""
    EXTRA = "extra"
    """The first run has a call that the second does not have."""
    MISSING = "missing"
    """The first run lacks a call of the second."""
    FAILURE = "failure"
    """The step failed in one run only."""


@record
class Matter:
    """The first difference that matters."""

    place: int
    """Its place in the pairs of the comparison."""
    reach: Reach
    left: str
    """The value that only the first run's step wrote, or `error` if only that failed; else empty."""
    right: str
    """The same of the second run."""


class Compared(Alignable, Protocol):
    """A step as differences read it."""

    @property
    def retry_of(self) -> int | None:
        """The failed step that it repeats, if any."""
        ...


@record
class Side:
    """One of the two runs."""

    steps: Sequence[Compared]
    task: str
    answer: str


@record
class _Kind:
    """A kind of values."""

    careful: Read
    """Returns those of an answer."""
    quick: Read
    """Returns all that a step's text may have, among others."""


def first_that_matters(left: Side, right: Side, places: Places) -> Matter | None:
    """Return the first difference of two aligned runs that matters; ``None`` if none does."""
    act = next(_acts(left, right, places), None)
    values = (_first_value(kind, left, right, places) for kind in _KINDS)
    value = next((each for each in values if each is not None), None)
    found = [each for each in (act, value) if each is not None]
    return min(found, key=lambda each: each.place, default=None)


def _acts(left: Side, right: Side, places: Places) -> Iterator[Matter]:
    """Yield the differences of what the runs do, in order."""
    repaired = [{step.retry_of for step in side.steps} for side in (left, right)]
    agents = [{step.agent for step in side.steps} for side in (left, right)]
    for place, (one, other) in enumerate(places):
        ours = None if one is None else left.steps[one]
        theirs = None if other is None else right.steps[other]
        if ours is not None and theirs is not None:
            if _is_failed(ours) != _is_failed(theirs) and not (
                ours.index in repaired[0] or theirs.index in repaired[1]
            ):
                own, other_run = (_ERROR if _is_failed(step) else "" for step in (ours, theirs))
                yield Matter(place=place, reach=Reach.FAILURE, left=own, right=other_run)
        elif ours is not None and _is_act(ours, repaired[0], agents[1]):
            yield Matter(place=place, reach=Reach.EXTRA, left="", right="")
        elif theirs is not None and _is_act(theirs, repaired[1], agents[0]):
            yield Matter(place=place, reach=Reach.MISSING, left="", right="")


def _is_failed(step: Compared) -> bool:
    return step.status is SpanStatus.ERROR


def _is_act(step: Compared, repaired: set[int | None], others: set[str]) -> bool:
    """Tell a call from another turn of a model, a failed call that was repeated, and its repetition."""
    if step.retry_of is not None or (_is_failed(step) and step.index in repaired):
        return False
    return step.kind in {StepKind.TOOL, StepKind.HANDOFF} or step.agent not in others


def _first_value(kind: _Kind, left: Side, right: Side, places: Places) -> Matter | None:
    """Return the first pair of steps of which one wrote a value that goes on into its run's answer alone."""
    told = [{*kind.careful(side.task)} for side in (left, right)]
    in_answers = _apart(kind.careful, left.answer, right.answer)
    wanted = [{*values} - told[side] for side, values in enumerate(in_answers)]
    if not any(wanted):
        return None
    arguments = set[object](), set[object]()
    found: Matter | None = None
    followed = 0
    for place in range(min(len(places), MOST_PAIRS) - 1, -1, -1):
        one, other = places[place]
        if one is None or other is None:
            continue
        mine, its = left.steps[one], right.steps[other]
        written = _apart(kind.quick, output_of(mine), output_of(its))
        going = _among(written, wanted)
        if not any(going) and any(arguments) and mine.kind is not StepKind.TOOL:
            written = _apart(_all, output_of(mine), output_of(its))
            going = _among(written, arguments)
        if not any(going):
            continue
        shown = [_shown(values, keys) for values, keys in zip(written, going, strict=True)]
        found = Matter(place=place, reach=Reach.VALUE, left=shown[0], right=shown[1])
        if kind is _WORDS or followed == _MOST_FOLLOWED:
            continue  # a word that a step was given says nothing about those that it wrote
        followed += 1
        for side, given in enumerate(_apart(kind.careful, mine.input, its.input)):
            wanted[side].update(key for key in given if key not in told[side] and not _is_time(key))
        if mine.kind is StepKind.TOOL:
            for side, given in enumerate(_apart(_all, mine.input, its.input)):
                arguments[side].update(given)
    return found


def _among(written: Sequence[Values], wanted: Sequence[set[object]]) -> list[list[object]]:
    """Return the keys of the values of each side that are wanted of it."""
    return [[key for key in values if key in keys] for values, keys in zip(written, wanted, strict=True)]


def _shown(written: Values, going: Sequence[object]) -> str:
    """Return the first value that goes on; without any, the first number that the step wrote instead."""
    keys = going or [key for key in written if isinstance(key, float)]
    return next((written[key][:_SHOWN] for key in keys), "")


def _apart(read: Read, left: str, right: str) -> tuple[Values, Values]:
    """Return the values that only one of two texts has."""
    if left == right:
        return {}, {}
    ours, theirs = read(left[:MOST_READ]), read(right[:MOST_READ])
    return (
        {key: text for key, text in ours.items() if key not in theirs},
        {key: text for key, text in theirs.items() if key not in ours},
    )


def _is_time(key: object) -> bool:
    return isinstance(key, float) and key.is_integer() and any(low <= key < high for low, high in _EPOCHS)


def _figures(text: str) -> Values:
    from analyzer.lineage.figures import figures  # noqa: PLC0415 - the pages import this module

    return {figure.value: figure.literal for figure in reversed(figures(text)) if not figure.is_label}


def _numbers(text: str) -> Values:
    found: dict[object, str] = {}
    for match in _NUMBER.finditer(text):
        literal = match[0].rstrip(".,")
        for value in _readings(literal):
            found.setdefault(value, literal)
    return found


def _readings(literal: str) -> Iterator[float]:
    """Yield the numbers that digits with points and commas may stand for: ``3.200`` is 3.2 or 3200."""
    grouped = _GROUPS.match(literal)
    if grouped:
        plain = grouped[0].replace(grouped[1], "") + literal[grouped.end() :].replace(",", ".")
        if plain.count(".") <= 1:
            yield float(plain)
    plain = literal.replace(",", ".")
    if plain.count(".") <= 1:
        yield float(plain)


def _things(text: str) -> Values:
    from analyzer.lineage.values import values_in  # noqa: PLC0415 - as above

    return {value.literal.casefold().strip("#/"): value.literal for value in reversed(values_in(text))}


def _tokens(text: str) -> Values:
    return {found[0].casefold().rstrip(".:").strip("#/"): found[0] for found in _TOKEN.finditer(text)}


def _words(text: str) -> Values:
    return {found[0].casefold(): found[0] for found in _WORD.finditer(text)}


def _all(text: str) -> Values:
    return {**_words(text), **_tokens(text), **_numbers(text)}


_WORDS: Final = _Kind(careful=_words, quick=_words)
_KINDS: Final = (
    _Kind(careful=_figures, quick=_numbers),
    _Kind(careful=_things, quick=_tokens),
    _WORDS,
)
