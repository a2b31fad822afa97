"""An archive with a hundred million steps: bytes on disk, and the time of queries over it.

The rows are synthetic (five runs in a hundred fail, agents and tools are drawn evenly); files, columns, row
groups and compression are those of ``blamespan export --parquet``, written by the same writer. Ids are as
long and as random as real ones, because they take most of the space.
"""

from __future__ import annotations

import resource
import shutil
import time
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from statistics import median
from typing import Final

import duckdb

from analyzer.cli.archive.parquet_files import SCHEMAS, SPECTRA, STEPS, VERDICTS, PartitionBatch, partition
from analyzer.cli.archive.sql_query import query
from collector_processor.otlp import Tenant

STEPS_OF_A_RUN: Final = 20
TENANTS: Final = 10
DAYS: Final = 100
FIRST_DAY: Final = date(2026, 1, 1)
_ELEMENTS: Final = 12
_TIMES: Final = 5
"""Times that each query is run; the median and the range are printed."""
_RUN: Final = (
    "md5(concat('run', r)) AS run_id, 1::INTEGER AS version, 'shop-' || (r % 3) AS service,"
    " 'workflow-' || (r % 50) AS workflow"
)
_FAILED: Final = "hash(r) % 20 = 0"
_OUTCOME: Final = f"if({_FAILED}, 'failed', 'passed') AS outcome"
_BLAMED: Final = f"(hash(r, 'blamed') % {STEPS_OF_A_RUN})"
_AT: Final = "TIMESTAMP '{day} 00:00:00' + to_microseconds((r * 7919) % 86400000000)"
ROWS: Final = {
    VERDICTS: (
        f"SELECT {_RUN}, '2.' || (r % 5) AS release, 'v' || (r % 5) AS workflow_version, {_OUTCOME},"
        f" if({_FAILED}, 'attributed', 'no_failure') AS status,"
        f" if({_FAILED}, 'agent-' || ({_BLAMED} % 6), NULL) AS agent,"
        f" if({_FAILED}, {_BLAMED}, NULL) AS step, md5(concat('run', r)) AS trace_id,"
        " substr(md5(concat('span', r)), 1, 16) AS span_id,"
        " substr(md5(concat('failure', r)), 1, 16) AS failure_id,"
        f" if({_FAILED}, 'mode-' || (r % 9), '') AS mode, if({_FAILED}, random(), 1.0) AS confidence,"
        f" 'signals' AS method, NULL AS model, false AS is_by_person, {_AT} AS decided_at, 0 AS calls,"
        " 0 AS analysis_input_tokens, 0 AS analysis_output_tokens, 0.0 AS analysis_cost_usd,"
        f" {_AT} AS started_at, random() * 60 AS duration_s, {STEPS_OF_A_RUN} AS steps,"
        " (random() * 20000)::BIGINT AS input_tokens, (random() * 2000)::BIGINT AS output_tokens,"
        " random() AS cost_usd FROM range({first}, {end}) AS runs(r) ORDER BY run_id"
    ),
    STEPS: (
        f"SELECT {_RUN}, s AS step, 'agent-' || (s % 6) AS agent, if(s % 2 = 0, 'llm', 'tool') AS kind,"
        " if(s % 2 = 0, NULL, 'tool-' || (hash(r, s) % 40)) AS target,"
        f" if({_FAILED} AND s = {_BLAMED}, 'error', 'ok') AS status,"
        f" {_FAILED} AND s = {_BLAMED} AS is_error, {_FAILED} AND s = {_BLAMED} AS is_decisive,"
        f" if({_FAILED}, 1.0 / (1 + abs(s - {_BLAMED})), NULL) AS probability,"
        " md5(concat('run', r)) AS trace_id, substr(md5(concat(r, '.', s)), 1, 16) AS span_id,"
        f" {_AT} + to_seconds(s) AS started_at, (hash(r, s, 'd') % 60000) / 1000 AS duration_s,"
        " (hash(r, s, 'i') % 20000)::BIGINT AS input_chars, (hash(r, s, 'o') % 4000)::BIGINT AS output_chars"
        f" FROM range({{first}}, {{end}}) AS runs(r), range({STEPS_OF_A_RUN}) AS steps(s)"
        " ORDER BY run_id, s"
    ),
    SPECTRA: (
        f"SELECT {_RUN}, 'v' || (r % 5) AS workflow_version, {_OUTCOME},"
        " (hash(r % 50, e, if(e = 0, hash(r) % 20, 0)) % 16777216)::INTEGER AS element,"
        f" 'A|agent-' || (e % 6) || '|tool|tool-' || e AS name, e::INTEGER AS step"
        f" FROM range({{first}}, {{end}}) AS runs(r), range({_ELEMENTS}) AS elements(e)"
        " ORDER BY run_id, e"
    ),
}
QUERIES: Final = {
    "count all steps": "SELECT count(*) FROM steps",
    "tools by failures and time, all days": (
        "SELECT target, count(*) AS calls, avg(is_error::INTEGER) AS failing, avg(duration_s) AS seconds"
        " FROM steps WHERE kind = 'tool' GROUP BY target ORDER BY failing DESC"
    ),
    "decisive steps by day and agent": (
        "SELECT day, agent, count(*) FILTER (is_decisive) AS blamed, count(*) AS steps FROM steps"
        " GROUP BY day, agent ORDER BY day, agent"
    ),
    "95th percentile of a step, by agent": (
        "SELECT agent, approx_quantile(duration_s, 0.95) FROM steps GROUP BY agent ORDER BY agent"
    ),
    "one tenant, one week": (
        "SELECT agent, target, count(*) FROM steps WHERE tenant = 'x-scope-orgid=t3'"
        " AND day BETWEEN '2026-01-10' AND '2026-01-16' GROUP BY ALL ORDER BY ALL"
    ),
    "one run": "SELECT * FROM steps WHERE run_id = md5('run12345') ORDER BY step",
    "failed runs by agent and release": (
        "SELECT release, agent, count(*) FROM runs WHERE outcome = 'failed' GROUP BY ALL ORDER BY ALL"
    ),
    "spectrum of a workflow (Ochiai)": (
        "WITH total AS (SELECT count(*) FILTER (outcome = 'failed') AS failed FROM runs"
        " WHERE workflow = 'workflow-7')"
        " SELECT any_value(name), count(*) FILTER (outcome = 'failed')"
        " / sqrt(any_value(failed) * count(*)) AS ochiai"
        " FROM spectra, total WHERE workflow = 'workflow-7' GROUP BY element ORDER BY ochiai DESC LIMIT 10"
    ),
}


def archive(steps: int, folder: Path) -> None:
    """Write an archive with this many steps unless the folder has one, and time queries over it."""
    runs = steps // STEPS_OF_A_RUN
    if not (folder / STEPS).exists():
        _timed(f"{steps:,} steps of {runs:,} runs written", lambda: _write(folder, runs))
    for table in SCHEMAS:
        files = list((folder / table).rglob("*.parquet"))
        taken = sum(file.stat().st_size for file in files)
        with query(folder, f"SELECT count(*) FROM {table}") as found:
            ((rows,),) = found.rows
        print(
            f"{table}: {rows:,} rows, {len(files):,} files, {taken / 1e9:.2f} GB, {taken / rows:.1f} B a row"
        )
    for name, sql in QUERIES.items():
        _measure(folder, name, sql)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory of this process, writing included: {peak:,.0f} MiB")


def _write(folder: Path, runs: int) -> None:
    partitions = [
        (FIRST_DAY + timedelta(days=day), Tenant(f"x-scope-orgid=t{number}"))
        for day in range(DAYS)
        for number in range(TENANTS)
    ]
    if shutil.disk_usage(folder.parent).free < 200 * runs * STEPS_OF_A_RUN // 2:
        raise SystemExit(f"{folder}: expected {100 * runs * STEPS_OF_A_RUN / 1e9:.0f} GB of free disk space")
    with duckdb.connect() as db:
        for number, (day, tenant) in enumerate(partitions):
            bounds = {
                "first": number * runs // len(partitions),
                "end": (number + 1) * runs // len(partitions),
            }
            with PartitionBatch(folder, partition(day.isoformat(), tenant)) as batch:
                for table, sql in ROWS.items():
                    made = db.sql(sql.format(day=day, **bounds)).to_arrow_table()
                    batch.write(table, made.cast(SCHEMAS[table]))


def _measure(folder: Path, name: str, sql: str) -> None:
    took = []
    for _ in range(_TIMES):
        start = time.perf_counter()
        with query(folder, sql) as found:
            rows = len(list(found.rows))
        took.append(time.perf_counter() - start)
    spread = f"{median(took):.2f} s ({min(took):.2f} to {max(took):.2f}, n = {_TIMES})"
    print(f"{name}: {spread}, {rows:,} rows")


def _timed(what: str, work: Callable[[], None]) -> None:
    start = time.perf_counter()
    work()
    print(f"{what} in {time.perf_counter() - start:.0f} s")
