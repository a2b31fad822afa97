"""Results that are out of date: a rate of 2021 as the answer for today. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import date
from typing import Any, Final

from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.dates import DateFound, Day, agree, clocks_in, dates_in, years_in
from analyzer.lineage.deeds import SENTENCE, is_question
from analyzer.lineage.entries import document_in, strings_of
from analyzer.lineage.figures import figures
from analyzer.lineage.known import BEFORE, Known
from analyzer.texts.numbers import measure_of
from analyzer.texts.run_view import HEAD
from analyzer.texts.vocabulary import denies, phrases, worded, words_for
from semconv.model import StepKind

_OF_DATA: Final = r"{data_time_key}(?:_?(?:at|on|am|em|al|op))?$"
"""Keys of the time at which data was right, with which it may be out of date after a month."""
_OF_ANYTHING: Final = "{any_time_key}$"
"""Keys that may also be the time of an event: only old and small records of figures count."""
_LETTERS: Final = re.compile(r"[^\W\d_]+")
_LONG_TIMES: Final = frozenset({measure_of("year"), measure_of("month")})
_MOST_WORDS: Final = 2
"""Words of a name; a note has more."""
_MONTH: Final = 31
_HALF_YEAR: Final = 183
_FEW_KEYS: Final = 4
_LEAST_TEXT: Final = 6
"""Characters of a text that an answer has from a result, and not by chance."""


def outdated_results(known: Known) -> Iterator[Clue]:
    """Yield the old results whose figures the answer states for today, without their date."""
    answer = known.answer
    today = _day_asked_about(known)
    if not answer or today is None or known.admits_fault or denies(answer):
        return
    stated = {figure.value for figure in figures(answer)}
    is_past = worded("{expired}").search(answer) is not None or not _asks_about_day_asked_about(known)
    for step, text in known.results():
        row = _record(text)
        found = _old(row, today, answer)
        used = stated & _numbers(row)
        if found is not None and used:
            yield _clue(known, step, found, min(used))
            continue
        expired = None if is_past else _expired(row, today, answer)
        if expired is not None and (told := _told_of(text, expired, answer)):
            yield _expired_clue(known, step, expired, told)


def _expired(row: Mapping[str, Any], today: date, answer: str) -> DateFound | None:
    """Return the last day on which a record held, if it is over and the answer does not give it."""
    for key, value in row.items():
        is_end = key.casefold().replace("_", "").replace(" ", "") in words_for("expiry_key")
        found = dates_in(value) if is_end and isinstance(value, str) else ()
        days = found[0].readings if len(found) == 1 else ()
        if len(days) == 1 and days[0].year and date(*days[0]) < today:
            return None if any(agree(found[0], one) for one in dates_in(answer)) else found[0]
    return None


def _asks_about_day_asked_about(known: Known) -> bool:
    """Tell whether a word such as ``today`` stands in a question, if the task has one."""
    questions = list(filter(is_question, SENTENCE.findall(known.asked)))
    current = phrases("current", known.languages)
    return not questions or any(current.search(one) for one in questions)


def _told_of(text: str, besides: DateFound, answer: str) -> str:
    """Return a text of ``_LEAST_TEXT`` characters or more that an answer has from a result; empty if none."""
    small = answer.casefold()
    values = (value for _, value in strings_of(text) if besides.literal not in value)
    return next((one for one in values if len(one) >= _LEAST_TEXT and one.casefold() in small), "")


def _expired_clue(known: Known, source: int, found: DateFound, told: str) -> Clue:
    position = known.first_said(lambda text: told.casefold() in text.casefold(), after=source)
    reason = f"answered for today with what {known.giver(source)} returned until {found.literal}"
    return known.clue(position, ClueKind.OUT_OF_DATE, reason, known.quote(source, found.literal))


def other_years(known: Known) -> Iterator[Clue]:
    """Yield the result for the very day that people ask about, of another year, if the answer hides it.

    The record gives times of that day, and no words that may explain the year: a contract has the day of its
    beginning. A call that asks for the other year has its reason, and so has a task that speaks of years.
    """
    answer = known.answer
    asked = [one for one in dates_in(known.asked) if len(one.readings) == 1 and one.readings[0].year]
    if len(asked) != 1 or not answer or denies(answer) or len(years_in(known.asked)) > 1:
        return
    if any(agree(asked[0], one.date) for one in known.dates if one.told.position != BEFORE):
        return
    if any(_means_years(text) for text in (known.asked, answer)):
        return
    for step, text in known.results():
        row = _record(text)
        dates = [found for key, value in row.items() if _names_its_day(key) for found in dates_in(str(value))]
        call = known.reading.steps[step]
        if len(dates) != 1 or any(agree(dates[0], one) for one in dates_in(call.input[:HEAD])):
            continue
        if _is_explained(row):
            continue
        told = _times(answer) - _times(known.asked)
        if _is_of_other_year(dates[0], asked[0].readings[0], answer) and _times_in(row) & told:
            yield _other_year(known, step, dates[0].literal, asked[0].literal)
            return


def _names_its_day(key: str) -> bool:
    """Tell whether a key is that of the day which a record is about, or at which it was right."""
    return bool(worded(_OF_DATA).search(key) or worded(_OF_ANYTHING).match(key))


def _means_years(text: str) -> bool:
    """Tell whether a text has a word for years or months: every year, twelve months before."""
    return any(measure_of(word) in _LONG_TIMES for word in _LETTERS.findall(text.casefold()))


def _is_explained(row: Mapping[str, Any]) -> bool:
    """Tell whether a field of a record has several words: a note may say that the year does not matter."""
    others = (str(value) for key, value in row.items() if not _names_its_day(key))
    return any(len(_LETTERS.findall(text)) > _MOST_WORDS for text in others)


def _times_in(row: Mapping[str, Any]) -> frozenset[int]:
    """Return the times of day of the other fields of a record, in minutes."""
    others = (str(value) for key, value in row.items() if not _names_its_day(key))
    return frozenset(value for text in others for value in _times(text))


def _times(text: str) -> frozenset[int]:
    return frozenset(one.minutes for one in clocks_in(text))


def _is_of_other_year(found: DateFound, wanted: Day, answer: str) -> bool:
    day = found.readings[0]
    is_same_day = len(found.readings) == 1 and day[1:] == wanted[1:]
    return is_same_day and day.year not in {0, wanted.year, *years_in(answer)}


def _other_year(known: Known, source: int, found: str, asked: str) -> Clue:
    used = _times_in(_record(known.reading.steps[source].output)) & _times(known.answer)
    position = known.first_said(lambda text: not used.isdisjoint(_times(text)), after=source)
    reason = f"answered for {asked} with what {known.giver(source)} returned for {found}, and did not say so"
    return known.clue(position, ClueKind.OUT_OF_DATE, reason, known.quote(source, found))


_PERIODS: Final = (
    r"(?<!\d)((?:19|20)\d\d)\s?[-/–]\s?(?:20)?(\d\d)(?![\d-])",  # noqa: RUF001 - a dash as typed
    r"\bQ([1-4])[\s/-]{0,2}((?:20)\d\d)\b|\b((?:20)\d\d)[\s/-]{0,2}Q([1-4])\b",
    r"\b{week}[\s_#:\"-]{0,4}(\d{1,2})\b",
)
"""Seasons and school years, quarters, and weeks."""


def other_periods(known: Known) -> Iterator[Clue]:
    """Yield the results for another season, quarter or week than was asked for, if the answer hides it."""
    answer = known.answer
    stated = {figure.value for figure in figures(answer)}
    wanted = [(one, asked) for one in map(worded, _PERIODS) if len(asked := _periods(one, known.asked)) == 1]
    for pattern, asked in wanted if answer and wanted and not denies(answer) else ():
        texts = [
            (step, text, _periods(pattern, text) | _asked_of(known, step, pattern))
            for step, text in known.results()
        ]
        said = _periods(pattern, answer)
        if any(asked & found for _, _, found in texts):
            continue
        for step, text, found in texts:
            used = {figure.value for figure in figures(text) if not figure.is_label} & stated
            if len(found) == 1 and used and not found & said:
                yield _other(known, step, pattern, min(used))
                break


def _periods(pattern: re.Pattern[str], text: str) -> frozenset[tuple[str, ...]]:
    return frozenset(tuple(sorted(filter(None, one.groups()))) for one in pattern.finditer(text))


def _asked_of(known: Known, position: int, pattern: re.Pattern[str]) -> frozenset[tuple[str, ...]]:
    """Return the periods that a call asked for: what it returned is for them, whatever else it speaks of."""
    step = known.reading.steps[position]
    return _periods(pattern, step.input[:HEAD]) if step.kind is StepKind.TOOL else frozenset()


def _other(known: Known, source: int, pattern: re.Pattern[str], value: float) -> Clue:
    position = known.first_stating(value, after=source)
    found = pattern.search(known.reading.steps[source].output) or pattern.search(known.asked)
    wanted = pattern.search(known.asked)
    shown, asked = (found[0] if found else ""), (wanted[0] if wanted else "")
    reason = f"answered for {asked} with what {known.giver(source)} returned for {shown}, and did not say so"
    return known.clue(position, ClueKind.OUT_OF_DATE, reason, known.quote(source, shown))


def _numbers(row: Mapping[str, Any]) -> set[float]:
    texts = (str(value) for value in row.values() if isinstance(value, int | float | str))
    return {figure.value for text in texts for figure in figures(text) if not figure.is_small}


def _day_asked_about(known: Known) -> date | None:
    """Return the day for which people ask, if they ask for what holds now and say which day that is.

    The time of the spans does not tell: runs are replayed, and copies of databases are asked.
    """
    if not known.asks_for("current"):
        return None
    told = [
        day
        for found in dates_in(f"{known.asked}\n{known.instructions}")
        for day in found.readings[:1]
        if day.year
    ]
    return max((date(*day) for day in told), default=None)


def _record(text: str) -> Mapping[str, Any]:
    """Return a result that is one record; empty if it is not."""
    found = document_in(text)
    if not isinstance(found, dict):
        return {}
    inner = [value for value in found.values() if isinstance(value, dict)]
    return inner[0] if len(found) == 1 and inner else found


def _old(row: Mapping[str, Any], today: date, answer: str) -> DateFound | None:
    """Return the date of a record that is too old for the question and that the answer does not give."""
    said = dates_in(answer)
    told = (each for value in row.values() if isinstance(value, str) for each in dates_in(value))
    if any(day.year and date(*day) >= today for each in told for day in each.readings):
        return None  # what it says still holds, or is to come
    for key, value in row.items():
        most = (
            _MONTH
            if worded(_OF_DATA).search(key)
            else _HALF_YEAR
            if worded(_OF_ANYTHING).match(key) and len(row) <= _FEW_KEYS
            else None
        )
        found = dates_in(value) if most is not None and isinstance(value, str) else ()
        if len(found) != 1 or most is None:
            continue
        day: Day = found[0].readings[0]
        is_old = bool(day.year) and (today - date(*day)).days > most
        if (
            is_old
            and not any(agree(found[0], one) for one in said)
            and (day.year == today.year or day.year not in years_in(answer))
        ):
            return found[0]
    return None


def _clue(known: Known, source: int, found: DateFound, value: float) -> Clue:
    position = known.first_stating(value, after=source)
    reason = (
        f"answered for today with what {known.giver(source)} returned for {found.literal}, and did not say so"
    )
    return known.clue(position, ClueKind.OUT_OF_DATE, reason, known.quote(source, found.literal))
