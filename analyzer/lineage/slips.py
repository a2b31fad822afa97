"""Wrong figures of the answer: slips of what a tool returned, of a conversion or of a calculation. Pure.

A figure without a source is not wrong for that: an answer may compute with what it was told in more ways than
anybody can try.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Final

from analyzer.lineage.calculations import factors
from analyzer.lineage.claims import MOST_PLAIN, Judged, World, answer_prose, judged
from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.deeds import sentence_at
from analyzer.lineage.derivation import (
    BY_CHANCE,
    alike_by_chance,
    near_miss,
    places_apart,
    results_of,
    results_of_both,
)
from analyzer.lineage.figures import CURRENCY_CODES, Figure, figures, prose_of, words_of
from analyzer.lineage.known import counts_in, known_of
from analyzer.lineage.sources import columns_of, is_blind, results, sources
from analyzer.texts.numbers import measure_of
from analyzer.texts.run_view import HEAD, Reading
from semconv.model import StepKind

_MOST_STEPS_APART: Final = 12
_LEAST_COLUMN: Final = 3
_OF: Final = re.compile(r"\s[^\W\d]{1,12}(?:\s[^\W\d]{1,12}){0,2}\s|\s?/\s?")
_OPENS: Final = re.compile(r"[^\d.,;:!?()]{0,24}[(（]\s?")  # noqa: RUF001 - Chinese brackets
_CLOSES: Final = re.compile(r"\s?%\s?[)）]")  # noqa: RUF001 - as above
"""What stands between two figures, before their share, and after it."""
_SHARE_OPENS: Final = re.compile(r"\s?%[\s*_]{0,4}[(（][^\d.,;:!?()]{0,24}")  # noqa: RUF001 - as above
_PARTS_CLOSE: Final = re.compile(r"[^\d.,;:!?()]{0,24}[)）]")  # noqa: RUF001 - as above
"""What stands between a share and its two figures in brackets, and after them."""
_EXCHANGED: Final = 2
"""Places in which a figure differs from another with two digits exchanged."""
_FEWEST_WORKED: Final = 2
_MOST_WORKED: Final = 5
_MOST_SAID: Final = 40
"""Latest figures of other agents that are compared."""
_EXCHANGES: Final = 2
"""Chance, in units of one number of as many digits, that a figure has the digits of a result: reasoned."""
_NOUN: Final = 3
"""Letters of a word that names what is counted."""


def miscalculated(reading: Reading) -> Iterator[Clue]:
    """Yield those of ``wrong_figures`` for which the run shows the right product.

    Returns early for most runs: few give exactly one rate and its counts.
    """
    stated = figures(answer_prose(reading))
    right = factors(reading.trajectory.task[:HEAD], results(reading), stated) if stated else None
    if right is not None and any(right.corrects(claim) for claim in stated):
        yield from (clue for clue in wrong_figures(reading) if clue.is_miscalculated)


def wrong_figures(reading: Reading) -> Iterator[Clue]:
    """Yield the final answer's wrong figures; none if some results of tools are missing.

    A figure without a source is not wrong for that: an answer may compute with what it was told in more ways
    than anybody can try. It is wrong if the run shows the product that should stand there, or if it is a
    figure of a result with a slip, and no arithmetic leads from one to the other.
    """
    if is_blind(reading):
        return
    answer = answer_prose(reading)
    held = judged(reading, answer)
    returned = (source.text for source in sources(reading) if source.is_result)
    right = factors(reading.trajectory.task[:HEAD], returned, figures(answer)) if held.bare else None
    for claim in held.bare:
        if right is not None and right.corrects(claim):
            yield _clue(reading, claim, _Instead(text=right.as_text(claim), is_product=True))
        elif claim in held.lone and (instead := _slipped(reading, held, claim)) is not None:
            yield _clue(reading, claim, instead)
        elif claim.unit == "%" and (share := _share_nearly(reading, claim)):
            yield _clue(reading, claim, _Instead(text=share))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Instead:
    """What should stand in place of a wrong figure."""

    text: str
    is_product: bool = False
    quote: tuple[int, str] | None = None
    """The position of the step that has it, and how it is written there."""


def _slipped(reading: Reading, held: Judged, claim: Figure) -> _Instead | None:
    """Return the figure that an answer gives with a slip, in any of its readings."""
    found = (_slipped_as(reading, held, figure) for figure in claim.as_read())
    return next((one for one in found if one is not None), None)


def _slipped_as(reading: Reading, held: Judged, claim: Figure) -> _Instead | None:
    """Return the figure that an answer gives with a slip: a returned, a converted or a computed one."""
    returned = _given_nearly(held, claim, held.world.results) or _of_the_noun_asked_for(reading, held, claim)
    if returned is not None:
        step, figure = returned
        text = f"{reading.steps[step].target or 'the tool'} returned {figure.shown}"
        return _Instead(text=text, quote=(step, figure.literal))
    if (heard := _given_nearly(held, claim, _worked_out_by_others(reading, held, claim))) is not None:
        step, figure = heard
        text = f"step {reading.steps[step].index} had {figure.shown}"
        return _Instead(text=text, quote=(step, figure.literal))
    find = (_computed_nearly, _added_up_nearly, _worked_out_nearly, _priced_nearly)
    found = next(filter(None, (one(reading, held, claim) for one in find)), "")
    return _Instead(text=found) if found else None


def _worked_out_by_others(reading: Reading, held: Judged, claim: Figure) -> Sequence[tuple[int, Figure]]:
    """Return the figures that no result has and that other agents said before a step did."""
    author = _introduced(reading, claim)
    said = (
        (place, figure)
        for place, step in enumerate(reading.steps[:author])
        if step.kind is not StepKind.TOOL and step.agent != reading.steps[author].agent
        for figure in figures(prose_of(reading.outputs[place]))
    )
    told = [each for each in said if not each[1].is_small and not held.world.gives(each[1])][-_MOST_SAID:]
    return [] if any(abs(figure.value) == abs(claim.value) for _, figure in told) else told


def _given_nearly(
    held: Judged, claim: Figure, given: Sequence[tuple[int, Figure]]
) -> tuple[int, Figure] | None:
    """Return the given figure from which one differs by a slip; the most alike if there are several.

    A figure that differs in one digit is also what adding a round amount gives, so a known amount of which
    the difference is a small multiple excuses it.
    """
    stated = {figure.value for figure in held.claims}
    unlike = [each for each in given if each[1].value not in stated and _may_be(claim, each[1])]
    many = len({figure.value for _, figure in unlike})
    is_only = given is held.world.results and len({figure.value for _, figure in given}) == 1
    near = [
        each
        for each in unlike
        if (is_only or _is_same_quantity(claim, each[1]))
        and many * alike_by_chance(claim, each[1].value) <= BY_CHANCE
        and not _is_step_apart(held.world, claim.value - each[1].value)
    ]
    return max(near, key=lambda each: _overlap(claim, each[1]), default=None)


def _of_the_noun_asked_for(reading: Reading, held: Judged, claim: Figure) -> tuple[int, Figure] | None:
    """Return the only figure of results for the noun that the task asks for: the seats of a ship.

    Money and measures have many uses, and of nouns that the task does not name an answer may count others.
    """
    is_noun = len(claim.unit) >= _NOUN and measure_of(claim.unit) is None and claim.unit not in CURRENCY_CODES
    if not is_noun or claim.unit not in words_of(reading.trajectory.task[:HEAD]):
        return None
    same = [each for each in held.world.results if claim.unit in {each[1].unit, *each[1].words}]
    is_one = len({figure.value for _, figure in same}) == 1
    return same[0] if is_one and same[0][1].value not in {figure.value for figure in held.claims} else None


def _may_be(claim: Figure, figure: Figure) -> bool:
    return figure.unit == claim.unit or not (figure.unit and claim.unit)


def _computed_nearly(reading: Reading, held: Judged, claim: Figure) -> str:
    """Return the sum, difference or product of figures beside one that has its digits in another order."""
    beside = figures(reading.outputs[_introduced(reading, claim)])
    lone = {figure.value for figure in held.lone}
    known = [one for one in (*beside, *figures(reading.trajectory.task[:HEAD])) if one.value not in lone]
    operands = list({figure.value: figure for figure in known if not figure.is_label}.values())[:MOST_PLAIN]
    found = [operation for one, other in permutations(operands, 2) for operation in _operations(one, other)]
    many = len({value for value, _ in found})
    stated = {figure.value for figure in held.claims}
    near = (
        text
        for value, text in found
        if value not in stated
        and _is_exchanged(claim, value)
        and many * alike_by_chance(claim, value) <= BY_CHANCE
    )
    return next(near, "")


def _share_nearly(reading: Reading, claim: Figure) -> str:
    """Return what share two figures are, if the percentage beside them is a slip of it.

    ``1,840 of 7,360 (35%)`` and ``35% (1,840 of 7,360)`` say that the percentage is this share. Elsewhere it
    may be a target, or the change since last year.
    """
    for one, other in _parts_beside(reading.outputs[_introduced(reading, claim)], claim):
        if not 0 < one.value <= other.value:
            continue
        right = 100 * one.value / other.value
        if not claim.is_about(right) and near_miss(claim, round(right / claim.step) * claim.step):
            return f"{one.literal} of {other.literal} is {right:.3g}%"
    return ""


def _parts_beside(text: str, claim: Figure) -> Iterator[tuple[Figure, Figure]]:
    """Yield the part and the whole of which a percentage in a text is said to be the share."""
    said = figures(text)
    for first, second, third in zip(said, said[1:], said[2:], strict=False):
        is_after = (
            third.value == claim.value
            and _OF.fullmatch(text[first.end : second.start])
            and _OPENS.fullmatch(text[second.end : third.start])
            and _CLOSES.match(text[third.end :])
        )
        is_before = (
            first.value == claim.value
            and _SHARE_OPENS.fullmatch(text[first.end : second.start])
            and _OF.fullmatch(text[second.end : third.start])
            and _PARTS_CLOSE.match(text[third.end :])
        )
        if is_after:
            yield first, second
        elif is_before:
            yield second, third


def _added_up_nearly(reading: Reading, held: Judged, claim: Figure) -> str:
    """Return the sum of a column that a figure gives with a slip."""
    columns = [column for column in columns_of(reading) if len(column) >= _LEAST_COLUMN]
    totals = {float(f"{sum(column):.12g}"): column for column in columns}
    for total, column in totals.items():
        is_slip = len(totals) * alike_by_chance(claim, total) <= BY_CHANCE
        if is_slip and not _is_step_apart(held.world, claim.value - total):
            return f"the {len(column)} values that it adds up are {total:,.10g}"
    return ""


def _worked_out_nearly(reading: Reading, held: Judged, claim: Figure) -> str:
    """Return what the other figures of its sentence give, of which a figure has the digits in another order.

    A sentence that shows its calculation has few figures, and words for small numbers: "six windows".
    """
    text = reading.outputs[_introduced(reading, claim)]
    at = next((one.start for one in figures(text) if one.value == claim.value), -1)
    sentence = sentence_at(text, at)
    lone = {figure.value for figure in held.lone}
    said = [one.value for one in figures(sentence) if one.value not in lone and not one.is_label]
    operands = list(dict.fromkeys([*said, *map(float, counts_in(sentence))]))
    if not _FEWEST_WORKED <= len(operands) <= _MOST_WORKED:
        return ""
    decimals = max(0, round(-math.log10(claim.step)))
    worked = results_of(operands)
    results = {f"{value:.{decimals}f}" for value in worked if value > 0}
    near = [one for one in results if _is_reordered(claim, one)]
    if near and any(claim.is_about(value) for one in worked for value in results_of_both(one, operands)):
        return ""  # four of them give it
    is_rare = len(results) * _EXCHANGES <= BY_CHANCE * 10 ** (len(claim.literal_digits) - 1)
    return f"its figures give {float(near[0]):,.{decimals}f}" if len(near) == 1 and is_rare else ""


def _priced_nearly(reading: Reading, _held: Judged, claim: Figure) -> str:
    """Return what so many of one amount and one other come to, if a figure differs from it in one digit.

    The text has just these two amounts before it, and the sentence just one number of things.
    """
    if claim.unit not in CURRENCY_CODES:
        return ""
    text = prose_of(reading.outputs[_introduced(reading, claim)])
    said = figures(text)
    own = next((one for one in said if one.value == claim.value), None)
    amounts = [one for one in said if own and one.end <= own.start and one.unit == claim.unit]
    sentence = sentence_at(text, own.start) if own else ""
    counts = [one for one in counts_in(sentence) if one > 1 and one not in {each.value for each in said}]
    if len(amounts) != 2 or len(counts) != 1:
        return ""
    (one, other), (count,) = amounts, counts
    if any(map(claim.is_about, results_of([one.value, other.value, float(count)]))):
        return ""
    totals = {count * a.value + b.value for a, b in ((one, other), (other, one))}
    near = [total for total in totals if _is_one_digit_off(claim, total)]
    return f"its figures give {near[0]:,.10g}" if len(near) == 1 else ""


def _is_one_digit_off(claim: Figure, value: float) -> bool:
    right = f"{value:.{max(0, round(-math.log10(claim.step)))}f}".replace(".", "")
    ours = claim.literal_digits
    return len(ours) == len(right) and len(places_apart(ours, right)) == 1


def _is_reordered(claim: Figure, right: str) -> bool:
    ours, theirs = claim.literal_digits, "".join(filter(str.isdigit, right))
    return ours != theirs and sorted(ours) == sorted(theirs) and ours[0] == theirs[0]


def _operations(one: Figure, other: Figure) -> Iterator[tuple[float, str]]:
    a, b = one.value, other.value
    if a > b:
        yield a - b, f"{one.literal} - {other.literal} is {a - b:,.10g}"
        yield a + b, f"{one.literal} + {other.literal} is {a + b:,.10g}"
        yield a * b, f"{one.literal} x {other.literal} is {a * b:,.10g}"


def _is_exchanged(claim: Figure, value: float) -> bool:
    digits = f"{value:.10g}".replace(".", "").strip("0")
    differing = sum(one != other for one, other in zip(digits, claim.digits, strict=False))
    return sorted(digits) == sorted(claim.digits) and differing == _EXCHANGED


def _is_same_quantity(claim: Figure, figure: Figure) -> bool:
    """Tell whether two figures share their unit or a word beside them: others are alike by chance."""
    return claim.unit == figure.unit != "" or not claim.words.isdisjoint(figure.words)


def _is_step_apart(world: World, difference: float) -> bool:
    multiples = (abs(difference / value) for value in world.loose if value)
    return any(each <= _MOST_STEPS_APART and each.is_integer() for each in multiples)


def _overlap(one: Figure, other: Figure) -> float:
    least = min(len(one.words), len(other.words))
    return len(one.words & other.words) / least if least else 0.0


def _introduced(reading: Reading, claim: Figure) -> int:
    """Return the position of the step in which an agent first states a figure; by default the last one."""
    return known_of(reading).first_stating(claim.value)


def _clue(reading: Reading, claim: Figure, instead: _Instead) -> Clue:
    position = _introduced(reading, claim)
    quotes = [*([instead.quote] if instead.quote else []), (position, claim.literal)]
    quoted = (known_of(reading).quote(at, word, reach=60) for at, word in quotes)
    return Clue(
        step=reading.steps[position].index,
        kind=ClueKind.WRONG_FIGURE,
        reason=f"gave {claim.shown}; {instead.text}",
        evidence=tuple(evidence for evidence in quoted if evidence.quote),
        value=claim.value,
        is_miscalculated=instead.is_product,
        signs={"product": float(instead.is_product)},
    )
