"""An SQLite store of ours: opened, brought up to date, and written to all or nothing.

What its tables are is told as steps, oldest first; the schema version that stands in the
file (``user_version``) is how many of them it has been through. A new store goes through
all, an older one through those it lacks, so that both end with the same tables. A step
that was once released is never changed: what is to be different is a step more.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from collector_processor.otlp import CollectorError


class StoreError(CollectorError):
    """The disk refuses (full, read-only); nothing of the transaction was kept, and it may be tried again."""


def open_store(path: Path, steps: Sequence[str]) -> sqlite3.Connection:
    """Open a store or make it, in autocommit mode and flushed to the disk at each commit.

    Any number of processes may have it open, and one may read while another writes (WAL).

    Args:
        path: the file.
        steps: the statements that lead from each schema version to the next, each ended by a
            semicolon and with no other one in it.

    Raises:
        CollectorError: it was written by a newer version, is no store of ours, or the disk refuses.
    """
    try:
        if not path.exists():
            path.touch(mode=0o600)  # SQLite gives the files beside it the same mode
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    except (sqlite3.Error, OSError) as error:
        raise CollectorError(f"{path}: cannot be used as a store: {error}") from error
    try:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=FULL")
        if _version(db, path, len(steps)) < len(steps):
            _bring_up_to_date(db, path, steps)
    except sqlite3.Error as error:
        db.close()
        raise CollectorError(f"{path}: cannot be used as a store: {error}; move it away") from error
    except BaseException:
        db.close()
        raise
    return db


def _version(db: sqlite3.Connection, path: Path, known: int) -> int:
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    if version > known:
        raise CollectorError(f"{path.name} was written by a newer blamespan (schema {version})")
    return version


def _bring_up_to_date(db: sqlite3.Connection, path: Path, steps: Sequence[str]) -> None:
    try:
        with all_or_nothing(db, path.name):
            version = _version(db, path, len(steps))  # another process may have been quicker
            for statement in ";".join(steps[version:]).split(";"):
                db.execute(statement)
            db.execute(f"PRAGMA user_version={len(steps)}")
    except StoreError as error:
        raise CollectorError(f"{path}: cannot be made a store: {error.__cause__}") from error


class Flush(StrEnum):
    """When a transaction is on the disk (SQLite's ``synchronous``)."""

    AT_ONCE = "FULL"
    LATER = "NORMAL"
    """With the next that is flushed at once: a power cut may take it, a crash of ours does not."""


@contextmanager
def all_or_nothing(db: sqlite3.Connection, store: str, flush: Flush = Flush.AT_ONCE) -> Iterator[None]:
    """Write all that is done inside, or nothing.

    Args:
        db: a connection in autocommit mode.
        store: what to call it where the disk refuses.
        flush: when it is sure to survive a power cut.

    Raises:
        StoreError: the disk refuses.
    """
    try:
        db.execute(f"PRAGMA synchronous={flush}")
        db.execute("BEGIN IMMEDIATE")
        yield
        db.execute("COMMIT")
    except BaseException as error:
        # A full disk shows at COMMIT too, and SQLite may have rolled back by itself: left
        # open, the transaction would fail every later one until a restart.
        if db.in_transaction:
            db.execute("ROLLBACK")
        if isinstance(error, sqlite3.OperationalError):
            raise StoreError(f"{store} cannot write: {error}") from error
        raise
