"""Dates with the name of another day of the week: "Monday, 18 November 2025" was a Tuesday. Pure.

The calendar contradicts them whatever the run is about: either the day or its name is wrong.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime
from itertools import islice
from typing import Final

from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.dates import DateFound, agree, dates_in
from analyzer.lineage.known import Known, place_of
from analyzer.texts.vocabulary import alternatives, weekdays
from analyzer.texts.wordings import languages_in

_BEFORE: Final = r"\.?,?\s{0,2}(?:den|dem|der|the|le|el|il|o|dia|día|dnia|,|\*\*)?\s?\Z"
_AFTER: Final = r"\A\s?[(（,]\s?"  # noqa: RUF001 - as Chinese and Japanese write it
_END: Final = r"\.?\s?(?:[)）,;:.]|\Z)"  # noqa: RUF001 - as Chinese and Japanese write it
_REACH: Final = 24
_MOST_GIVEN: Final = 20
"""Texts with a date in which the name of its day is looked for."""
_LATEST_NS: Final = 1 << 62
_SHORT: Final = 4
ENGLISH: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
"""Names of the days for reasons, from Monday."""


def wrong_weekdays(known: Known) -> Iterator[Clue]:
    """Yield the answer's dates beside the name of another day of the week, unless a source has both."""
    answer = known.answer
    languages = languages_in(answer)
    for one in dates_in(answer) if languages else ():
        named = _named_beside(answer, one, languages)
        days = list(days_of(known, one)) if named is not None else []
        if named is None or not days or any(day.weekday() == named for day in days):
            continue
        if not _is_given(known, one, named):
            yield _clue(known, one, named, days[0])


def _named_beside(text: str, one: DateFound, languages: tuple[str, ...]) -> int | None:
    """Return the day of the week that a text names right before or after a date, Monday being 0."""
    names = weekdays(languages)
    if not names:
        return None
    name_before, name_in_row, name_after = _patterns(languages)
    before = text[max(0, one.start - _REACH) : one.start]
    found = name_before.search(before)
    if found is not None and _is_name(found[1], found[2]):
        if name_in_row.search(before[: found.start()].rstrip()):
            return None  # from Monday to Friday, 18 November
        return names.get(found[1].casefold())
    found = name_after.search(text[one.end : one.end + _REACH])
    return names.get(found[1].casefold()) if found else None


@functools.cache
def _patterns(languages: tuple[str, ...]) -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """Return patterns of a day's name right before a date, before another name, and right after a date."""
    names = alternatives(weekdays(languages))
    patterns = (rf"({names})({_BEFORE})", rf"(?:{names})\.?\s?\S{{0,4}}\Z", rf"{_AFTER}({names}){_END}")
    before, in_row, after = (re.compile(pattern, re.IGNORECASE) for pattern in patterns)
    return before, in_row, after


def _is_name(word: str, after: str) -> bool:
    """Tell whether a word before a date names its day: no full stop ends a sentence between them.

    Short forms are other words too (``so``, ``mar``), and the Japanese ones stand for months as well.
    """
    is_short = len(word) <= _SHORT
    if not word.isascii() and len(word) == 1:
        return False
    return (word[0].isupper() or after[:1] in {".", ","}) if is_short else not after.startswith(".")


def days_of(known: Known, one: DateFound) -> Iterator[date]:
    """Yield the days that a date may mean; without a year, those of the run with this day and month.

    A year far before the latest one of the run is that of a birth or a founding.
    """
    began_ns = min([step.start_ns for step in known.reading.steps], default=0)
    begun = datetime.fromtimestamp(min(max(began_ns, 0), _LATEST_NS) / 1e9, tz=UTC).year
    latest = max([begun, *(day.year for each in known.all_dates for day in each.readings)])
    for reading in one.readings:
        if reading.year:
            yield date(*reading)
        else:
            given = (day for each in known.all_dates for day in each.readings if day[1:] == reading[1:])
            yield from (date(*day) for day in given if day.year and abs(day.year - latest) <= 1)


def _is_given(known: Known, one: DateFound, named: int) -> bool:
    """Tell whether a text from outside names this day of the week beside the date."""
    places = {told.told.position for told in known.dates if agree(one, told.date)}
    texts = (source.text for source in known.sources if place_of(source) in places)
    return any(_gives(text, one, named) for text in islice(texts, _MOST_GIVEN))


def _gives(text: str, one: DateFound, named: int) -> bool:
    languages = languages_in(text)
    return any(agree(one, each) and _named_beside(text, each, languages) == named for each in dates_in(text))


def _clue(known: Known, one: DateFound, named: int, day: date) -> Clue:
    step = known.first_with(one.literal)
    reason = f"gave {one.literal} as a {ENGLISH[named]}, which is a {ENGLISH[day.weekday()]}"
    return known.clue(step, ClueKind.CHANGED, reason, known.quote(step, one.literal))
