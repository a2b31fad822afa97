"""Values that a later record of the same thing replaces: the cached balance beside the live one. Pure.

Two records give the same field at two times, people ask for what holds now, and the answer has only the older
value. Records of a list count if nothing but the time tells them apart: others are of different things.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any, Final

from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.dates import Day, clocks_in, dates_in
from analyzer.lineage.entries import document_in
from analyzer.lineage.figures import figures
from analyzer.lineage.known import Known
from semconv.record import record

_MOST_RECORDS: Final = 200
_MOST_RESULTS: Final = 100
_MOST_TIMES: Final = 3
"""Times of one field; more are a series of measurements, of which an answer may give an extreme."""
_LONGEST_TIME: Final = 40
_IS_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d.*)?")
_ENDS: Final = re.compile(
    r"(?:until|end|expir|due|to|birth|born|naissance|geburt|nac|ablauf|ende|fin|bis)", re.IGNORECASE
)
"""Keys of times at which a record was not made."""


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
    stated = {value for one in figures(answer) if not one.is_label for value in one.readings}
    told = dates_in(answer) + dates_in(known.asked)
    for key, found in _by_key(known).items():
        if len({each.at for each in found}) > _MOST_TIMES:
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
                if isinstance(value, int | float) and not isinstance(value, bool):
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
    found = [value for key, value in fields if _IS_TIME.fullmatch(value) and not _ENDS.match(str(key))]
    days = dates_in(found[0]) if len(found) == 1 else ()
    clocks = clocks_in(found[0]) if days else ()
    return (days[0].readings[0], clocks[0].minutes if clocks else 0) if days else None


def _clue(known: Known, key: str, older: _Told, newest: _Told) -> Clue:
    position = known.first_said(partial(_states, older.value), after=older.position)
    step = known.reading.steps[position]
    literal = next((one.literal for one in figures(step.output) if older.value in one.readings), "")
    quotes = [known.quote(position, literal)] if literal else []
    day = "{:04}-{:02}-{:02}"
    reason = (
        f"gave {literal or older.value} ({key}, {day.format(*older.at[0])}), which"
        f" {known.giver(newest.position)} has as {newest.value:g} at {day.format(*newest.at[0])}"
    )
    return known.clue(position, ClueKind.OUT_OF_DATE, reason, *quotes)


def _states(value: float, text: str) -> bool:
    return any(value in one.readings for one in figures(text))
