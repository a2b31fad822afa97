"""Deletion of runs from the store: everything stored about one run, or about all of a tenant's runs.

What the outbox still holds of them is not sent any more. Counts stay: issues, shares of agents, spending. The
ids of analysed traces stay too, so that a late span alone does not bring a deleted run back.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from collector_processor.core.records import Outgoing, forget_documents
from collector_processor.core.scores import LANES
from collector_processor.otlp import Tenant
from collector_processor.store.database.connection import StoreConnection
from collector_processor.store.verdicts import post
from collector_processor.wire.protobuf import write_field
from semconv.attributes import RUN_ID

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
_WITHDRAWS: Final = b'"scores":[]'
"""What an entry for a sink contains that only deletes scores: an earlier deletion may have written it."""
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
        _recall(db, tenant, run_id)
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
    forget_documents()
    return count


def _recall(db: StoreConnection, tenant: Tenant, run_id: str | None) -> None:
    """Delete what waits to be sent about a run, or about all of a tenant's runs, except withdrawals."""
    has = "position(? IN body) > 0" if db.is_postgresql else "instr(body, ?) > 0"
    where = f"tenant = ? AND (signal NOT LIKE ? OR NOT {has})"
    values: list[str | bytes] = [tenant, f"{LANES}%", _WITHDRAWS]
    if run_id is not None:
        where, values = f"{where} AND ({has} OR {has})", [*values, *_as_sent(run_id)]
    db.execute(f"DELETE FROM outbox WHERE {where}", values)  # noqa: S608 - our own words


def _as_sent(run_id: str) -> tuple[bytes, bytes]:
    """Return a run's id as an attribute of a span or a log record, and as a field of a score's JSON."""
    text = write_field(b"\x0a", run_id.encode("utf-8", "replace"))
    attribute = write_field(b"\x0a", RUN_ID.encode()) + write_field(b"\x12", text)
    return attribute, f'"run_id":{json.dumps(run_id)}'.encode()


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
