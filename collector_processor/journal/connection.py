"""A segment's file as SQLite has it: made, opened, waited for or not, its WAL, its transactions.

Synchronous; used from one thread at a time. WAL, so that readers never wait for the writer. Bodies have a
table of their own, so that changing a row's state never rewrites its body. ``auto_vacuum`` is incremental: a
compacted segment gives its pages back to the file system.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Final

from collector_processor.journal.chunks import JournalError

SCHEMA_VERSION: Final = 1
APPLICATION_ID: Final = 0x626C6D65
"""Says in the file's header whose it is ("blme")."""
_CHECKPOINT_PAGES: Final = 32_768
"""A WAL of 128 MiB, twice what a segment may have when it takes its last row: so that nothing is copied from
there while somebody waits for a commit, which takes tens of milliseconds."""
_BUSY_MS: Final = 10_000
_QUIET_CACHE_KIB: Final = 256
"""Pages kept in memory of a segment that takes no more rows; SQLite would keep 2 MiB for each connection."""
_SCHEMA: Final = """
CREATE TABLE chunk (
  seq INTEGER PRIMARY KEY, signal TEXT NOT NULL, tenant TEXT NOT NULL, hops TEXT NOT NULL,
  received_ns INTEGER NOT NULL, items INTEGER NOT NULL, size INTEGER NOT NULL, state INTEGER NOT NULL
);
CREATE TABLE body (seq INTEGER PRIMARY KEY, checksum INTEGER NOT NULL, packed BLOB NOT NULL);
CREATE TABLE trace (
  seq INTEGER NOT NULL, trace_id TEXT NOT NULL, spans INTEGER NOT NULL, bytes INTEGER NOT NULL,
  carriers INTEGER NOT NULL, notes BLOB NOT NULL,
  PRIMARY KEY (seq, trace_id)
) WITHOUT ROWID;
"""


class SegmentConnection:
    """One connection to one segment; which rows are in it is told by those who derive from it."""

    def __init__(self, path: Path, number: int) -> None:
        """Open the segment, or make it.

        Raises:
            JournalError: a newer version wrote it, or it is something else.
            sqlite3.DatabaseError: the file is damaged, or the disk is full.
        """
        self.number: Final = number
        self.path: Final = path
        self._wal: Final = path.with_name(f"{path.name}-wal")
        self._is_relaxed = False
        self._db: Final = sqlite3.connect(
            path,
            isolation_level=None,
            check_same_thread=False,
            timeout=_BUSY_MS / 1000,
        )
        try:
            self._prepare()
        except BaseException:
            self._db.close()
            raise

    def _prepare(self) -> None:
        version = self.pragma("user_version")
        if version > SCHEMA_VERSION:
            raise JournalError(
                f"the journal ({self.path.name}) was written by a newer blamespan (schema {version}, "
                f"this one knows {SCHEMA_VERSION}): upgrade, or give it another data directory"
            )
        if version == 0:
            self._create()
        elif self.pragma("application_id") != APPLICATION_ID:
            raise JournalError(f"{self.path.name} is an SQLite file, but no journal of ours")
        self._page_bytes = self.pragma("page_size")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute(f"PRAGMA wal_autocheckpoint={_CHECKPOINT_PAGES}")
        # Some builds write zeros over what is deleted: a compaction gives the space back right after.
        self._db.execute("PRAGMA secure_delete=OFF")

    def _create(self) -> None:
        self._db.execute("PRAGMA auto_vacuum=INCREMENTAL")  # before the first page is written
        self._db.execute("PRAGMA journal_mode=WAL")
        header = f"PRAGMA application_id={APPLICATION_ID};PRAGMA user_version={SCHEMA_VERSION};"
        self._db.executescript(f"BEGIN;{_SCHEMA}{header}COMMIT;")

    def pragma(self, name: str) -> int:
        """Return a number that SQLite tells of the file."""
        value: int = self._db.execute(f"PRAGMA {name}").fetchone()[0]
        return value

    def relax(self) -> None:
        """Stop waiting for the disk at each commit: for a segment that gets no new rows.

        What a power cut takes then is at most a change of state, done again after a restart.
        """
        self._is_relaxed = True
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.execute(f"PRAGMA cache_size=-{_QUIET_CACHE_KIB}")

    @property
    def disk_bytes(self) -> int:
        """The size of the database, with what is still in the WAL."""
        return self.pragma("page_count") * self._page_bytes

    @property
    def owed_bytes(self) -> int:
        """What the file will grow by when the WAL is written back to it."""
        return self.owed_of(self.disk_bytes)

    def owed_of(self, disk_bytes: int) -> int:
        """Return the same, told ``disk_bytes``: to ask for it takes the thread as long as to insert a row."""
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:  # somebody removed it: nothing is written back to it
            return 0
        return max(0, disk_bytes - size)

    @property
    def wal_bytes(self) -> int:
        """The size of the WAL: a page that many commits wrote stands there as many times."""
        try:
            return self._wal.stat().st_size
        except FileNotFoundError:
            return 0

    def close(self) -> None:
        """Close the connection; what is committed stays."""
        self._db.close()

    def abandon(self) -> None:
        """Close the connection of a file that is removed next: its WAL is not copied for nothing.

        SQLite copies it when the last connection is closed that may write.
        """
        with ExitStack() as stack:
            with suppress(sqlite3.Error):  # the file is gone, or damaged: then nothing can be copied
                address = f"{self.path.absolute().as_uri()}?mode=ro"
                last = stack.enter_context(closing(sqlite3.connect(address, uri=True)))
                last.execute("SELECT seq FROM chunk LIMIT 1").fetchall()
            self._db.close()

    def write_back(self) -> None:
        """Copy the WAL to the file, as far as nobody reads from it."""
        self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def empty_wal(self) -> None:
        """Copy the WAL to the file and give its space back; others may write meanwhile, but for a moment.

        Whoever asks for it is done with the segment for a while, so no pages are kept in memory either.
        """
        self.write_back()
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        self._db.execute("PRAGMA shrink_memory")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing; durable when it ends, but for a relaxed segment."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    @contextmanager
    def durable_transaction(self) -> Iterator[None]:
        """All or nothing, durable when it ends even in a relaxed segment."""
        self._db.execute("PRAGMA synchronous=FULL")
        try:
            with self.transaction():
                yield
        finally:
            if self._is_relaxed:
                self.relax()
