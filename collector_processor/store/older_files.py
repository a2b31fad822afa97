"""Migration of an older version's three files into the single store, at the first start.

All rows are copied in one transaction, into a file that gets its final name at the end (or into the server's
database). A process killed before that leaves the older files as they were, and the next start begins again;
a process killed afterwards leaves only the renaming to be done. The older files stay as a backup,
``*.before-one-store``, until they are deleted by hand. A stub in place of one of them makes an older binary
refuse the directory; otherwise it would start with empty files beside the store.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from collector_processor.otlp import CollectorError
from collector_processor.store.database.connection import StoreConnection
from collector_processor.store.database.places import open_database
from collector_processor.store.run_totals_table import RunTotalsRows

logger = logging.getLogger(__name__)

BACKUP: Final = ".before-one-store"
STUB_VERSION: Final = 1_000
"""Schema number unknown to older versions; they say ``written by a newer blamespan (schema 1000)``."""
_TABLES: Final[Mapping[str, Mapping[str, str]]] = {
    "runs.sqlite": {
        name: name
        for name in (
            *("verdict", "analysed", "run_key", "run_part", "outbox", "rewrite", "place", "heeded"),
            *("spending", "absent_parent"),
        )
    },
    "labels.sqlite": {"run": "kept_run", "label": "label"},
    "issues.sqlite": {
        "run": "counted_run",
        "outbox": "notice",
        **{name: name for name in ("issue", "pending", "agent_day", "watch", "target", "told", "cursor")},
    },
    "spending.sqlite": {"spending": "spending"},  # of a standalone analyzer
}
"""Files of an older version, with their tables' old and new names."""
_STUBS: Final = ("runs.sqlite", "spending.sqlite")
"""Files that an older binary opens first."""
_SQLITE: Final = b"SQLite format 3\0"
_VERSION_AT: Final = slice(60, 64)
"""Place of ``user_version`` in the head of an SQLite file."""
_BATCH: Final = 1_000
_BEFORE_SETTLED: Final = (
    "UPDATE counted_run SET settled_ns = decided_ns,"
    " status = CASE WHEN blamed IS NULL THEN 'no_failure' ELSE 'attributed' END"
)


def older_files(folder: Path) -> list[Path]:
    """Return the files of an older version that are still in use."""
    found = (folder / name for name in _TABLES)
    return [path for path in found if path.is_file() and not _is_stub(path)]


def bring_up_to_date(folder: Path, place: Path | str, stub: str = _STUBS[0]) -> None:
    """Copy an older version's data into the store, and keep older versions out from now on.

    Call it from the process that holds the directory's lock.

    Args:
        folder: the data directory.
        place: the store's file, or the URL of its database.
        stub: the file that an older binary opens first.

    Raises:
        CollectorError: a file cannot be read or the store cannot be written; nothing is changed.
    """
    older = older_files(folder)
    if older:
        try:
            _copy(older, place)
        except (sqlite3.Error, OSError) as error:
            message = f"{folder}: cannot be brought up to date, and stays as it is: {error}"
            raise CollectorError(message) from error
        for path in older:
            _set_aside(path)
        logger.info(
            "older files moved into one store; they stay as a backup",
            extra={"backup": [f"{path.name}{BACKUP}" for path in older]},
        )
    if not (folder / stub).exists():
        _write_stub(folder / stub)


def _copy(older: Sequence[Path], place: Path | str) -> None:
    if isinstance(place, str):
        mark = f"older files of {older[0].parent.absolute()}"
        with closing(open_database(place)) as database, closing(database.own()) as db, db.transaction():
            if db.execute("SELECT 1 FROM cursor WHERE name = ?", (mark,)).fetchone() is None:
                _copy_all(older, db)
                db.execute("INSERT INTO cursor (name, value) VALUES (?, 1)", (mark,))
        return
    if place.exists():  # an earlier start was killed between the copy and the renaming
        return
    new = place.with_name(f"{place.name}.new")
    for path in (new, *_beside(new)):
        path.unlink(missing_ok=True)
    with closing(open_database(new).connect()) as db, db.transaction():
        _copy_all(older, db)
    if any(path.exists() for path in _beside(new)):
        raise CollectorError(f"{new}: another process has it open")
    _flush(new)
    new.replace(place)
    _flush(place.parent)


def _copy_all(older: Sequence[Path], db: StoreConnection) -> None:
    for path in older:
        with closing(sqlite3.connect(path)) as source:
            for name, target in _TABLES[path.name].items():
                _copy_table(source, name, target, db)
    RunTotalsRows(db).catch_up()
    if db.is_postgresql:
        for table in ("outbox", "place", "spending", "kept_run", "label", "notice"):
            sequence = f"pg_get_serial_sequence('{table}', 'id')"
            last = f"greatest((SELECT coalesce(max(id), 0) FROM {table}), nextval({sequence}))"  # noqa: S608
            db.execute(f"SELECT setval({sequence}, {last})")


def _copy_table(source: sqlite3.Connection, name: str, target: str, db: StoreConnection) -> None:
    from collector_processor.store.schema import METADATA  # noqa: PLC0415 - importing SQLAlchemy takes 0.2 s

    table = METADATA.tables[target]
    there = [row[1] for row in source.execute(f"PRAGMA table_info({name})")]
    columns = [column for column in there if column in table.columns]
    if not columns:  # a version without this table
        return
    is_boolean = [str(table.columns[column].type) == "BOOLEAN" for column in columns]
    insert = (
        f"INSERT INTO {target} ({', '.join(columns)})"  # noqa: S608 - our own words
        f" VALUES ({', '.join('?' * len(columns))})"
    )
    rows = source.execute(f"SELECT {', '.join(columns)} FROM {name}")  # noqa: S608 - as above
    while batch := rows.fetchmany(_BATCH):
        db.executemany(insert, list(_typed(batch, is_boolean)))
    if target == "counted_run" and "settled_ns" not in columns:
        db.execute(_BEFORE_SETTLED)
    if target == "notice":
        _continue_numbers(source, db)


def _typed(rows: Sequence[Sequence[Any]], is_boolean: Sequence[bool]) -> Iterator[list[Any]]:
    for row in rows:
        yield [bool(value) if flag else value for value, flag in zip(row, is_boolean, strict=True)]


def _continue_numbers(source: sqlite3.Connection, db: StoreConnection) -> None:
    """Never reuse a notice's number: receivers tell notices apart by it."""
    row = source.execute("SELECT seq FROM sqlite_sequence WHERE name = 'outbox'").fetchone()
    if row is None:
        return
    if db.is_postgresql:
        db.execute("SELECT setval(pg_get_serial_sequence('notice', 'id'), ?)", (max(row[0], 1),))
    else:
        db.execute("DELETE FROM sqlite_sequence WHERE name = 'notice'")
        db.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('notice', ?)", row)


def _set_aside(path: Path) -> None:
    backup = path.with_name(f"{path.name}{BACKUP}")
    if backup.exists():
        reason = f"{path} is left from an older version, but {backup.name} exists"
        raise CollectorError(f"{reason}: move one of them away")
    path.replace(backup)
    _flush(path.parent)


def _write_stub(path: Path) -> None:
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    new.touch(mode=0o600)
    with closing(sqlite3.connect(new)) as db:
        db.execute(f"PRAGMA user_version={STUB_VERSION}")
    new.replace(path)


def _is_stub(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(_VERSION_AT.stop)
    return head.startswith(_SQLITE) and int.from_bytes(head[_VERSION_AT]) == STUB_VERSION


def _beside(path: Path) -> tuple[Path, Path]:
    return path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
