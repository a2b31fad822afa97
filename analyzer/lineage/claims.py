"""Figures of a text, and which of them nothing in the run gives. Pure.

A figure has a source if a tool, a person or the instructions gave it, rounded or in another unit, or if
arithmetic on such figures gives it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import permutations
from typing import Final

from analyzer.lineage.derivation import Derivation, Given, plain_results
from analyzer.lineage.durations import differences, durations, is_time_given
from analyzer.lineage.figures import Figure, figures, prose_of
from analyzer.lineage.sources import (
    Source,
    answered_columns,
    columns_of,
    is_blind,
    listed_columns,
    sources,
)
from analyzer.texts.numbers import numbers
from analyzer.texts.run_view import HEAD, Reading, final_answer
from semconv.model import StepKind

_MOST_CLAIMS: Final = 60
_MOST_DERIVED: Final = 16
MOST_PLAIN: Final = 7
_MOST_WORKED: Final = 4
_MOST_ON_LINE: Final = 8
_MOST_ROUNDS: Final = 4
_OPERATOR: Final = re.compile(r"[×*+−÷=%]|\d\s?[x/–-]\s?\d")  # noqa: RUF001 - as people write them
_GIVES: Final = re.compile(r"(?:=|\b(?:is|are|makes|gives|equals|total(?:s|ling)?))\W{0,4}$")
_LONGEST_VERB: Final = 20
_UP_TO_TWENTY: Final = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",
)  # fmt: skip
_ROUND: Final = {"thirty": 30.0, "forty": 40.0, "fifty": 50.0, "hundred": 100.0}
_SPELLED: Final = {
    **{word: float(value) for value, word in enumerate(_UP_TO_TWENTY)},
    **_ROUND,
    "dozen": 12.0,
    "half": 0.5,
    "twice": 2.0,
}


@dataclass(frozen=True)
class World:
    """Possible sources of a text's figures."""

    texts: tuple[str, ...]
    stated: tuple[float, ...]
    """The values of the figures of texts from outside, in both readings, each once."""
    spelled: tuple[float, ...]
    """Those of words such as ``dozen``."""
    given: Given
    """Searches in ``stated`` and ``spelled``."""
    results: tuple[tuple[int, Figure], ...]
    values: tuple[float, ...]
    """The values of the figures of texts from outside, as they are written."""

    @cached_property
    def apart(self) -> frozenset[float]:
        """Seconds between any two times of day in texts from outside."""
        return differences(self.texts)

    @cached_property
    def loose(self) -> frozenset[float]:
        """Digits anywhere in texts from outside, including dates and ids."""
        return frozenset[float]().union(*map(numbers, self.texts))

    def gives(self, claim: Figure) -> bool:
        """Tell whether a text from outside states the figure, rounded or in another unit."""
        return self.given.stands(claim) or claim.value in self.loose or self.given.converts(claim)


@dataclass(frozen=True, slots=True)
class Judged:
    """The figures of a text, and which of them no text from outside gives."""

    world: World
    claims: tuple[Figure, ...]
    bare: tuple[Figure, ...]
    """Those that are neither given nor follow plainly from what was given."""
    lone: tuple[Figure, ...]
    """Those of them that no arithmetic gives either."""


@lru_cache(maxsize=4)
def judged(reading: Reading, text: str) -> Judged:
    """Return the figures of a text, and which of them have a source; the last four texts are remembered."""
    claims = tuple(_distinct(figures(text)))
    world = world_of(reading) if claims else _NO_WORLD
    bare = _bare(reading, text, world, claims) if world.results and len(claims) <= _MOST_CLAIMS else []
    if not bare:
        return Judged(world=world, claims=claims, bare=(), lone=())
    derivation = _derivation(reading, text, world)
    lone = [claim for claim in bare if not derivation.computes(claim)]
    if lone:
        _derive(reading, world.loose, derivation)
        lone = [claim for claim in lone if not derivation.computes(claim)]
    return Judged(world=world, claims=claims, bare=tuple(bare), lone=tuple(lone))


def _bare(reading: Reading, text: str, world: World, claims: Sequence[Figure]) -> list[Figure]:
    bare = [claim for claim in claims if not world.gives(claim)]
    if not bare:
        return bare
    bare = _without_shown(bare, text, figures(text))
    bare = _without_durations(bare, text, world)
    if not bare:
        return bare
    asked = [figure.value for figure in figures(reading.trajectory.task[:HEAD])]
    plain = [*asked, *(claim.value for claim in claims if claim not in bare)]
    worked_out = plain_results([*dict.fromkeys(plain)][:MOST_PLAIN])
    return [claim for claim in bare if not any(map(claim.is_about, worked_out))]


def figures_from_nowhere(reading: Reading, text: str) -> frozenset[Figure]:
    """Return the figures of a text that nothing in the run gives, even by arithmetic."""
    return frozenset() if is_blind(reading) else frozenset(judged(reading, text).lone)


def has_figures_from_nowhere(reading: Reading) -> bool:
    """Tell whether the final answer has figures that nothing in the run gives."""
    return bool(figures_from_nowhere(reading, answer_prose(reading)))


def answer_prose(reading: Reading) -> str:
    """Return the final answer without code and patches."""
    return prose_of(final_answer(reading.trajectory)[:HEAD])


def _without_shown(bare: list[Figure], text: str, stated: Sequence[Figure]) -> list[Figure]:
    """Leave out the figures that a calculation beside them gives, from figures that have a source."""
    for _ in range(_MOST_ROUNDS):
        unknown = {figure.value for figure in bare}
        sound = [figure for figure in stated if figure.value not in unknown]
        left = [
            claim
            for claim in bare
            if not (_is_worked_out(text, claim, sound) or _is_shown_calculation(text, claim, sound))
        ]
        if len(left) == len(bare):
            break
        bare = left
    return bare


def _is_shown_calculation(text: str, claim: Figure, stated: Sequence[Figure]) -> bool:
    """Tell whether a calculation on the figure's own line gives it: readers check it where it stands."""
    start, end = text.rfind("\n", 0, claim.start) + 1, text.find("\n", claim.end)
    line = text[start : len(text) if end < 0 else end]
    if not _OPERATOR.search(line):
        return False
    near = [one.value for one in stated if start <= one.start < start + len(line) and one is not claim]
    pairs = permutations(near[:_MOST_ON_LINE], 2)
    return any(claim.is_about(result) for one, other in pairs for result in _shown_results(one, other))


def _shown_results(one: float, other: float) -> Iterator[float]:
    """Yield what two figures give that stand beside each other, the second also as a per cent."""
    yield from (one * other, one * other / 100, one + other, one - other)
    yield from (one * (1 + other / 100), one * (1 - other / 100))
    if other:
        yield from (one / other, 100 * one / other)


def _without_durations(bare: list[Figure], answer: str, world: World) -> list[Figure]:
    """Leave out durations that are written in two units, or that two times of day give."""
    if not bare:
        return bare
    known = [*world.values, *(figure.value for figure in figures(answer) if figure not in bare)]
    stated = durations(answer)
    return [claim for claim in bare if not is_time_given(answer, claim, known, stated, world.apart)]


def _is_worked_out(text: str, claim: Figure, stated: Sequence[Figure]) -> bool:
    """Tell whether plain arithmetic on the figures just before it in the sentence gives it."""
    if not _GIVES.search(text[max(0, claim.start - _LONGEST_VERB) : claim.start]):
        return False
    before = [figure for figure in stated if figure.end <= claim.start and _together(text, figure, claim)]
    results = plain_results([figure.value for figure in before[-_MOST_WORKED:]])
    return any(claim.is_about(result) for result in results)


def _together(text: str, one: Figure, other: Figure) -> bool:
    """Tell whether two figures are in the same sentence."""
    between = text[min(one.end, other.end) : max(one.start, other.start)]
    return not re.search(r"[.!?;](?:\s|$)|\n", between)


def _distinct(claims: Iterable[Figure]) -> list[Figure]:
    found: dict[tuple[float, str], Figure] = {}
    for claim in claims:
        if not claim.is_small:
            found.setdefault((claim.value, claim.unit), claim)
    return list(found.values())


@lru_cache(maxsize=2)
def world_of(reading: Reading) -> World:
    """Return the possible sources of figures in a run; the last two runs are remembered."""
    return _from_sources(sources(reading))


def _from_sources(origins: Sequence[Source]) -> World:
    results = tuple(
        (source.step, figure)
        for source in origins
        if source.is_result and source.step is not None
        for figure in source.figures
    )
    readings = (reading for origin in origins for figure in origin.figures for reading in figure.readings)
    stated = tuple(dict.fromkeys(readings))
    words = {word for source in origins for word in source.text.casefold().split()}
    spelled = tuple([_SPELLED[word] for word in words if word in _SPELLED])
    given = Given((*stated, *spelled))
    texts = tuple([source.text for source in origins])
    values = tuple([figure.value for source in origins for figure in source.figures])
    return World(texts=texts, stated=stated, spelled=spelled, given=given, results=results, values=values)


_NO_WORLD: Final = _from_sources(())


def _derivation(reading: Reading, answer: str, world: World) -> Derivation:
    """Return what arithmetic on the sources' figures gives."""
    stated = figures(answer)
    own = answered_columns(final_answer(reading.trajectory)[:HEAD])
    columns = [*columns_of(reading), *listed_columns(stated, world.loose), *own]
    shares = [figure.value for figure in stated if figure.unit == "%"]
    counts = [float(len(column)) for column in columns]
    operands = [*_most_telling(world.stated, answer), *shares, *world.spelled, *counts]
    return Derivation(operands, columns)


def _most_telling(given: Sequence[float], answer: str) -> list[float]:
    """Return values, those in the answer first: the answer probably computes with them."""
    stated = numbers(answer)
    return sorted((value for value in given if value), key=lambda value: value not in stated)


def _derive(reading: Reading, loose: frozenset[float], derivation: Derivation) -> None:
    """Add the intermediate results that agents state and that follow from known values."""
    found = 0
    for position, step in enumerate(reading.steps):
        if step.kind is StepKind.TOOL:
            continue
        for figure in figures(prose_of(reading.outputs[position])):
            if figure.value in loose or figure.is_small:
                continue
            if found >= _MOST_DERIVED:
                return
            if derivation.computes(figure) or derivation.computes_in_threes(figure):
                derivation.add(figure.value)
                found += 1
