"""Dates and times of a record that the answer gives with a slip: "ready by 19:00", where it has 18:00. Pure.

A date or a time that nothing in the run gives may be worked out, or known from elsewhere. It is a slip if its
sentence names a record by another value of it or of the call that returned it, the record has a date or time
that is nearly the same, and the answer lacks that one. No number of the run may lead from one to the other:
so many days, hours or minutes, or a time zone. Nor is a time a slip that the answer works out from another
time of its own: 9:05, where it names the train at 9:40, a walk of 25 minutes and a buffer of 10.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from datetime import date
from itertools import combinations, islice
from typing import Final

from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.dates import ClockFound, DateFound, agree, clocks_in, dates_in, without_dates
from analyzer.lineage.deeds import SENTENCE
from analyzer.lineage.entries import Scalar, document_in, rows_in, stands_in
from analyzer.lineage.figures import prose_of
from analyzer.lineage.known import Known, counts_in
from analyzer.texts.run_view import HEAD
from analyzer.texts.vocabulary import worded
from semconv.model import StepKind
from semconv.record import record

_NEAR_DAYS: Final = range(2, 11)
"""Days between two dates of which one is a slip of the other; the next day is often meant."""
_WEEK: Final = 7
_HOUR: Final = 60
_HALF_DAY: Final = 720
_LEAST_NAME: Final = 3
_MOST_SENTENCES: Final = 80
_MOST_RECORDS: Final = 400
_CLOCK: Final = re.compile(r"(?<!\d)(\d\d?)\s?[:.h時时시]\s?(\d\d)(?!\d)")
_ROUND: Final = (5, 15, 30)
"""Minutes to which people round."""
_PARTS: Final = {r"(?<!\w){half_hour}": _HOUR // 2, r"(?<!\w){quarter_hour}": _HOUR // 4}
"""Parts of an hour in words, and their minutes."""
_ZONE: Final = re.compile(r"\d(?:Z|[+-]\d\d:?\d\d)\b|\b(?:UTC|GMT|[A-Z]{1,3}[SD]?T)\b")
"""A time zone: the same moment has another time there."""


@record
class _Record:
    """A record of a result, and the position of the step that returned it."""

    position: int
    fields: Mapping[str, Scalar]
    names: tuple[str, ...]
    """Its texts, and those in the arguments of the call that returned it, in lower case."""


@record
class _Slip:
    """A value of the answer, and the value of a record that should stand there."""

    stated: str
    given: str
    key: str
    position: int


def misstated_values(known: Known) -> Iterator[Clue]:
    """Yield the answer's values that are nearly those of the record which their sentence names."""
    if known.is_blind or not known.has_results:
        return
    answer = _Answer(known)
    sentences = list(islice(answer.sentences_with_news(), _MOST_SENTENCES)) if answer.has_news else []
    records = list(islice(_records(known), _MOST_RECORDS)) if sentences else []
    for sentence, news in sentences:
        for one in records:
            if any(stands_in(name, sentence) for name in one.names):
                yield from (_clue(known, slip) for slip in answer.slips(news, one))


@record
class _News:
    """What a part of an answer says that nothing in the run gives."""

    dates: tuple[DateFound, ...]
    clocks: tuple[ClockFound, ...]

    def __bool__(self) -> bool:
        return bool(self.dates or self.clocks)


class _Answer:
    """An answer, and what it says that nothing in the run gives."""

    def __init__(self, known: Known) -> None:
        self.text: Final = prose_of(known.answer)
        self._known: Final = known
        self._dates: Final = dates_in(self.text)
        self._clocks: Final = clocks_in(self.text)
        self._news: Final = _News(
            dates=tuple(one for one in self._dates if len(one.readings) == 1 and not known.has_date(one)),
            clocks=tuple(one for one in self._clocks if not self._is_explained(one.minutes)),
        )

    @property
    def has_news(self) -> bool:
        """Whether it says anything that nothing in the run gives."""
        return bool(self._news)

    def sentences_with_news(self) -> Iterator[tuple[str, _News]]:
        """Yield its sentences that say what nothing in the run gives, in lower case, each with that."""
        for found in SENTENCE.finditer(self.text):
            if news := self._news_in(found.start(), found.end()):
                yield found[0].casefold(), news

    def _news_in(self, start: int, end: int) -> _News:
        return _News(
            dates=tuple(one for one in self._news.dates if start <= one.start < end),
            clocks=tuple(one for one in self._news.clocks if start <= one.start < end),
        )

    def slips(self, news: _News, one: _Record) -> Iterator[_Slip]:
        """Yield what is new and nearly a value of a record that the answer lacks."""
        for key, value in one.fields.items():
            if isinstance(value, str):
                for stated in (*self._slips_of_date(news, value), *self._slips_of_time(news, value)):
                    yield _Slip(stated=stated, given=value, key=key, position=one.position)

    def _slips_of_date(self, news: _News, value: str) -> Iterator[str]:
        for given in dates_in(value)[:1] if news.dates else ():
            if not any(agree(given, one) for one in self._dates):
                yield from (one.literal for one in news.dates if self._is_slip_of_date(one, given))

    def _is_slip_of_date(self, one: DateFound, given: DateFound) -> bool:
        apart = _days_apart(one, given)
        counted = self._counts & {apart - 1, apart, apart + 1}
        return apart in _NEAR_DAYS and not counted and not {apart / _WEEK} & self._counts

    def _slips_of_time(self, news: _News, value: str) -> Iterator[str]:
        for given in clocks_in(value)[:1] if news.clocks else ():
            if given.minutes % _HALF_DAY not in self._said_clocks:
                yield from (
                    self.text[one.start : one.end]
                    for one in news.clocks
                    if self._is_slip_of_time(one.minutes, given.minutes)
                )

    def _is_slip_of_time(self, one: int, given: int) -> bool:
        apart = abs(one - given)
        if apart % _HOUR and one // _HOUR != given // _HOUR:
            return False
        counted = {apart, apart / _HOUR} & self._counts
        return not counted and not (apart % (_HOUR // 2) == 0 and self._has_zones)

    @functools.cached_property
    def _said_clocks(self) -> frozenset[int]:
        return frozenset(one.minutes % _HALF_DAY for one in self._clocks)

    @functools.cached_property
    def _own_counts(self) -> tuple[int, ...]:
        return counts_in(without_dates(self.text, self._dates))

    @functools.cached_property
    def _counts(self) -> frozenset[float]:
        return frozenset(map(float, (*self._own_counts, *self._known.counts, *self._spoken)))

    @functools.cached_property
    def _spoken(self) -> tuple[int, ...]:
        """The minutes that the answer or a text from outside gives as parts of an hour in words."""
        texts = (self.text, *(source.text for source in self._known.sources))
        return tuple(minutes for part, minutes in _PARTS.items() if any(map(worded(part).search, texts)))

    @functools.cached_property
    def _has_zones(self) -> bool:
        return any(_ZONE.search(text) for text in (self.text, *self._texts))

    def _is_explained(self, minutes: int) -> bool:
        return self._is_given(minutes) or self._is_worked_out(minutes)

    def _is_worked_out(self, minutes: int) -> bool:
        """Tell whether one or two counts of minutes lead here from a given time that the answer names."""
        starts = (one.minutes for one in self._clocks if one.minutes % _HALF_DAY in self._given_clocks)
        return any(abs(start - minutes) in self._minutes for start in starts)

    @functools.cached_property
    def _minutes(self) -> frozenset[int]:
        """The counts of the answer without its times of day, and what two of them make together."""
        pieces = (self.text[one.start : one.end] for one in self._clocks)
        spoken = functools.reduce(lambda text, clock: text.replace(clock, " "), pieces, self.text)
        counts = counts_in(without_dates(spoken, dates_in(spoken)))
        return frozenset((*counts, *(one + other for one, other in combinations(counts, 2))))

    def _is_given(self, minutes: int) -> bool:
        """Tell whether a text from outside or a call may mean this time: 6 for 18:00, 17:58 for 18:00."""
        time = minutes % _HALF_DAY
        if time in self._given_clocks or any(_is_rounded(time, given) for given in self._given_clocks):
            return True
        hours = {time // _HOUR, (time + _HALF_DAY) // _HOUR}
        return time % _HOUR == 0 and not hours.isdisjoint(self._counts)

    @functools.cached_property
    def _given_clocks(self) -> frozenset[int]:
        found = (one for text in self._texts for one in _CLOCK.findall(text))
        return frozenset((int(hour) * _HOUR + int(minute)) % _HALF_DAY for hour, minute in found)

    @functools.cached_property
    def _texts(self) -> tuple[str, ...]:
        steps = (step for step in self._known.reading.steps if step.kind is StepKind.TOOL)
        return (*(source.text for source in self._known.sources), *(step.input[:HEAD] for step in steps))


def _records(known: Known) -> Iterator[_Record]:
    for position, text in known.results():
        step = known.reading.steps[position]
        asked = document_in(step.input[:HEAD]) if step.kind is StepKind.TOOL else None
        arguments = asked.values() if isinstance(asked, dict) else ()
        for row in rows_in(text):
            texts = (each.casefold().strip() for each in (*row.values(), *arguments) if isinstance(each, str))
            names = tuple(dict.fromkeys(one for one in texts if len(one) >= _LEAST_NAME))
            yield _Record(position=position, fields=row, names=names)


def _is_rounded(one: int, given: int) -> bool:
    """Tell whether a time of day is another one rounded, both in minutes."""
    return any(one % to == 0 and given % to and 2 * abs(one - given) <= to for to in _ROUND)


def _days_apart(one: DateFound, other: DateFound) -> int:
    """Return the days between two dates, of which one may have no year; 0 if their years differ."""
    a, b = one.readings[0], other.readings[0]
    year = a.year or b.year or 2000
    if a.year and b.year and a.year != b.year:
        return 0
    try:
        return abs((date(year, a.month, a.day) - date(year, b.month, b.day)).days)
    except ValueError:
        return 0


def _clue(known: Known, slip: _Slip) -> Clue:
    step = known.first_with(slip.stated)
    reason = f"gave {slip.stated}, where {known.giver(slip.position)} returned {slip.key} {slip.given}"
    quotes = (known.quote(slip.position, slip.given), known.quote(step, slip.stated))
    return known.clue(step, ClueKind.CHANGED, reason, *quotes, sign="date")
