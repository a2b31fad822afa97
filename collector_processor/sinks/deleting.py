"""Deletion of runs together with their scores in backends: both in one transaction of the store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from collector_processor.core.records import Outgoing
from collector_processor.core.scores import Lane, ScoreChange, ScorePlace
from collector_processor.otlp import Tenant
from collector_processor.store.database.connection import StoreConnection
from collector_processor.store.deletion import delete_run, delete_tenant
from collector_processor.store.verdicts import RunStore
from collector_processor.writeback.carriers import unpack_place
from collector_processor.writeback.evaluations import TASK_SUCCESS, attribution_places, entries_of

Lanes = Mapping[Tenant, tuple[Lane, ...]]


def delete_run_and_scores(
    db: StoreConnection, tenant: Tenant, run_id: str, lanes: Lanes, now_ns: int
) -> bool:
    """Delete a run, and ask its tenant's sinks to delete its scores; return whether there was one.

    Args:
        db: the store.
        tenant: the run's tenant.
        run_id: the run.
        lanes: the sinks of each tenant.
        now_ns: Unix ns.

    Raises:
        StoreError: the store refuses, and nothing is deleted.
    """
    return delete_run(db, tenant, run_id, _notices(db, tenant, [run_id], lanes, now_ns))


def delete_tenant_and_scores(db: StoreConnection, tenant: Tenant, lanes: Lanes, now_ns: int) -> int:
    """Delete all runs of a tenant as ``delete_run_and_scores`` does; return their number."""
    rows = db.execute("SELECT DISTINCT run_id FROM verdict WHERE tenant = ?", (tenant,)).fetchall()
    return delete_tenant(db, tenant, _notices(db, tenant, [run_id for (run_id,) in rows], lanes, now_ns))


def _notices(
    db: StoreConnection, tenant: Tenant, run_ids: Iterable[str], lanes: Lanes, now_ns: int
) -> list[Outgoing]:
    found: list[Outgoing] = []
    store, own = RunStore(db), lanes.get(tenant, ())
    for run_id in run_ids if own else ():
        if verdicts := store.versions(tenant, [run_id]):
            root = _root(store.place(tenant, run_id), run_id)
            change = ScoreChange(
                tenant=tenant,
                run_id=run_id,
                decided_ns=now_ns,
                withdrawn=(root, *attribution_places(verdicts)),
            )
            found += entries_of(change, own)
    return found


def _root(packed: bytes | None, run_id: str) -> ScorePlace:
    """Return where the run's evaluation stands; of a run whose spans' positions are not kept, its trace."""
    trace_id, span_id = run_id, ""
    if packed is not None:
        run = unpack_place(packed)
        first = run.trace.spans[0]
        trace_id = run.trajectory.root_trace_id or first.trace_id
        span_id = run.trajectory.root_span_id or first.span_id
    return ScorePlace(name=TASK_SUCCESS, trace_id=trace_id, span_id=span_id)
