"""Figures of a text that nothing in the run gives, and those of the final answer that are wrong. Pure.

A figure has a source if a tool, a person or the instructions gave it, rounded or in another unit, or if
arithmetic on such figures gives it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from typing import Final

from analyzer.lineage.calculations import factors
from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.derivation import (
    BY_CHANCE,
    Derivation,
    alike_by_chance,
    plain_results,
    wrong_power,
)
from analyzer.lineage.durations import differences, durations, is_time_given
from analyzer.lineage.figures import CURRENCY_CODES, Figure, figures, prose_of, words_of
from analyzer.lineage.sources import (
    Source,
    columns_of,
    is_blind,
    listed_columns,
    results,
    sources,
)
from analyzer.signals.normalize import excerpt
from analyzer.signals.numbers import measure_of, numbers
from analyzer.signals.run_view import HEAD, Reading, final_answer
from semconv.model import Evidence, StepKind

_MOST_CLAIMS: Final = 60
_MOST_DERIVED: Final = 16
_MOST_PLAIN: Final = 7
_MOST_WORKED: Final = 4
_MOST_ON_LINE: Final = 8
_MOST_ROUNDS: Final = 4
_OPERATOR: Final = re.compile(r"[×*+−÷=%]|\d\s?[x/–-]\s?\d")  # noqa: RUF001 - as people write them
_TELLING: Final = 2
_LEAST_COLUMN: Final = 3
_NOUN: Final = 3
"""Letters of a word that names what is counted."""
_MOST_STEPS_APART: Final = 12
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


@dataclass(frozen=True, slots=True)
class _World:
    """Possible sources of an answer's figures."""

    loose: frozenset[float]
    """Digits anywhere in texts from outside, including dates and ids."""
    derivation: Derivation
    results: tuple[tuple[int, Figure], ...]

    def gives(self, claim: Figure) -> bool:
        """Tell whether a text from outside states the figure, rounded or in another unit."""
        return claim.value in self.loose or self.derivation.stands(claim) or self.derivation.converts(claim)


@dataclass(frozen=True, slots=True)
class Judged:
    """The figures of a text, and which of them no text from outside gives."""

    world: _World
    claims: tuple[Figure, ...]
    bare: tuple[Figure, ...]
    """Those that are neither given nor follow plainly from what was given."""
    lone: tuple[Figure, ...]
    """Those of them that no arithmetic gives either."""
    worked_out: tuple[float, ...]
    """Results of plain arithmetic on figures of the task and the text."""


@lru_cache(maxsize=4)
def judged(reading: Reading, text: str) -> Judged:
    """Return the figures of a text, and which of them have a source; the last four texts are remembered."""
    all_figures = figures(text)
    claims = _distinct(all_figures)
    origins = sources(reading)
    world = _world(reading, origins, text)
    if not claims or len(claims) > _MOST_CLAIMS or not world.results:
        return Judged(world=world, claims=tuple(claims), bare=(), lone=(), worked_out=())
    bare = [claim for claim in claims if not world.gives(claim)]
    bare = _without_shown(bare, text, all_figures)
    bare = _without_durations(bare, text, origins)
    asked = _asked(reading.trajectory.task)
    plain = [*asked.values, *(claim.value for claim in claims if claim not in bare)]
    worked_out = tuple(plain_results([*dict.fromkeys(plain)][:_MOST_PLAIN]))
    bare = [claim for claim in bare if not any(claim.is_about(result) for result in worked_out)]
    lone = [claim for claim in bare if not world.derivation.computes(claim)]
    return Judged(
        world=world, claims=tuple(claims), bare=tuple(bare), lone=tuple(lone), worked_out=worked_out
    )


def figures_from_nowhere(reading: Reading, text: str) -> frozenset[Figure]:
    """Return the figures of a text that nothing in the run gives, even by arithmetic."""
    return frozenset() if is_blind(reading) else frozenset(judged(reading, text).lone)


def has_figures_from_nowhere(reading: Reading) -> bool:
    """Tell whether the final answer has figures that nothing in the run gives."""
    return bool(figures_from_nowhere(reading, _answer(reading)))


def _answer(reading: Reading) -> str:
    return prose_of(final_answer(reading.trajectory)[:HEAD])


def _without_shown(bare: list[Figure], text: str, stated: Sequence[Figure]) -> list[Figure]:
    """Leave out the figures that a calculation beside them gives, from figures that have a source."""
    for _ in range(_MOST_ROUNDS):
        unknown = {one.value for one in bare}
        sound = [one for one in stated if one.value not in unknown]
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


def _without_durations(bare: list[Figure], answer: str, origins: Sequence[Source]) -> list[Figure]:
    """Leave out durations that are written in two units, or that two times of day give."""
    if not bare:
        return bare
    known = [figure.value for source in origins for figure in source.figures]
    known += [figure.value for figure in figures(answer) if figure not in bare]
    stated, apart = durations(answer), differences(source.text for source in origins)
    return [claim for claim in bare if not is_time_given(answer, claim, known, stated, apart)]


@dataclass(frozen=True, slots=True)
class _Asked:
    """Figures and words of the task."""

    words: frozenset[str]
    units: frozenset[str]
    values: tuple[float, ...]


def _asked(task: str) -> _Asked:
    found = figures(task[:HEAD])
    return _Asked(
        words=words_of(task[:HEAD]),
        units=frozenset(figure.unit for figure in found if figure.unit),
        values=tuple(figure.value for figure in found),
    )


def _is_worked_out(text: str, claim: Figure, stated: Sequence[Figure]) -> bool:
    """Tell whether plain arithmetic on the figures just before it in the sentence gives it."""
    before = [one for one in stated if one.end <= claim.start and _together(text, one, claim)]
    if not re.search(r"(?:=|\b(?:is|are|makes|gives|equals|total(?:s|ling)?))\W{0,4}$", text[: claim.start]):
        return False
    results = plain_results([one.value for one in before[-_MOST_WORKED:]])
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


def _world(reading: Reading, origins: Sequence[Source], answer: str) -> _World:
    given = tuple(
        dict.fromkeys(each for one in origins for figure in one.figures for each in figure.readings)
    )
    loose = frozenset[float]().union(*(numbers(source.text) for source in origins))
    words = {word for source in origins for word in source.text.casefold().split()}
    spelled = [_SPELLED[word] for word in words if word in _SPELLED]
    results = tuple(
        (source.step, figure)
        for source in origins
        if source.is_result and source.step is not None
        for figure in source.figures
    )
    stated = figures(answer)
    columns = [*columns_of(reading), *listed_columns(stated, loose)]
    shares = [figure.value for figure in stated if figure.unit == "%"]
    counts = [float(len(column)) for column in columns]
    operands = [*_most_telling(given, answer), *shares, *spelled, *counts]
    derivation = Derivation((*given, *spelled), operands, columns)
    world = _World(loose=loose, derivation=derivation, results=results)
    _derive(reading, world)
    return world


def _most_telling(given: Sequence[float], answer: str) -> list[float]:
    """Return values, those in the answer first: the answer probably computes with them."""
    stated = numbers(answer)
    return sorted((value for value in given if value), key=lambda value: value not in stated)


def _derive(reading: Reading, world: _World) -> None:
    """Add the intermediate results that agents state and that follow from known values."""
    found = 0
    for position, step in enumerate(reading.steps):
        if step.kind is StepKind.TOOL:
            continue
        for figure in figures(prose_of(reading.outputs[position])):
            if figure.value in world.loose or figure.is_small:
                continue
            if found >= _MOST_DERIVED:
                return
            if world.derivation.computes(figure) or world.derivation.computes_in_threes(figure):
                world.derivation.add(figure.value)
                found += 1


def miscalculated(reading: Reading) -> Iterator[Clue]:
    """Yield those of ``wrong_figures`` for which the run shows the right product.

    Returns early for most runs: few give exactly one rate and its counts.
    """
    stated = figures(_answer(reading))
    right = factors(reading.trajectory.task[:HEAD], results(reading), stated) if stated else None
    if right is not None and any(right.corrects(claim) for claim in _distinct(stated)):
        yield from (clue for clue in wrong_figures(reading) if clue.is_miscalculated)


def wrong_figures(reading: Reading) -> Iterator[Clue]:
    """Yield the final answer's wrong figures; none if some results of tools are missing.

    A figure without a source is not wrong for that: an answer may compute with what it was told in more ways
    than anybody can try. It is wrong if the run shows the product that should stand there, or if it is a
    figure of a result with a slip, and no arithmetic leads from one to the other.
    """
    if is_blind(reading):
        return
    answer = _answer(reading)
    held = judged(reading, answer)
    returned = (source.text for source in sources(reading) if source.is_result)
    right = factors(reading.trajectory.task[:HEAD], returned, figures(answer)) if held.bare else None
    for claim in held.bare:
        if right is not None and right.corrects(claim):
            yield _clue(reading, claim, _Instead(text=right.as_text(claim), is_product=True))
        elif claim in held.lone and (instead := _slipped(reading, held, claim)) is not None:
            yield _clue(reading, claim, instead)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Instead:
    """What should stand in place of a wrong figure."""

    text: str
    is_product: bool = False
    quote: tuple[int, str] | None = None
    """The position of the step that has it, and how it is written there."""


def _slipped(reading: Reading, held: Judged, claim: Figure) -> _Instead | None:
    """Return the figure that an answer gives with a slip: a returned, a converted or a computed one."""
    returned = _returned_nearly(held, claim)
    if returned is not None:
        step, one = returned
        text = f"{reading.steps[step].target or 'the tool'} returned {one.shown}"
        return _Instead(text=text, quote=(step, one.literal))
    found = (
        _converted_nearly(held, claim)
        or _computed_nearly(reading, held, claim)
        or _added_up_nearly(reading, held, claim)
    )
    return _Instead(text=found) if found else None


def _returned_nearly(held: Judged, claim: Figure) -> tuple[int, Figure] | None:
    """Return the figure of a result from which one differs by a slip; the most alike if there are several.

    A figure that differs in one digit is also what adding a round amount gives, so a known amount of which
    the difference is a small multiple excuses it.
    """
    stated = {one.value for one in held.claims}
    unlike = [each for each in held.world.results if each[1].value not in stated and _may_be(claim, each[1])]
    many = len({one.value for _, one in unlike})
    near = [
        each
        for each in unlike
        if many * alike_by_chance(claim, each[1].value) <= BY_CHANCE
        and not _is_step_apart(held.world, claim.value - each[1].value)
    ]
    same = _of_the_same_noun(claim, held.world.results)
    if len({one.value for _, one in same}) == 1 and same[0][1].value not in stated:
        near += same[:1]
    return max(near, key=lambda each: _overlap(claim, each[1]), default=None)


def _of_the_same_noun(claim: Figure, given: Sequence[tuple[int, Figure]]) -> Sequence[tuple[int, Figure]]:
    """Return the figures of results that count the same as one: seats. Money and measures have many uses."""
    is_noun = len(claim.unit) >= _NOUN and measure_of(claim.unit) is None and claim.unit not in CURRENCY_CODES
    return [each for each in given if claim.unit in {each[1].unit, *each[1].words}] if is_noun else []


def _may_be(claim: Figure, one: Figure) -> bool:
    return one.unit == claim.unit or not (one.unit and claim.unit)


def _converted_nearly(held: Judged, claim: Figure) -> str:
    """Return the conversion that a figure misses by one or two powers of ten: 3.42 MWh are no 342 kWh."""
    stated = {one.value for one in held.claims if one not in held.lone}
    for step_and_figure in held.world.results:
        one = step_and_figure[1]
        right = wrong_power(claim, one.value) if _is_other_measure(claim, one) else None
        if right is not None and right not in stated:
            return f"{one.shown} is {claim.shown.replace(claim.literal, f'{right:,.6g}')}"
    return ""


def _is_other_measure(claim: Figure, one: Figure) -> bool:
    """Tell whether two figures may measure the same in different units."""
    ours, theirs = measure_of(claim.unit), measure_of(one.unit)
    if ours is None or len(claim.digits) < _TELLING:
        return False
    return not one.unit or (theirs is not None and ours[0] == theirs[0] and ours[1] != theirs[1])


def _computed_nearly(reading: Reading, held: Judged, claim: Figure) -> str:
    """Return the sum, difference or product of figures beside one that has its digits in another order."""
    beside = figures(reading.outputs[_introduced(reading, claim)])
    lone = {one.value for one in held.lone}
    known = [one for one in (*beside, *figures(reading.trajectory.task[:HEAD])) if one.value not in lone]
    operands = list({one.value: one for one in known if not one.is_label}.values())[:_MOST_PLAIN]
    found = [each for one, other in permutations(operands, 2) for each in _operations(one, other)]
    many = len({value for value, _ in found})
    near = (
        text
        for value, text in found
        if _is_exchanged(claim, value) and many * alike_by_chance(claim, value) <= BY_CHANCE
    )
    return next(near, "")


def _added_up_nearly(reading: Reading, held: Judged, claim: Figure) -> str:
    """Return the sum of a column that a figure gives with a slip."""
    columns = [column for column in columns_of(reading) if len(column) >= _LEAST_COLUMN]
    totals = {float(f"{sum(column):.12g}"): column for column in columns}
    for total, column in totals.items():
        is_slip = len(totals) * alike_by_chance(claim, total) <= BY_CHANCE
        if is_slip and not _is_step_apart(held.world, claim.value - total):
            return f"the {len(column)} values that it adds up are {total:,.10g}"
    return ""


def _operations(one: Figure, other: Figure) -> Iterator[tuple[float, str]]:
    a, b = one.value, other.value
    if a > b:
        yield a - b, f"{one.literal} - {other.literal} is {a - b:,.10g}"
        yield a + b, f"{one.literal} + {other.literal} is {a + b:,.10g}"
        yield a * b, f"{one.literal} x {other.literal} is {a * b:,.10g}"


def _is_exchanged(claim: Figure, value: float) -> bool:
    digits = f"{value:.10g}".replace(".", "").strip("0")
    return sorted(digits) == sorted(claim.digits) and digits != claim.digits


def _is_step_apart(world: _World, difference: float) -> bool:
    multiples = (abs(difference / value) for value in world.loose if value)
    return any(each <= _MOST_STEPS_APART and each.is_integer() for each in multiples)


def _overlap(one: Figure, other: Figure) -> float:
    least = min(len(one.words), len(other.words))
    return len(one.words & other.words) / least if least else 0.0


def _introduced(reading: Reading, claim: Figure) -> int:
    """Return the position of the step in which an agent first states a figure; by default the last one."""
    last = 0
    for position, step in enumerate(reading.steps):
        if step.kind is StepKind.TOOL:
            continue
        last = position
        if any(figure.value == claim.value for figure in figures(reading.outputs[position])):
            return position
    return last


def _clue(reading: Reading, claim: Figure, instead: _Instead) -> Clue:
    position = _introduced(reading, claim)
    quotes = [*([instead.quote] if instead.quote else []), (position, claim.literal)]
    quoted = (Evidence(step=reading.steps[at].index, quote=_around(reading, at, word)) for at, word in quotes)
    return Clue(
        step=reading.steps[position].index,
        kind=ClueKind.WRONG_FIGURE,
        reason=f"gave {claim.shown}; {instead.text}",
        evidence=tuple(one for one in quoted if one.quote),
        value=claim.value,
        is_miscalculated=instead.is_product,
        signs={"product": float(instead.is_product)},
    )


def _around(reading: Reading, position: int, literal: str) -> str:
    """Return a step's words around a figure; empty if only the step's input has it."""
    text = reading.steps[position].output
    at = text.find(literal)
    return excerpt(text, at, at + len(literal), before=60, after=60) if at >= 0 else ""
