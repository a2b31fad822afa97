"""Rows of one journal segment: insert, mark, read, compact. Synchronous; used from one thread at a time.

Rows are inserted with few statements of many rows each: every statement releases the interpreter lock and
waits to get it back. Each number of rows is a prepared statement of its own, and a prepared statement keeps a
copy of its last parameters; so only powers of two are used, which bounds the copies.
"""

from __future__ import annotations

import logging
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Final

from collector_processor.core.disk import is_refusal
from collector_processor.journal.chunks import (
    Backlog,
    Chunk,
    CorruptBodyError,
    Entry,
    IndexEntry,
    Queue,
    SegmentSummary,
    State,
    Totals,
    Wanted,
    first_seq,
    pack_body,
    ranges,
    unpack_body,
)
from collector_processor.journal.segment_connection import SegmentConnection
from collector_processor.otlp import Signal, Tenant
from collector_processor.wire.by_trace import extract
from collector_processor.wire.facts import TraceNote, pack_notes, unpack_notes
from semconv.model import TraceId

logger = logging.getLogger(__name__)
_TRIES: Final = 8
"""Reads of a row before it counts as damaged: SQLite reports damage for disk read errors too."""
_MAX_REFUSALS: Final = 300
"""Reads of a row, about a second apart, that the disk may refuse before the row is given up as damaged."""
_ROWS_AT_ONCE: Final = 256
_PAGES_AT_ONCE: Final = 1024
_STATEMENT_ROWS: Final = 32
"""Bound on the rows of one statement; smaller batches are powers of two too."""
_HEAVY_BYTES: Final = 16 << 10
"""Bytes above which a row is inserted alone: a statement keeps a copy of its last parameters."""


class SegmentFile(SegmentConnection):
    """One connection to one segment, and the rows in it."""

    def __init__(self, path: Path, number: int) -> None:
        """Open the segment, or create it; raises what ``SegmentConnection`` raises."""
        super().__init__(path, number)
        self._refusals: Final[Counter[int]] = Counter()
        """Consecutive reads of a row that the disk refused."""

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
        """Insert rows, many in a statement."""
        for some in insert_batches(rows):
            values = tuple(chain.from_iterable(some))
            self._db.execute(insert_statement(table, len(some[0]), len(some)), values)

    def take_over(self, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Copy rows of one of the tables from another segment."""
        for row in rows:
            places = ", ".join("?" * len(row))
            self._db.execute(f"INSERT INTO {table} VALUES ({places})", row)  # noqa: S608 - our own table names

    def mark(self, seqs: Iterable[int], state: State) -> None:
        """Raise rows to a state; rows that are missing or already there are skipped."""
        for first, behind in ranges(sorted(seqs)):
            self._db.execute(
                "UPDATE chunk SET state = ?1 WHERE seq >= ?2 AND seq < ?3 AND state < ?1",
                (state.value, first, behind),
            )

    def forget(self, trace_id: TraceId, seqs: Iterable[int]) -> None:
        """Remove a trace from the index of the given rows."""
        self._db.executemany(
            "DELETE FROM trace WHERE seq = ? AND trace_id = ?", [(seq, trace_id) for seq in seqs]
        )

    def rewrite(self, seq: int, body: bytes) -> None:
        """Replace the body of a held row and release it; rows that are not held are left alone."""
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
            sqlite3.OperationalError: the disk refuses; a later read may succeed.
            OSError: as before, where SQLite reports the disk's error as damage.
        """
        try:
            rows = self._fetch("SELECT checksum, packed FROM body WHERE seq = ?", (seq,))
        except sqlite3.DatabaseError as error:
            if is_refusal(error):
                raise
            raise CorruptBodyError(str(error)) from error
        return unpack_body(*rows[0]) if rows else None

    def _fetch(self, sql: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """Run a query; repeat it if SQLite reports damage, as it also does after a disk read error.

        Raises:
            sqlite3.OperationalError: the disk refuses; a later read may succeed.
            OSError: the same, where SQLite reports damage.
            sqlite3.DatabaseError: the file is damaged.
        """
        seq = values[0]
        for tries_left in reversed(range(_TRIES)):
            try:
                rows = self._db.execute(sql, values).fetchall()
            except sqlite3.DatabaseError as error:
                if is_refusal(error):
                    raise
                self._check_disk(seq, error)
                if not tries_left:
                    raise
            else:
                self._refusals.pop(seq, None)
                return rows
        raise AssertionError("unreachable")

    def _check_disk(self, seq: int, damage: sqlite3.DatabaseError) -> None:
        """Raise if the disk refuses to read the files completely; if it does not, they are damaged."""
        try:
            self.read_files()
        except OSError as error:
            self._refusals[seq] += 1
            if self._refusals[seq] > _MAX_REFUSALS:
                raise damage from error
            raise

    def waiting(self, wanted: Wanted) -> Backlog:
        """Read a queue's pending rows in order, up to ``max_bytes`` of bodies but at least one."""
        queue = wanted.queue
        chunks, lost = list[Chunk](), list[Chunk]()
        used, upto = 0, wanted.after_seq
        rows = self._fetch(
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
        )
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
            logger.error(  # noqa: TRY400 - the reason is all there is to say
                "journal row is damaged: its items are lost",
                extra={"seq": seq, "items": items, "reason": str(error)},
            )
            body = b""
        split = tuple(hops.split(",")) if hops else ()
        return Chunk(seq=seq, queue=queue, hops=split, items=items, size=size, body=body)

    def states(self) -> dict[int, bool]:
        """Return, for each row, whether it is done."""
        rows = self._db.execute("SELECT seq, state FROM chunk")
        return {seq: state == State.DONE.value for seq, state in rows}

    def summary(self) -> SegmentSummary:
        """Count the rows and read the index."""
        waiting: dict[Queue, Totals] = {}
        rows = open_bytes = 0
        for signal, tenant, count, items, size, oldest_ns in self._db.execute(
            "SELECT signal, tenant, count(*), sum(items), sum(size), min(received_ns) FROM chunk"
            " WHERE state != ? GROUP BY signal, tenant",
            (State.DONE.value,),
        ):
            queue = Queue(Signal(signal), Tenant(tenant))
            waiting[queue] = Totals(items=items, bytes=size, oldest_ns=oldest_ns)
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

    # Reclaiming space.

    def compact(self, retained: Mapping[int, frozenset[TraceId]]) -> int:
        """Drop rows and spans that are no longer needed; return the counted bytes of the remaining rows.

        Of rows that are done, only the spans of ``retained`` traces stay. Each group of rows is a
        transaction, so that the writer never waits long.
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
        while self.pragma("freelist_count"):
            # as a script: it steps once for each page, and execute() stops after the first step
            self._db.executescript(f"PRAGMA incremental_vacuum({_PAGES_AT_ONCE})")
        self.empty_wal()
        size: int = self._db.execute("SELECT coalesce(sum(size), 0) FROM chunk").fetchone()[0]
        return size

    def _trim(self, seq: int, signal: Signal, trace_ids: frozenset[TraceId]) -> None:
        try:
            body = self.body(seq) if trace_ids else None
        except CorruptBodyError:  # counted as lost when it is due to be forwarded
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


def insert_batches(rows: Iterable[tuple[Any, ...]]) -> Iterator[Sequence[tuple[Any, ...]]]:
    """Split rows, in order, into batches of one statement each."""
    for is_heavy, alike in groupby(rows, _is_heavy):
        left = list(alike)
        while left:
            count = 1 if is_heavy else min(_STATEMENT_ROWS, 1 << (len(left).bit_length() - 1))
            yield left[:count]
            left = left[count:]


def _is_heavy(row: tuple[Any, ...]) -> bool:
    return isinstance(row[-1], bytes) and len(row[-1]) > _HEAVY_BYTES


@cache
def insert_statement(table: str, columns: int, rows: int) -> str:
    """Return the INSERT statement for a number of rows; cached, so that it stays prepared."""
    places = "(" + ", ".join("?" * columns) + ")"
    return f"INSERT INTO {table} VALUES {', '.join([places] * rows)}"  # noqa: S608 - our own table names
