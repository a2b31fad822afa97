"""Table of the kinds of spans whose parents never arrive, so that a restart does not forget them."""

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
  PRIMARY KEY (tenant, kind)
) WITHOUT ROWID;
"""
MAX_ABSENT: Final = 2_000
"""Bound on kinds; the oldest are dropped and learned again if needed."""


class AbsentRows:
    """Rows of ``absent_parent``; on the store's thread."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db: Final = db

    def add(self, absent: Iterable[AbsentParent]) -> None:
        """Remember kinds of spans whose parents were waited for in vain."""
        with all_or_nothing(self._db, "the store", Flush.AT_ONCE):
            self._db.executemany(
                "INSERT OR REPLACE INTO absent_parent VALUES (?, ?, ?, ?, ?, ?)",
                [(one.tenant, one.kind, one.service, one.scope, one.name, one.since_ns) for one in absent],
            )
            self._db.execute(
                "DELETE FROM absent_parent WHERE since_ns <"
                " (SELECT since_ns FROM absent_parent ORDER BY since_ns DESC LIMIT 1 OFFSET ?)",
                (MAX_ABSENT - 1,),
            )

    def forget(self, kinds: Iterable[tuple[Tenant, int]]) -> None:
        """Forget kinds of spans whose parents arrived after all."""
        with all_or_nothing(self._db, "the store", Flush.LATER):
            self._db.executemany("DELETE FROM absent_parent WHERE tenant = ? AND kind = ?", list(kinds))

    def all(self) -> list[AbsentParent]:
        """Return all kinds, newest first."""
        rows = self._db.execute(
            "SELECT tenant, kind, service, scope, name, since_ns FROM absent_parent ORDER BY since_ns DESC"
        )
        return [
            AbsentParent(
                tenant=Tenant(row[0]), kind=row[1], service=row[2], scope=row[3], name=row[4], since_ns=row[5]
            )
            for row in rows
        ]
