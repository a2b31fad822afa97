"""Values of another entry of a list: the third swimmer's time, said of the second one. Pure.

A sentence may compare entries in words that no table has. So it counts only if it is as short as a row, or if
the task asks for the very entry that it names and for no other.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.entries import Entry, Scalar, lists_in
from analyzer.lineage.known import Known, around, words_in
from analyzer.signals.run_view import HEAD, final_answer
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
_ANY_WORD: Final = re.compile(r"[^\W\d_]+")
_ROW_WORDS: Final = 2
"""Words beside an entry's own ones in a sentence that is written like a row: the name of a column, a unit."""
_LEAST_ROWS: Final = 3


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
    if (
        len(named) == 1
        and _is_about(known, rows, named[0], one)
        and (other := _other_value(named[0], rows, one, stated)) is not None
    ):
        literal, own = other
        if not known.is_elsewhere(literal.casefold(), source) and literal not in known.in_calls:
            yield _clue(known, one.position, source, literal, own)


def _is_about(known: Known, rows: tuple[_Row, ...], row: _Row, one: _Told) -> bool:
    """Tell whether a sentence is about an entry alone: it is a row, or the task asks for this entry only."""
    words = set(_ANY_WORD.findall(one.sentence.casefold())) - row.fields
    return len(words) <= _ROW_WORDS or [each for each in rows if _is_named(each, known.asked)] == [row]


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
