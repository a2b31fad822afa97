"""What models cost, as rows of a store: each call noted before it is made. Synchronous.

The collector's half knows no model; its store keeps the rows, since it is the one store that there is.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from collector_processor.stores import all_or_nothing

SPENDING_TABLE: Final = """
CREATE TABLE spending (id INTEGER PRIMARY KEY, at_ns INTEGER NOT NULL, usd REAL NOT NULL);
"""


class SpendingRows:
    """The table in whichever store it stands; times are nanoseconds of the wall clock."""

    def __init__(self, db: sqlite3.Connection, store: str) -> None:
        """Make it.

        Args:
            db: a connection in autocommit mode.
            store: what to call it where the disk refuses.
        """
        self._db: Final = db
        self._store: Final = store

    def reserve(self, at_ns: int, usd: float, forget_before_ns: int) -> int:
        """Note what a model call may cost at most, before it is made; return the entry's id.

        Raises:
            StoreError: the disk refuses.
        """
        with all_or_nothing(self._db, self._store):
            self._db.execute("DELETE FROM spending WHERE at_ns < ?", (forget_before_ns,))
            entry = self._db.execute("INSERT INTO spending (at_ns, usd) VALUES (?, ?)", (at_ns, usd))
        return entry.lastrowid or 0

    def settle(self, entry: int, usd: float) -> None:
        """Note what the call cost; nothing if it is forgotten by now.

        Raises:
            StoreError: the disk refuses.
        """
        with all_or_nothing(self._db, self._store):
            self._db.execute("UPDATE spending SET usd = ? WHERE id = ?", (usd, entry))

    def spent(self, since_ns: int, now_ns: int) -> list[tuple[int, float]]:
        """Return when model calls were made since then and what each cost in USD, at most.

        What a clock that was set back has left in the future counts as made now.
        """
        with all_or_nothing(self._db, self._store):
            self._db.execute("UPDATE spending SET at_ns = ?1 WHERE at_ns > ?1", (now_ns,))
        return self._db.execute(
            "SELECT at_ns, usd FROM spending WHERE at_ns >= ? ORDER BY at_ns", (since_ns,)
        ).fetchall()
