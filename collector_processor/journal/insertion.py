"""How rows are inserted: many a statement, by few statements. Pure.

At each statement the thread gives the interpreter away and waits for it, so one takes many rows. But each
number of rows is a statement of its own, kept prepared, and a prepared statement keeps a copy of what it was
last told: with one for each number there would be, in time, as many copies of rows as there are numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import groupby
from typing import Any, Final

_STATEMENT_ROWS: Final = 32
"""How many rows one statement inserts, at most; else a smaller power of two, so that they are few."""
_HEAVY_BYTES: Final = 16 << 10
"""A row with more is inserted by itself: a statement keeps a copy of what it was last told."""


def together(rows: Iterable[tuple[Any, ...]]) -> Iterator[Sequence[tuple[Any, ...]]]:
    """Cut rows, in order, into those that one statement inserts."""
    for is_heavy, alike in groupby(rows, _is_heavy):
        left = list(alike)
        while left:
            count = 1 if is_heavy else min(_STATEMENT_ROWS, 1 << (len(left).bit_length() - 1))
            yield left[:count]
            left = left[count:]


def _is_heavy(row: tuple[Any, ...]) -> bool:
    return isinstance(row[-1], bytes) and len(row[-1]) > _HEAVY_BYTES


@cache
def insertion(table: str, columns: int, rows: int) -> str:
    """Return one of few statements, so that each stays prepared."""
    places = "(" + ", ".join("?" * columns) + ")"
    return f"INSERT INTO {table} VALUES {', '.join([places] * rows)}"  # noqa: S608 - our own table names
