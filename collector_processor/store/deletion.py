"""Deletion of runs from the store: everything stored about one run, or about all of a tenant's runs.

Counts stay: issues, shares of agents, spending. The ids of analysed traces stay too, so that a late span
alone does not bring a deleted run back.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from collector_processor.core.records import Outgoing
from collector_processor.otlp import Tenant
from collector_processor.store.database.connection import StoreConnection
from collector_processor.store.verdicts import post

_TABLES: Final = (
    "verdict",
    "run_totals",
    "run_history",
    "opinion",
    "command",
    "trial_arm",
    "kept_spans",
    "kept_run",
    "run_text",
    "place",
)
_SPILLED_OF_RUN: Final = (
    "AND (trace_id = ? OR trace_id IN (SELECT run_part.trace_id FROM run_part"
    " WHERE run_part.tenant = spilled_part.tenant AND run_part.run_id = ?))"
)
"""The run's parts of open traces: a run of a whole trace has the trace's id."""


def delete_run(db: StoreConnection, tenant: Tenant, run_id: str, notices: Sequence[Outgoing] = ()) -> bool:
    """Delete a run; return whether there was one.

    Args:
        db: the store.
        tenant: the run's tenant.
        run_id: the run.
        notices: outbox entries that are written in the same transaction.

    Raises:
        StoreError: the store refuses, and nothing is deleted.
    """
    where = "tenant = ? AND run_id = ?"
    return _delete(db, where, (tenant, run_id), _SPILLED_OF_RUN, (run_id,) * 2, notices=notices) > 0


def delete_tenant(db: StoreConnection, tenant: Tenant, notices: Sequence[Outgoing] = ()) -> int:
    """Delete all runs of a tenant, as ``delete_run`` does; return their number.

    Raises:
        StoreError: the store refuses, and nothing is deleted.
    """
    return _delete(db, "tenant = ?", (tenant,), notices=notices)


def _delete(
    db: StoreConnection,
    where: str,
    values: tuple[str, ...],
    spilled: str = "",
    run: tuple[str, ...] = (),
    *,
    notices: Sequence[Outgoing],
) -> int:
    with _overwriting(db), db.transaction():
        post(db, notices)
        count: int = db.execute(
            f"SELECT count(DISTINCT run_id) FROM verdict WHERE {where}",  # noqa: S608 - our own words
            values,
        ).fetchone()[0]
        for table in _TABLES:
            db.execute(f"DELETE FROM {table} WHERE {where}", values)  # noqa: S608 - as above
        db.execute(f"DELETE FROM spilled_part WHERE tenant = ? {spilled}", (values[0], *run))  # noqa: S608 - as above
        # Readers of labels continue after the last number, which SQLite would otherwise reuse.
        db.execute(
            f"DELETE FROM label WHERE {where} AND id < (SELECT max(id) FROM label)",  # noqa: S608 - as above
            values,
        )
        db.execute(f"UPDATE label SET why = NULL, author = NULL WHERE {where}", values)  # noqa: S608 - as above
    return count


@contextmanager
def _overwriting(db: StoreConnection) -> Iterator[None]:
    """Make SQLite overwrite deleted data, in the file and in its WAL."""
    if db.is_postgresql:  # PostgreSQL's VACUUM does so in its own time
        yield
        return
    db.execute("PRAGMA secure_delete = ON")
    try:
        yield
    finally:
        db.execute("PRAGMA secure_delete = OFF")
    try:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except sqlite3.OperationalError:  # other connections are reading: the next checkpoint does it
        return
