"""Where the values of an answer came from, and by which steps they came: what pages and JSON show. Pure.

Shown are the figures, dates, ids, links and paths of the answer, and of the decisive step if that is another
one. Small counts, which texts use without a source, are left out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, TypeAlias

from analyzer.lineage.claims import figures_from_nowhere
from analyzer.lineage.dates import DateFound, agree, dates_in, differ_in_one, digits_apart, follows
from analyzer.lineage.derivation import formula_of, near_miss
from analyzer.lineage.entries import document_in
from analyzer.lineage.figures import Figure, figures, prose_of
from analyzer.lineage.known import BEFORE, Known, Told, known_of, words_in
from analyzer.lineage.sources import Source
from analyzer.lineage.values import Value, ValueKind, values_in
from analyzer.texts.arithmetic import WrongCalculation
from analyzer.texts.numbers import measure_of
from analyzer.texts.run_view import HEAD, Reading, final_answer, own_words
from analyzer.texts.wrong_numbers import wrong_results
from semconv.model import Change, Origin, Passed, StepKind, ValueOrigin
from semconv.record import record, replace

MOST_VALUES: Final = 20
"""Values shown of one run."""
_OF_STEP: Final = 6
"""Values shown of the decisive step."""
_MOST_LINKS: Final = 8
_SHOWN: Final = 120
"""Characters of a value that are shown."""
_MOST_NODES: Final = 5_000
_SIGNS: Final = frozenset({"usd", "eur", "gbp", "jpy", "chf", "inr", "%", "°", "°c", "°f"})
_KINDS: Final = frozenset({ValueKind.CODE, ValueKind.LINK, ValueKind.PATH, ValueKind.ADDRESS})


class _Step:
    """The values of an agent's step; each kind is read once, if it is asked for."""

    def __init__(self, position: int, text: str) -> None:
        self.position: Final = position
        self._text: Final = text

    @functools.cached_property
    def figures(self) -> Mapping[float, Figure]:
        """Its figures by value."""
        return {figure.value: figure for figure in reversed(figures(self._text))}

    @functools.cached_property
    def dates(self) -> tuple[DateFound, ...]:
        """Its dates."""
        return dates_in(self._text)

    @functools.cached_property
    def small(self) -> str:
        """Its text in lower case."""
        return self._text.casefold()

    def has_word(self, word: str) -> bool:
        """Tell whether it has a word in lower case."""
        return word in self.small and word in words_in(self._text)


Says: TypeAlias = Callable[[_Step], str]
"""Returns how a step has a value; empty if it does not have it."""


@record
class _Seen:
    """A value of a text, with what is needed to follow it."""

    key: object
    """Equal for the same value with and without its unit."""
    shown: str
    start: int
    origin: Callable[[], ValueOrigin]
    says: Says
    near: Callable[[], Told | None] = lambda: None
    """Returns the returned value in whose place it stands, if one is close to it."""


def lineage_of(reading: Reading, decisive: int | None = None) -> tuple[ValueOrigin, ...]:
    """Return the values of the answer and of the decisive step, each with its origin and its way.

    Args:
        reading: the run.
        decisive: the position of the decisive step; ``None`` if no step is blamed.

    Returns:
        At most ``MOST_VALUES`` values, each once; none if the run shows no result of a tool.
    """
    known = known_of(reading)
    if not known.has_results:
        return ()
    answer = prose_of(final_answer(reading.trajectory)[:HEAD])
    texts = [(answer, MOST_VALUES - (_OF_STEP if decisive is not None else 0))]
    if decisive is not None and decisive < len(reading.steps):
        texts.append((prose_of(own_words(reading.steps[decisive])[:HEAD]), _OF_STEP))
    steps = [
        _Step(position, text)
        for position, text in enumerate(reading.outputs)
        if reading.steps[position].kind is not StepKind.TOOL
    ]
    found: dict[object, ValueOrigin] = {}
    for text, most in texts:
        seen: dict[object, _Seen] = {}
        for value in sorted(_values(known, text), key=lambda each: each.start):
            seen.setdefault(value.key, value)
        new = [one for key, one in seen.items() if key not in found][:most]
        found |= {one.key: _with_chain(known, steps, one) for one in new}
    return tuple(found.values())


def with_texts(origin: ValueOrigin, clean: Callable[[str], str]) -> ValueOrigin:
    """Return a value's origin with each of its texts changed by ``clean``."""
    chain = tuple(replace(link, value=clean(link.value)) for link in origin.chain)
    return replace(
        origin, value=clean(origin.value), path=clean(origin.path), formula=clean(origin.formula), chain=chain
    )


def _values(known: Known, text: str) -> Iterator[_Seen]:
    strange = figures_from_nowhere(known.reading, text)
    wrong = {found.error.stated: found.error for found in wrong_results(known.reading)}
    for figure in figures(text):
        if not figure.is_small and not figure.is_label:
            yield _figure(known, text, figure, wrong.get(figure.value), is_strange=figure in strange)
    for date in dates_in(text):
        yield _date(known, date)
    counted = {figure.start for figure in figures(text)}
    for value in values_in(text):
        if value.kind in _KINDS and value.start not in counted:
            yield _named(known, value.literal, value.key, value.start)


def _figure(
    known: Known, text: str, figure: Figure, wrong: WrongCalculation | None, *, is_strange: bool
) -> _Seen:
    shown = _written(figure)

    def origin() -> ValueOrigin:
        source = _first_with(known, figure) or known.source_of_number(figure.value)
        if source is not None:
            return _sourced(shown, source, lambda leaf: _has_figure(leaf, figure))
        if wrong is not None:
            right = f"{wrong.quote.rpartition('=')[0].strip()} = {wrong.right_shown}"
            return ValueOrigin(value=shown, origin=Origin.NOWHERE, formula=right[:_SHOWN])
        if is_strange:
            return ValueOrigin(value=shown, origin=Origin.NOWHERE)
        beside = [one for one in figures(text) if one is not figure]
        given = [each for one in known.sources for each in one.figures if not each.is_label]
        counts = figures("; ".join(map(str, islice(known.first_counts(), _OF_STEP))))
        formula = formula_of(figure, beside, [*counts, *given])
        return ValueOrigin(value=shown, origin=Origin.DERIVED, formula=formula)

    def near() -> Told | None:
        slips = (
            (position, one) for position, each in known.figures() for one in each if _may_replace(figure, one)
        )
        position, one = next(slips, (BEFORE, None))
        if one is None:
            return None
        value = Value(
            kind=ValueKind.CODE, key=one.literal, literal=_written(one), start=one.start, end=one.end
        )
        return Told(value=value, position=position)

    return _Seen(
        key=figure.value,
        shown=shown,
        start=figure.start,
        origin=origin,
        says=lambda step: _written(step.figures[figure.value]) if figure.value in step.figures else "",
        near=near,
    )


def _written(figure: Figure) -> str:
    """Return a figure with its unit; without the word beside it, if that is none."""
    is_unit = figure.unit in _SIGNS or measure_of(figure.unit) is not None or not figure.unit.isascii()
    return figure.shown if is_unit else figure.literal


def _may_replace(figure: Figure, given: Figure) -> bool:
    """Tell whether a figure may be a slip of a given one of its size, or of ten times or a tenth of it."""
    if figure.unit and given.unit and figure.unit != given.unit:
        return False
    ratio = figure.value / given.value if given.value else 0.0
    is_close = 0.5 <= ratio <= 2 or ratio in (10.0, 0.1)
    return is_close and near_miss(figure, given.value)


def _first_with(known: Known, figure: Figure) -> Source | None:
    for source in known.sources:
        for one in source.figures:
            if _equal(figure, one):
                return source
    return None


def _equal(figure: Figure, given: Figure) -> bool:
    return figure.is_about(given.value) and (not figure.unit or not given.unit or figure.unit == given.unit)


def _has_figure(leaf: Any, figure: Figure) -> bool:
    if isinstance(leaf, bool):
        return False
    if isinstance(leaf, int | float):
        return figure.is_about(leaf)
    return isinstance(leaf, str) and any(_equal(figure, one) for one in figures(leaf))


def _date(known: Known, date: DateFound) -> _Seen:
    def origin() -> ValueOrigin:
        given = next((told for told in known.dates if agree(told.date, date)), None)
        if given is not None:
            source = _source_at(known, given.told.position)
            return _sourced(date.literal, source, lambda leaf: _has_date(leaf, date))
        if follows(date, known.all_dates, known.counts):
            return ValueOrigin(value=date.literal, origin=Origin.DERIVED)
        return ValueOrigin(value=date.literal, origin=Origin.NOWHERE)

    def near() -> Told | None:
        others = [told for told in known.dates if differ_in_one(date, told.date)]
        return min(others, key=lambda told: digits_apart(date, told.date)).told if others else None

    return _Seen(
        key=date.readings,
        shown=date.literal,
        start=date.start,
        origin=origin,
        says=lambda step: next((one.literal for one in step.dates if agree(one, date)), ""),
        near=near,
    )


def _has_date(leaf: Any, date: DateFound) -> bool:
    return isinstance(leaf, str) and any(agree(one, date) for one in dates_in(leaf))


def _named(known: Known, literal: str, key: str, start: int) -> _Seen:
    def origin() -> ValueOrigin:
        source = known.source_of_word(key)
        if source is None:
            origin = Origin.GIVEN if known.has(key) else Origin.NOWHERE
            return ValueOrigin(value=literal, origin=origin)
        return _sourced(
            literal, source, lambda leaf: isinstance(leaf, str | int) and key in words_in(str(leaf))
        )

    return _Seen(
        key=key,
        shown=literal,
        start=start,
        origin=origin,
        says=lambda step: literal if step.has_word(key) else "",
    )


def _source_at(known: Known, position: int) -> Source:
    at = None if position == BEFORE else position
    return next(source for source in known.sources if source.step == at)


def _sourced(shown: str, source: Source, has: Callable[[Any], bool]) -> ValueOrigin:
    origin = Origin.RETURNED if source.is_result else Origin.GIVEN
    path = path_in(source.text, has) if source.is_result else ""
    return ValueOrigin(value=shown[:_SHOWN], origin=origin, step=source.step, path=path)


def path_in(text: str, has: Callable[[Any], bool]) -> str:
    """Return the path of the first fitting value of a JSON document, ``flights[2].price``; empty for none."""
    queue: list[tuple[str, Any]] = [("", document_in(text))]
    for path, value in queue:
        if isinstance(value, dict):
            queue += [(f"{path}.{name}" if path else str(name), one) for name, one in value.items()]
        elif isinstance(value, list):
            queue += [(f"{path}[{place}]", one) for place, one in enumerate(value)]
        elif has(value):
            return path[:_SHOWN]
        if len(queue) > _MOST_NODES:
            return ""
    return ""


def _with_chain(known: Known, steps: Sequence[_Step], one: _Seen) -> ValueOrigin:
    """Return a value's origin with the steps of agents that have it, and what it took the place of."""
    origin, steps_of_run = one.origin(), known.reading.steps
    first = BEFORE if origin.step is None else origin.step
    said = ((step.position, one.says(step)) for step in steps if step.position >= first)
    shown = islice(((steps_of_run[position].index, text) for position, text in said if text), _MOST_LINKS)
    links = [
        Passed(step=step, value=text[:_SHOWN], change=Change.REPEATED if place else Change.SAID)
        for place, (step, text) in enumerate(shown)
    ]
    if origin.origin is not Origin.NOWHERE or not links:
        return replace(
            origin, step=None if origin.step is None else steps_of_run[origin.step].index, chain=tuple(links)
        )
    near = one.near()
    if near is not None and near.position != BEFORE:
        given = Passed(
            step=steps_of_run[near.position].index, value=near.value.literal[:_SHOWN], change=Change.SAID
        )
        return replace(
            origin, step=links[0].step, chain=(given, replace(links[0], change=Change.CHANGED), *links[1:])
        )
    return replace(origin, step=links[0].step, chain=tuple(links))
