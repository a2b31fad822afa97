"""Time of an export: a store with copies of the demo's run, each rebuilt from its kept spans."""

from __future__ import annotations

import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Final

from analyzer.cli.archive.archive_export import ArchiveExport
from analyzer.cli.archive.parquet_files import only_exporter
from collector_processor.rebuild.redaction import ALL_KINDS, make_redactor
from collector_processor.store.database.places import RUNS, open_database

_TABLES: Final = ("verdict", "run_totals", "run_history", "kept_spans", "kept_run")
_TIMES: Final = 3


def exporting(number: int) -> None:
    """Export this many runs several times; print seconds and CPU time of each."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        command = [sys.executable, "-m", "analyzer", "demo", "--data-dir", str(folder)]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        _copy(folder / RUNS, number)
        for _ in range(_TIMES):
            print(_export(folder))
            shutil.rmtree(folder / "history")


def _copy(store: Path, number: int) -> None:
    """Add copies of the only run under other ids."""
    with closing(sqlite3.connect(store)) as db, db:
        for table in _TABLES:
            columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})") if row[1] != "id"]
            copied = ", ".join("printf('%032x', n)" if name == "run_id" else name for name in columns)
            db.execute(
                "WITH RECURSIVE other(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM other"
                f" WHERE n < {number - 1})"
                f" INSERT INTO {table} ({', '.join(columns)}) SELECT {copied} FROM {table}, other"
            )


def _export(folder: Path) -> str:
    start, used = time.perf_counter(), _cpu_s()
    with (
        closing(open_database(folder / RUNS)) as database,
        closing(database.connect()) as db,
        only_exporter(folder / "history"),
    ):
        written = ArchiveExport(db, folder / "history", make_redactor(ALL_KINDS).redact).export()
    took, cpu = time.perf_counter() - start, _cpu_s() - used
    return (
        f"{written.verdicts:,} runs, {written.steps:,} steps: {took:.1f} s,"
        f" {1000 * cpu / written.verdicts:.2f} ms of CPU time a run"
    )


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
