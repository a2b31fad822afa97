"""Deletion of runs from the store: everything stored about one run, or about all of a tenant's runs.

Counts stay: issues, shares of agents, spending. The ids of analysed traces stay too, so that a late span
alone does not bring a deleted run back.
"""

from __future__ import annotations

import json
import re
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
_PROOFS_OF_RUN: Final = "AND (subject = ? OR document LIKE ? ESCAPE '!')"
"""Experiments on the run, and backtests that replayed it among others."""


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
    return _delete(db, tenant, run_id, notices=notices) > 0


def delete_tenant(db: StoreConnection, tenant: Tenant, notices: Sequence[Outgoing] = ()) -> int:
    """Delete all runs of a tenant, as ``delete_run`` does; return their number.

    Raises:
        StoreError: the store refuses, and nothing is deleted.
    """
    return _delete(db, tenant, None, notices=notices)


def _delete(db: StoreConnection, tenant: Tenant, run_id: str | None, *, notices: Sequence[Outgoing]) -> int:
    where, spilled, proofs = "tenant = ?", "", ""
    values: tuple[str, ...] = (tenant,)
    in_spilled = in_proofs = values
    if run_id is not None:
        where, spilled, proofs = "tenant = ? AND run_id = ?", _SPILLED_OF_RUN, _PROOFS_OF_RUN
        values, in_spilled = (tenant, run_id), (tenant, run_id, run_id)
        in_proofs = (tenant, run_id, f"%{_as_written(run_id)}%")
    with _overwriting(db), db.transaction():
        post(db, notices)
        count: int = db.execute(
            f"SELECT count(DISTINCT run_id) FROM verdict WHERE {where}",  # noqa: S608 - our own words
            values,
        ).fetchone()[0]
        for table in _TABLES:
            db.execute(f"DELETE FROM {table} WHERE {where}", values)  # noqa: S608 - as above
        db.execute(f"DELETE FROM spilled_part WHERE tenant = ? {spilled}", in_spilled)  # noqa: S608 - as above
        db.execute(f"DELETE FROM proof WHERE tenant = ? {proofs}", in_proofs)  # noqa: S608 - as above
        # Readers of labels continue after the last number, which SQLite would otherwise reuse.
        db.execute(
            f"DELETE FROM label WHERE {where} AND id < (SELECT max(id) FROM label)",  # noqa: S608 - as above
            values,
        )
        db.execute(f"UPDATE label SET why = NULL, author = NULL WHERE {where}", values)  # noqa: S608 - as above
    return count


def _as_written(run_id: str) -> str:
    """Return an id as it stands in JSON, as a pattern of LIKE."""
    return re.sub("([!%_])", r"!\1", json.dumps(run_id)[1:-1])


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
