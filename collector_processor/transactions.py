"""Writing to an SQLite store of ours: all or nothing, and one word for a disk that refuses."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from collector_processor.otlp import CollectorError


class StoreError(CollectorError):
    """The disk refuses (full, read-only); nothing of the transaction was kept, and it may be tried again."""


@contextmanager
def all_or_nothing(db: sqlite3.Connection, store: str) -> Iterator[None]:
    """Write all that is done inside, or nothing.

    Args:
        db: a connection in autocommit mode.
        store: what to call it where the disk refuses.

    Raises:
        StoreError: the disk refuses.
    """
    try:
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
