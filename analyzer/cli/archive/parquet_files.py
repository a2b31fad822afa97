"""Parquet files of the archive: the tables' columns, a writer per partition, and which verdicts are written.

Columns hold names, numbers, ids and times; no column holds a text of a run. Types are those that every engine
reads alike: strings, integers, doubles, booleans, and times in microseconds, UTC.

A batch is one file per table, all with the same name. The verdicts' file appears last, so a batch without it
was cut short: its other files are deleted before the partition is written again.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_NB, flock
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from analyzer.cli.archive.table_rows import Row
from analyzer.inquiry.errors import AnalyzerError
from collector_processor.otlp import Tenant

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


ROW_GROUP: Final = 122_880
"""Rows per row group: DuckDB and other readers read row groups in parallel."""
_LOCK: Final = "_exporting"
"""Name of the lock's file; engines skip names that begin with ``_``."""


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
