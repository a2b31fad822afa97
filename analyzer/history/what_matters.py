"""The first difference of two runs that matters for their answers. Pure.

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final, Protocol, TypeAlias

from analyzer.history.align_steps import Alignable, output_of
from semconv.model import SpanStatus, StepKind
from semconv.record import record

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
