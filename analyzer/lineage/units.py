"""Figures that kept their digits and changed their unit: 18400 kg, where the scale gave 18400 g. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.figures import Figure, figures, prose_of
from analyzer.lineage.known import Known
from analyzer.signals.normalize import excerpt
from analyzer.signals.numbers import measure_of
from analyzer.signals.run_view import HEAD, final_answer
from semconv.model import Evidence, StepKind

_LEAST_DIGITS: Final = 2


def changed_units(known: Known) -> Iterator[Clue]:
    """Yield the figures that an agent gave in another unit than the tool, with the same digits."""
    returned = {
        (figure.value, figure.unit): (source.step, figure)
        for source in known.sources
        if source.is_result and source.step is not None
        for figure in source.figures
    }
    by_value = {value: found for (value, unit), found in returned.items() if measure_of(unit) is not None}
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
            if len(figure.literal_digits) >= _LEAST_DIGITS and _is_other_unit(figure, found[1]):
                seen.add((figure.value, figure.unit))
                yield _clue(known, position, figure, *found)


def _is_other_unit(one: Figure, other: Figure) -> bool:
    """Tell whether two figures have different units of the same dimension."""
    ours, theirs = measure_of(one.unit), measure_of(other.unit)
    return (
        ours is not None and theirs is not None and ours[0] == theirs[0] != "scale" and ours[1] != theirs[1]
    )


def _clue(known: Known, position: int, figure: Figure, source: int, origin: Figure) -> Clue:
    quote = excerpt(known.reading.outputs[position], figure.start, figure.end, before=40, after=40)
    step = known.reading.steps[position].index
    return Clue(
        step=step,
        kind=ClueKind.CHANGED,
        reason=f"gave {figure.shown}, where {known.giver(source)} returned {origin.literal} {origin.unit}",
        evidence=(Evidence(step=step, quote=quote),),
        value=figure.value,
        signs={"unit": 1.0},
    )
