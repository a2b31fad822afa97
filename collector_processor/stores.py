"""An SQLite store of ours: opened, brought up to date, and written to all or nothing.

What its tables are is told as steps, oldest first; the schema version that stands in the
file (``user_version``) is how many of them it has been through. A new store goes through
all, an older one through those it lacks, so that both end with the same tables. A step
that was once released is never changed: what is to be different is a step more.

What is deleted leaves room in the file, which is used again. Where there is far more of it
than that takes, the disk gets it back, a little at a time (``give_back``). A file from before
that was possible is written anew when it is opened, once it is small, or mostly room.
"""

from __future__ import annotations

import errno
import logging
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from collector_processor.otlp import CollectorError

logger = logging.getLogger(__name__)

_INCREMENTAL: Final = 2
"""SQLite's ``auto_vacuum`` of a file that can give pages back."""
_SMALL_BYTES: Final = 8 << 20
"""A file that is written anew in no time."""
_ROOM_BYTES: Final = 4 << 20
"""Free in a file, always: what is written next needs it."""
_ROOM_SHARE: Final = 1 / 8
"""Of the file, likewise."""
_ANEW_SHARE: Final = 1 / 2
"""Of the file that must be free for it to be written anew."""
MOST_GIVEN_BACK: Final = 4 << 20
"""Bytes at a time: some tens of milliseconds."""
_MOST_WAL_BYTES: Final = 16 << 20
"""Of the log beside the file, when nothing in it is needed any more."""


_MAY_PASS: Final = frozenset(
    {
        errno.EDQUOT,
        errno.EIO,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.ENOSPC,
        errno.EROFS,
        errno.ESTALE,
    }
)
"""What a disk or a system refuses with, and may not for long."""
_SQLITE_MAY_PASS: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,  # without a free descriptor too
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_READONLY,
    }
)
_PRIMARY: Final = 0xFF
"""Of SQLite's extended codes, the part that says of which kind they are."""


class StoreError(CollectorError):
    """The disk refuses (full, read-only); nothing of the transaction was kept, and it may be tried again."""


def is_refusal(error: BaseException) -> bool:
    """Whether the disk, or the system, would not let us, and may well do so later.

    A disk that is full, too many open files; not what no time mends: a file that is gone or
    damaged, a fault of ours.
    """
    if isinstance(error, sqlite3.OperationalError):
        # What Python itself raises as one has no code.
        return getattr(error, "sqlite_errorcode", 0) & _PRIMARY in _SQLITE_MAY_PASS
    if isinstance(error, OSError):
        return error.errno in _MAY_PASS
    return isinstance(error, StoreError)


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
        db.execute(f"PRAGMA auto_vacuum={_INCREMENTAL}")  # of a new file; one that is there stays as it is
        db.execute("PRAGMA journal_mode=WAL")
        db.execute(f"PRAGMA journal_size_limit={_MOST_WAL_BYTES}")
        db.execute("PRAGMA synchronous=FULL")
        if _version(db, path, len(steps)) < len(steps):
            _bring_up_to_date(db, path, steps)
        _let_give_back(db, path)
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


def _let_give_back(db: sqlite3.Connection, path: Path) -> None:
    """Write an older file anew, where that is quick or worth it."""
    space = _space(db)
    is_worth_it = space.bytes <= _SMALL_BYTES or space.free_bytes > space.bytes * _ANEW_SHARE
    if _of(db, "auto_vacuum") == _INCREMENTAL or not is_worth_it:
        return
    try:
        db.execute(f"PRAGMA auto_vacuum={_INCREMENTAL}")
        db.execute("VACUUM")
    except sqlite3.OperationalError as error:  # somebody writes, or the disk is full: it serves as it is
        logger.warning("store keeps its size", extra={"store": path.name, "reason": str(error)})


def give_back(db: sqlite3.Connection, store: str, most_bytes: int = MOST_GIVEN_BACK) -> int:
    """Give the disk some of what is free in a file beyond what will be needed again; return how many bytes.

    Args:
        db: a connection in autocommit mode, in no transaction.
        store: what to call it where the disk refuses.
        most_bytes: at a time; nothing else is written meanwhile.

    Raises:
        StoreError: the disk refuses.
    """
    space = _space(db)
    room = max(_ROOM_BYTES, int(space.bytes * _ROOM_SHARE))
    pages = min(most_bytes, space.free_bytes - room) // space.page_bytes
    if pages <= 0 or _of(db, "auto_vacuum") != _INCREMENTAL:
        return 0
    try:
        db.execute(f"PRAGMA synchronous={Flush.LATER}")
        # A page a step, which a mere ``execute`` takes one of; by itself it is one transaction.
        db.executescript(f"PRAGMA incremental_vacuum({pages})")
        db.execute("PRAGMA wal_checkpoint(PASSIVE)")  # only then is the file shorter
    except sqlite3.OperationalError as error:
        raise StoreError(f"{store} cannot write: {error}") from error
    return pages * space.page_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Space:
    page_bytes: int
    pages: int
    free: int

    @property
    def bytes(self) -> int:
        return self.page_bytes * self.pages

    @property
    def free_bytes(self) -> int:
        return self.page_bytes * self.free


def _space(db: sqlite3.Connection) -> _Space:
    return _Space(
        page_bytes=_of(db, "page_size"), pages=_of(db, "page_count"), free=_of(db, "freelist_count")
    )


def _of(db: sqlite3.Connection, pragma: str) -> int:
    value: int = db.execute(f"PRAGMA {pragma}").fetchone()[0]
    return value


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
