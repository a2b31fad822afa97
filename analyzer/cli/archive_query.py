"""SQL over the archive, by DuckDB in this process: reads the archive's folder only, and writes nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Timer
from typing import Any, Final

import duckdb

from analyzer.cli.archive import SCHEMAS
from analyzer.inquiry.errors import AnalyzerError

_ROWS_AT_ONCE: Final = 1_000
_RUNS: Final = (
    "CREATE VIEW runs AS SELECT * FROM verdicts"
    " QUALIFY row_number() OVER (PARTITION BY tenant, run_id ORDER BY version DESC) = 1"
)
"""The current verdict of each run."""


MOST_S: Final = 300.0
_MEMORY_SHARE: Final = 0.5


def _half_of_memory() -> int:
    return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * _MEMORY_SHARE)


class QueryFailed(AnalyzerError):  # noqa: N818 - reads better at the ``raise``
    """There is no archive, the statement does more than read or takes too much, or DuckDB refused it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryLimits:
    """Bounds on one statement."""

    seconds: float = MOST_S
    """Time limit, until the last row of the result has been fetched."""
    memory_bytes: int = field(default_factory=_half_of_memory)
    """DuckDB's memory limit; beyond it, large joins and sorts go to temporary files."""
    spill_bytes: int = 16 << 30
    """Limit on the size of temporary files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The result of a statement."""

    columns: tuple[str, ...]
    rows: Iterator[tuple[Any, ...]]


@contextmanager
def query(folder: Path, sql: str, limits: QueryLimits | None = None) -> Iterator[Found]:
    """Run a statement over the views ``verdicts``, ``runs``, ``steps`` and ``spectra``.

    Raises:
        QueryFailed: the folder holds no archive, the text is not one statement that only reads, or DuckDB
            refuses it or needs more than its limits.
    """
    query_limits = limits or QueryLimits()
    with (
        TemporaryDirectory() as spill,
        closing(duckdb.connect()) as db,
        _interrupted(db, query_limits.seconds) as over,
    ):
        try:
            _open(db, folder.resolve(), spill, query_limits)
            ran = db.execute(_reading(db, sql))
            columns = tuple(column[0] for column in ran.description or ())
            yield Found(columns=columns, rows=_fetched(ran, over))
        except (duckdb.InterruptException, TimeoutError) as error:
            raise QueryFailed(
                f"the query took longer than {query_limits.seconds:g} s: query fewer days, or raise --timeout"
            ) from error
        except duckdb.Error as error:
            raise QueryFailed(str(error).partition("\n\n")[0]) from error


@contextmanager
def _interrupted(db: duckdb.DuckDBPyConnection, seconds: float) -> Iterator[Event]:
    """Interrupt the connection's query after so many seconds; yields an event that is then set."""
    over = Event()

    def end() -> None:
        over.set()
        db.interrupt()

    timer = Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield over
    finally:
        timer.cancel()
        timer.join()


def _open(db: duckdb.DuckDBPyConnection, folder: Path, spill: str, limits: QueryLimits) -> None:
    """Create the views, set the limits, and confine the connection to the folder."""
    db.execute(f"SET temp_directory = {_quoted(spill)}")
    db.execute(f"SET memory_limit = '{limits.memory_bytes}B'")
    db.execute(f"SET max_temp_directory_size = '{limits.spill_bytes}B'")
    db.execute("SET TimeZone = 'UTC'")
    for table in SCHEMAS:
        if not any((folder / table).glob("*/*/*.parquet")):
            raise QueryFailed(
                f"{folder}: has no {table}: expected the folder of `blamespan runs export --parquet`"
            )
        files = _quoted(str(folder / table / "*" / "*" / "*.parquet"))
        db.execute(
            f"CREATE VIEW {table} AS SELECT * FROM read_parquet({files}, union_by_name = true,"  # noqa: S608
            " hive_partitioning = true, hive_types = {'day': DATE, 'tenant': VARCHAR})"
        )
    db.execute(_RUNS)
    db.execute(f"SET allowed_directories = [{_quoted(str(folder))}, {_quoted(spill)}]")
    for setting in ("enable_external_access = false", "autoinstall_known_extensions = false"):
        db.execute(f"SET {setting}")
    db.execute("SET lock_configuration = true")


def _reading(db: duckdb.DuckDBPyConnection, sql: str) -> duckdb.Statement:
    """Return the only statement of a text, if it reads.

    DuckDB may write into the directories that it may read: by ``COPY``, ``EXPORT``, ``ATTACH``, and ``EXPLAIN
    ANALYZE`` of these. A ``PIVOT`` without ``IN`` has the same type as a ``COPY`` of it: it is refused too.
    """
    statements = db.extract_statements(sql)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise QueryFailed("expected one statement that reads: SELECT, FROM, WITH, DESCRIBE or SUMMARIZE")
    return statements[0]


def _fetched(ran: duckdb.DuckDBPyConnection, over: Event) -> Iterator[tuple[Any, ...]]:
    """Yield the rows as DuckDB finds them; an interruption between two fetches would be without effect."""
    while rows := ran.fetchmany(_ROWS_AT_ONCE):
        yield from rows
        if over.is_set():
            raise TimeoutError


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
