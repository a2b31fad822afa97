"""One compact row a run, by which runs are listed, filtered, sorted and counted. Synchronous.

A run may have several verdicts, which hold documents; a list of a hundred thousand runs reads these rows
instead. A row is written with each verdict; the totals follow in the same transaction, and are null until
they are known. The column ``confidence`` holds the certainty, by which lists are filtered and sorted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from collector_processor.core.records import StoredVerdict, stated_certainty
from collector_processor.core.runs import RunTotals
from collector_processor.otlp import Tenant
from collector_processor.store.database.connection import StoreConnection

_OF_VERDICT: Final = ("tenant", "run_id", "version", "decided_ns", "status", "agent", "service", "confidence")
_CHANGES: Final = ", ".join(f"{name} = excluded.{name}" for name in _OF_VERDICT[2:])
_WRITE: Final = (
    f"INSERT INTO run_totals ({', '.join(_OF_VERDICT)}) VALUES {{rows}}"  # noqa: S608 - our own words
    f" ON CONFLICT (tenant, run_id) DO UPDATE SET {_CHANGES} WHERE excluded.version >= run_totals.version"
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
        for one in verdicts:
            before = newest.get((one.tenant, one.run_id))
            if before is None or before.version <= one.version:
                newest[one.tenant, one.run_id] = one
        self._db.write_rows(_WRITE, [verdict_row(one) for one in newest.values()])

    def total(self, runs: Sequence[tuple[Tenant, str, RunTotals]]) -> None:
        """Write the totals of runs that have verdicts, in the open transaction."""
        self._db.executemany(_TOTAL, [(*_totals_row(totals), *name) for *name, totals in runs])

    def forget(self, runs: Sequence[tuple[Tenant, str]]) -> None:
        """Delete the rows of these runs, except runs that still have a verdict, in the open transaction."""
        self._db.executemany(
            "DELETE FROM run_totals WHERE tenant = ? AND run_id = ? AND NOT EXISTS"
            " (SELECT 1 FROM verdict WHERE verdict.tenant = run_totals.tenant"
            " AND verdict.run_id = run_totals.run_id)",
            runs,
        )


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
