"""Days of the week and hours that the task rules out, and a call that takes one of them. Pure.

"Not on a Wednesday", and the booked 10 December is one; "not between 11:00 and 17:00", and the slot begins at
14:30. The calendar and the clock contradict the call whatever the run is about.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import date
from typing import Final

from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.dates import DateFound, agree, clocks_in, dates_in
from analyzer.lineage.deeds import SENTENCE, acts_of
from analyzer.lineage.entries import fields_in
from analyzer.lineage.known import Known
from analyzer.lineage.weekdays import ENGLISH, days_of
from analyzer.texts.numbers import DENSE
from analyzer.texts.run_view import HEAD
from analyzer.texts.tool_names import deed_of, looks_up
from analyzer.texts.tool_results import Fault
from analyzer.texts.vocabulary import denies, has_alternative, phrases, weekdays, weekdays_in, worded
from analyzer.texts.wordings import languages_in
from semconv.model import Evidence, StepKind
from semconv.record import record

_CLAUSE: Final = re.compile(r"[.;:!?\n(),]")
_REACH: Final = 40
_NEAR: Final = 3
"""Words between a word that denies and the day."""
_AHEAD: Final = 12
_LEAST: Final = 4
_LONGEST: Final = 40
_MOST_CALLS: Final = 100
EXCEPT: Final = r"\b{avoid}\b"
"""Words that rule out what follows."""
_DENSE_NO: Final = r"[^\n。,、]{0,4}{dense_avoid}"
_SPAN: Final = re.compile(
    r"(?<![\d.:])(\d{1,2})[:.h時时点](\d\d)?[^\d,;\n]{1,12}(\d{1,2})[:.h時时点](\d\d)?(?![\d.:]\d)"
)
"""From one time of day to another."""


@record
class _Hours:
    """Hours that the task rules out, in minutes after midnight."""

    first: int
    last: int
    words: str

    def overlaps(self, times: Sequence[int]) -> bool:
        """Tell whether a call's time, or its span from the first to the last time, lies in these hours."""
        if not times:
            return False
        begin, end = min(times), max(times)
        return begin < self.last and (end > self.first if end > begin else begin >= self.first)


def barred_times(known: Known) -> Iterator[Clue]:
    """Yield the calls that take a day of the week or an hour which the task rules out."""
    task, answer = known.asked, known.answer
    if not task or not answer:
        return
    days, hours = dict(_days(task, known.languages)), list(_hours(task, known.languages))
    if not (days or hours) or has_alternative(task) or _is_told(answer):
        return
    told = dates_in(answer)
    for position in _deeds(known):
        times = _times(known.reading.steps[position].input)
        dates = [one for value in times for one in dates_in(value)]
        is_deed = _is_deed(known, position)
        dates += _only_date(known.reading.steps[position].output) if is_deed and not dates else ()
        is_meant = is_deed or any(agree(one, each) for one in told for each in dates)
        for one in dates if is_meant else ():
            for day in _in_question(known, one):
                if day.weekday() in days:
                    yield _clue(known, position, one.literal, ENGLISH[day.weekday()], days[day.weekday()])
        clocks = [(one.minutes, value) for value in times for one in clocks_in(value)]
        for span in hours if is_meant else ():
            if span.overlaps([minutes for minutes, _ in clocks]):
                yield _clue(known, position, clocks[0][1], "within these hours", span.words)


def _times(arguments: str) -> list[str]:
    """Return the arguments of a call that are no more than a date or a time."""
    values = fields_in(arguments[:HEAD]).values()
    return [value for value in values if isinstance(value, str) and len(value) <= _LONGEST]


def _only_date(result: str) -> list[DateFound]:
    """Return the date of a result that has one: of the slot that was booked by its id."""
    found = dates_in(result[:HEAD])
    return list(found[:1]) if all(agree(one, found[0]) for one in found) else []


def _is_deed(known: Known, position: int) -> bool:
    tool = known.reading.steps[position].target or ""
    return bool(deed_of(tool) or acts_of(tool))


def _in_question(known: Known, one: DateFound) -> Iterator[date]:
    """Yield the days that a date may mean, unless people gave it themselves or it lies years away."""
    days = list(days_of(known, one))
    latest = max((day[0] for each in known.all_dates for day in each.readings), default=0)
    if not any(agree(one, given) for given in dates_in(known.asked)):
        yield from (day for day in days if len(days) == 1 and abs(day.year - latest) <= 1)


def _deeds(known: Known) -> list[int]:
    """Return the positions of the calls that change something, or whose names do not tell."""
    steps = enumerate(known.reading.steps)
    return [
        position
        for position, step in steps
        if step.kind is StepKind.TOOL
        and not looks_up(step.target or "")
        and known.reading.faults[position] is Fault.NONE
    ][-_MOST_CALLS:]


def _days(task: str, languages: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Yield the days of the week that a task rules out and nowhere allows, each with its words."""
    named: dict[int, list[tuple[bool, str]]] = {}
    small = task.casefold()
    for name, day in weekdays(languages).items():
        if name not in small:
            continue
        is_dense = re.search(rf"[{DENSE}]", name) is not None
        pattern = re.escape(name) if is_dense else rf"(?<!\w){re.escape(name)}s?(?!\w)"
        for found in re.finditer(pattern, small) if len(name) >= (2 if is_dense else _LEAST) else ():
            words = _denial(small, found.start(), found.end(), languages, is_dense=is_dense)
            named.setdefault(day, []).append((bool(words), words))
    for day, places in named.items():
        if all(is_denied for is_denied, _ in places):
            yield day, places[0][1]


def _denial(task: str, start: int, end: int, languages: tuple[str, ...], *, is_dense: bool) -> str:
    """Return the words that rule a day out; empty if none do, or they speak of one date or of a limit."""
    if dates_in(task[start : end + _AHEAD]):
        return ""
    if is_dense:
        found = worded(_DENSE_NO).match(task, end)
        return task[start : found.end()] if found else ""
    before = _CLAUSE.split(task[max(0, start - _REACH) : start])[-1]
    denied = [*phrases("no", languages).finditer(before), *worded(EXCEPT).finditer(before)]
    found = denied[-1] if denied else None
    if found is None or len(before[found.end() :].split()) > _NEAR:
        return ""
    limits = (phrases(kind, languages).search(before[found.start() :]) for kind in ("before", "after"))
    return "" if any(limits) else f"{before[found.start() :]}{task[start:end]}".strip()


def _hours(task: str, languages: tuple[str, ...]) -> Iterator[_Hours]:
    """Yield the hours that a task rules out: a word that denies, and two times right after it."""
    for found in _SPAN.finditer(task):
        first, last = (60 * int(found[hour]) + int(found[hour + 1] or 0) for hour in (1, 3))
        before = _CLAUSE.split(task[max(0, found.start() - _REACH) : found.start()])[-1]
        denied = phrases("no", languages).search(before)
        limits = (phrases(kind, languages).search(before) for kind in ("before", "after"))
        if denied and first < last and len(before[denied.end() :].split()) <= _NEAR and not any(limits):
            yield _Hours(first=first, last=last, words=before[denied.start() :] + found[0])


def _is_told(answer: str) -> bool:
    """Tell whether an answer denies something about a day or a time: that no other one was free."""
    languages = languages_in(answer)
    return any(
        denies(part) and (dates_in(part) or clocks_in(part) or weekdays_in(part, languages))
        for part in SENTENCE.findall(answer)
    )


def _clue(known: Known, position: int, literal: str, what: str, words: str) -> Clue:
    call = known.reading.steps[position]
    told = call.input if call.kind is StepKind.TOOL else call.output
    quote = known.quote(position, literal)
    evidence = quote if quote.quote else Evidence(step=call.index, quote=told[:200])
    reason = f"took {literal} ({what}), where the task says “{' '.join(words.split())}”"
    origin = known.origin_of(literal, position)
    return known.clue(origin, ClueKind.CONSTRAINT, reason, evidence, sign="limit", most=0.8)
