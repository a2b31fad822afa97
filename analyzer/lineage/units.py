"""Figures that kept their digits and changed their unit: 18400 kg, where the scale gave 18400 g. Pure.

A sum has the unit of its parts: two amounts in dollars come to no amount in euros with the same digits.

A conversion between metric units moves the decimal point; one that moves it too far is told by its digits:
3.42 MWh is no 342 kWh. A dose is none: 1.24 mg for 12.4 kg, where 0.1 mg a kg was given.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, pairwise
from typing import Any, Final

from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.deeds import Amount, amounts_in
from analyzer.lineage.derivation import BY_CHANCE
from analyzer.lineage.entries import document_in
from analyzer.lineage.figures import CURRENCY_CODES, Figure, figures, prose_of, unit_of
from analyzer.lineage.known import Known, around, counts_in, words_in
from analyzer.texts.commands import call_name
from analyzer.texts.normalize import excerpt
from analyzer.texts.numbers import measure_of
from analyzer.texts.run_view import HEAD, own_words
from analyzer.texts.tool_names import looks_up
from analyzer.texts.vocabulary import words_for
from semconv.model import Evidence, StepKind
from semconv.record import record

_LEAST_DIGITS: Final = 2
_MOST_NODES: Final = 2_000
_MONEY: Final = "money"
_MOST_GIVEN: Final = 40
_MOST_SCANNED: Final = 400
_MOST_SUMMED: Final = 12
_AREAS: Final = frozenset({"mm2", "cm2", "m2"})
_LEAST_SAME: Final = 3
"""Digits that two figures beside each other share by conversion, not by chance."""
_RIGHT_AFTER: Final = 16
"""Characters between a figure and its conversion: the unit, and words such as "that is"."""
_ROUNDED: Final = 0.006
"""Relative distance within which a conversion is right: it may be rounded to three digits."""
_BESIDE: Final = 80
"""Characters around a figure in which it may say by what it was multiplied."""
_POWERS: Final = (10.0, 0.1, 100.0, 0.01)
_BYTES: Final = 1e6
"""A whole number from which a result without a unit may be bytes."""
_SIZES: Final[Mapping[str, tuple[float, ...]]] = {
    "ug": (1e-6,), "mg": (1e-3,), "g": (1.0,), "kg": (1e3,), "t": (1e6,),
    "mm": (1e-3,), "cm": (1e-2,), "m": (1.0,), "km": (1e3,),
    "ml": (1e-3,), "cl": (1e-2,), "dl": (0.1,), "l": (1.0,), "hl": (1e2,),
    "mm2": (1e-6,), "cm2": (1e-4,), "m2": (1.0,), "ha": (1e4,), "km2": (1e6,),
    "wh": (1.0,), "kwh": (1e3,), "mwh": (1e6,), "w": (1.0,), "kw": (1e3,), "mw": (1e6,),
    "ms": (1e-3,), "s": (1.0,), "min": (60.0,), "h": (3600.0,),
    "b": (1.0,), "kb": (1e3, 1024.0), "mb": (1e6, 1024.0**2), "gb": (1e9, 1024.0**3), "tb": (1e12, 1024.0**4),
    "kib": (1024.0,), "mib": (1024.0**2,), "gib": (1024.0**3,), "tib": (1024.0**4,),
}  # fmt: skip
"""Sizes of units within their dimension; of bytes both that are in use."""
_CENT: Final = "cent"
_WHOLE: Final = "jpy"
"""The currency without cents (ISO 4217): its amounts are no hundredths, as those of others often are."""
_WHOLES: Final = frozenset({_WHOLE, "krw", "vnd"})
"""Currencies of which interfaces give whole units where they give cents of others."""
_PLAIN: Final = re.compile(r"\d[\d.,]{0,24}")


@record
class _Returned:
    """A figure of a result or of another agent, with its unit and the step that gave it."""

    unit: str
    figure: Figure
    step: int


def changed_units(known: Known) -> Iterator[Clue]:
    """Yield the figures in another unit than a returned one that its conversion does not give."""
    yield from _misconverted_at_once(known)
    yield from islice(_misconverted_in_deeds(known), 1)
    answered = figures(known.answer)
    if not any(_dimension(one.unit) for one in answered):
        return
    returned: defaultdict[str, dict[tuple[str, float], _Returned]] = defaultdict(dict)
    written = _written(known)
    single = [*_returned(known, written)]
    for one in (*single, *_totals(single)):
        dimension = _dimension(one.unit)
        is_doubted = one.unit == _CENT and _is_named(known, frozenset({_CENT}))
        if dimension is not None and dimension[0] != "scale" and not is_doubted:
            returned[dimension[0]].setdefault((one.unit, one.figure.value), one)
    digits, stated = {one.digits for one in answered}, {(one.value, one.unit) for one in answered}
    seen = {
        (figure.value, figure.unit)
        for source in known.sources
        for figure in source.figures
        if source.step is None or not _is_echo(written, figure.value, figure.unit, source.step)
    }
    for position, figure in _said(known):
        dimension = _dimension(figure.unit)
        if dimension is None or (figure.value, figure.unit) in seen:
            continue
        seen.add((figure.value, figure.unit))
        given = [
            *islice(
                _heard(known, position, islice(returned[dimension[0]].values(), _MOST_SCANNED)), _MOST_GIVEN
            )
        ]
        returned[dimension[0]][figure.unit, figure.value] = _Returned(
            unit=figure.unit, figure=figure, step=position
        )
        found = _misconverted(figure, given) if figure.digits in digits else ()
        if found and not any((one.figure.value, one.unit) in stated for one in found):
            rates = _rates(known, position, figure)
            broken = frozenset(rate for rate in rates if not rate.is_integer())
            times = [(time, rates) for one in found for time in _times(figure, one)]
            times += [(time, broken) for one in given for time in _times(figure, one)]
            if not any(math.isclose(each, rate) for each, among in times for rate in among):
                yield _clue(known, position, figure, found[0])


def _misconverted_at_once(known: Known) -> Iterator[Clue]:
    """Yield the figures right after the same digits in another unit: 45,510 kg, or 4.551 t."""
    answered = {digits for figure in figures(known.answer) if len(digits := figure.digits) >= _LEAST_SAME}
    for position, step in enumerate(known.reading.steps if answered else ()):
        said = figures(prose_of(known.reading.outputs[position])) if step.kind is not StepKind.TOOL else ()
        for one, other in pairwise(said):
            is_told = other.digits in answered and _moves_the_point(one, other)
            if is_told and _is_wrong_in_any_reading(one, other) and not _is_given(known, other):
                yield _clue(known, position, other, _Returned(unit=one.unit, figure=one, step=position))
                return


def _misconverted_in_deeds(known: Known) -> Iterator[Clue]:
    """Yield the deeds that take the number of an earlier result in another unit.

    The keys name the same amount: ``amount_eur`` is 48250, where ``amount_cents`` was returned.
    """
    returned: list[tuple[int, Amount]] = []
    calls = (step for step in known.reading.steps if step.kind is StepKind.TOOL)
    deeds = (step for step in islice(calls, 1, None) if not looks_up(call_name(step)))  # after a result
    has_units = any(amount.figure.unit for step in deeds for amount in amounts_in(step.input[:HEAD]))
    for position, step in enumerate(known.reading.steps if has_units else ()):
        if step.kind is not StepKind.TOOL:
            continue
        for one in amounts_in(step.input[:HEAD]) if returned and not looks_up(call_name(step)) else ():
            same = [each for each in returned if each[1].figure.value == one.figure.value]
            if (
                same
                and all(_is_in_other_unit(one, amount) for _, amount in same)
                and not _is_spoken(known, one, position)
                and not _is_named(known, frozenset(amount.figure.unit for _, amount in same))
            ):
                origin = known.origin_of(one.figure.literal, position)
                yield _deed_clue(known, position, origin, one.figure, same[-1])
        amounts = (amount for amount in amounts_in(step.output[:HEAD]) if amount.figure.unit)
        returned += [(position, amount) for amount in amounts if len(amount.figure.digits) >= _LEAST_DIGITS]


def _is_in_other_unit(one: Amount, other: Amount) -> bool:
    """Tell whether the keys of two numbers name the same amount in different units of one dimension."""
    ours, theirs = one.figure.unit, other.figure.unit
    shared = (one.words & other.words) - {ours, theirs}
    return bool(shared) and _is_other_unit(ours, theirs)


def _is_named(known: Known, units: frozenset[str]) -> bool:
    """Tell whether people speak of one of these units, of which they may know better than its key."""
    return any(unit_of(word) in units for word in words_in(known.asked))


def _is_spoken(known: Known, amount: Amount, before: int) -> bool:
    """Tell whether somebody gave an amount in its unit before a call."""
    said = (figure for figure in _spoken(known, before) if figure.value == amount.figure.value)
    return any(figure.has_unit_of(amount.figure) for figure in said)


def _is_other_unit(unit: str, given: str) -> bool:
    """Tell whether two units are different ones of the same dimension."""
    ours, theirs = _dimension(unit), _dimension(given)
    return ours is not None and theirs is not None and ours[0] == theirs[0] and ours != theirs


def _spoken(known: Known, before: int) -> Iterator[Figure]:
    """Yield the figures of people and of instructions, and those that agents said before a call."""
    yield from (figure for source in known.sources if not source.is_result for figure in source.figures)
    yield from figures(known.instructions)
    steps = known.reading.steps[:before]
    yield from (one for step in steps if step.kind is not StepKind.TOOL for one in figures(own_words(step)))


def _deed_clue(known: Known, deed: int, origin: int, figure: Figure, given: tuple[int, Amount]) -> Clue:
    call, (step, amount) = known.reading.steps[deed], given
    returned = f"{known.giver(step)} returned {amount.figure.literal} {amount.figure.unit}"
    reason = f"called {call.target or 'a tool'} with {figure.literal} {figure.unit.upper()}, where {returned}"
    quote = Evidence(step=call.index, quote=around(call.input, figure.literal, reach=40))
    return known.clue(origin, ClueKind.CHANGED, reason, quote, value=figure.value, sign="argument")


def _is_given(known: Known, figure: Figure) -> bool:
    """Tell whether a text from outside has a number: then it is no conversion, but about something else."""
    return any(known.is_number_read(value, len(known.reading.steps)) for value in figure.readings)


def _moves_the_point(one: Figure, other: Figure) -> bool:
    """Tell whether a figure right after another has its digits with another number of zeros.

    The same number again is another thing: 512 MB of memory, 512 GB of disk.
    """
    is_same = one.digits == other.digits and one.literal_digits != other.literal_digits
    return is_same and other.start - one.end <= _RIGHT_AFTER


def _is_wrong_in_any_reading(one: Figure, other: Figure) -> bool:
    """Tell whether two figures of a dimension, in different units, are no conversions of each other."""
    ours, theirs = _dimension(other.unit), _dimension(one.unit)
    if ours is None or theirs is None or ours[0] != theirs[0] or ours == theirs:
        return False
    rights = [
        value * size / each
        for value in one.readings
        for size in _SIZES.get(theirs[1], ())
        for each in _SIZES.get(ours[1], ())
    ]
    told = [value / right for value in other.readings for right in rights if right]
    return bool(told) and not any(math.isclose(ratio, 1, rel_tol=_ROUNDED) for ratio in told)


def _heard(known: Known, position: int, given: Iterable[_Returned]) -> Iterator[_Returned]:
    """Yield the figures that a tool returned or another agent said: an agent may correct its own."""
    steps = known.reading.steps
    return (
        one
        for one in given
        if steps[one.step].kind is StepKind.TOOL or steps[one.step].agent != steps[position].agent
    )


def _said(known: Known) -> Iterator[tuple[int, Figure]]:
    for position, step in enumerate(known.reading.steps):
        if step.kind is not StepKind.TOOL:
            yield from ((position, figure) for figure in figures(prose_of(known.reading.outputs[position])))


def _misconverted(figure: Figure, given: Sequence[_Returned]) -> Sequence[_Returned]:
    """Return the figures of which another is a wrong conversion; none if it is a right one of any."""
    digits = len(figure.digits)
    if digits < _LEAST_DIGITS or any(
        figure.is_about(right) for one in given for right in _conversions(figure, one)
    ):
        return []
    is_rare = len(_POWERS) * len(given) / (9 * 10.0 ** (digits - 1)) <= BY_CHANCE
    return [
        one
        for one in given
        if (_keeps_digits(figure, one) and (is_rare or _has_its_words(figure, one)))
        or (is_rare and _is_powers_apart(figure, one))
    ]


def _has_its_words(figure: Figure, one: _Returned) -> bool:
    """Tell whether two figures are of the same thing, by a word beside both; a sum is of several."""
    return " + " not in one.figure.literal and not figure.words.isdisjoint(one.figure.words)


def _keeps_digits(figure: Figure, one: _Returned) -> bool:
    """Tell whether a figure has the value of another, and another unit."""
    if figure.value != one.figure.value or _dimension(figure.unit) == _dimension(one.unit):
        return False
    dimension = _dimension(figure.unit)
    return dimension is None or dimension[0] != "time" or len(figure.digits) > _LEAST_DIGITS


def _is_powers_apart(figure: Figure, one: _Returned) -> bool:
    if figure.unit == one.unit == _WHOLE:
        return figure.is_about(one.figure.value * 0.01)
    rights = _conversions(figure, one) if figure.unit != one.unit else ()
    return any(figure.is_about(right * power) for right in rights for power in _POWERS)


def _conversions(figure: Figure, one: _Returned) -> Sequence[float]:
    """Return what a returned figure is in the unit of another; none if the sizes are unknown."""
    ours, theirs = _dimension(figure.unit), _dimension(one.unit)
    if ours is None or theirs is None:
        return ()
    if ours[0] == theirs[0] == _MONEY and one.unit == _CENT != figure.unit:
        return (one.figure.value * (1.0 if figure.unit in _WHOLES else 0.01),)
    to, of = _SIZES.get(ours[1].partition("/")[0], ()), _SIZES.get(theirs[1].partition("/")[0], ())
    return [one.figure.value * size / each for each in to for size in of]


def _times(figure: Figure, one: _Returned) -> Iterator[float]:
    """Yield how many times another a figure may be: 100 laps of 250 m are 25 km.

    The same number in another unit is no multiple.
    """
    if one.figure.value not in {0.0, figure.value}:
        yield figure.value / one.figure.value
        yield from (figure.value / right for right in _conversions(figure, one))


def _rates(known: Known, position: int, figure: Figure) -> frozenset[float]:
    """Return the numbers by which a figure may have been multiplied: those given, and those beside it."""
    beside = known.reading.outputs[position][max(0, figure.start - _BESIDE) : figure.end + _BESIDE]
    near = (*(one for source in known.sources for one in source.figures), *figures(beside))
    percents = (one for one in near if "%" in {one.unit, *map(unit_of, one.words)})
    one_percent = {0.01} if any(one.value == 1.0 for one in percents) else set[float]()  # not of a count
    counts = map(float, (*known.counts, *counts_in(beside)))
    rates = {*(one.value for one in near), *counts} - {0.0, 1.0}
    parts = {each for rate in rates for each in (1 / rate, rate / 100)}
    return frozenset((rates | parts | one_percent) - {1.0})


def _returned(known: Known, written: Mapping[tuple[float, str], int]) -> Iterator[_Returned]:
    """Yield the figures of results with their units, except those that the run had written itself."""
    for one in _all_returned(known):
        if not _is_echo(written, one.figure.value, one.unit, one.step):
            yield one


def _is_echo(written: Mapping[tuple[float, str], int], value: float, unit: str, step: int) -> bool:
    return written.get((value, unit), step + 1) <= step


def _written(known: Known) -> Mapping[tuple[float, str], int]:
    """Return the figures in the arguments of calls, each with the first position: a result echoes them."""
    found: dict[tuple[float, str], int] = {}
    for place, step in enumerate(known.reading.steps):
        if step.kind is StepKind.TOOL:
            text = step.input[:HEAD]
            beside = ((figure, unit) for literal, unit in _beside_units(text) for figure in figures(literal))
            for one, unit in (*((figure, figure.unit) for figure in figures(text)), *beside):
                found.setdefault((one.value, unit), place)
    return found


def _all_returned(known: Known) -> Iterator[_Returned]:
    for step, found in known.figures():
        for figure in found:
            is_bytes = not figure.unit and figure.value >= _BYTES and figure.value.is_integer()
            if figure.unit or is_bytes:
                yield _Returned(unit=figure.unit or "b", figure=figure, step=step)
    for step, text in known.results():
        for literal, unit in _beside_units(text):
            for figure in figures(literal):
                yield _Returned(unit=unit, figure=figure, step=step)


def _totals(returned: Sequence[_Returned]) -> Iterator[_Returned]:
    """Yield the sums of figures of one unit: those of each step, and those of all steps."""
    parts: defaultdict[tuple[str, int | None], list[_Returned]] = defaultdict(list)
    for one in returned:
        parts[one.unit, one.step].append(one)
        parts[one.unit, None].append(one)
    for several in parts.values():
        if 1 < len(several) <= _MOST_SUMMED:
            total = math.fsum(one.figure.value for one in several)
            shown = " + ".join(one.figure.literal for one in several)
            yield replace(several[-1], figure=replace(several[0].figure, value=total, literal=shown))


def _beside_units(text: str) -> Iterator[tuple[str, str]]:
    """Yield the numbers of a JSON document whose record gives their unit in a field of its own.

    A currency holds for the records inside as well, and ``weight_unit`` for ``gross_weight`` alone.
    """
    queue: list[tuple[Any, str]] = [(document_in(text), "")]
    for value, outer in queue:
        own = _units_of(value) if isinstance(value, dict) else {}
        unit = own.get("", "") or outer
        inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
        below = unit if unit in CURRENCY_CODES else ""
        nodes = [(one, below) for one in inner if isinstance(one, dict | list)]
        queue += nodes[: max(0, _MOST_NODES - len(queue))]
        for key, one in value.items() if isinstance(value, dict) and (unit or own) else ():
            its = next((each for word, each in own.items() if word in _words_of(key)), unit)
            is_plain = isinstance(one, str | int | float) and not isinstance(one, bool)
            if its and is_plain and _PLAIN.fullmatch(str(one)):
                yield str(one), its


def _words_of(key: Any) -> Sequence[str]:
    return str(key).casefold().split("_")


def _units_of(record: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the units that a record states: for all its numbers under ``""``, else by the words of a key."""
    found: dict[str, str] = {}
    for key, one in record.items():
        words = _words_of(key)
        if isinstance(one, str) and not words_for("unit_key").isdisjoint(words) and (unit := unit_of(one)):
            for word in [word for word in words if word not in words_for("unit_key")] or [""]:
                found.setdefault(word, unit)
    return found


def _dimension(unit: str) -> tuple[str, str] | None:
    if (area := unit.replace("²", "2")) in _AREAS:
        return "area", area
    return (_MONEY, unit) if unit in CURRENCY_CODES or unit == _CENT else measure_of(unit)


def _clue(known: Known, position: int, figure: Figure, given: _Returned) -> Clue:
    quote = excerpt(known.reading.outputs[position], figure.start, figure.end, before=40, after=40)
    step = known.reading.steps[position].index
    giver = f"{known.giver(given.step)} returned" if given.step != position else "it had just given"
    reason = f"gave {figure.shown}, where {giver} {given.figure.literal} {given.unit}"
    evidence = Evidence(step=step, quote=quote)
    return known.clue(position, ClueKind.CHANGED, reason, evidence, value=figure.value, sign="unit")
