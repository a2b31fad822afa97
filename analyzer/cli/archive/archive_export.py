"""Export of the store into the archive: every verdict once, with the steps and the spectrum of its run.

A partition is a day (UTC) on which verdicts were decided, and a tenant. Verdicts that the files have already
are skipped, so an export may be repeated, interrupted, and run while the service runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from analyzer.cli.archive.parquet_files import (
    SPECTRA,
    STEPS,
    VERDICTS,
    ArchivedRun,
    Clean,
    PartitionBatch,
    drop_unfinished,
    partition,
    recorded,
    spectrum_rows,
    step_rows,
    verdict_row,
)
from analyzer.issues.labels.kept_trace import read_kept
from analyzer.issues.labels.label_store import LabelStore
from collector_processor.core.records import StoredVerdict
from collector_processor.otlp import Tenant
from collector_processor.store.database.connection import StoreConnection
from collector_processor.store.verdicts import RunStore
from semconv.dialects import USUAL, Reader
from semconv.model import Trajectory

_AT_ONCE: Final = 200
"""Verdicts read with one statement; spans are read run by run."""
_VERDICT: Final = tuple(StoredVerdict.__dataclass_fields__)
_TOTALS: Final = (
    "run_id", "version", "workflow", "steps", "started_ns", "duration_ns", "input_tokens", "output_tokens",
    "cost_usd",
)  # fmt: skip
_HISTORY: Final = ("run_id", "said", "version", "release", "elements")
_BETWEEN: Final = "decided_ns >= ? AND decided_ns < ? AND NOT is_provisional"


@dataclass(slots=True, kw_only=True)
class Exported:
    """Numbers of rows written."""

    verdicts: int = 0
    steps: int = 0
    spectra: int = 0
    partitions: int = 0


class ArchiveExport:
    """Reads the store; one thread."""

    def __init__(self, db: StoreConnection, folder: Path, clean: Clean, reader: Reader = USUAL) -> None:
        """Prepare an export.

        Args:
            db: the store.
            folder: the archive's folder; the caller keeps other exports out (``only_exporter``).
            clean: removes secrets from names.
            reader: reads kept spans.
        """
        self._db: Final = db
        self._folder: Final = folder
        self._clean: Final = clean
        self._reader: Final = reader
        self._runs: Final = RunStore(db)
        self._labels: Final = LabelStore(db)

    def export(
        self,
        tenant: Tenant | None = None,
        since: date | None = None,
        advance: Callable[[Exported], None] = lambda _: None,
    ) -> Exported:
        """Write all verdicts that the archive does not have.

        Args:
            tenant: only its runs; ``None`` for all.
            since: first day.
            advance: called after each partition with the rows written so far.
        """
        written = Exported()
        for day in self._days(since):
            for owner in self._tenants(day) if tenant is None else (tenant,):
                self._export(day, owner, written)
                advance(written)
        return written

    def _days(self, since: date | None) -> Iterator[date]:
        first, last = self._db.execute(
            "SELECT min(decided_ns), max(decided_ns) FROM verdict WHERE NOT is_provisional"
        ).fetchone()
        if first is None:
            return
        day, end = _day_of(first), _day_of(last)
        day = day if since is None else max(day, since)
        while day <= end:
            yield day
            day += timedelta(days=1)

    def _tenants(self, day: date) -> list[Tenant]:
        rows = self._db.execute(
            f"SELECT DISTINCT tenant FROM verdict WHERE {_BETWEEN} ORDER BY tenant",  # noqa: S608 - our own words
            _bounds(day),
        )
        return [Tenant(row[0]) for row in rows.fetchall()]

    def _export(self, day: date, tenant: Tenant, written: Exported) -> None:
        place = partition(day.isoformat(), tenant)
        drop_unfinished(self._folder, place)
        known = recorded(self._folder, place)
        asked = self._db.execute(
            f"SELECT run_id, version FROM verdict WHERE {_BETWEEN} AND tenant = ?"  # noqa: S608 - our own words
            " ORDER BY run_id, version",
            (*_bounds(day), tenant),
        )
        new = [(row[0], row[1]) for row in asked.fetchall() if (row[0], row[1]) not in known]
        if not new:
            return
        with PartitionBatch(self._folder, place) as batch:
            for at in range(0, len(new), _AT_ONCE):
                for run in self._read(tenant, new[at : at + _AT_ONCE]):
                    _add(batch, run, self._clean, written)
        written.partitions += 1

    def _read(self, tenant: Tenant, names: Sequence[tuple[str, int]]) -> Iterator[ArchivedRun]:
        runs = [(tenant, run_id) for run_id in dict.fromkeys(run_id for run_id, _ in names)]
        totals = self._by_run(_TOTALS, "run_totals", runs)
        history = self._by_run(_HISTORY, "run_history", runs)
        rows = self._db.read_rows(
            ", ".join(_VERDICT), "verdict", "tenant, run_id, version", [(tenant, *name) for name in names]
        )
        for row in rows:
            verdict = StoredVerdict(**dict(zip(_VERDICT, row, strict=True)))
            of_run = totals.get(verdict.run_id, {})
            facts = history.get(verdict.run_id, {})
            is_current = verdict.version == of_run.get("version", verdict.version)
            yield ArchivedRun(
                verdict=verdict,
                totals=of_run,
                outcome=facts.get("said"),
                release=facts.get("release"),
                workflow_version=facts.get("version"),
                elements=bytes(facts.get("elements", b"")) if is_current else b"",
                trajectory=self._steps(verdict) if is_current else None,
            )

    def _by_run(
        self, columns: Sequence[str], table: str, runs: Sequence[tuple[Tenant, str]]
    ) -> dict[str, dict[str, Any]]:
        rows = self._db.read_rows(", ".join(columns), table, "tenant, run_id", runs)
        return {row[0]: dict(zip(columns, row, strict=True)) for row in rows}

    def _steps(self, verdict: StoredVerdict) -> Trajectory | None:
        name = (verdict.tenant, verdict.run_id)
        # Only names and lengths are written, and names are cleaned: texts need no second redaction.
        kept = read_kept(
            verdict, self._runs.spans.packed(*name), self._labels.kept(*name), _as_is, self._reader
        )
        return None if kept is None else kept.trajectory


def _add(batch: PartitionBatch, run: ArchivedRun, clean: Clean, written: Exported) -> None:
    steps, spectrum = list(step_rows(run, clean)), list(spectrum_rows(run, clean))
    batch.add(VERDICTS, [verdict_row(run, clean)])
    batch.add(STEPS, steps)
    batch.add(SPECTRA, spectrum)
    written.verdicts += 1
    written.steps += len(steps)
    written.spectra += len(spectrum)


def _as_is(trajectory: Trajectory) -> Trajectory:
    return trajectory


def _day_of(time_ns: int) -> date:
    return datetime.fromtimestamp(time_ns // 10**9, UTC).date()


def _bounds(day: date) -> tuple[int, int]:
    start = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 10**9
    return start, start + 86_400 * 10**9
