"""Values that a later record of the same thing replaces: the cached balance beside the live one. Pure.

Two records give the same field at two times, people ask for what holds now, and the answer has only the older
value. Records of a list count if nothing but the time tells them apart: others are of different things.

Nor may an agent that heard what a call returned later pass on what it returned first, nor, of records that
hold from one day to another, a value that did not hold on the day of the order.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from functools import partial
from itertools import combinations, islice
from typing import Any, Final

from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.dates import DateFound, Day, clocks_in, dates_in
from analyzer.lineage.entries import Scalar, document_in, fields_in, is_number, rows_in, stands_in
from analyzer.lineage.figures import figures
from analyzer.lineage.known import Known
from analyzer.texts.run_view import HEAD, THINKING
from analyzer.texts.vocabulary import denies, phrases, worded
from analyzer.texts.wordings import languages_in
from semconv.model import StepKind
from semconv.record import record

_MOST_RECORDS: Final = 200
_MOST_RESULTS: Final = 100
_MOST_TIMES: Final = 3
"""Times of one field; more are a series of measurements, of which an answer may give an extreme."""
_LONGEST_TIME: Final = 40
_IS_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d.*)?")
_LEAST_DIGITS: Final = 2
_MOST_CALLS: Final = 12
_MOST_CHANGES: Final = 40
_STARTS: Final = r"(?:^|_){start_key}(?:$|_)"
_STOPS: Final = r"(?:^|_){stop_key}(?:$|_)"
_LATER: Final = r"{version_key}|^(?:rev|live$|stand$)|(?:^|_){since_key}(?:$|_)"
_ASKS: Final = ("?", "？")  # noqa: RUF001 - as written
_PART: Final = re.compile(r"([?？!:;,\n]|\.(?=\s))")  # noqa: RUF001 - as above
"""The end of a part of a text: what stands before a comma need not be what is asked."""
_LEAST_SPANS: Final = 2


@record
class _Told:
    """A field of a record with the time of the record."""

    position: int
    value: float
    at: tuple[Day, int]
    """The day, and minutes after midnight."""


def older_values(known: Known) -> Iterator[Clue]:
    """Yield the fields of which the answer has the older value alone, where people ask for what holds now."""
    answer = known.answer
    if not answer or not known.asks_for("current"):
        return
    stated = {value for figure in figures(answer) if not figure.is_label for value in figure.readings}
    told = dates_in(answer) + dates_in(known.asked)
    today = known.today
    for key, every in _by_key(known).items():
        found = [
            each for each in every if today is None or each.at[0] <= (today.year, today.month, today.day)
        ]
        if not found or len({each.at for each in found}) > _MOST_TIMES:
            continue
        newest = max(found, key=lambda one: one.at)
        used = {one.value: one for one in found if one.value in stated}
        if len(used) == 1 and newest.value not in used:
            (one,) = used.values()
            if one.at < newest.at and not any(one.at[0] == day for each in told for day in each.readings):
                yield _clue(known, key, one, newest)


def _by_key(known: Known) -> Mapping[str, list[_Told]]:
    found: defaultdict[str, list[_Told]] = defaultdict(list)
    for position, text in islice(known.results(), _MOST_RESULTS):
        for row in _records(document_in(text)):
            at = _time(row)
            if at is None:
                continue
            for key, value in row.items():
                if is_number(value):
                    found[key.casefold()].append(_Told(position=position, value=float(value), at=at))
    return found


def _records(document: Any) -> list[Mapping[str, Any]]:
    """Return the objects of a document, and the entries of its lists that only their time tells apart."""
    found: list[Mapping[str, Any]] = []
    waiting = [document]
    while waiting and len(found) < _MOST_RECORDS:
        one = waiting.pop()
        if isinstance(one, dict):
            found.append(one)
            waiting += [value for value in one.values() if isinstance(value, dict | list)]
        elif isinstance(one, list):
            waiting += [each for each in one if isinstance(each, dict) and _is_state(each)]
    return found


def _is_state(entry: Mapping[str, Any]) -> bool:
    """Tell whether an entry of a list has at most a kind, no name: it is the same thing at another time."""
    texts = [value for value in entry.values() if isinstance(value, str) and not _IS_TIME.fullmatch(value)]
    nested = any(isinstance(value, dict | list) for value in entry.values())
    return len(texts) <= 1 and not nested and not any(any(map(str.isdigit, text)) for text in texts)


def _time(row: Mapping[str, Any]) -> tuple[Day, int] | None:
    """Return when a record was made; ``None`` if it does not say so, or has several such times."""
    fields = [
        (key, value) for key, value in row.items() if isinstance(value, str) and len(value) <= _LONGEST_TIME
    ]
    ends = worded("{end_key}")
    found = [value for key, value in fields if _IS_TIME.fullmatch(value) and not ends.match(str(key))]
    days = dates_in(found[0]) if len(found) == 1 else ()
    clocks = clocks_in(found[0]) if days else ()
    return (days[0].readings[0], clocks[0].minutes if clocks else 0) if days else None


def _clue(known: Known, key: str, older: _Told, newest: _Told) -> Clue:
    position = known.first_said(partial(_states, older.value), after=older.position)
    step = known.reading.steps[position]
    literal = next((figure.literal for figure in figures(step.output) if older.value in figure.readings), "")
    quotes = [known.quote(position, literal)] if literal else []
    day = "{:04}-{:02}-{:02}"
    reason = (
        f"gave {literal or older.value} ({key}, {day.format(*older.at[0])}), which"
        f" {known.giver(newest.position)} has as {newest.value:g} at {day.format(*newest.at[0])}"
    )
    return known.clue(position, ClueKind.OUT_OF_DATE, reason, *quotes)


@record
class _Change:
    """What a later call returned of a thing in place of what an earlier one had returned."""

    name: str
    position: int
    """That of the later call."""
    old: frozenset[Scalar]
    new: frozenset[Scalar]


def values_before_update(known: Known) -> Iterator[Clue]:
    """Yield the words of an agent with what a call returned first, though it heard what it returned later.

    Words that deny something or give the difference, and those of a run whose answer has what was returned
    later, may speak of what no longer holds ("free the 09:40 slot"); so may a task ask for it.
    """
    task = known.reading.trajectory.task[:HEAD]
    changes = list(islice(_changes(known), _MOST_CHANGES))
    if not changes or phrases("before", languages_in(task)).search(task):
        return
    for change in changes:
        for position, words in known.words_after(change.position):
            if change.name not in words.casefold() or any(_has(words, one) for one in change.new):
                continue
            old = next((one for one in sorted(change.old, key=str) if _has(words, one)), None)
            if old is None or _has(known.asked, old) or denies(words) or _gives_difference(words, change):
                continue
            if any(_has(known.answer, one) for one in change.new):
                break
            heard = known.heard_by(position)
            if any(_has(heard, one) for one in change.new):
                new = ", ".join(sorted(map(str, change.new)))
                reason = (
                    f"gave {old} for {change.name}, where {known.giver(change.position)} later had {new[:60]}"
                )
                yield known.clue(position, ClueKind.OUT_OF_DATE, reason, known.words(position, words))
                return


def _gives_difference(words: str, change: _Change) -> bool:
    old, new = ([one for one in each if isinstance(one, int | float)] for each in (change.old, change.new))
    apart = [abs(one - other) for one in old for other in new]
    return any(figure.is_about(one) for figure in figures(words) for one in apart)


def _has(text: str, value: Scalar) -> bool:
    if isinstance(value, str):
        return stands_in(value.casefold(), text.casefold())
    return any(value in figure.readings for figure in figures(text))


def _changes(known: Known) -> Iterator[_Change]:
    """Yield what the same call returned anew, or one that asks for more: a later version, a later time."""
    calls: defaultdict[str | None, list[tuple[int, Mapping[str, Any], str]]] = defaultdict(list)
    for position, text in known.results():
        step = known.reading.steps[position]
        if step.kind is StepKind.TOOL and len(calls[step.target]) < _MOST_CALLS:
            calls[step.target].append((position, fields_in(step.input[:HEAD]), text))
    for found in calls.values():
        for (_, asked, before), (position, again, after) in combinations(found, 2):
            if asked == again or (_is_plain(asked, again) and _asks_for_later(asked, again)):
                yield from _changed(position, rows_in(before), rows_in(after))


def _asks_for_later(asked: Mapping[str, Any], again: Mapping[str, Any]) -> bool:
    """Tell whether a call repeats another one, and adds only of which version or time."""
    added = again.keys() - asked.keys()
    return asked.items() <= again.items() and all(map(worded(_LATER).search, added))


def _is_plain(*arguments: Mapping[str, Any]) -> bool:
    return all(isinstance(one, str | int | float) for argument in arguments for one in argument.values())


def _changed(
    position: int, before: Sequence[Mapping[str, Scalar]], after: Sequence[Mapping[str, Scalar]]
) -> Iterator[_Change]:
    names = _named(after)
    for name, row in _named(before).items():
        again = names.get(name)
        if again is None:
            continue
        keys = [
            key
            for key in row
            if row[key] != again.get(key) and _is_telling(row[key]) and _is_telling(again.get(key))
        ]
        old, new = (frozenset(each[key] for key in keys) for each in (row, again))
        if keys and not old & new:
            yield _Change(name=name, position=position, old=old, new=new)


def _named(rows: Sequence[Mapping[str, Scalar]]) -> Mapping[str, Mapping[str, Scalar]]:
    """Return the records that a text without digits names, and no other record has."""
    found: dict[str, Mapping[str, Scalar]] = {}
    often: set[str] = set()
    for row in rows:
        for name in {one.casefold() for one in row.values() if isinstance(one, str) and _is_name(one)}:
            often |= {name} & found.keys()
            found[name] = row
    return {name: row for name, row in found.items() if name not in often}


def _is_name(text: str) -> bool:
    return len("abc") <= len(text) <= _LONGEST_TIME and text[:1].isupper() and not any(map(str.isdigit, text))


def _is_telling(value: Scalar | None) -> bool:
    """Tell whether a value has digits that do not stand in texts by chance."""
    if value is None or isinstance(value, bool):
        return False
    digits = sum(map(str.isdigit, str(value)))
    return digits >= _LEAST_DIGITS or (isinstance(value, str) and digits > 0 and len(value) > digits)


def values_of_other_times(known: Known) -> Iterator[Clue]:
    """Yield the words of an agent with a value of a record that did not hold on the day of a question.

    A day that stands apart from the question, as today's does, and one before or after which something is to
    hold, need not be the day that is meant; neither is one on which a record ends or begins.
    """
    for source, text in known.results():
        spans = [(row, span) for row in rows_in(text) if (span := _span(row)) is not None]
        if len(spans) < _LEAST_SPANS:
            continue
        found = next(_out_of_span(known, source, spans), None)
        if found is not None:
            yield found
            return


def _span(row: Mapping[str, Scalar]) -> tuple[date, date] | None:
    """Return from which day to which a record holds; ``None`` if it does not say so."""
    times = [
        (str(key), dates_in(value)[0].readings[0])
        for key, value in row.items()
        if isinstance(value, str) and _IS_TIME.fullmatch(value) and dates_in(value)
    ]
    starts = [day for key, day in times if worded(_STARTS).search(key)]
    ends = [day for key, day in times if worded(_STOPS).search(key)]
    if len(starts) != 1 or len(ends) > 1 or not starts[0].year:
        return None
    return date(*starts[0]), date(*ends[0]) if ends else date.max


def _out_of_span(
    known: Known, source: int, spans: Sequence[tuple[Mapping[str, Scalar], tuple[date, date]]]
) -> Iterator[Clue]:
    days = _days_asked(known, source)
    holding = [row for row, (first, last) in spans if days and all(first < day < last for day in days)]
    if len(holding) != 1:
        return
    (right,) = holding
    for position, words in known.words_after(source):
        if any(_has(words, one) for one in right.values() if _is_telling(one)):
            continue
        wrong = next(
            (
                one
                for row, _ in spans
                for one in row.values()
                if row is not right and _is_figure(one) and _has(words, one)
            ),
            None,
        )
        if wrong is not None:
            day = min(days).isoformat()
            reason = f"gave {wrong}, which {known.giver(source)} has for another time than {day}"
            yield known.clue(position, ClueKind.OUT_OF_DATE, reason, known.words(position, words))


def _is_figure(value: Scalar) -> bool:
    return isinstance(value, int | float) and _is_telling(value)


def _days_asked(known: Known, source: int) -> Sequence[date]:
    """Return the days in the last message before a call that has one: the order, or the task."""
    steps = known.reading.steps
    for step in reversed(steps[: source + 1]):
        if step.kind in THINKING:
            texts = [step.input[one.start : one.end] for one in step.heard if one.role == "user"]
            dated = [text for text in texts if any(one.readings[0].year for one in dates_in(text))]
            if dated:
                days = [
                    day for text in dated for one in _asked_in(text) for day in one.readings[:1] if day.year
                ]
                return [date(*day) for day in days]
    return ()


def _states(value: float, text: str) -> bool:
    return any(value in figure.readings for figure in figures(text))


def _asked_in(text: str) -> Iterator[DateFound]:
    """Yield the dates in the only question of a text, unless it asks for what is before or after them."""
    parts = _PART.split(text)
    questions = [one for one, end in zip(parts[::2], parts[1::2], strict=False) if end in _ASKS]
    for question in questions if len(questions) == 1 else ():
        is_other = any(phrases(kind, languages_in(text)).search(question) for kind in ("before", "after"))
        if not is_other:
            yield from dates_in(question)
