"""Claims of the final answer that nothing in the run supports: figures, dates, ids, links and quotations.

A figure is supported if a tool, a person or the instructions gave it, rounded or in another unit, or if
arithmetic on such figures gives it. Other figures are weighed by how much they look like a slip of a figure
that a tool returned: the same unit, the same words around it, a digit changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import permutations
from typing import Final

from analyzer.lineage.calculations import factors
from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.derivation import Derivation, near_miss, plain_results
from analyzer.lineage.durations import differences, durations, is_time_given
from analyzer.lineage.figures import Figure, figures, prose_of, words_of
from analyzer.lineage.sources import (
    Source,
    columns_of,
    is_blind,
    listed_columns,
    results,
    sources,
)
from analyzer.signals.normalize import excerpt
from analyzer.signals.numbers import numbers
from analyzer.signals.run_view import HEAD, Reading, final_answer
from semconv.model import Evidence, Step, StepKind

_MOST_CLAIMS: Final = 60
_ALIKE: Final = 0.3
"""Share of common words from which two figures count as figures of the same thing."""
_MOST_DERIVED: Final = 16
_MOST_PLAIN: Final = 7
_MOST_WORKED: Final = 4
_NAMED: Final = 0.75
_MOST_ON_LINE: Final = 8
_OPERATOR: Final = re.compile(r"[×*+−÷=%]|\d\s?[x/–-]\s?\d")  # noqa: RUF001 - as people write them
_PRECISE: Final = 3
_ADVICE: Final = re.compile(
    r"\b(?:consider|recommend\w*|suggest\w*|advis\w+|should|could|would|may|might|typical\w*|usual\w*|general\w*"
    r"|normally|standard|for reference|for example|e\.g\.|note that|tip"
    r"|plan|estimat\w*|assum\w*|confiden\w+|score\w*"
    r"|points|let me|if you|feel free|remember|expect\w*)\b",
    re.IGNORECASE,
)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsupportedFigure:
    """A figure of the final answer without support, and the signs that it is a slip."""

    step: int
    """Step in which an agent first stated it."""
    figure: Figure
    origin: Figure | None
    """The figure of a tool's result that it most resembles."""
    origin_step: int | None
    quote: str
    has_unit_of_result: bool
    is_slot: float
    """Margin by which its words match that figure's better than any other figure's, 0 to 1."""
    overlap: float
    """Share of the words around it that are also around the figure it resembles, 0 to 1."""
    is_near_miss: bool
    is_origin_unsaid: bool
    """Whether the answer lacks the figure that it resembles."""
    is_computed: bool
    """Whether arithmetic can give it; then only a near miss is suspicious."""
    in_threes: bool
    by_chance: float
    crowd: float
    """Share of the answer's figures that have no support."""
    of_task: float
    """Share of the words around it that are also in the task, 0 to 1."""
    is_advice: bool
    """Whether its sentence recommends, explains or estimates instead of reporting."""
    in_company: bool
    """Whether the same sentence has a supported figure."""
    is_near_result: bool
    """Whether it is a slip of a result of plain arithmetic on figures of the task and the answer."""
    task_has_unit: bool
    product: str
    """The product that should be there instead, as text; empty if it is not certain."""
    results: int
    """Number of figures in tools' results."""


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
    bare = [claim for claim in bare if not _is_worked_out(text, claim, all_figures)]
    bare = [claim for claim in bare if not _is_shown_calculation(text, claim, all_figures)]
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


def unsupported_figures(reading: Reading) -> Iterator[UnsupportedFigure]:
    """Yield the figures of the final answer without support; empty if some tools' results are missing."""
    if is_blind(reading):
        return
    answer = prose_of(final_answer(reading.trajectory)[:HEAD])
    held = judged(reading, answer)
    asked, stated = _asked(reading.trajectory.task), {claim.value for claim in held.claims}
    returned = (source.text for source in sources(reading) if source.is_result)
    right = factors(reading.trajectory.task[:HEAD], returned, figures(answer)) if held.bare else None
    crowd = len(held.lone) / len(held.claims) if held.claims else 0.0
    for claim in held.bare:
        is_computed = claim not in held.lone
        found = _unsupported(reading, claim, held.world, stated, crowd, is_computed=is_computed)
        supported = (other for other in held.claims if other not in held.bare)
        yield replace(
            found,
            of_task=len(claim.words & asked.words) / len(claim.words) if claim.words else 0.0,
            is_advice=_ADVICE.search(_sentence(answer, claim)) is not None,
            in_company=any(_together(answer, claim, other) for other in supported),
            is_near_result=any(near_miss(claim, result) for result in held.worked_out),
            task_has_unit=bool(claim.unit) and claim.unit in asked.units,
            product=right.as_text(claim) if right is not None and right.corrects(claim) else "",
        )


def _is_shown_calculation(text: str, claim: Figure, stated: Sequence[Figure]) -> bool:
    """Tell whether a calculation on the figure's own line gives it: readers check it where it stands.

    Whether the calculation is right, and its operands have a source, is asked of each of them.
    """
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


def _sentence(text: str, figure: Figure) -> str:
    starts = [text.rfind(mark, 0, figure.start) for mark in (". ", "! ", "? ", "\n")]
    ends = [place for mark in (". ", "! ", "? ", "\n") if (place := text.find(mark, figure.end)) >= 0]
    return text[max(starts) + 1 : min(ends, default=len(text))]


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
    given = tuple(dict.fromkeys(figure.value for source in origins for figure in source.figures))
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


def _unsupported(
    reading: Reading, claim: Figure, world: _World, stated: set[float], crowd: float, *, is_computed: bool
) -> UnsupportedFigure:
    units = {figure.unit for _, figure in world.results if figure.unit}
    best = max(world.results, key=lambda result: _likeness(claim, result[1], stated))
    step, origin = best
    overlap = _overlap(claim, origin)
    rivals = [_overlap(claim, figure) for _, figure in world.results if figure.value != origin.value]
    position = _introduced(reading, claim)
    return UnsupportedFigure(
        step=reading.steps[position].index,
        figure=claim,
        origin=origin,
        origin_step=step,
        quote=_quote(reading, position, claim),
        has_unit_of_result=bool(claim.unit) and claim.unit in units,
        overlap=overlap,
        is_slot=max(0.0, overlap - max(rivals, default=0.0)),
        is_near_miss=near_miss(claim, origin.value),
        is_origin_unsaid=origin.value not in stated,
        is_computed=is_computed,
        in_threes=not is_computed and world.derivation.computes_in_threes(claim),
        by_chance=world.derivation.chance(claim),
        crowd=crowd,
        of_task=0.0,
        is_advice=False,
        in_company=False,
        is_near_result=False,
        task_has_unit=False,
        product="",
        results=len(world.results),
    )


def _likeness(claim: Figure, other: Figure, stated: set[float]) -> float:
    same_unit = claim.unit == other.unit
    unlike = bool(claim.unit and other.unit and not same_unit)
    return (
        2.0 * near_miss(claim, other.value)
        + 1.0 * (same_unit and bool(claim.unit))
        + 1.5 * _overlap(claim, other)
        + 1.0 * (other.value not in stated)
        - 2.0 * unlike
    )


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


def _quote(reading: Reading, position: int, claim: Figure) -> str:
    text = reading.steps[position].output
    at = text.find(claim.literal)
    return excerpt(text, at, at + len(claim.literal), before=70, after=70) if at >= 0 else ""


def miscalculated(reading: Reading) -> Iterator[Clue]:
    """Yield those of ``wrong_figures`` for which the run shows the right product.

    Returns early for most runs: few give exactly one rate and its counts.
    """
    stated = figures(prose_of(final_answer(reading.trajectory)[:HEAD]))
    right = factors(reading.trajectory.task[:HEAD], results(reading), stated) if stated else None
    if right is not None and any(right.corrects(claim) for claim in _distinct(stated)):
        yield from (clue for clue in wrong_figures(reading) if clue.is_miscalculated)


def wrong_figures(reading: Reading) -> Iterator[Clue]:
    """Yield the final answer's unsupported figures as clues."""
    for found in unsupported_figures(reading):
        is_slip = found.is_near_miss or (found.is_slot > 0 and found.overlap >= _ALIKE)
        if found.is_computed and not (is_slip and found.is_origin_unsaid):
            continue
        steps = reading.steps
        origin = found.origin
        alike = origin is not None and _is_comparable(found, origin)
        evidence = [Evidence(step=found.step, quote=found.quote)]
        if origin is not None and found.origin_step is not None and alike:
            source = steps[found.origin_step]
            at = source.output.find(origin.literal)  # it may be in the step's input instead
            if at >= 0:
                quote = excerpt(source.output, at, at + len(origin.literal), before=50, after=50)
                evidence.insert(0, Evidence(step=source.index, quote=quote))
        digits = len(found.figure.digits)
        yield Clue(
            step=found.step,
            kind=ClueKind.WRONG_FIGURE,
            reason=_said(found, steps, is_alike=alike),
            evidence=tuple(one for one in evidence if one.quote),
            value=found.figure.value,
            is_miscalculated=bool(found.product),
            signs={
                "unit": float(found.has_unit_of_result),
                "overlap": found.overlap,
                "near_miss": float(found.is_near_miss),
                "near_miss_unsaid": float(found.is_near_miss and found.is_origin_unsaid),
                "unsaid": float(found.is_origin_unsaid),
                "computed": float(found.is_computed),
                "slot": found.is_slot,
                "computed_slot": float(found.is_computed) * found.is_slot,
                "computed_overlap": float(found.is_computed) * found.overlap,
                "computed_miss": float(found.is_computed and found.is_near_miss),
                "in_threes": float(found.in_threes),
                "chance": found.by_chance,
                "crowd": found.crowd,
                "of_task": found.of_task,
                "advice": float(found.is_advice),
                "names_it": float(found.overlap >= _NAMED and found.is_slot > 0 and found.is_origin_unsaid),
                "linked": float(max(found.of_task, found.overlap) >= _ALIKE),
                "precise": float(digits >= _PRECISE),
                "in_company": float(found.in_company),
                "near_result": float(found.is_near_result),
                "task_unit": float(found.task_has_unit),
                "task_company": found.of_task * found.in_company,
                "hedged": float(found.figure.is_hedged),
                "digits": min(digits, 6) / 6,
                "unit_overlap": float(found.has_unit_of_result) * found.overlap,
            },
        )


def _is_comparable(found: UnsupportedFigure, origin: Figure) -> bool:
    """Tell whether the result's figure is comparable with the claim: seats say nothing about euros."""
    if found.is_near_miss or found.figure.unit == origin.unit != "":
        return True
    return found.overlap >= _ALIKE and not (found.figure.unit and origin.unit)


def _said(found: UnsupportedFigure, steps: Sequence[Step], *, is_alike: bool) -> str:
    if found.product:
        return f"gave {found.figure.shown}; {found.product}"
    if found.origin is None or found.origin_step is None or not is_alike:
        return f"gave {found.figure.shown}, which no tool returned and which no arithmetic here gives"
    tool = steps[found.origin_step].target or "the tool"
    return f"gave {found.figure.shown}; {tool} returned {found.origin.shown}"
