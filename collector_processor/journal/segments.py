"""One journal segment: an SQLite file. Synchronous; used from one thread at a time.

WAL, so that readers never wait for the writer. Bodies have a table of their
own, so that changing a row's state never rewrites its body. ``auto_vacuum`` is
incremental: a compacted segment gives its pages back to the file system.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import cache
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Final

from collector_processor.cutting import extract
from collector_processor.journal.chunks import (
    Backlog,
    Chunk,
    CorruptBodyError,
    Entry,
    IndexEntry,
    JournalError,
    Queue,
    SegmentSummary,
    State,
    Totals,
    Wanted,
    first_seq,
    pack_body,
    unpack_body,
)
from collector_processor.journal.register import neighbours
from collector_processor.notes import TraceNote, pack_notes, unpack_notes
from collector_processor.otlp import Signal, Tenant
from semconv.model import TraceId

logger = logging.getLogger(__name__)

SCHEMA_VERSION: Final = 1
APPLICATION_ID: Final = 0x626C6D65
"""Says in the file's header whose it is ("blme")."""
_CHECKPOINT_PAGES: Final = 32_768
"""A WAL of 128 MiB, twice what a segment may have when it takes its last row: so that nothing is copied from
there while somebody waits for a commit, which takes tens of milliseconds."""
_BUSY_MS: Final = 10_000
_ROWS_AT_ONCE: Final = 256
_STATEMENT_ROWS: Final = 32
"""How many rows one statement inserts, at most; else a smaller power of two, so that they are few."""
_HEAVY_BYTES: Final = 16 << 10
"""A row with more is inserted by itself: a statement keeps a copy of what it was last told."""
_QUIET_CACHE_KIB: Final = 256
"""Pages kept in memory of a segment that takes no more rows; SQLite would keep 2 MiB for each connection."""
_PAGES_AT_ONCE: Final = 1024
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


class SegmentFile:
    """One connection to one segment."""

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
        version = self._pragma("user_version")
        if version > SCHEMA_VERSION:
            raise JournalError(
                f"the journal ({self.path.name}) was written by a newer blamespan (schema {version}, "
                f"this one knows {SCHEMA_VERSION}): upgrade, or give it another data directory"
            )
        if version == 0:
            self._create()
        elif self._pragma("application_id") != APPLICATION_ID:
            raise JournalError(f"{self.path.name} is an SQLite file, but no journal of ours")
        self._page_bytes = self._pragma("page_size")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute(f"PRAGMA wal_autocheckpoint={_CHECKPOINT_PAGES}")
        # Some builds write zeros over what is deleted: a compaction gives the space back right after.
        self._db.execute("PRAGMA secure_delete=OFF")

    def _create(self) -> None:
        self._db.execute("PRAGMA auto_vacuum=INCREMENTAL")  # before the first page is written
        self._db.execute("PRAGMA journal_mode=WAL")
        header = f"PRAGMA application_id={APPLICATION_ID};PRAGMA user_version={SCHEMA_VERSION};"
        self._db.executescript(f"BEGIN;{_SCHEMA}{header}COMMIT;")

    def _pragma(self, name: str) -> int:
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
        return self._pragma("page_count") * self._page_bytes

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

    # Writing: inside a transaction.

    def insert(self, rows: Sequence[tuple[int, Entry, tuple[int, bytes]]]) -> None:
        """Add rows: seq, entry, packed body."""
        self._add(
            "chunk",
            [
                (
                    seq,
                    e.signal.value,
                    e.tenant,
                    ",".join(e.hops),
                    e.received_ns,
                    e.items,
                    e.size,
                    e.state.value,
                )
                for seq, e, _ in rows
            ],
        )
        self._add("body", [(seq, *packed) for seq, _, packed in rows])
        self._add(
            "trace",
            [
                (seq, n.trace_id, n.span_count, n.byte_count, n.carrier_count, pack_notes(n.spans))
                for seq, entry, _ in rows
                for n in entry.traces
            ],
        )

    def _add(self, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert many rows a statement: at each, the thread gives the interpreter away and waits for it."""
        for some in _together(rows):
            values = tuple(chain.from_iterable(some))
            self._db.execute(_insertion(table, len(some[0]), len(some)), values)

    def take_over(self, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Add rows of one of the tables as they stand in another segment."""
        for row in rows:
            places = ", ".join("?" * len(row))
            self._db.execute(f"INSERT INTO {table} VALUES ({places})", row)  # noqa: S608 - our own table names

    def mark(self, seqs: Iterable[int], state: State) -> None:
        """Raise rows to a state; those that are gone, or there already, are passed over."""
        for first, behind in neighbours(sorted(seqs)):
            self._db.execute(
                "UPDATE chunk SET state = ?1 WHERE seq >= ?2 AND seq < ?3 AND state < ?1",
                (state.value, first, behind),
            )

    def forget(self, trace_id: TraceId, seqs: Iterable[int]) -> None:
        """Strike a trace out of the index of these rows."""
        self._db.executemany(
            "DELETE FROM trace WHERE seq = ? AND trace_id = ?", [(seq, trace_id) for seq in seqs]
        )

    def rewrite(self, seq: int, body: bytes) -> None:
        """Replace the body of a held row and let it go on; any other row is left alone."""
        changed = self._db.execute(
            "UPDATE chunk SET state = ? WHERE seq = ? AND state = ?",
            (State.PENDING.value, seq, State.HELD.value),
        )
        if changed.rowcount:
            self._db.execute(
                "UPDATE body SET checksum = ?, packed = ? WHERE seq = ?", (*pack_body(body), seq)
            )

    # Reading.

    def body(self, seq: int) -> bytes | None:
        """Return a row's body; ``None`` if there is no such row.

        Raises:
            CorruptBodyError: its bytes are damaged.
        """
        try:
            row = self._db.execute("SELECT checksum, packed FROM body WHERE seq = ?", (seq,)).fetchone()
        except sqlite3.DatabaseError as error:
            raise CorruptBodyError(str(error)) from error
        return unpack_body(*row) if row else None

    def waiting(self, wanted: Wanted) -> Backlog:
        """Read a queue's pending rows in order, until ``max_bytes`` of bodies, at least one."""
        queue = wanted.queue
        chunks, lost = list[Chunk](), list[Chunk]()
        used, upto = 0, wanted.after_seq
        rows = self._db.execute(
            "SELECT seq, hops, items, size FROM chunk"
            " WHERE seq > ? AND seq <= ? AND state = ? AND signal = ? AND tenant = ? ORDER BY seq LIMIT ?",
            (
                wanted.after_seq,
                wanted.upto_seq,
                State.PENDING.value,
                queue.signal.value,
                queue.tenant,
                _ROWS_AT_ONCE,
            ),
        ).fetchall()
        for seq, hops, items, size in rows:
            if seq not in wanted.skip:
                if used and used + size > wanted.max_bytes:
                    return Backlog(chunks=tuple(chunks), lost=tuple(lost), upto_seq=upto, is_more=True)
                chunk = self._chunk(queue, seq, hops, items, size)
                (chunks if chunk.body else lost).append(chunk)
                used += size
            upto = seq
        is_more = len(rows) == _ROWS_AT_ONCE
        return Backlog(chunks=tuple(chunks), lost=tuple(lost), upto_seq=upto, is_more=is_more)

    def _chunk(self, queue: Queue, seq: int, hops: str, items: int, size: int) -> Chunk:
        try:
            body = self.body(seq) or b""
        except CorruptBodyError as error:
            logger.error("journal row is damaged", extra={"seq": seq, "items": items, "reason": str(error)})  # noqa: TRY400 - the reason is all there is
            body = b""
        split = tuple(hops.split(",")) if hops else ()
        return Chunk(seq=seq, queue=queue, hops=split, items=items, size=size, body=body)

    def states(self) -> dict[int, bool]:
        """Return of each row whether it is done."""
        rows = self._db.execute("SELECT seq, state FROM chunk")
        return {seq: state == State.DONE.value for seq, state in rows}

    def summary(self) -> SegmentSummary:
        """Count what is there; read the index."""
        waiting: dict[Queue, Totals] = {}
        rows = open_bytes = 0
        for signal, tenant, count, items, size in self._db.execute(
            "SELECT signal, tenant, count(*), sum(items), sum(size) FROM chunk"
            " WHERE state != ? GROUP BY signal, tenant",
            (State.DONE.value,),
        ):
            waiting[Queue(Signal(signal), Tenant(tenant))] = Totals(items=items, bytes=size)
            rows += count
            open_bytes += size
        stored = self._db.execute("SELECT coalesce(sum(size), 0) FROM chunk").fetchone()[0]
        return SegmentSummary(
            number=self.number,
            stored_bytes=stored,
            open_rows=rows,
            open_bytes=open_bytes,
            waiting=waiting,
            index=tuple(self._index()),
        )

    def _index(self) -> Iterator[IndexEntry]:
        for (
            seq,
            trace_id,
            spans,
            size,
            carriers,
            notes,
            signal,
            tenant,
            received_ns,
            state,
        ) in self._db.execute(
            "SELECT trace.*, signal, tenant, received_ns, state"
            " FROM trace JOIN chunk USING (seq) ORDER BY seq"
        ):
            yield IndexEntry(
                tenant=Tenant(tenant),
                note=TraceNote(
                    trace_id=TraceId(trace_id),
                    span_count=spans,
                    byte_count=size,
                    is_agent=True,
                    carrier_count=carriers,
                    spans=unpack_notes(notes),
                ),
                seq=seq,
                signal=Signal(signal),
                received_ns=received_ns,
                state=State(state),
            )

    # Giving back space.

    def compact(self, retained: Mapping[int, frozenset[TraceId]]) -> int:
        """Drop what nobody needs any more; return the bytes that rows still count for.

        Rows that are done go, but for the spans of ``retained`` traces in them.
        Each group of rows is a transaction: the writer never waits long.
        """
        after = first_seq(self.number)
        while rows := self._db.execute(
            "SELECT seq, signal FROM chunk WHERE seq > ? AND state = ? ORDER BY seq LIMIT 64",
            (after, State.DONE.value),
        ).fetchall():
            after = rows[-1][0]
            with self.transaction():
                for seq, signal in rows:
                    self._trim(seq, Signal(signal), retained.get(seq, frozenset()))
        while self._pragma("freelist_count"):
            # as a script: it steps once for each page, which execute() does not follow
            self._db.executescript(f"PRAGMA incremental_vacuum({_PAGES_AT_ONCE})")
        self.empty_wal()
        size: int = self._db.execute("SELECT coalesce(sum(size), 0) FROM chunk").fetchone()[0]
        return size

    def _trim(self, seq: int, signal: Signal, trace_ids: frozenset[TraceId]) -> None:
        try:
            body = self.body(seq) if trace_ids else None
        except CorruptBodyError:  # was counted when it was to be forwarded
            body = None
        if body is None:
            for table in ("chunk", "body", "trace"):
                self._db.execute(f"DELETE FROM {table} WHERE seq = ?", (seq,))  # noqa: S608 - our own table names
            return
        kept = extract(signal, body, trace_ids)
        if len(kept) < len(body):
            self._db.execute("UPDATE chunk SET size = size - ? WHERE seq = ?", (len(body) - len(kept), seq))
            self._db.execute(
                "UPDATE body SET checksum = ?, packed = ? WHERE seq = ?", (*pack_body(kept), seq)
            )


def _together(rows: Iterable[tuple[Any, ...]]) -> Iterator[Sequence[tuple[Any, ...]]]:
    """Cut rows, in order, into those that one statement inserts."""
    for is_heavy, alike in groupby(rows, _is_heavy):
        left = list(alike)
        while left:
            count = 1 if is_heavy else min(_STATEMENT_ROWS, 1 << (len(left).bit_length() - 1))
            yield left[:count]
            left = left[count:]


def _is_heavy(row: tuple[Any, ...]) -> bool:
    return isinstance(row[-1], bytes) and len(row[-1]) > _HEAVY_BYTES


@cache
def _insertion(table: str, columns: int, rows: int) -> str:
    """Return one of few statements, so that each stays prepared."""
    places = "(" + ", ".join("?" * columns) + ")"
    return f"INSERT INTO {table} VALUES {', '.join([places] * rows)}"  # noqa: S608 - our own table names
