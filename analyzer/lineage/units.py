"""Figures that kept their digits and changed their unit: 18400 kg, where the scale gave 18400 g. Pure.

A conversion between metric units moves the decimal point; one that moves it too far is told by its digits:
3.42 MWh is no 342 kWh. A dose is none: 1.24 mg for 12.4 kg, where 0.1 mg a kg was given.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.entries import document_in
from analyzer.lineage.figures import CURRENCY_CODES, Figure, figures, prose_of, unit_of
from analyzer.lineage.known import Known
from analyzer.signals.normalize import excerpt
from analyzer.signals.numbers import measure_of
from analyzer.signals.run_view import HEAD, final_answer
from semconv.model import Evidence, StepKind
from semconv.record import record

_LEAST_DIGITS: Final = 2
_MOST_NODES: Final = 2_000
_MONEY: Final = "money"
_SIZES: Final = {
    "ug": 1e-6, "mg": 1e-3, "g": 1.0, "kg": 1e3, "t": 1e6, "mm": 1e-3, "cm": 1e-2, "m": 1.0, "km": 1e3,
    "ml": 1e-3, "cl": 1e-2, "l": 1.0, "wh": 1.0, "kwh": 1e3, "mwh": 1e6, "w": 1.0, "kw": 1e3, "mw": 1e6,
    "m2": 1.0, "ha": 1e4, "km2": 1e6, "ms": 1e-3, "s": 1.0,
}  # fmt: skip
"""Sizes of metric units within their dimension."""
_UNIT_KEYS: Final = frozenset(
    """
    currency unit units uom einheit unité unite unidad unidade unità eenheid jednostka birim satuan währung
    waehrung moneda divisa devise valuta moeda валюта единица
    单位 單位 货币 貨幣 通貨 単位 통화 단위
    """.split()  # noqa: SIM905 - readable in this form
)
"""Keys whose value is the unit of the numbers beside them."""


@record
class _Returned:
    """A figure of a result, with its unit and the step that returned it."""

    unit: str
    figure: Figure
    step: int


def changed_units(known: Known) -> Iterator[Clue]:
    """Yield the figures that an agent gave in another unit than the tool, with the same digits."""
    returned: defaultdict[tuple[str, str], list[_Returned]] = defaultdict(list)
    for one in _returned(known):
        dimension = _dimension(one.unit)
        if dimension is not None and dimension[0] != "scale":
            returned[one.figure.digits, dimension[0]].append(one)
    if not returned:
        return
    given = {(figure.value, figure.unit) for source in known.sources for figure in source.figures}
    answered = figures(final_answer(known.reading.trajectory)[:HEAD])
    digits, stated = {one.digits for one in answered}, {(one.value, one.unit) for one in answered}
    seen: set[tuple[float, str]] = set()
    for position, step in enumerate(known.reading.steps):
        for figure in (
            figures(prose_of(known.reading.outputs[position])) if step.kind is not StepKind.TOOL else ()
        ):
            dimension = _dimension(figure.unit)
            found = returned.get((figure.digits, dimension[0])) if dimension else None
            if not found or (figure.value, figure.unit) in given | seen or figure.digits not in digits:
                continue
            if any((one.figure.value, one.unit) in stated or _is_rate(known, figure, one) for one in found):
                continue
            if len(figure.literal_digits) >= _LEAST_DIGITS and all(_is_wrong(figure, one) for one in found):
                seen.add((figure.value, figure.unit))
                yield _clue(known, position, figure, found[0])


def _is_wrong(figure: Figure, one: _Returned) -> bool:
    """Tell whether a figure has another unit than a returned one, and is not what the conversion gives."""
    ours, theirs = _dimension(figure.unit), _dimension(one.unit)
    if ours is None or theirs is None or ours[1] == theirs[1]:
        return False
    sizes = _size(ours[1]), _size(theirs[1])
    if sizes[0] and sizes[1]:
        return not math.isclose(figure.value * sizes[0], one.figure.value * sizes[1], rel_tol=1e-9)
    return figure.value == one.figure.value


def _is_rate(known: Known, figure: Figure, one: _Returned) -> bool:
    """Tell whether a rate that was given leads from a returned figure to another of the same digits."""
    ratio = figure.value / one.figure.value if one.figure.value else 1.0
    rates = (each.value for source in known.sources for each in source.figures)
    return not math.isclose(ratio, 1.0) and any(math.isclose(ratio, rate) for rate in rates)


def _size(unit: str) -> float:
    return _SIZES.get(unit.partition("/")[0], 0.0)


def _returned(known: Known) -> Iterator[_Returned]:
    for step, found in known.figures():
        for one in found:
            if one.unit:
                yield _Returned(unit=one.unit, figure=one, step=step)
    for step, text in known.results():
        for literal, unit in _beside_units(text):
            for one in figures(literal):
                yield _Returned(unit=unit, figure=one, step=step)


def _beside_units(text: str) -> Iterator[tuple[str, str]]:
    """Yield the numbers of each record of a JSON document that gives their unit in a field of its own."""
    queue: list[Any] = [document_in(text)]
    for value in queue:
        inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
        queue += [one for one in inner if isinstance(one, dict | list)][: max(0, _MOST_NODES - len(queue))]
        if isinstance(value, dict):
            units = [
                unit_of(one)
                for key, one in value.items()
                if key.casefold() in _UNIT_KEYS and isinstance(one, str)
            ]
            numbers = [
                str(one) for one in inner if isinstance(one, str | int | float) and not isinstance(one, bool)
            ]
            yield from (
                (one, unit) for unit in units[:1] for one in numbers if one.replace(".", "", 1).isdigit()
            )


def _dimension(unit: str) -> tuple[str, str] | None:
    return (_MONEY, unit) if unit in CURRENCY_CODES else measure_of(unit)


def _clue(known: Known, position: int, figure: Figure, given: _Returned) -> Clue:
    quote = excerpt(known.reading.outputs[position], figure.start, figure.end, before=40, after=40)
    step = known.reading.steps[position].index
    return Clue(
        step=step,
        kind=ClueKind.CHANGED,
        reason=f"gave {figure.shown}, where {known.giver(given.step)} returned"
        f" {given.figure.literal} {given.unit}",
        evidence=(Evidence(step=step, quote=quote),),
        value=figure.value,
        signs={"unit": 1.0},
    )
