"""What can still be read of a damaged segment, as a sound one. Synchronous; before anything is served.

Row by row: where a page is missing (a truncated file) or nonsense, only the rows
in it are lost. A row whose description is there and whose body is not is taken
along without it, so that its items are counted as lost when they are due.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from collector_processor.journal.chunks import first_seq
from collector_processor.journal.segments import SegmentFile

logger = logging.getLogger(__name__)

_GIVE_UP_AFTER: Final = 20_000
"""Rows in a row that are not there: behind them there are none. Several times what one page describes."""
_TABLES: Final = ("chunk", "body", "trace")


@dataclass(frozen=True, slots=True, kw_only=True)
class Salvaged:
    """How many rows a damaged segment still describes, and how many of them are whole."""

    described: int
    whole: int


def salvage(damaged: Path, number: int, draft: Path) -> Salvaged:
    """Write what can be read of a segment into ``draft``, and count it.

    Raises:
        sqlite3.OperationalError: the disk refuses.
    """
    draft.unlink(missing_ok=True)
    sound = SegmentFile(draft, number)
    try:
        with closing(sqlite3.connect(f"{damaged.as_uri()}?mode=ro", uri=True)) as source:
            # Else SQLite refuses a file that is shorter than it says of itself.
            source.execute("PRAGMA writable_schema=ON")
            with sound.durable_transaction():
                copied = [_copy(source, sound, seq) for seq in _seqs(source, number)]
                return Salvaged(described=len(copied), whole=sum(copied))
    finally:
        sound.close()


def _seqs(source: sqlite3.Connection, number: int) -> Iterator[int]:
    """Give the numbers of the rows that are described; they stand close together."""
    seq = first_seq(number)
    missing = 0
    while missing < _GIVE_UP_AFTER:
        seq += 1
        missing += 1
        if _read(source, "chunk", seq):
            missing = 0
            yield seq


def _copy(source: sqlite3.Connection, sound: SegmentFile, seq: int) -> bool:
    found = {table: _read(source, table, seq) for table in _TABLES}
    for table, rows in found.items():
        sound.take_over(table, rows)
    return bool(found["body"])


def _read(source: sqlite3.Connection, table: str, seq: int) -> list[tuple[Any, ...]]:
    try:
        return source.execute(f"SELECT * FROM {table} WHERE seq = ?", (seq,)).fetchall()  # noqa: S608 - our own words
    except sqlite3.DatabaseError:
        return []  # counted by what is missing
