"""Values and calls that belong to another entry of a list than the one that is meant. Pure.

Two readers. A sentence names one entry and gives the value of another (the time of the third swimmer, said of
the second). A call takes the id of one entry where the task describes another by its name (the account of
M. Okafor in 14B, where N. Okafor in 4B was asked for).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.dates import agree, dates_in
from analyzer.lineage.entries import Entry, Listed, Scalar, lists_in
from analyzer.lineage.known import Known, around, words_in
from analyzer.signals.run_view import HEAD, final_answer
from analyzer.signals.wordings import mentions_fault
from semconv.dialects.reading.values import mapping
from semconv.model import Evidence, StepKind
from semconv.record import record

_SENTENCE: Final = re.compile(r"(?:[^.!?;\n。！？।]|[.](?=\d))+")  # noqa: RUF001 - other scripts
_MOST_SENTENCES: Final = 80
_MOST_TABLES: Final = 40
_MOST_ROWS: Final = 40
_NUMBER: Final = re.compile(r"(?<![\w.,:-])\d[\d.,:]*\d(?![\w-])")
_YEAR: Final = re.compile(r"(?:19|20)\d\d")
_LEAST_DIGITS: Final = 3
"""Digits of a value that is not equal to another by chance."""
_WORD: Final = re.compile(r"[^\W\d_]{4,}")
_LEAST_ROWS: Final = 3
_LEAST_NAME: Final = 3
_LONG_NUMBER: Final = 5
"""Digits of a number that names something."""


@record
class _Row:
    """An entry with what names it, and its telling values by column."""

    names: tuple[str, ...]
    values: Mapping[str, str]
    """Numbers as they are compared: without the marks of thousands and closing zeros."""
    fields: frozenset[str]
    """All its words, in lower case."""


@record
class _Told:
    """A sentence of an agent, and its numbers as they are compared, with how they are written."""

    position: int
    sentence: str
    numbers: Mapping[str, str]


def values_of_other_rows(known: Known) -> Iterator[Clue]:
    """Yield the values that a sentence gives to one entry of a list although they are another's."""
    answer = final_answer(known.reading.trajectory)[:HEAD]
    stated = {_plain(each) for each in _NUMBER.findall(answer)} - {""}
    told = list(islice(_told_numbers(known, stated), _MOST_SENTENCES)) if stated else []
    tables = ((source, rows) for source, text in known.results() for rows in _tables(text)) if told else ()
    for source, rows in islice(tables, _MOST_TABLES):
        values = {value for row in rows for value in row.values.values()}
        for one in told:
            if one.position >= source and not values.isdisjoint(one.numbers):
                yield from _mixed_up(known, rows, one, source, stated)


def _told_numbers(known: Known, stated: set[str]) -> Iterator[_Told]:
    """Yield the sentences of agents with a number that the answer gives."""
    for position, step in enumerate(known.reading.steps):
        if step.kind is StepKind.TOOL:
            continue
        for found in _SENTENCE.finditer(known.reading.outputs[position][:HEAD]):
            numbers = {_plain(each): each for each in _NUMBER.findall(found[0])}
            if not stated.isdisjoint(numbers):
                yield _Told(position=position, sentence=found[0], numbers=numbers)


def _tables(text: str) -> Iterator[tuple[_Row, ...]]:
    lists = lists_in(text)
    for listed in lists:
        yield tuple(_of_entry(entry) for entry in listed.entries[:_MOST_ROWS])
    if not lists and text[:1] not in "[{":
        yield _of_lines(text)


def _of_entry(entry: Entry) -> _Row:
    numbers = ((key, _plain(str(value))) for key, value in entry.fields.items())
    values = {key: each for key, each in numbers if _is_telling(each)}
    return _Row(names=entry.names, values=values, fields=_words(entry.fields))


def _words(fields: Mapping[str, Scalar]) -> frozenset[str]:
    return frozenset(word for value in fields.values() for word in words_in(str(value)))


def _of_lines(text: str) -> tuple[_Row, ...]:
    """Return the lines of a text as entries: each has a word that no other has, and a number of its shape."""
    lines = [line for line in text.splitlines()[: _MOST_ROWS + 8] if _NUMBER.search(line)]
    words = [{word.casefold() for word in _WORD.findall(line)} for line in lines]
    rows: list[_Row] = []
    for place, line in enumerate(lines):
        others = set[str]().union(*(own for at, own in enumerate(words) if at != place))
        values = {re.sub(r"\d", "0", each): _plain(each) for each in _NUMBER.findall(line)}
        telling = {shape: each for shape, each in values.items() if _is_telling(each)}
        rows.append(_Row(names=tuple(sorted(words[place] - others)), values=telling, fields=words_in(line)))
    shapes = Counter(shape for row in rows for shape in row.values)
    column = max(shapes, key=lambda shape: shapes[shape], default="")
    kept = tuple(row for row in rows if column in row.values)  # a heading has none
    return kept if len(kept) >= _LEAST_ROWS else ()


def _plain(literal: str) -> str:
    """Return a number in one way of writing; other texts as they are."""
    if not _NUMBER.fullmatch(literal):
        return ""
    if ":" in literal:
        return literal
    plain = re.sub(r"[.,](?=\d{3}(?:\D|$))", "", literal).replace(",", ".")
    return plain.rstrip("0").rstrip(".") if "." in plain else plain


def _is_telling(number: str) -> bool:
    return sum(map(str.isdigit, number)) >= _LEAST_DIGITS and not _YEAR.fullmatch(number)


def _mixed_up(
    known: Known, rows: tuple[_Row, ...], one: _Told, source: int, stated: set[str]
) -> Iterator[Clue]:
    named = [row for row in rows if _is_named(row, one.sentence)]
    if len(named) == 1 and (other := _other_value(named[0], rows, one, stated)) is not None:
        literal, own = other
        if not known.is_elsewhere(literal.casefold(), source):
            yield _clue(known, one.position, source, literal, own)


def _is_named(row: _Row, sentence: str) -> bool:
    small = sentence.casefold()
    return any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", small) for name in row.names if name in small)


def _other_value(own: _Row, rows: tuple[_Row, ...], one: _Told, stated: set[str]) -> tuple[str, str] | None:
    """Return a number of the sentence that only another entry has, and the entry's own one in its column."""
    words, numbers = words_in(one.sentence), one.numbers
    for column, right in own.values.items():
        if right in stated:
            continue  # the answer gives it too: it compares
        givers = [row for row in rows if row is not own and row.values.get(column) in numbers]
        if len(givers) != 1 or not words.isdisjoint(givers[0].fields - own.fields - _words_of(numbers)):
            continue
        wrong = givers[0].values[column]
        if wrong not in own.values.values():
            return numbers[wrong], right
    return None


def _words_of(numbers: Mapping[str, str]) -> frozenset[str]:
    return frozenset(word for literal in (*numbers, *numbers.values()) for word in words_in(literal))


def _clue(known: Known, position: int, source: int, literal: str, right: str) -> Clue:
    step = known.reading.steps[position]
    return Clue(
        step=step.index,
        kind=ClueKind.CHANGED,
        reason=f"gave {literal}, another entry's; {known.giver(source)} returned {right} for this one",
        evidence=(Evidence(step=step.index, quote=around(step.output, literal, reach=60)),),
    )


def calls_for_other_rows(known: Known) -> Iterator[Clue]:
    """Yield the calls with the id of one entry of a list where the task names another one."""
    if mentions_fault(final_answer(known.reading.trajectory)[:HEAD]):
        return
    lists = islice(
        ((source, each) for source, text in known.results() for each in lists_in(text)), _MOST_TABLES
    )
    by_value: defaultdict[str, list[tuple[int, Listed]]] = defaultdict(list)
    for source, listed in lists:
        for value in {str(each) for entry in listed.entries for each in entry.fields.values()}:
            by_value[value].append((source, listed))
    for position, step in enumerate(known.reading.steps if by_value else ()):
        if step.kind is StepKind.TOOL:
            yield from _wrong_calls(known, position, by_value)


def _wrong_calls(
    known: Known, position: int, by_value: Mapping[str, list[tuple[int, Listed]]]
) -> Iterator[Clue]:
    for value in mapping(known.reading.steps[position].input[:HEAD]).values():
        if not isinstance(value, str | int) or isinstance(value, bool):
            continue
        for source, listed in by_value.get(str(value), ()):
            meant = _meant(known, listed, str(value), position) if source < position else None
            if meant is not None and meant[1].casefold() not in known.in_calls:
                key, right, name = meant
                yield _wrong_call(known, position, source, f"{key} {value}", f"{right} ({name})")


def _meant(known: Known, listed: Listed, value: str, position: int) -> tuple[str, str, str] | None:
    """Return the key, id and name of the entry that the task describes, if a call takes another one's id."""
    keys = {key for entry in listed.entries for key, each in entry.fields.items() if str(each) == value}
    if len(keys) != 1 or len(value) < _LEAST_NAME:
        return None
    (key,) = keys
    ids = [str(entry.fields.get(key, "")) for entry in listed.entries]
    if len(set(ids)) < len(ids):
        return None
    asked = _Asked("\n".join((known.asked, *_told(known, position))))
    chosen = listed.entries[ids.index(value)]
    others = [each for each in listed.entries if each is not chosen and False not in each.fields.values()]
    better = [(each, name) for each in others if (name := _name_of(each, chosen, key, asked))]
    if len(better) != 1 or any(_name_of(chosen, each, key, asked) for each in others):
        return None
    entry, name = better[0]
    return key, str(entry.fields[key]), name


def _told(known: Known, position: int) -> Iterator[str]:
    """Yield what other agents have said before a call: they pass on what was asked for."""
    steps = known.reading.steps
    return (
        step.output[:HEAD]
        for step in steps[:position]
        if step.kind is not StepKind.TOOL and step.agent != steps[position].agent
    )


class _Asked:
    """What was asked for, by its words and its dates."""

    def __init__(self, text: str) -> None:
        self.words: Final = words_in(text)
        self.dates: Final = [one for one in dates_in(text) if one.readings[0].year]

    def has(self, value: str) -> bool:
        """Tell whether a name or a long number is in it, word for word."""
        is_name = any(map(str.isalpha, value)) or (value.isdigit() and len(value) >= _LONG_NUMBER)
        return is_name and len(value) >= _LEAST_NAME and _parts(value) <= self.words

    def has_date(self, value: str) -> bool:
        """Tell whether a value is a date that is in it."""
        days = dates_in(value)
        is_date = len(days) == 1 and days[0].literal == value.strip()
        return is_date and any(agree(days[0], one) for one in self.dates)


def _are_namesakes(entry: Entry, other: Entry, asked: _Asked) -> bool:
    """Tell whether two entries have the same name, which was asked for: then a date tells them apart."""
    texts = [value for value in entry.fields.values() if isinstance(value, str) and asked.has(value)]
    return any(text in other.fields.values() for text in texts)


def _name_of(entry: Entry, other: Entry, key: str, asked: _Asked) -> str:
    """Return a text of an entry that was asked for word for word, where another entry has another one."""
    for field, value in entry.fields.items():
        if field == key or not isinstance(value, str):
            continue
        words, theirs = _parts(value), _parts(str(other.fields.get(field, "")))
        if words <= theirs or theirs <= words:
            continue
        if asked.has(value) or (asked.has_date(value) and _are_namesakes(entry, other, asked)):
            return value
    return ""


def _parts(text: str) -> frozenset[str]:
    return frozenset(part for part in re.split(r"[^\w@-]+", text.casefold()) if part)


def _wrong_call(known: Known, position: int, source: int, wrong: str, right: str) -> Clue:
    call = known.reading.steps[position]
    step = known.reading.steps[known.origin_of(wrong.partition(" ")[2], position)]
    return Clue(
        step=step.index,
        kind=ClueKind.CHANGED,
        reason=f"called {call.target or 'a tool'} with {wrong[:60]}, where {known.giver(source)} has"
        f" {right[:80]} for what was asked",
        evidence=(Evidence(step=call.index, quote=call.input[:200]),),
        signs={"argument": 1.0},
    )
