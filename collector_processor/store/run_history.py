"""Two small rows a run: one for lists of runs, one for comparisons within its workflow. Synchronous.

``run_totals`` is the row by which runs are listed, filtered, sorted and counted. A run may have several
verdicts, which hold documents; a list of a hundred thousand runs reads these rows instead. A row is written
with each verdict; the totals follow in the same transaction, and are null until they are known. The column
``confidence`` holds the certainty, by which lists are filtered and sorted.

``run_history`` says how the run ended, and facts about its steps. The facts are opaque here: `elements` has
at most 241 bytes (``analyzer/history/elements.py``), `invariants` 2,048 (``facts.py``). Service, workflow and
time are those of the run's row in ``run_totals``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from collector_processor.core.records import (
    HistoryRow,
    RunFacts,
    RunOutcome,
    StoredVerdict,
    WorkflowRow,
    stated_certainty,
)
from collector_processor.core.runs import RunTotals
from collector_processor.otlp import Tenant
from collector_processor.store.database.connection import StoreConnection, upsert

_COLUMNS: Final = "tenant, run_id, said, version, release, elements, invariants"
_WRITE: Final = upsert("run_history", _COLUMNS, keys=2)
_SAY: Final = "UPDATE run_history SET said = ? WHERE tenant = ? AND run_id = ?"
_READ: Final = (
    "SELECT run_history.run_id, run_totals.service, run_totals.workflow, run_totals.decided_ns, said,"
    " run_history.version, release, elements, invariants FROM run_totals JOIN run_history"
    " ON run_history.tenant = run_totals.tenant AND run_history.run_id = run_totals.run_id"
    " WHERE run_totals.tenant = ? AND run_totals.service = ? AND run_totals.workflow = ?"
    " ORDER BY run_totals.decided_ns DESC LIMIT ?"
)
_TOLD: Final = (
    "SELECT newest.run_id, newest.service, newest.workflow, newest.decided_ns, said, run_history.version,"
    " release, elements, invariants"
    " FROM (SELECT tenant, run_id, service, workflow, decided_ns FROM run_totals"
    " WHERE tenant = ? AND service = ? AND workflow = ? ORDER BY decided_ns DESC LIMIT ?) AS newest"
    " JOIN run_history ON run_history.tenant = newest.tenant AND run_history.run_id = newest.run_id"
    " WHERE said <> 'unsaid' ORDER BY newest.decided_ns DESC LIMIT ?"
)
MOST_SEARCHED: Final = 2_000
"""Newest runs of a workflow among which those with a known outcome are looked for."""
_WORKFLOWS: Final = (
    "SELECT tenant, service, workflow, count(*) FROM run_totals"
    " WHERE decided_ns >= ? AND workflow IS NOT NULL{conditions} GROUP BY tenant, service, workflow"
    " ORDER BY max(decided_ns) DESC LIMIT ?"
)


class RunHistoryRows:
    """Rows of ``run_history``; one thread at a time."""

    def __init__(self, db: StoreConnection) -> None:
        self._db: Final = db

    def note(self, runs: Sequence[tuple[Tenant, str, str, RunFacts]]) -> None:
        """Write runs with how they ended, in the open transaction; the last row of a run counts."""
        rows = {
            (tenant, run_id): (tenant, run_id, said, *_columns_of(facts))
            for tenant, run_id, said, facts in runs
        }
        self._db.write_rows(_WRITE, list(rows.values()))

    def say(self, said: Iterable[tuple[Tenant, str, str]]) -> None:
        """Correct how known runs ended, in the open transaction."""
        self._db.executemany(_SAY, [(word, tenant, run_id) for tenant, run_id, word in said])

    def of_workflow(self, tenant: Tenant, service: str, workflow: str, limit: int) -> list[HistoryRow]:
        """Return a workflow's newest runs, newest first."""
        return list(map(_row, self._db.execute(_READ, (tenant, service, workflow, limit))))

    def told(self, tenant: Tenant, service: str, workflow: str, limit: int) -> list[HistoryRow]:
        """Return a workflow's newest runs with a known outcome, newest first, of its ``MOST_SEARCHED``."""
        asked = (tenant, service, workflow, MOST_SEARCHED, limit)
        return list(map(_row, self._db.execute(_TOLD, asked)))

    def outcomes(self, tenant: Tenant, run_ids: Sequence[str]) -> list[RunOutcome]:
        """Return how runs ended, and their elements; unknown runs are left out."""
        keys = [(tenant, run_id) for run_id in run_ids]
        rows = self._db.read_rows("run_id, said, elements", "run_history", "tenant, run_id", keys)
        return [RunOutcome(run_id=row[0], said=row[1], elements=bytes(row[2])) for row in rows]

    def workflows(self, since_ns: int, limit: int, **of: str) -> list[WorkflowRow]:
        """Return the workflows with runs since ``since_ns``, latest run first.

        Args:
            since_ns: Unix ns.
            limit: the most to return.
            of: values of ``tenant``, ``service`` or ``workflow``, to return only such workflows.
        """
        conditions = "".join(f" AND {name} = ?" for name in of)
        rows = self._db.execute(_WORKFLOWS.format(conditions=conditions), (since_ns, *of.values(), limit))
        return [
            WorkflowRow(tenant=Tenant(row[0]), service=row[1], workflow=row[2], runs=row[3]) for row in rows
        ]

    def has_all(self, tenant: Tenant, run_ids: Sequence[str]) -> bool:
        """Return whether all these runs are still kept."""
        keys = [(tenant, run_id) for run_id in run_ids]
        return len(self._db.read_rows("run_id", "run_history", "tenant, run_id", keys)) == len(keys)

    def workflows_of(self, tenant: Tenant, run_ids: Sequence[str]) -> list[tuple[str, str]]:
        """Return the services and workflows of runs, the most frequent first; unknown runs have none."""
        keys = [(tenant, run_id) for run_id in run_ids]
        rows = self._db.read_rows("service, workflow", "run_totals", "tenant, run_id", keys)
        found = Counter((row[0], row[1]) for row in rows if row[1] is not None)
        return [place for place, _ in sorted(found.items(), key=lambda one: (-one[1], one[0]))]

    def forget(self, runs: Sequence[tuple[Tenant, str]]) -> None:
        """Delete the rows of these runs, except runs that still have a verdict, in the open transaction."""
        _forget(self._db, "run_history", runs)


def _forget(db: StoreConnection, table: str, runs: Sequence[tuple[Tenant, str]]) -> None:
    db.executemany(
        f"DELETE FROM {table} WHERE tenant = ? AND run_id = ? AND NOT EXISTS (SELECT 1 FROM verdict"  # noqa: S608
        f" WHERE verdict.tenant = {table}.tenant AND verdict.run_id = {table}.run_id)",
        runs,
    )


def _columns_of(facts: RunFacts) -> tuple[Any, ...]:
    return facts.version, facts.release, facts.elements, facts.invariants


def _row(row: Sequence[Any]) -> HistoryRow:
    return HistoryRow(
        run_id=row[0], service=row[1], workflow=row[2], decided_ns=row[3], said=row[4],
        version=row[5], release=row[6], elements=bytes(row[7]), invariants=bytes(row[8] or b""),
    )  # fmt: skip


_OF_VERDICT: Final = ("tenant", "run_id", "version", "decided_ns", "status", "agent", "service", "confidence")
_WRITE_TOTALS: Final = (
    upsert("run_totals", ", ".join(_OF_VERDICT), keys=2) + " WHERE excluded.version >= run_totals.version"
)
_TOTAL: Final = (
    "UPDATE run_totals SET workflow = ?, steps = ?, started_ns = ?, duration_ns = ?, input_tokens = ?,"
    " output_tokens = ?, tokens = ?, cost_usd = ? WHERE tenant = ? AND run_id = ?"
)


class RunTotalsRows:
    """Rows of ``run_totals``; one thread at a time."""

    def __init__(self, db: StoreConnection) -> None:
        self._db: Final = db

    def note(self, verdicts: Iterable[StoredVerdict]) -> None:
        """Write the runs' newest verdicts, in the open transaction; totals stay as they are."""
        newest: dict[tuple[Tenant, str], StoredVerdict] = {}
        for stored_verdict in verdicts:
            before = newest.get((stored_verdict.tenant, stored_verdict.run_id))
            if before is None or before.version <= stored_verdict.version:
                newest[stored_verdict.tenant, stored_verdict.run_id] = stored_verdict
        self._db.write_rows(_WRITE_TOTALS, [verdict_row(verdict) for verdict in newest.values()])

    def total(self, runs: Sequence[tuple[Tenant, str, RunTotals]]) -> None:
        """Write the totals of runs that have verdicts, in the open transaction."""
        self._db.executemany(_TOTAL, [(*_totals_row(totals), *name) for *name, totals in runs])

    def forget(self, runs: Sequence[tuple[Tenant, str]]) -> None:
        """Delete the rows of these runs, except runs that still have a verdict, in the open transaction."""
        _forget(self._db, "run_totals", runs)


def verdict_row(verdict: StoredVerdict) -> tuple[Any, ...]:
    """Return the values of a run's row that its verdict decides."""
    told = (getattr(verdict, name) for name in _OF_VERDICT[:-1])
    return (*told, stated_certainty(verdict.fields))


def _totals_row(totals: RunTotals) -> tuple[Any, ...]:
    known = [count for count in (totals.input_tokens, totals.output_tokens) if count is not None]
    return (
        totals.workflow,
        totals.steps,
        totals.started_ns,
        totals.duration_ns,
        totals.input_tokens,
        totals.output_tokens,
        sum(known) if known else None,
        totals.cost_usd,
    )
