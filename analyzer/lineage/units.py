"""Figures that kept their digits and changed their unit: 18400 kg, where the scale gave 18400 g. Pure."""

from __future__ import annotations

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
_UNIT_KEYS: Final = frozenset(
    """
    currency unit units uom einheit währung waehrung moneda divisa devise valuta moeda валюта единица
    单位 單位 货币 貨幣 通貨 単位 통화 단위
    """.split()  # noqa: SIM905 - readable in this form
)
"""Keys whose value is the unit of the numbers beside them."""


@record
class _Returned:
    """A figure of a result, with its unit and the step that returned it."""

    unit: str
    literal: str
    step: int


def changed_units(known: Known) -> Iterator[Clue]:
    """Yield the figures that an agent gave in another unit than the tool, with the same digits."""
    by_value = {value: one for value, one in _returned(known) if _dimension(one.unit) is not None}
    if not by_value:
        return
    given = {(figure.value, figure.unit) for source in known.sources for figure in source.figures}
    digits = {one.digits for one in figures(final_answer(known.reading.trajectory)[:HEAD])}
    seen: set[tuple[float, str]] = set()
    for position, step in enumerate(known.reading.steps):
        for figure in (
            figures(prose_of(known.reading.outputs[position])) if step.kind is not StepKind.TOOL else ()
        ):
            found = by_value.get(figure.value)
            if found is None or (figure.value, figure.unit) in given | seen or figure.digits not in digits:
                continue
            if len(figure.literal_digits) >= _LEAST_DIGITS and _is_other_unit(figure.unit, found.unit):
                seen.add((figure.value, figure.unit))
                yield _clue(known, position, figure, found)


def _returned(known: Known) -> Iterator[tuple[float, _Returned]]:
    for step, found in known.figures():
        for one in found:
            if one.unit:
                yield one.value, _Returned(unit=one.unit, literal=one.literal, step=step)
    for step, text in known.results():
        for literal, unit in _beside_units(text):
            for one in figures(literal):
                yield one.value, _Returned(unit=unit, literal=literal, step=step)


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


def _is_other_unit(one: str, other: str) -> bool:
    """Tell whether two units are of the same dimension and differ."""
    ours, theirs = _dimension(one), _dimension(other)
    return (
        ours is not None and theirs is not None and ours[0] == theirs[0] != "scale" and ours[1] != theirs[1]
    )


def _clue(known: Known, position: int, figure: Figure, given: _Returned) -> Clue:
    quote = excerpt(known.reading.outputs[position], figure.start, figure.end, before=40, after=40)
    step = known.reading.steps[position].index
    return Clue(
        step=step,
        kind=ClueKind.CHANGED,
        reason=f"gave {figure.shown}, where {known.giver(given.step)} returned {given.literal} {given.unit}",
        evidence=(Evidence(step=step, quote=quote),),
        value=figure.value,
        signs={"unit": 1.0},
    )
