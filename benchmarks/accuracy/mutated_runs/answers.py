"""Faults of the answer: its last step says something else than the tools returned. Pure.

Each kind yields the changes that make a run wrong, as pairs of old and new words; all places of the old words
change. What could still be right is left out by these rules:

- a figure, date or time counts only if a call returned it, and the new one stands nowhere in the run;
- of a table, the answer names one row alone by a value that no other row has, and the new value is another
  row's or column's that the answer does not give otherwise;
- a unit counts only if a result or the task gives it beside the number or in its key;
- an entry is dropped only from an answer that names all of a list of three or more, where the task asks for
  all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from analyzer.lineage.dates import dates_in
from analyzer.texts.vocabulary import phrases
from analyzer.texts.wordings import languages_in
from benchmarks.accuracy.mutated_runs.seen import (
    Row,
    Seen,
    Token,
    is_figure,
    key_of,
    numbers_in,
    with_digits_exchanged,
    with_other_digit,
)

Change: TypeAlias = tuple[str, str]
"""The words that change, and what stands there instead."""
AnswerFault: TypeAlias = Callable[[Seen], Iterator[Change]]

_GROUPED: Final = re.compile(r"\d{1,3}(?:([.,'\u00a0\u202f ])\d{3})+(?:([.,])(\d+))?")
_DECIMALS: Final = re.compile(r"(\d+)(?:([.,])(\d+))?")
_CLOCK: Final = re.compile(r"(?<![\d:.])([01]?\d|2[0-3])([:.h])([0-5]\d)(?![\d:.])")
_CODE: Final = re.compile(r"(?<![\w-])(?=[\w/-]*[A-Za-z])[A-Za-z][A-Za-z0-9]*[-_/]?\d[\w-]*\d(?![\w-])")
_NAME: Final = re.compile(r"[^\W\d_a-z][^\d]{2,40}")
_LINE: Final = re.compile(r"(?m)^[ \t]*(?:[-*•]|\d+[.)])[ \t].*\n?")
_FEWEST_ENTRIES: Final = 3
_SHORTEST_MONTH: Final = 28
_UNITS: Final[Mapping[str, str]] = {
    "€": "$", "$": "€", "£": "€", "EUR": "USD", "USD": "EUR", "GBP": "EUR", "CHF": "EUR", "kg": "g",
    "g": "kg", "km": "m", "m": "km", "km/h": "m/s", "°C": "°F", "°F": "°C", "kW": "MW", "kWh": "MWh",
    "MWh": "kWh", "GB": "MB", "MB": "GB", "ml": "l", "l": "ml", "mg": "g", "min": "h", "h": "min",
    "ms": "s", "s": "ms", "cm": "mm", "mm": "cm",
}  # fmt: skip


def exchanged_digits(seen: Seen) -> Iterator[Change]:
    """Yield figures with two neighbouring digits exchanged."""
    for token in _known(seen):
        yield from ((token.literal, new) for new in with_digits_exchanged(token.literal))


def other_digit(seen: Seen) -> Iterator[Change]:
    """Yield figures with one digit changed."""
    for token in _known(seen):
        yield from ((token.literal, new) for new in with_other_digit(token.literal))


def ten_times(seen: Seen) -> Iterator[Change]:
    """Yield figures ten times too large."""
    for token in _known(seen):
        whole, mark, decimals, group = parts_of(token.literal)
        larger = f"{whole}{decimals[:1] or '0'}", decimals[1:]
        new = _grouped(larger[0], group) + (mark + larger[1] if larger[1] else "")
        if new != token.literal and new not in seen.whole:
            yield token.literal, new


def other_sign(seen: Seen) -> Iterator[Change]:
    """Yield figures with a sign that have the other one."""
    for found in re.finditer(r"(?<!\S)[+\u2212-](?=(\d[\d.,]*\d))", seen.answer):
        if key_of(found[1]) in seen.returned:
            new = "-" if found[0] == "+" else "+"
            yield found[0] + found[1], new + found[1]


def other_row(seen: Seen) -> Iterator[Change]:
    """Yield figures that are another row's."""
    for rows, _row, key, value in _cells(seen):
        old = _written(seen.answer, value)
        for new in (other.get(key) for other in rows if old):
            if _is_number(new) and new != value:
                yield from _unsaid(seen, old, _like(old, new))


def other_column(seen: Seen) -> Iterator[Change]:
    """Yield figures that are of another column of the same row."""
    for _, row, key, value in _cells(seen):
        old = _written(seen.answer, value)
        for name, new in row.items() if old else ():
            if name != key and type(new) is type(value) and new != value:
                yield from _unsaid(seen, old, _like(old, new))


def other_name(seen: Seen) -> Iterator[Change]:
    """Yield names that are another row's."""
    for rows, _, key, value in _cells(seen):
        if isinstance(value, str) and _NAME.fullmatch(value) and value in seen.answer:
            for new in (other.get(key) for other in rows):
                if isinstance(new, str) and _NAME.fullmatch(new) and new != value:
                    yield from _unsaid(seen, value, new)


def shifted_date(seen: Seen) -> Iterator[Change]:
    """Yield dates that calls returned, on another day of the month."""
    known = {day[1:] for text in seen.results for one in dates_in(text) for day in one.readings}
    for one in dates_in(seen.answer):
        day = one.readings[0]
        places = [*re.finditer(rf"(?<!\d)0?{day.day}(?!\d)", one.literal)]
        if len(one.readings) == 1 and day[1:] in known and day.day != day.month and places:
            last = places[-1]
            for new in (day.day + 1, day.day + 2, day.day - 3, day.day + 10):
                if 0 < new <= _SHORTEST_MONTH and (day.month, new) not in known:
                    written = f"{new:0{len(last[0])}}"
                    yield one.literal, one.literal[: last.start()] + written + one.literal[last.end() :]


def shifted_time(seen: Seen) -> Iterator[Change]:
    """Yield times that calls returned, an hour or some minutes off."""
    known = {(int(one[1]), one[3]) for text in seen.results for one in _CLOCK.finditer(text)}
    for found in _CLOCK.finditer(seen.answer):
        hour, minutes = int(found[1]), found[3]
        for new in ((hour + 1, minutes), (hour - 1, minutes), (hour, f"{(int(minutes) + 20) % 60:02}")):
            is_new = 0 <= new[0] <= 23 and f"{new[0]:02}:{new[1]}" not in seen.whole
            if (hour, minutes) in known and is_new:
                yield found[0], f"{new[0]:0{len(found[1])}}{found[2]}{new[1]}"


def other_code(seen: Seen) -> Iterator[Change]:
    """Yield ids that calls returned, with one digit changed."""
    results = "\n".join(seen.results)
    for found in _CODE.finditer(seen.answer):
        if found[0] in results:
            yield from ((found[0], new) for new in with_other_digit(found[0]) if new not in seen.whole)


def other_unit(seen: Seen) -> Iterator[Change]:
    """Yield figures with another unit or currency, where the run gives the right one."""
    given = "\n".join([seen.task, *seen.results])
    for token in _known(seen):
        number = re.escape(token.literal)
        for unit, other in _UNITS.items():
            for pattern in (
                rf"{number}\s?{re.escape(unit)}(?![\w/³²])",
                rf"(?<!\w){re.escape(unit)}\s?{number}",
            ):
                found = re.search(pattern, seen.answer)
                new = found[0].replace(unit, other) if found else ""
                if found and _gives(given, token, unit) and new not in seen.whole:
                    yield found[0], new


def dropped_entry(seen: Seen) -> Iterator[Change]:
    """Yield lines of a list of which the task wants all, to be left out."""
    lines = _LINE.findall(seen.answer)
    if len(lines) < _FEWEST_ENTRIES or not phrases("every", languages_in(seen.task)).search(seen.task):
        return
    for rows in seen.tables:
        for key in rows[0]:
            names = [str(row.get(key, "")) for row in rows]
            holding = [next((line for line in lines if name and name in line), "") for name in names]
            if (
                len(rows) >= _FEWEST_ENTRIES
                and all(holding)
                and len({*names}) == len({*holding}) == len(rows)
            ):
                yield from ((line, "") for line in holding)


def _known(seen: Seen) -> Iterator[Token]:
    """Yield the figures of the answer that calls returned."""
    return (one for one in numbers_in(seen.answer) if is_figure(one) and one.key in seen.returned)


def _cells(seen: Seen) -> Iterator[tuple[Sequence[Row], Row, str, Any]]:
    """Yield the values of the only row of a table that the answer names, beside another value of it alone."""
    for rows in seen.tables:
        own = [(row, [key for key in row if _is_own(seen, row, key, rows)]) for row in rows]
        named = [(row, keys) for row, keys in own if keys]
        for row, keys in named if len(named) == 1 else ():
            yield from ((rows, row, key, value) for key, value in row.items() if {*keys} - {key})


def _is_own(seen: Seen, row: Row, key: str, rows: Sequence[Row]) -> bool:
    """Tell whether the answer gives a value that no other row has."""
    value = row[key]
    is_long = isinstance(value, str) and len(value) >= len("Ana")
    is_said = (is_long and value in seen.answer) or _written(seen.answer, value) != ""
    return is_said and sum(str(value) in map(str, one.values()) for one in rows) == 1


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _written(text: str, value: Any) -> str:
    """Return how a text writes a number of a result; empty if it does not, or if it has one digit."""
    if not _is_number(value):
        return ""
    tokens = (one for one in numbers_in(text) if is_figure(one))
    return next((one.literal for one in tokens if one.key == key_of(str(value))), "")


def _unsaid(seen: Seen, old: str, new: str) -> Iterator[Change]:
    is_said = new in seen.answer or key_of(new) in {one.key for one in numbers_in(seen.answer)}
    if new and not is_said and new not in seen.task:
        yield old, new


def parts_of(literal: str) -> tuple[str, str, str, str]:
    """Return the digits of a number's whole, its decimal mark, its decimals, and what separates groups."""
    if found := _GROUPED.fullmatch(literal):
        whole = literal[: found.start(2)] if found[2] else literal
        return "".join(filter(str.isdigit, whole)), found[2] or "", found[3] or "", found[1]
    found = _DECIMALS.fullmatch(literal)
    return (found[1], found[2] or "", found[3] or "", "") if found else (literal, "", "", "")


def _grouped(whole: str, group: str) -> str:
    return f"{int(whole):,}".replace(",", group) if group else whole


def _like(old: str, new: Any) -> str:
    """Return a number as another one is written, with its separators and decimals; empty if it cannot be."""
    _, mark, decimals, group = parts_of(old)
    whole, _, fraction = str(new).partition(".")
    if not whole.isdigit() or (fraction.strip("0") and not mark):
        return ""
    return _grouped(whole, group) + (mark + fraction.ljust(len(decimals), "0") if mark else "")


def _gives(given: str, token: Token, unit: str) -> bool:
    """Tell whether texts give a number with a unit: beside it, in its key, or as the only currency."""
    names = {
        unit,
        {"€": "EUR", "$": "USD", "£": "GBP"}.get(unit, unit),
        {"EUR": "€", "USD": "$"}.get(unit, unit),
    }
    same = [one for one in numbers_in(given) if one.key == token.key]
    for one in same:
        around = given[max(0, one.start - 24) : one.start + len(one.literal) + 8]
        if any(
            re.search(rf"(?<![^\W\d_]){re.escape(name)}(?![^\W\d_])", around, re.IGNORECASE) for name in names
        ):
            return True
    return False


ANSWER_FAULTS: Final[Mapping[str, AnswerFault]] = {
    "two digits of a figure exchanged": exchanged_digits,
    "one digit of a figure changed": other_digit,
    "a figure ten times too large": ten_times,
    "the other sign": other_sign,
    "a figure of another row": other_row,
    "a figure of another column": other_column,
    "a date some days off": shifted_date,
    "a time an hour or minutes off": shifted_time,
    "a name of another row": other_name,
    "one digit of an id changed": other_code,
    "an entry of a list left out": dropped_entry,
    "another unit or currency": other_unit,
}
