"""Table of the kinds of spans whose parents never arrive, and of those whose parents do."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Final

from collector_processor.otlp import Tenant
from collector_processor.stored import AbsentParent
from collector_processor.stores import Flush, all_or_nothing

ABSENT_TABLE: Final = """
CREATE TABLE absent_parent (
  tenant TEXT NOT NULL, kind INTEGER NOT NULL,
  service TEXT NOT NULL, scope TEXT NOT NULL, name TEXT NOT NULL, since_ns INTEGER NOT NULL,
  has_arrived INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (tenant, kind)
) WITHOUT ROWID;
"""
MAX_ABSENT: Final = 2_000
"""Bound on each of the two; the oldest are dropped and learned again if needed."""


class AbsentRows:
    """Rows of ``absent_parent``; on the store's thread."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db: Final = db

    def add(self, absent: Iterable[AbsentParent]) -> None:
        """Remember kinds of spans whose parents were waited for in vain."""
        with all_or_nothing(self._db, "the store", Flush.AT_ONCE):
            self._db.executemany(
                "INSERT OR REPLACE INTO absent_parent VALUES (?, ?, ?, ?, ?, ?, 0)",
                [(one.tenant, one.kind, one.service, one.scope, one.name, one.since_ns) for one in absent],
            )
            self._prune(has_arrived=False)

    def arrived(self, kinds: Iterable[tuple[Tenant, int]], now_ns: int) -> None:
        """Remember kinds of spans whose parents arrived, after all or for the first time."""
        with all_or_nothing(self._db, "the store", Flush.LATER):
            self._db.executemany(
                "INSERT OR REPLACE INTO absent_parent VALUES (?, ?, '', '', '', ?, 1)",
                [(tenant, kind, now_ns) for tenant, kind in kinds],
            )
            self._prune(has_arrived=True)

    def arriving(self) -> list[tuple[Tenant, int]]:
        """Return the kinds of spans whose parents were seen to arrive."""
        rows = self._db.execute("SELECT tenant, kind FROM absent_parent WHERE has_arrived")
        return [(Tenant(tenant), kind) for tenant, kind in rows]

    def _prune(self, *, has_arrived: bool) -> None:
        self._db.execute(
            "DELETE FROM absent_parent WHERE has_arrived = ? AND since_ns < (SELECT since_ns"
            " FROM absent_parent WHERE has_arrived = ? ORDER BY since_ns DESC LIMIT 1 OFFSET ?)",
            (has_arrived, has_arrived, MAX_ABSENT - 1),
        )

    def all(self) -> list[AbsentParent]:
        """Return the kinds of spans whose parents never arrive, newest first."""
        rows = self._db.execute(
            "SELECT tenant, kind, service, scope, name, since_ns FROM absent_parent"
            " WHERE NOT has_arrived ORDER BY since_ns DESC"
        )
        return [
            AbsentParent(
                tenant=Tenant(row[0]), kind=row[1], service=row[2], scope=row[3], name=row[4], since_ns=row[5]
            )
            for row in rows
        ]
