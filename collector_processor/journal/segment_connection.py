"""SQLite connection to one segment, and a cache that keeps only the most recently used ones open.

Synchronous; used from one thread at a time. Segments are in WAL mode, so that readers never wait for the
writer. Bodies have a table of their own, so that changing a row's state never rewrites its body.
``auto_vacuum`` is incremental: a compacted segment gives its pages back to the file system.

The cache bounds file descriptors: a heavy load fills a segment every few seconds, and each stays for up to a
day while it holds spans of a run that may be analysed again. A connection takes three descriptors and some
0.4 MiB.
"""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

from collector_processor.journal.chunks import JournalError

SCHEMA_VERSION: Final = 1
APPLICATION_ID: Final = 0x626C6D65
"""Identifies our files in SQLite's header ("blme")."""
_CHECKPOINT_PAGES: Final = 32_768
"""WAL size for an automatic checkpoint: 128 MiB, twice a full segment, so none delays a commit."""
_BUSY_MS: Final = 10_000
_READ_BYTES: Final = 1 << 16
_QUIET_CACHE_KIB: Final = 256
"""Page cache of a segment that takes no more rows; SQLite's default is 2 MiB for each connection."""
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
MAX_OPEN: Final = 8
"""Files open at once; about four are in use at a time: new rows, backlog, analysis, eviction."""


class SegmentConnection:
    """One connection to one segment: opening, WAL, transactions. Subclasses define which rows it has."""

    def __init__(self, path: Path, number: int) -> None:
        """Open the segment, or create it.

        Raises:
            JournalError: a newer version wrote the file, or it is not a journal segment.
            sqlite3.DatabaseError: the file is damaged, or the disk is full.
        """
        self.number: Final = number
        self.path: Final = path
        self._wal: Final = path.with_name(f"{path.name}-wal")
        self._is_relaxed = False
        self._db: Final = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False, timeout=_BUSY_MS / 1000
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
                f"this version reads up to {SCHEMA_VERSION}): upgrade, or use another data directory"
            )
        if version == 0:
            self._create()
        elif self.pragma("application_id") != APPLICATION_ID:
            raise JournalError(
                f"{self.path} is an SQLite file, but not a blamespan journal: "
                "move it, or use another data directory"
            )
        self._page_bytes = self.pragma("page_size")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute(f"PRAGMA wal_autocheckpoint={_CHECKPOINT_PAGES}")
        # Some builds overwrite deleted pages with zeros: wasted work before a compaction frees them.
        self._db.execute("PRAGMA secure_delete=OFF")

    def _create(self) -> None:
        self._db.execute("PRAGMA auto_vacuum=INCREMENTAL")  # before the first page is written
        self._db.execute("PRAGMA journal_mode=WAL")
        header = f"PRAGMA application_id={APPLICATION_ID};PRAGMA user_version={SCHEMA_VERSION};"
        self._db.executescript(f"BEGIN;{_SCHEMA}{header}COMMIT;")

    def pragma(self, name: str) -> int:
        """Return the value of a numeric pragma."""
        value: int = self._db.execute(f"PRAGMA {name}").fetchone()[0]
        return value

    def relax(self) -> None:
        """Stop waiting for the disk at each commit; for segments that take no more rows.

        A power cut then loses at most a change of state, which is repeated after a restart.
        """
        self._is_relaxed = True
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.execute(f"PRAGMA cache_size=-{_QUIET_CACHE_KIB}")

    @property
    def disk_bytes(self) -> int:
        """Size of the database, including pages that are still in the WAL."""
        return self.pragma("page_count") * self._page_bytes

    @property
    def owed_bytes(self) -> int:
        """Bytes by which the file will grow when the WAL is copied to it."""
        return self.owed_of(self.disk_bytes)

    def owed_of(self, disk_bytes: int) -> int:
        """Return ``owed_bytes`` for a known ``disk_bytes``: querying it takes as long as inserting a row."""
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:  # removed by someone: nothing will be copied to it
            return 0
        return max(0, disk_bytes - size)

    @property
    def wal_bytes(self) -> int:
        """Size of the WAL, which holds a copy of each page for every commit that changed it."""
        try:
            return self._wal.stat().st_size
        except FileNotFoundError:
            return 0

    def read_files(self) -> None:
        """Read the database and its WAL without SQLite.

        Raises:
            OSError: the disk refuses.
        """
        for path in (self.path, self._wal):
            with suppress(FileNotFoundError), path.open("rb", buffering=0) as file:
                while file.read(_READ_BYTES):
                    pass  # the disk returns these bytes

    def close(self) -> None:
        """Close the connection."""
        self._db.close()

    def abandon(self) -> None:
        """Close the connection of a file that is removed next, without copying its WAL.

        SQLite copies it when the last connection that may write is closed.
        """
        with ExitStack() as stack:
            with suppress(sqlite3.Error):  # the file is gone or damaged: there is nothing to copy
                address = f"{self.path.absolute().as_uri()}?mode=ro"
                last = stack.enter_context(closing(sqlite3.connect(address, uri=True)))
                last.execute("SELECT seq FROM chunk LIMIT 1").fetchall()
            self._db.close()

    def write_back(self) -> None:
        """Copy the WAL to the file, except what a reader still uses."""
        self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def empty_wal(self) -> None:
        """Copy the WAL to the file, truncate it, and free the page cache: the segment stays idle after this.

        Writers on other connections wait only while it is truncated.
        """
        self.write_back()
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        self._db.execute("PRAGMA shrink_memory")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run a transaction; durable when it ends, except in a relaxed segment."""
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
        """Run a transaction that is durable when it ends, even in a relaxed segment."""
        self._db.execute("PRAGMA synchronous=FULL")
        try:
            with self.transaction():
                yield
        finally:
            if self._is_relaxed:
                self.relax()


class Closable(Protocol):
    """An open file."""

    def close(self) -> None:
        """Close it."""
        ...


F = TypeVar("F", bound=Closable)


class OpenFileCache(Generic[F]):
    """Least-recently-used cache of open files, by number."""

    def __init__(
        self,
        open_file: Callable[[int], F],
        before_close: Callable[[int, F], None] | None = None,
        *,
        most: int = MAX_OPEN,
    ) -> None:
        """Create an empty cache.

        Args:
            open_file: opens the file of a number.
            before_close: called with a file before it is closed to make room; must not raise.
            most: files that stay open.
        """
        self._open: Final = open_file
        self._before_close: Final = before_close
        self._most: Final = most
        self._files: Final[OrderedDict[int, F]] = OrderedDict()

    def get(self, number: int) -> F:
        """Return a file, opening it if needed; raises what ``open_file`` raises."""
        file = self._files.pop(number, None)
        self.put(number, self._open(number) if file is None else file)
        return self._files[number]

    def put(self, number: int, file: F) -> None:
        """Add an open file; the cache closes it from now on."""
        self._files[number] = file
        while len(self._files) > self._most:
            oldest, unused = self._files.popitem(last=False)
            if self._before_close is not None:
                self._before_close(oldest, unused)
            unused.close()

    def take(self, number: int) -> F | None:
        """Remove a file and return it, still open; ``None`` if it is not open."""
        return self._files.pop(number, None)

    def close(self) -> None:
        """Close all files."""
        while self._files:
            _, file = self._files.popitem()
            file.close()
