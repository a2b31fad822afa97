"""Figures that an agent passes on with a slip: it heard 68.9, says 69.8, and nothing gives 69.8. Pure.

Agents' words count here as well as results: what one agent said rightly, the next one may say wrongly. Only
exchanged digits count: a figure that differs in one digit is often the result of a calculation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.derivation import near_miss, plain_results
from analyzer.lineage.figures import Figure, figures, prose_of
from analyzer.lineage.known import Known
from analyzer.texts.normalize import excerpt
from analyzer.texts.run_view import HEAD
from semconv.model import Evidence, Step, StepKind

_MOST_HEARD: Final = 200
"""Figures that an agent is taken to remember."""
_MOST_WORKED: Final = 8
"""Latest figures that an agent has heard and may compute with."""
_LONG: Final = 4
"""Digits from which a figure with a slip counts even if the answer only has what was computed with it."""
_LEAST_OF_UNIT: Final = 2
_FEW_SHARES: Final = 3
_LEAST_DIGITS: Final = 3
"""Digits from which two figures that differ in one place are not alike by chance."""


def retold_figures(known: Known) -> Iterator[Clue]:
    """Yield the figures that an agent wrote with a slip of one that it had heard."""
    stated = figures(prose_of(known.answer))
    answered = {one.value for one in stated}
    heard: defaultdict[str, _Heard] = defaultdict(_Heard)
    said: set[float] = set()
    for position, step in enumerate(known.reading.steps if answered else ()):
        if step.kind is StepKind.TOOL:
            continue
        heard[step.agent].texts.extend(messages_read(step))
        text = prose_of(known.reading.outputs[position])
        own = figures(text)
        new = [one for one in own if _is_telling(one) and one.value not in said]
        new = [one for one in new if one.value in answered or _may_feed(one)]
        remembered = heard[step.agent].figures() if new else []
        for figure, given in _slips(new, remembered, {one.value for one in own}):
            is_told = figure.value in answered or len(figure.digits) >= _LONG
            if not is_told and not _is_added_up(figure, given, (*own, *remembered), stated):
                continue
            if not _is_called_again(known, position, figure, given):
                yield _clue(known, position, figure, given)
        said |= {one.value for one in own}


def _may_feed(figure: Figure) -> bool:
    """Tell whether a figure that the answer lacks counts if the answer has what was computed with it."""
    return len(figure.digits) >= _LONG or len(figure.literal_digits) >= _LEAST_DIGITS


def _is_added_up(figure: Figure, given: Figure, known: Sequence[Figure], stated: Sequence[Figure]) -> bool:
    """Tell whether the answer has the sum of a figure and a known one, and no sum of what was heard."""
    others = {one.value for each in known for one in each.as_read()} - {figure.value, given.value}
    told = [each for one in stated for each in one.as_read()]
    wrong, right = (
        any(one.is_about(each.value + other) for one in told for other in others) for each in (figure, given)
    )
    return wrong and not right


def messages_read(step: Step) -> Sequence[str]:
    """Return what a step read, a message each: later steps hear the same messages again."""
    text = step.input[:HEAD]
    return [text[one.start : one.end].strip() for one in step.heard] or [text]


class _Heard:
    """What an agent has heard so far; its figures are read once an agent says one that is new."""

    def __init__(self) -> None:
        self.texts: Final[list[str]] = []
        self._known: list[Figure] = []

    def figures(self) -> list[Figure]:
        """Return the latest figures, in order, at most ``_MOST_HEARD``."""
        unread = (figure for text in self.texts for figure in figures(text))
        self._known = [*self._known, *unread][-_MOST_HEARD:]
        self.texts.clear()
        return self._known


def _is_called_again(known: Known, position: int, figure: Figure, given: Figure) -> bool:
    """Tell whether a slip stood in a call alone, which the agent made again with what it had heard."""
    step = known.reading.steps[position]
    tools = {call.name for call in step.calls if figure.literal in call.arguments}
    again = (call for later in known.reading.steps[position + 1 :] for call in later.calls)
    return bool(tools) and any(call.name in tools and given.literal in call.arguments for call in again)


def _is_telling(figure: Figure) -> bool:
    least = _LEAST_OF_UNIT if figure.unit else _LEAST_DIGITS
    return not figure.is_small and not figure.is_label and len(figure.digits) >= least


def _is_near(figure: Figure, one: Figure, heard: Sequence[Figure], said: AbstractSet[float]) -> bool:
    """Tell whether a figure is a slip of a heard one.

    One of two digits is a slip only of the one figure of its unit that was heard and not repeated.
    """
    if not _is_telling(one) or not _is_slip(figure, one):
        return False
    is_short = len(one.digits) < _LEAST_DIGITS and figure.unit != "%"
    return not is_short or {each.value for each in heard if each.has_unit_of(one)} - said == {one.value}


def _slips(new: list[Figure], heard: list[Figure], said: set[float]) -> Iterator[tuple[Figure, Figure]]:
    """Yield the new figures with the digits of a heard one in another order, which is not repeated."""
    shares = {one.value for one in heard if one.unit == "%"}
    for figure in new:
        if len(figure.digits) < _LEAST_DIGITS and figure.unit == "%" and len(shares) > _FEW_SHARES:
            continue  # alike by chance
        readings = [*figure.as_read()]
        near = (
            (reading, one)
            for reading in readings
            for one in heard
            if one.value not in said and _is_near(reading, one, heard, said)
        )
        read, given = next(near, (figure, None))
        if given is None:
            continue
        worked = list(dict.fromkeys(reading for one in heard for reading in one.readings if reading))
        results = plain_results(worked[-_MOST_WORKED:])
        known = (*(each.value for each in heard), *results)
        if not any(reading.is_about(value) for reading in readings for value in known):
            yield read, given


def _is_slip(figure: Figure, one: Figure) -> bool:
    """Tell whether a figure is another one of its size and quantity with two digits exchanged.

    Without a unit or a word beside both, a minute and a temperature are alike by chance.
    """
    if one.unit and figure.unit and not one.has_unit_of(figure):
        return False
    ours, theirs = one.digits, figure.digits
    if ours == theirs or sorted(ours) != sorted(theirs):  # equal: centimetres of millimetres
        return False
    is_same = (one.unit != "" and one.has_unit_of(figure)) or not one.words.isdisjoint(figure.words)
    return (
        (is_same or len(figure.literal_digits) > _LONG)
        and len(str(int(abs(one.value)))) == len(str(int(abs(figure.value))))
        and near_miss(figure, one.value)
    )


def _clue(known: Known, position: int, figure: Figure, given: Figure) -> Clue:
    step = known.reading.steps[position].index
    quote = excerpt(known.reading.outputs[position], figure.start, figure.end, before=50, after=50)
    reason, evidence = (
        f"gave {figure.shown}, where it had heard {given.shown}",
        Evidence(step=step, quote=quote),
    )
    return known.clue(position, ClueKind.CHANGED, reason, evidence, value=figure.value, sign="figure")
