"""SQLite under the store: one file, opened by any number of processes.

Deleted rows leave free space in the file, which is used again. If there is far more of it
than new rows need, it is returned to the disk, a little at a time (``give_back``).
"""

from __future__ import annotations

import logging
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from collector_processor.core.disk import StoreError
from collector_processor.otlp import CollectorError
from collector_processor.store.database.driver import Flush
from collector_processor.store.database.upgrade import SCHEMA, schema_of, upgrade

if TYPE_CHECKING:
    from sqlalchemy import Connection

logger = logging.getLogger(__name__)

_INCREMENTAL: Final = 2
"""Value of SQLite's ``auto_vacuum`` for a file that can give pages back."""
_ROOM_BYTES: Final = 4 << 20
"""Free bytes always left in a file for the next rows."""
_ROOM_SHARE: Final = 1 / 8
"""Share of the file that is always left free, for the same reason."""
MOST_GIVEN_BACK: Final = 4 << 20
"""Bytes returned at a time: takes some tens of milliseconds."""
_MOST_WAL_BYTES: Final = 16 << 20
"""Largest size of the WAL once nothing in it is needed."""
NEW_STORE: Final = Path(__file__).with_name("new_store.sql")
"""The tables of ``schema.py`` for SQLite; a statement ends with a semicolon at the end of a line. Written by
``python -m collector_processor.store.schema``, since the start of a service has no time for SQLAlchemy."""
_INSTEAD: Final = "use another data directory"
_BUSY_S: Final = 5.0
_BUSY_PAUSE_S: Final = 0.01


class SqliteDriver:
    """An SQLite file that other processes may have open too; one of them writes at a time (WAL)."""

    is_postgresql: Final = False

    def __init__(self, path: Path) -> None:
        """Open or create the file, in autocommit mode, flushed to the disk at each commit.

        Raises:
            CollectorError: it is not an SQLite file, or the disk refuses.
        """
        self._path: Final = path
        db: sqlite3.Connection | None = None
        try:
            if not path.exists():
                path.touch(mode=0o600)  # SQLite gives the WAL the same mode
            elif not path.stat().st_size:
                logger.warning("the store's file is empty: its contents are lost", extra={"store": path.name})
            db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            db.execute(f"PRAGMA auto_vacuum={_INCREMENTAL}")  # affects new files only
            _into_wal(db)
            db.execute(f"PRAGMA journal_size_limit={_MOST_WAL_BYTES}")
            db.execute("PRAGMA synchronous=FULL")
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
            if db is not None:
                db.close()
            raise CollectorError(f"{path}: cannot be used as a store: {error}; move it away") from error
        self._db: Final = db
        self._flush = Flush.AT_ONCE
        self.execute: Final = self._db.execute
        self.executemany: Final = self._db.executemany

    def begin(self, flush: Flush) -> None:
        """Begin to write; waits up to 5 s for other processes to finish writing."""
        self._flush_commits(flush)
        self._db.execute("BEGIN IMMEDIATE")

    def _flush_commits(self, flush: Flush) -> None:
        if flush is not self._flush:  # SQLite compiles this statement each time
            self._db.execute(f"PRAGMA synchronous={flush}")
            self._flush = flush

    def commit(self) -> None:
        """Commit the transaction."""
        self._db.execute("COMMIT")

    def rollback(self) -> None:
        """Roll back, unless SQLite has already done so."""
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def refusal(self, error: BaseException) -> StoreError | None:
        """Return the exception to raise for an SQLite error."""
        if isinstance(error, sqlite3.OperationalError):
            return StoreError(f"the store cannot write: {error}")
        return None

    def give_back(self, most_bytes: int = MOST_GIVEN_BACK) -> int:
        """Return free space that will not be needed soon to the disk; return the number of bytes.

        Args:
            most_bytes: limit for this call; nothing else can be written meanwhile.

        Raises:
            StoreError: the disk refuses.
        """
        space = _space(self._db)
        room = max(_ROOM_BYTES, int(space.bytes * _ROOM_SHARE))
        pages = min(most_bytes, space.free_bytes - room) // space.page_bytes
        if pages <= 0:
            return 0
        try:
            self._flush_commits(Flush.LATER)
            # Each step frees a page, and ``execute`` makes one step only. Alone, the statement is a
            # transaction.
            self._db.executescript(f"PRAGMA incremental_vacuum({pages})")
            self._db.execute("PRAGMA wal_checkpoint(PASSIVE)")  # the file shrinks only at a checkpoint
        except sqlite3.OperationalError as error:
            raise StoreError(f"the store cannot write: {error}") from error
        return pages * space.page_bytes

    def create_tables(self) -> None:
        """Create the tables of a new store, all or none; another process may have done so.

        Raises:
            sqlite3.Error: the disk refuses.
            CollectorError: the file has tables of another program.
        """
        self.begin(Flush.AT_ONCE)
        try:
            if schema_of(self) is None:
                self._refuse_other_tables()
                for statement in NEW_STORE.read_text(encoding="utf-8").split(";\n")[:-1]:
                    self._db.execute(statement)
                self._db.execute("INSERT INTO alembic_version VALUES (?)", (SCHEMA,))
            self.commit()
        except (sqlite3.Error, CollectorError):
            self.rollback()
            raise

    def _refuse_other_tables(self) -> None:
        if self.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise CollectorError(f"{self._path.name} is not a store of blamespan: move it, or {_INSTEAD}")

    def schema_connection(self) -> Connection:
        """Return an SQLAlchemy connection in a transaction, for schema migrations."""
        # Takes 0.3 s to import; a store is opened at each start, and upgraded once.
        from sqlalchemy import URL, NullPool, create_engine  # noqa: PLC0415

        engine = create_engine(
            URL.create("sqlite", database=str(self._path)),
            poolclass=NullPool,
            connect_args={"isolation_level": None, "check_same_thread": False},
        )
        connection = engine.connect()
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        return connection

    def own(self) -> None:
        """Do nothing: the lock of the journal in the same folder keeps other services out."""

    def share(self) -> None:
        """Refuse: processes on several machines cannot share a file; always raises ``CollectorError``."""
        self.close()
        raise CollectorError("a store in a file cannot be shared: set BLAMESPAN_STORE_URL")

    def leads(self) -> bool:
        """Return true: a file has one process that writes."""
        return True

    def close(self) -> None:
        """Close the file; everything committed stays."""
        self._db.close()


def open_file(path: Path) -> SqliteDriver:
    """Bring a file's schema up to date, and return a connection.

    Raises: CollectorError: the file cannot be used, or this version cannot read it; the message says so.
    """
    driver = SqliteDriver(path)
    try:
        schema = schema_of(driver)
        if schema is None:
            _create(driver, path)
            schema = schema_of(driver)
        if schema != SCHEMA:
            upgrade(driver.schema_connection, schema, path.name, _INSTEAD)
    except (sqlite3.Error, UnicodeDecodeError) as error:  # SQLite quotes damaged bytes
        driver.close()
        raise CollectorError(f"{path}: cannot be used as a store: {error}; move it away") from error
    except BaseException:
        driver.close()
        raise
    return driver


def _create(driver: SqliteDriver, path: Path) -> None:
    try:
        driver.create_tables()
    except sqlite3.Error as error:
        raise CollectorError(f"{path.name} cannot be created: {error}") from error


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


def _into_wal(db: sqlite3.Connection) -> None:
    """Switch a file to WAL mode; retry while another connection does so, as SQLite then refuses at once."""
    until = time.monotonic() + _BUSY_S
    while True:
        try:
            db.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                raise
            time.sleep(_BUSY_PAUSE_S)
        else:
            return
