"""Results about something else than was asked: week 12 was looked up, the result is of week 10. Pure.

Many tools repeat what they were asked for. Where a result has another date, code or number (of a week, of an
order) under the key of an argument, and the answer states the one that was asked for but never the other, it
gives one thing's values as another's. Other numbers and names tell nothing: an amount is converted, a table
for five has six seats, Köln is returned as Cologne.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import date
from typing import Any, Final

from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.dates import DateFound, agree, clocks_in, dates_in
from analyzer.lineage.known import Known, around, words_in
from analyzer.signals.run_view import HEAD, final_answer
from analyzer.signals.tool_names import deed_of
from analyzer.signals.tool_results import Fault
from semconv.dialects.reading.values import mapping
from semconv.model import Evidence, StepKind

_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?")
_LONGEST: Final = 40
_WHICH: Final = frozenset(
    """
    id no nr num number nummer numero número numéro nro code kw week woche semaine semana settimana tydzien
    uge vecka неделя week_no month monat mois mes mese year jahr année año ano anno rok год quarter quartal
    trimestre season saison room raum zimmer flat 号 番号 週 周 月 年
    """.split()  # noqa: SIM905 - readable in this form
)
"""Words of keys whose number says which one is meant."""
_KEY_WORD: Final = re.compile(r"[^\W\d_]+?(?=[A-Z_\W\d]|$)")
_SATURDAY: Final = 5


def answers_to_other_questions(known: Known) -> Iterator[Clue]:
    """Yield the results of something else that the answer gives for what was asked."""
    reading = known.reading
    answer = final_answer(reading.trajectory)[:HEAD]
    for position, step in enumerate(reading.steps):
        if step.kind is not StepKind.TOOL or reading.faults[position] is not Fault.NONE:
            continue
        if deed_of(step.target or "") or known.last_calls[step.target] != position:
            continue
        for key, asked, given in _differing(mapping(step.input[:HEAD]), mapping(step.output[:HEAD])):
            if _states(answer, asked) and not any(_states(text, given) for text in _said(known, position)):
                yield _clue(known, position, key, asked, given)


def _said(known: Known, position: int) -> Iterator[str]:
    """Yield what agents say after a call."""
    steps = known.reading.steps
    return (step.output[:HEAD] for step in steps[position + 1 :] if step.kind is not StepKind.TOOL)


def _differing(arguments: Mapping[str, Any], result: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    given = {str(key).casefold(): value for key, value in result.items()}
    for key, value in arguments.items():
        name = str(key).casefold()
        other = given.get(name)
        if _is_plain(value) and _is_plain(other) and not _same(str(key), str(value), str(other)):
            yield str(key), str(value), str(other)


def _is_plain(value: Any) -> bool:
    is_scalar = isinstance(value, str | int | float) and not isinstance(value, bool)
    return is_scalar and 0 < len(str(value)) <= _LONGEST


def _same(key: str, one: str, other: str) -> bool:
    a, b = one.casefold().strip(), other.casefold().strip()
    if a in b or b in a:
        return True
    days, others = dates_in(one), dates_in(other)
    if days and others:
        return agree(days[0], others[0]) or _is_closed(days[0])
    if clocks_in(a):
        return True  # the time elsewhere
    if _NUMBER.fullmatch(a) and _NUMBER.fullmatch(b):
        return _WHICH.isdisjoint(_words_of(key)) or float(a) == float(b)
    return _code_of(a) is None or _code_of(a) != _code_of(b)  # names are written in many ways


def _words_of(key: str) -> set[str]:
    return {word.casefold() for word in _KEY_WORD.findall(key)}


def _is_closed(day: DateFound) -> bool:
    """Tell whether a date is at a weekend, for which there is often no value of its own."""
    return any(date(*each).weekday() >= _SATURDAY for each in day.readings if each.year)


def _code_of(text: str) -> str | None:
    """Return the shape of a code, such as ``ab-000``; ``None`` if a text is none."""
    is_code = " " not in text and any(map(str.isdigit, text))
    return re.sub(r"\d", "0", text) if is_code else None


def _states(text: str, value: str) -> bool:
    days = dates_in(value)
    if days:
        return any(agree(days[0], each) for each in dates_in(text))
    if _NUMBER.fullmatch(value):
        return re.search(rf"(?<![\d.,]){re.escape(value)}(?!\d|[.,]\d)", text) is not None
    words = words_in(value)
    return bool(words) and words <= words_in(text)


def _clue(known: Known, position: int, key: str, asked: str, given: str) -> Clue:
    place = known.first_said(lambda text: _states(text, asked), after=position)
    step = known.reading.steps[place]
    return Clue(
        step=step.index,
        kind=ClueKind.OUT_OF_DATE,
        reason=f"answered for {key} {asked} with what {known.giver(position)} returned for {key} {given},"
        " and did not say so",
        evidence=(Evidence(step=step.index, quote=around(step.output, asked, reach=60)),),
    )
