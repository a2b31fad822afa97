"""One journal segment: which rows are in it. Synchronous; used from one thread at a time."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from collector_processor.cutting import extract
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
    unpack_body,
)
from collector_processor.journal.connection import SegmentConnection
from collector_processor.journal.insertion import insertion, together
from collector_processor.journal.register import neighbours
from collector_processor.notes import TraceNote, pack_notes, unpack_notes
from collector_processor.otlp import Signal, Tenant
from collector_processor.stores import is_refusal
from semconv.model import TraceId

logger = logging.getLogger(__name__)

_ROWS_AT_ONCE: Final = 256
_PAGES_AT_ONCE: Final = 1024


class SegmentFile(SegmentConnection):
    """One connection to one segment, and the rows in it."""

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
        for some in together(rows):
            values = tuple(chain.from_iterable(some))
            self._db.execute(insertion(table, len(some[0]), len(some)), values)

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
            sqlite3.OperationalError: the disk refuses, which is no damage: it may be read later.
        """
        try:
            row = self._db.execute("SELECT checksum, packed FROM body WHERE seq = ?", (seq,)).fetchone()
        except sqlite3.DatabaseError as error:
            if is_refusal(error):
                raise
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
        while self.pragma("freelist_count"):
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
