"""The history as Parquet files: verdicts, steps and spectra, by day and tenant, for any engine. Not pure.

Needs the extra ``history``. Columns hold names, numbers, ids and times; no column holds a text of a run.
Every text passes through ``clean``, because a name may hold a secret too: an agent's, a tool's, a model's.
Types are those that every engine reads alike: strings, integers, doubles, booleans, and times in
microseconds, UTC.

A partition is a day (UTC) on which verdicts were decided, and a tenant. Verdicts that the files have already
are skipped, so an export may be repeated, interrupted, and run while the service runs. A batch is one file
per table, all with the same name. The verdicts' file appears last, so a batch without it was cut short: its
other files are deleted before the partition is written again.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from fcntl import LOCK_EX, LOCK_NB, flock
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, Self, TypeAlias
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from analyzer.history.elements import digest_of, digests_in, elements_of
from analyzer.inquiry.errors import AnalyzerError
from analyzer.issues.labels.kept_trace import read_kept
from analyzer.issues.labels.label_store import LabelStore
from collector_processor.core.records import StoredVerdict
from collector_processor.otlp import Tenant
from collector_processor.store.database.connection import StoreConnection
from collector_processor.store.verdicts import RunStore
from semconv.dialects import USUAL, Reader
from semconv.model import Step, Trajectory

VERDICTS: Final = "verdicts"
STEPS: Final = "steps"
SPECTRA: Final = "spectra"
_TEXT: Final = pa.string()
_TIME: Final = pa.timestamp("us")
_RUN: Final = {"run_id": _TEXT, "version": pa.int32(), "service": _TEXT, "workflow": _TEXT}
"""Columns of all tables. The version is that of the verdict which was current at the export."""
SCHEMAS: Final[Mapping[str, pa.Schema]] = {
    VERDICTS: pa.schema(
        _RUN
        | {
            "release": _TEXT,
            "workflow_version": _TEXT,
            "outcome": _TEXT,
            "status": _TEXT,
            "agent": _TEXT,
            "step": pa.int32(),
            "trace_id": _TEXT,
            "span_id": _TEXT,
            "failure_id": _TEXT,
            "mode": _TEXT,
            "confidence": pa.float64(),
            "failed_probability": pa.float64(),
            "method": _TEXT,
            "model": _TEXT,
            "is_by_person": pa.bool_(),
            "decided_at": _TIME,
            "calls": pa.int64(),
            "analysis_input_tokens": pa.int64(),
            "analysis_output_tokens": pa.int64(),
            "analysis_cost_usd": pa.float64(),
            "started_at": _TIME,
            "duration_s": pa.float64(),
            "steps": pa.int32(),
            "input_tokens": pa.int64(),
            "output_tokens": pa.int64(),
            "cost_usd": pa.float64(),
        }
    ),
    STEPS: pa.schema(
        _RUN
        | {
            "step": pa.int32(),
            "agent": _TEXT,
            "kind": _TEXT,
            "target": _TEXT,
            "status": _TEXT,
            "is_error": pa.bool_(),
            "is_decisive": pa.bool_(),
            "probability": pa.float64(),
            "trace_id": _TEXT,
            "span_id": _TEXT,
            "started_at": _TIME,
            "duration_s": pa.float64(),
            "input_chars": pa.int64(),
            "output_chars": pa.int64(),
        }
    ),
    SPECTRA: pa.schema(
        _RUN
        | {
            "workflow_version": _TEXT,
            "outcome": _TEXT,
            "element": pa.int32(),
            "name": _TEXT,
            "step": pa.int32(),
        }
    ),
}
"""Columns of each table; ``day`` and ``tenant`` are in the names of the folders."""
NO_TENANT_FOLDER: Final = "none"
"""Name of the partition of runs without a tenant; tenants are ``header=value``."""
_MOST_CHARACTERS: Final = 200
"""Maximum length of a quoted tenant; file systems allow names of 255 bytes."""
_KEPT_CHARACTERS: Final = 55
"""Leading characters kept of a longer tenant; quoting makes at most three of each."""
ROW_GROUP: Final = 122_880
"""Rows per row group: DuckDB and other readers read row groups in parallel."""
_LOCK: Final = "_exporting"
"""Name of the lock's file; engines skip names that begin with ``_``."""
Row: TypeAlias = dict[str, Any]
Clean: TypeAlias = Callable[[str], str]
_LAST_NS: Final = 1 << 63
"""Times at and beyond it are not stored: no clock wrote them."""
_AT_ONCE: Final = 200
"""Verdicts read with one statement; spans are read run by run."""
_VERDICT: Final = tuple(StoredVerdict.__dataclass_fields__)
_TOTALS: Final = (
    "run_id", "version", "workflow", "steps", "started_ns", "duration_ns", "input_tokens", "output_tokens",
    "cost_usd",
)  # fmt: skip
_HISTORY: Final = ("run_id", "said", "version", "release", "elements")
_BETWEEN: Final = "decided_ns >= ? AND decided_ns < ? AND NOT is_provisional"


def partition(day: str, tenant: Tenant) -> str:
    """Return the folder of a day (``YYYY-MM-DD``) and a tenant within a table's folder, named as in Hive."""
    return f"day={day}/tenant={quote(tenant_name(tenant), safe='')}"


def tenant_name(tenant: Tenant) -> str:
    """Return the value of the column ``tenant``; a very long tenant becomes its beginning and a digest."""
    if not tenant:
        return NO_TENANT_FOLDER
    if len(quote(tenant, safe="")) <= _MOST_CHARACTERS:
        return tenant
    return f"{tenant[:_KEPT_CHARACTERS]}~{blake2b(tenant.encode(), digest_size=8).hexdigest()}"


class ArchiveBusy(AnalyzerError):  # noqa: N818 - reads better at the ``raise``
    """Another process exports into the same folder."""


@contextmanager
def only_exporter(folder: Path) -> Iterator[None]:
    """Keep other exports out of a folder; a new one can be read by its owner only.

    Raises:
        ArchiveBusy: another process exports into it.
        OSError: the folder cannot be written.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / _LOCK).open("w") as lock:
        try:
            flock(lock, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            raise ArchiveBusy(f"{folder}: another export is writing there") from None
        yield


def recorded(folder: Path, partition: str) -> set[tuple[str, int]]:
    """Return the run ids and versions of the verdicts that a partition's files have."""
    found: set[tuple[str, int]] = set()
    for file in sorted((folder / VERDICTS / partition).glob("*.parquet")):
        table = pq.ParquetFile(file).read(columns=["run_id", "version"])
        found.update(zip(table["run_id"].to_pylist(), table["version"].to_pylist(), strict=True))
    return found


def drop_unfinished(folder: Path, partition: str) -> None:
    """Delete what a batch that was cut short left in a partition."""
    finished = {file.name for file in (folder / VERDICTS / partition).glob("*.parquet")}
    for table in SCHEMAS:
        for file in (folder / table / partition).glob("*"):
            if file.name not in finished:
                file.unlink()


class PartitionBatch:
    """Writer of one batch; use as a context. Without verdicts it leaves no file."""

    def __init__(self, folder: Path, partition: str) -> None:
        name = f"{uuid.uuid4().hex}.parquet"
        self._files: Final = {table: folder / table / partition / name for table in SCHEMAS}
        self._rows: Final[dict[str, list[Row]]] = {table: [] for table in SCHEMAS}
        self._writers: Final[dict[str, Any]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failure: object, *_: object) -> None:
        for table in SCHEMAS:
            if failure is None:
                self._flush(table)
            if table in self._writers:
                self._writers[table].close()
        if failure is None:
            for table in (STEPS, SPECTRA, VERDICTS):
                self._publish(table)

    def add(self, table: str, rows: Iterable[Row]) -> None:
        """Add rows; written in groups of ``ROW_GROUP``."""
        held = self._rows[table]
        held.extend(rows)
        if len(held) >= ROW_GROUP:
            self._flush(table)

    def _flush(self, table: str) -> None:
        if self._rows[table]:
            self.write(table, pa.Table.from_pylist(self._rows[table], SCHEMAS[table]))
            self._rows[table].clear()

    def write(self, table: str, rows: pa.Table) -> None:
        """Write rows that have the table's schema."""
        if table not in self._writers:
            self._files[table].parent.mkdir(parents=True, exist_ok=True)
            self._writers[table] = pq.ParquetWriter(
                _unfinished(self._files[table]), SCHEMAS[table], compression="zstd"
            )
        self._writers[table].write_table(rows, row_group_size=ROW_GROUP)

    def _publish(self, table: str) -> None:
        """Give a file its name once it is on disk."""
        if table in self._writers:
            written = _unfinished(self._files[table])
            with written.open("rb") as file:
                os.fsync(file.fileno())
            written.rename(self._files[table])


def _unfinished(file: Path) -> Path:
    return file.with_name(f".{file.name}.tmp")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedRun:
    """A verdict, and what the store has of its run."""

    verdict: StoredVerdict
    totals: Mapping[str, Any] = field(default_factory=dict)
    """The run's row in ``run_totals``, by column; empty if it has none."""
    outcome: str | None = None
    """``passed``, ``failed`` or ``unsaid``; ``None`` if unknown."""
    release: str | None = None
    workflow_version: str | None = None
    elements: bytes = b""
    """Packed spectrum (``history.elements``)."""
    trajectory: Trajectory | None = None
    """The run's steps; ``None`` if not kept, or if a later verdict supersedes this one."""


def verdict_row(run: ArchivedRun, clean: Clean) -> Row:
    """Return the row of a verdict."""
    verdict, said, totals = run.verdict, run.verdict.fields, run.totals
    return {
        **_of_run(run, clean),
        **_of_history(run, clean),
        "release": _cleaned(run.release, clean),
        "status": verdict.status,
        "agent": _cleaned(verdict.agent, clean),
        "step": verdict.step,
        "trace_id": verdict.trace_id,
        "span_id": verdict.span_id,
        "failure_id": verdict.failure_id,
        "mode": _cleaned(said.get("mode"), clean),
        "confidence": said.get("confidence"),
        "failed_probability": said.get("failed_probability"),
        "method": _cleaned(said.get("method"), clean),
        "model": _cleaned(said.get("model"), clean),
        "is_by_person": verdict.is_persons_word,
        "decided_at": _microseconds(verdict.decided_ns),
        "calls": said.get("calls"),
        "analysis_input_tokens": said.get("input_tokens"),
        "analysis_output_tokens": said.get("output_tokens"),
        "analysis_cost_usd": said.get("cost_usd"),
        "started_at": _microseconds(totals.get("started_ns")),
        "duration_s": _seconds(totals.get("duration_ns")),
        **{name: totals.get(name) for name in ("steps", "input_tokens", "output_tokens", "cost_usd")},
    }


def step_rows(run: ArchivedRun, clean: Clean) -> Iterator[Row]:
    """Yield the rows of a run's steps; none if they are not kept."""
    if run.trajectory is None:
        return
    of_run, probabilities = _of_run(run, clean), _probabilities(run.verdict)
    for step in run.trajectory.steps:
        yield {
            **of_run,
            **_of_step(step, clean),
            "is_decisive": step.index == run.verdict.step,
            "probability": probabilities.get(step.index),
        }


def spectrum_rows(run: ArchivedRun, clean: Clean) -> Iterator[Row]:
    """Yield a row for each element of a run; those of a run whose steps are not kept have no name."""
    of_run = {**_of_run(run, clean), **_of_history(run, clean)}
    elements = () if run.trajectory is None else elements_of(run.trajectory)
    known = {digest_of(element.key): element for element in reversed(elements)}
    for digest in digests_in(run.elements):
        element = known.get(digest)
        yield {
            **of_run,
            "element": int.from_bytes(digest),
            "name": None if element is None else _cleaned(element.key, clean),
            "step": None if element is None else element.step,
        }


def _of_run(run: ArchivedRun, clean: Clean) -> Row:
    return {
        "run_id": _text(run.verdict.run_id),
        "version": run.verdict.version,
        "service": _cleaned(run.verdict.service, clean),
        "workflow": _cleaned(run.totals.get("workflow"), clean),
    }


def _of_history(run: ArchivedRun, clean: Clean) -> Row:
    return {"workflow_version": _cleaned(run.workflow_version, clean), "outcome": run.outcome}


def _of_step(step: Step, clean: Clean) -> Row:
    return {
        "step": step.index,
        "agent": _cleaned(step.agent, clean),
        "kind": step.kind.value,
        "target": _cleaned(step.target, clean),
        "status": step.status.value,
        "is_error": bool(step.error) and step.stop is None,
        "trace_id": step.trace_id,
        "span_id": step.span_id,
        "started_at": _microseconds(step.start_ns),
        "duration_s": _seconds(step.end_ns - step.start_ns) if step.start_ns and step.end_ns else None,
        "input_chars": len(step.input),
        "output_chars": len(step.output),
    }


def _probabilities(verdict: StoredVerdict) -> dict[int, float]:
    ranking = verdict.fields.get("ranking")
    return {one["step"]: one["probability"] for one in ranking or () if isinstance(one, dict)}


def _cleaned(value: object, clean: Clean) -> str | None:
    return clean(_text(value)) if isinstance(value, str) else None


def _text(value: str) -> str:
    """Return a text that is valid Unicode: lone surrogates come from JSON escapes."""
    return value.encode("utf-8", "replace").decode()


def _microseconds(time_ns: int | None) -> int | None:
    return time_ns // 1_000 if time_ns is not None and 0 < time_ns < _LAST_NS else None


def _seconds(duration_ns: int | None) -> float | None:
    return None if duration_ns is None else duration_ns / 1e9


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
        rows = self._db.execute(
            f"SELECT run_id, version FROM verdict WHERE {_BETWEEN} AND tenant = ?"  # noqa: S608 - our own words
            " ORDER BY run_id, version",
            (*_bounds(day), tenant),
        )
        new = [(row[0], row[1]) for row in rows.fetchall() if (row[0], row[1]) not in known]
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
