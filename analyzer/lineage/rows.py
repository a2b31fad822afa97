"""Values of another row: the captain of one team with the mail address of another team's. Pure.

A line is suspected if some of its values come from one row of a list and others from another row, in other
columns. It is not if it compares two rows by the same column, if the value stands elsewhere in the run or is
the greatest or least of many, or if a later line gives the right value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain
from typing import Final, TypeAlias

from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.entries import Scalar, rows_in, stands_in, tables_in
from analyzer.lineage.figures import figures
from analyzer.lineage.known import Known
from analyzer.lineage.other_calls import asked_before
from semconv.record import record

_MOST_LINES: Final = 200
_LONGEST_LINE: Final = 400
_Rows: TypeAlias = Sequence[Mapping[str, Scalar]]
_SHORT: Final = 2
_FEW: Final = 3
"""Values of a column, most of which are its greatest or least."""
_LEAST: Final = 3
"""Characters of a text that tells rows apart."""
_SENTENCE_END: Final = re.compile(r"[.!\n。](?:(?<=[\n。])|(?<!\d.)(?=\s))")
_END_OR_QUESTION: Final = re.compile(r"(?<![^\n?])[^\n?]*\?|(?<!\d)[.!](?=\s)|\n|。")
"""A whole question, or the end of a sentence, which is slower to find; a number with a point is a day."""


@record
class _Column:
    """The values of a column that only one row has, by their text in lower case or as numbers."""

    key: str
    texts: Mapping[str, int]
    """A short one follows the column's name: ``tank 12``."""
    numbers: Mapping[float, int]

    @property
    def rows(self) -> Iterator[int]:
        """The rows of its values."""
        return chain(self.texts.values(), self.numbers.values())

    def within(self, small: str, stated: AbstractSet[float]) -> _Column:
        """Return the column with those of its values that a text in lower case, or its figures, have."""
        return _Column(
            key=self.key,
            texts={one: row for one, row in self.texts.items() if one in small},
            numbers={one: self.numbers[one] for one in stated & self.numbers.keys()},
        )

    @property
    def label(self) -> str:
        """The last word of the column's name."""
        return _label(self.key)


@record
class _Hit:
    """A value of a row that a line has."""

    row: int
    key: str
    shown: str
    value: str
    """As the list has it, in lower case."""
    number: float | None = None

    @property
    def is_number(self) -> bool:
        """Whether it is a number of the list."""
        return self.number is not None


def values_of_other_rows(known: Known) -> Iterator[Clue]:
    """Yield the first line that names a row and gives values of another one of its list."""
    for source, text in known.results():
        for listed in tables_in(text):
            columns = _columns(listed)
            found = next(_crossed(known, source, listed, columns), None) if len(columns) > 1 else None
            if found is not None:
                yield found
                return


def _columns(listed: _Rows) -> Sequence[_Column]:
    keys = dict.fromkeys(key for entry in listed for key in entry if key)
    return [_column(listed, key) for key in keys]


def _label(key: str) -> str:
    return key.rpartition("_")[2].casefold()


def _column(listed: _Rows, key: str) -> _Column:
    texts: dict[str, int] = {}
    numbers: dict[float, int] = {}
    often: set[str | float] = set()
    for row, entry in enumerate(listed):
        value = entry.get(key)
        if isinstance(value, bool) or value is None:
            continue
        if isinstance(value, str):
            small = value.casefold().strip()
            small = small if len(small) >= _LEAST else f"{_label(key)} {small}"
            often |= {small} & texts.keys()
            texts[small] = row
        else:
            often |= {float(value)} & numbers.keys()
            numbers[float(value)] = row
    return _Column(
        key=key,
        texts={one: row for one, row in texts.items() if one not in often and len(one) >= _LEAST},
        numbers={one: row for one, row in numbers.items() if one not in often},
    )


def _crossed(known: Known, source: int, listed: _Rows, columns: Sequence[_Column]) -> Iterator[Clue]:
    for position, words in known.words_after(source):
        small, values = words.casefold(), _values(words)
        stated = [column.within(small, values) for column in columns]
        if len({row for column in stated for row in column.rows}) < 2:
            continue
        for line in lines_of(words):
            hits = _hits(line, stated) if len(line) <= _LONGEST_LINE else []
            for row, other in _pairs(listed, hits):
                if _is_odd(known, source, position, hits, (row, other)):
                    given = next(hit for hit in hits if hit.row == other)
                    named = next(hit for hit in hits if hit.row == row)
                    right = listed[row][given.key]
                    if _is_extreme(listed, given) or _is_righted(known, position, named.shown, str(right)):
                        continue
                    has = f"{known.giver(source)} has {right}"
                    reason = f"gave {given.key} {given.shown} for {named.shown}, where {has}"
                    yield known.clue(position, ClueKind.CHANGED, reason, known.quote(position, given.shown))


def lines_of(words: str) -> Sequence[str]:
    """Return the lines and sentences of a text, without its questions."""
    end = _END_OR_QUESTION if "?" in words else _SENTENCE_END
    return end.split(words)[:_MOST_LINES]


def _is_extreme(listed: _Rows, hit: _Hit) -> bool:
    """Tell whether a number is the greatest or least of its column: "behind the leader's 61"."""
    values = [one[hit.key] for one in listed if isinstance(one.get(hit.key), int | float)]
    return hit.number is not None and len(values) > _FEW and hit.number in {max(values), min(values)}


def _is_righted(known: Known, position: int, name: str, right: str) -> bool:
    """Tell whether a later line gives the row that is named its own value."""
    later = known.words_after(position)
    lines = (line for _, words in later for line in lines_of(words))
    return any(
        stands_in(name.casefold(), small) and stands_in(right, small) for small in map(str.casefold, lines)
    )


def _is_odd(known: Known, source: int, position: int, hits: Sequence[_Hit], pair: tuple[int, int]) -> bool:
    """Tell whether somebody asked for the row that is named, and the values stand nowhere else."""
    row, other = pair
    asked = asked_before(known, position).casefold()
    names = [hit.shown.casefold() for hit in hits if hit.row == row and not hit.is_number]
    theirs = [hit for hit in hits if hit.row == other]
    return any(stands_in(name, asked) for name in names) and not any(
        stands_in(one.value, asked) or _is_elsewhere(known, one, source) for one in theirs
    )


def _is_elsewhere(known: Known, hit: _Hit, source: int) -> bool:
    """Tell whether a value stands in another text from outside, or again in its own."""
    texts = [(-1, known.instructions), *known.results()]
    return any(_occurs(hit, text) > (place == source) for place, text in texts)


def _occurs(hit: _Hit, text: str) -> int:
    if hit.number is None:
        return text.casefold().count(hit.value)
    rows = rows_in(text)
    values = [one for row in rows for one in row.values()] if rows else [one.value for one in figures(text)]
    return values.count(hit.number)


def _values(text: str) -> frozenset[float]:
    return frozenset(value for figure in figures(text) if not figure.is_small for value in figure.readings)


def _hits(line: str, columns: Sequence[_Column]) -> list[_Hit]:
    small = line.casefold()
    found = [
        _Hit(
            row=row,
            key=column.key,
            shown=line[(at := small.find(text)) : at + len(text)],
            value=text.removeprefix(f"{column.label} "),
        )
        for column in columns
        for text, row in column.texts.items()
        if text in small and stands_in(text, small)
    ]
    if not found:
        return []  # numbers alone name no row
    stated = {value: figure for figure in figures(line) if not figure.is_small for value in figure.readings}
    numbers = [
        _Hit(row=column.numbers[value], key=column.key, shown=one.literal, value=one.literal, number=value)
        for column in columns
        for value, one in stated.items()
        if value in column.numbers
    ]
    return [*found, *numbers]


def _pairs(listed: _Rows, hits: Sequence[_Hit]) -> Iterator[tuple[int, int]]:
    rows = {hit.row for hit in hits}
    if len(rows) != 2:
        return
    for row, other in (tuple(rows), tuple(rows)[::-1]):
        ours, theirs = ([hit for hit in hits if hit.row == each] for each in (row, other))
        keys = {one.key for one in ours}
        if any(one.key in keys for one in theirs) or all(one.is_number for one in ours):
            continue
        mine = listed[row]
        if all(_differs(mine.get(one.key), one.shown) for one in theirs) and _is_telling(theirs):
            yield row, other


def _differs(right: str | float | None, shown: str) -> bool:
    """Tell whether the row that is named has a value of its own, and not a longer form of the given one."""
    text = "" if right is None else str(right).casefold()
    return bool(text) and text not in shown.casefold() and shown.casefold() not in text


def _is_telling(hits: Sequence[_Hit]) -> bool:
    """Tell whether values do not stand in a line by chance, as one whole number of two digits may."""
    return len(hits) > 1 or not hits[0].is_number or len(hits[0].shown) > _SHORT
