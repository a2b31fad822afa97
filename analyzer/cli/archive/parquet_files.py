"""Parquet files of the archive: one writer a partition, and which verdicts the files have already.

A batch is one file a table under the same name. The file of the verdicts appears last, so a batch without it
was cut short: its other files are deleted before the partition is written again.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from analyzer.cli.archive.arrow_tables import SCHEMAS, SPECTRA, STEPS, VERDICTS
from analyzer.cli.archive.table_rows import Row
from analyzer.inquiry.errors import AnalyzerError

ROW_GROUP: Final = 122_880
"""Rows of a group: DuckDB, and others, read groups in parallel."""
_LOCK: Final = "_exporting"
"""Name of the lock's file; engines skip names that begin with ``_``."""


class ArchiveBusy(AnalyzerError):  # noqa: N818 - a statement reads better where it is raised
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
            raise ArchiveBusy(f"{folder}: another export writes there") from None
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
