"""Dates and times of day in text, as people and programs write them in many languages. Pure.

A date without a year has the year 0 and agrees with the same day of any year. Numeric dates whose order of
day and month is open (``05/06/2026``) have both readings; comparing them never accuses.
"""

from __future__ import annotations

import functools
import re
from calendar import isleap
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, timedelta
from typing import Final, NamedTuple

from analyzer.texts.vocabulary import months
from analyzer.texts.wordings import languages_in
from semconv.record import record

# Patterns that begin with a digit and look behind it are found faster than those that look behind first.
_ISO: Final = re.compile(r"(\d{4})(?<![\d.]\d{4})[-/.](\d{1,2})[-/.](\d{1,2})(?!\d)")
_COMPACT: Final = re.compile(
    r"([12]\d{3})(?<=19\d\d|20\d\d)(?<![\d.,]\d{4})(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])(?![\d.,]\d|\d)"
)
_NUMERIC: Final = re.compile(r"(\d(?<![\d./-]\d)\d?)([./-])(\d{1,2})\2((?:19|20)?\d\d)?(?![\d/-])")
_DENSE: Final = re.compile(r"(?:(\d{4})\s?[年년]\s?)?(\d{1,2})\s?[月월]\s?(\d{1,2})\s?[日号號일]")
_OF: Final = r"(?:\.|st|nd|rd|th|er|º|ª)?,?\s(?:of\s|de\s|d[ei]l?\s)?"
_WORD: Final = r"([^\s\d.,;:!?()\[\]\"'*_]{3,14})"
_OF_YEAR: Final = r"(?:,?\s(?:de\s|del\s|of\s)?((?:19|20)\d\d))?"
_DAY_FIRST: Final = re.compile(rf"(\d(?<![\d.,/:-]\d)\d?){_OF}{_WORD}\.?{_OF_YEAR}(?!\d)", re.IGNORECASE)
_MONTH_FIRST: Final = re.compile(
    rf"(?<![^\s(\"'*_]){_WORD}\.?\s(\d{{1,2}})(?:st|nd|rd|th)?(?![\d:.,]\d|\d|[%€$]){_OF_YEAR}", re.IGNORECASE
)
"""Dates with a word in the place of the month; ``months`` tells which words are months."""
_DIGIT: Final = re.compile(r"\d")
_YEAR: Final = re.compile(r"(?<!\d)((?:19|20)\d\d)(?!\d)")
_CLOCK: Final = re.compile(
    r"(?<![\d:.])([01]?\d|2[0-3])(?:[:h]|\s?[时時시]\s?)([0-5]\d)(?![\d:]\d)(?:\s?([ap])\.?m\b)?"
    r"|(?<![\d:.,])(1[0-2]|[1-9])\s?([ap])\.?m\b",
    re.IGNORECASE,
)
_HEARD: Final = 2_000
"""Characters by which a text's language is recognised."""
_DAYS_FIRST: Final = frozenset({"de", "fr", "es", "it", "pt", "nl", "pl", "ru", "uk", "tr", "id", "cs"})
_DAY_THEN_MONTH: Final = re.compile(r"\bdd/mm|\bjj/mm|\btt/mm|\bgg/mm", re.IGNORECASE)
_CENTURY: Final = 2_000
_FIRST_YEAR: Final = 1_500
_LAST_YEAR: Final = 2_500
_WORKING_WEEK: Final = 5
_MOST_COUNTS: Final = 24
_MOST_DATES: Final = 48
_WEEK: Final = 7


class Day(NamedTuple):
    """A day; ``year`` is 0 if the text does not give it."""

    year: int
    month: int
    day: int

    @property
    def order(self) -> float:
        """A number by which days are ordered."""
        return float(10_000 * self.year + 100 * self.month + self.day)


@record
class DateFound:
    """A date in a text, with each of its possible readings."""

    readings: tuple[Day, ...]
    literal: str
    start: int
    end: int


@functools.lru_cache(maxsize=128)
def dates_in(text: str) -> tuple[DateFound, ...]:
    """Return the dates of a text, in order, none within another."""
    if _DIGIT.search(text) is None:
        return ()
    found = sorted(_all_dates(text), key=lambda one: (one.start, -one.end))
    kept: list[DateFound] = []
    for one in found:
        if not kept or one.start >= kept[-1].end:
            kept.append(one)
    return tuple(kept[:_MOST_DATES])


def _all_dates(text: str) -> Iterator[DateFound]:
    for found in (*_ISO.finditer(text), *_COMPACT.finditer(text)):
        yield from _date(found, (Day(int(found[1]), int(found[2]), int(found[3])),))
    for found in _DENSE.finditer(text) if "月" in text or "월" in text else ():
        yield from _date(found, (Day(int(found[1] or 0), int(found[2]), int(found[3])),))
    for found in _NUMERIC.finditer(text):
        if found[4] or (found[2] == "." and not _is_english(text)):
            year, one, other = _full(found[4]), int(found[1]), int(found[3])
            is_day_first = found[2] == "." or writes_day_first(text)
            both = (Day(year, other, one), *(() if is_day_first else (Day(year, one, other),)))
            yield from _date(found, both)
    for pattern, day, name in ((_DAY_FIRST, 1, 2), (_MONTH_FIRST, 2, 1)):
        for found in pattern.finditer(text):
            month = months().get(found[name].casefold())
            if month is not None and (found[3] or _looks_like_month(found[name], leads=name == 1)):
                yield from _date(found, (Day(int(found[3] or 0), month, int(found[day])),))


def without_dates(text: str, dates: Sequence[DateFound] | None = None) -> str:
    """Return a text without its dates, or some of them: their numbers count nothing."""
    found = dates_in(text) if dates is None else dates
    starts, ends = (0, *(one.end for one in found)), (*(one.start for one in found), len(text))
    return " ".join(text[start:end] for start, end in zip(starts, ends, strict=True))


@functools.lru_cache(maxsize=32)
def writes_day_first(text: str) -> bool:
    """Tell whether a text is in a language that writes the day first; English is written both ways."""
    if _DAY_THEN_MONTH.search(text[:_HEARD]):
        return True
    found = languages_in(text[:_HEARD])
    return bool(found) and _DAYS_FIRST.issuperset(found)


def _is_english(text: str) -> bool:
    """Tell whether a text is in English alone, which writes no ``1.2.`` for a day: there a sentence ends."""
    return languages_in(text[:_HEARD]) == ("en",)


def _looks_like_month(word: str, *, leads: bool) -> bool:
    """Tell whether a word without a year beside it is a month: in ``may 5`` and ``5 out of 6`` it is none."""
    is_lower_latin = word.isascii() and word[0].islower()
    return not is_lower_latin or not (leads or len(word) <= len("dez"))


def _date(found: re.Match[str], readings: Iterable[Day]) -> Iterator[DateFound]:
    possible = tuple(dict.fromkeys(reading for reading in readings if _is_day(reading)))
    if possible:
        yield DateFound(readings=possible, literal=found[0], start=found.start(), end=found.end())


def _full(year: str | None) -> int:
    if not year:
        return 0
    return int(year) if len(year) == len("2026") else _CENTURY + int(year)


def _is_day(one: Day) -> bool:
    if one.year and not _FIRST_YEAR <= one.year <= _LAST_YEAR:
        return False
    try:
        date(one.year or 2000, one.month, one.day)
    except ValueError:
        return False
    return True


def agree(one: DateFound, other: DateFound) -> bool:
    """Tell whether two dates may be the same day."""
    return any(_same(a, b) for a in one.readings for b in other.readings)


def _same(one: Day, other: Day) -> bool:
    return one[1:] == other[1:] and (not one.year or not other.year or one.year == other.year)


def differ_in_one(one: DateFound, other: DateFound) -> bool:
    """Tell whether two dates with one reading differ in one of their parts, or exchange day and month."""
    if len(one.readings) != 1 or len(other.readings) != 1 or agree(one, other):
        return False
    a, b = one.readings[0], other.readings[0]
    years_differ = bool(a.year and b.year and a.year != b.year)
    is_exchanged = (a.day, a.month) == (b.month, b.day) and not years_differ
    return is_exchanged or (a.month != b.month) + (a.day != b.day) + years_differ == 1


def mistaken(one: DateFound, other: DateFound) -> bool:
    """Tell whether two dates exchange day and month, or their days differ in one digit or its place.

    The same day of another month or year is no slip: terms end, and appointments come back.
    Nor is a day within a week: the next weekend.
    """
    if not differ_in_one(one, other):
        return False
    a, b = one.readings[0], other.readings[0]
    if a.month != b.month and a.day != b.day:
        return True
    ours, theirs = f"{a.day:02}", f"{b.day:02}"
    is_digit = sum(x != y for x, y in zip(ours, theirs, strict=True)) == 1 or ours == theirs[::-1]
    return a.month == b.month and abs(a.day - b.day) > _WEEK and is_digit


def digits_apart(one: DateFound, other: DateFound) -> int:
    """Return in how many digits two dates differ, each in its first reading."""
    written = [f"{day.year:04}{day.month:02}{day.day:02}" for day in (one.readings[0], other.readings[0])]
    return sum(a != b for a, b in zip(*written, strict=True))


def follows(one: DateFound, known: Iterable[DateFound], counts: Iterable[int], within: int = 0) -> bool:
    """Tell whether a known date, moved by a known number of days, weeks, months or years, gives this one.

    Numbers may count the first day or leave it out; from five on, they may count working days alone.

    Args:
        one: a date.
        known: dates that were given.
        counts: numbers that were given; the first 24 different ones count.
        within: days around a known date that need no number.
    """
    numbers = list(dict.fromkeys(counts))[:_MOST_COUNTS]
    days = {sign * n * size for n in numbers for size in (1, 7) for sign in (1, -1)}
    days |= {sign * (n + extra) for n in numbers for extra in (1, -1) for sign in (1, -1)}
    working = {n + n // 5 * 2 + extra for n in numbers if n >= _WORKING_WEEK for extra in range(3)}
    days |= working | {-one for one in working}
    days |= set(range(-within, within + 1))
    wanted = {_known_year(reading) for reading in one.readings}
    if any(day.year == 0 for day in one.readings):
        wanted |= {date(year, day.month, min(day.day, 28)) for day in one.readings for year in _years(known)}
    years = {day.year for day in one.readings if day.year}
    starts = {start for each in known for reading in each.readings for start in _in_years(reading, years)}
    return any(moved in wanted for start in starts for moved in _moved(start, days, numbers))


def _in_years(one: Day, years: Iterable[int]) -> Iterator[date]:
    """Yield a day as it may be meant: of its own year, or of each of the given ones if it names none."""
    for year in (one.year,) if one.year else (0, *years):
        yield _known_year(one._replace(year=year))


def _known_year(one: Day) -> date:
    year = one.year or 2000
    is_leap_day = one[1:] == (2, 29) and (not one.year or not isleap(year))
    return date(year, one.month, 28 if is_leap_day else one.day)


def _years(known: Iterable[DateFound]) -> set[int]:
    return {reading.year for one in known for reading in one.readings if reading.year}


def _moved(start: date, days: set[int], months_: Iterable[int]) -> Iterator[date]:
    for count in days:
        if abs(count) < 3_700:
            yield start + timedelta(days=count)
    for count in months_:
        if count <= 1_200:
            for step in (count, -count, 12 * count, -12 * count):
                day = _plus_months(start, step)
                yield from (day, day - timedelta(days=day > date.min))  # and the last of so many months


def _plus_months(start: date, count: int) -> date:
    year, month = divmod(start.year * 12 + start.month - 1 + count, 12)
    year = min(max(year, 1), 9_998)
    last = (date(year + (month == 11), (month + 1) % 12 + 1, 1) - timedelta(days=1)).day
    return date(year, month + 1, min(start.day, last))


@record
class ClockFound:
    """A time of day in a text, in minutes after midnight."""

    minutes: int
    start: int
    end: int


@functools.lru_cache(maxsize=128)
def clocks_in(text: str) -> tuple[ClockFound, ...]:
    """Return the times of day of a text, in order."""
    return tuple(_clocks(text))


def _clocks(text: str) -> Iterator[ClockFound]:
    for found in _CLOCK.finditer(text):
        hours, half = int(found[1] or found[4]), (found[3] or found[5] or "").casefold()
        if half and hours <= 12:
            hours = hours % 12 + (12 if half == "p" else 0)
        yield ClockFound(minutes=hours * 60 + int(found[2] or 0), start=found.start(), end=found.end())


def years_in(text: str) -> tuple[int, ...]:
    """Return the years 1900 to 2099 in a text, also within names such as ``orders_2025`` and ``2025Q3``."""
    return tuple(dict.fromkeys(int(year) for year in _YEAR.findall(text)))
