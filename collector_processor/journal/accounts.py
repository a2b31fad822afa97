"""In-memory accounts of the journal: the bytes that wait, by queue and by trace. Pure.

Used on the event loop. A row is *open* until it was forwarded, and *retained* while an agent trace in it may
still be analysed.

The age of a queue's oldest row is found without storing a time for each row: rows leave roughly in the order
in which they came, so the bytes that have left show which of the remaining rows is the oldest. Arrival times
are stored as marks, at most one a second; in a queue that grows for hours the marks are thinned out.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Container, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from collector_processor.journal.chunks import (
    ROW_OVERHEAD_BYTES,
    TRACES_A_STEP,
    Chunk,
    Entry,
    IndexEntry,
    JournalLimits,
    Queue,
    QueueLook,
    State,
    Totals,
    first_seq,
    segment_of,
)
from collector_processor.journal.recovery import RecoveredSegment
from collector_processor.journal.segment_accounts import RowFacts, SegmentAccounts
from collector_processor.otlp import RefusedError, Signal, Tenant, TraceKey

_FULL_RETRY_S: Final = 10.0
"""Retry delay sent to clients when the journal is full and the backend must catch up first."""
_BUSY_RETRY_S: Final = 1.0
"""Retry delay sent to clients when requests arrive faster than the disk can write."""
MAX_MARKS: Final = 1024
"""Bound on the marks of one queue; beyond it every second mark is dropped and their spacing doubles."""
_STEP_NS: Final = 1_000_000_000
_ROWS_AT_ONCE: Final = 256
_POSITIONS: Final = 0xFFFF_FFFF


@dataclass(slots=True)
class TraceRows:
    """Rows that hold an agent trace's spans and log records; ``Accounts`` records which of them are held."""

    key: TraceKey
    rows: dict[int, int] = field(default_factory=dict)
    """Rows with spans: seq → bytes of this trace."""
    logs: dict[int, int] = field(default_factory=dict)
    """Rows with log records: seq → bytes of this trace."""
    last_ns: int = 0
    """Arrival time of its newest row, Unix ns."""

    @property
    def size(self) -> int:
        """Bytes counted against ``max_retained_bytes``."""
        own = sum(self.rows.values()) + sum(self.logs.values())
        return own + ROW_OVERHEAD_BYTES * (len(self.rows) + len(self.logs))

    def seqs(self) -> Iterator[int]:
        """All its rows."""
        yield from self.rows
        yield from self.logs


class Accounts:
    """Sums and indexes over all rows; no method reads or writes a file."""

    def __init__(self, limits: JournalLimits) -> None:
        self._limits: Final = limits
        self.segments: Final = SegmentAccounts(limits.rest_s)
        self.traces: Final[OrderedDict[TraceKey, TraceRows]] = OrderedDict()
        """Agent traces, ordered by the arrival of their newest row, oldest first."""
        self._held: Final[defaultdict[TraceKey, set[int]]] = defaultdict(set)
        """Rows that wait for a verdict, by trace; traces without such rows are absent."""
        self.waiting: Final[defaultdict[Queue, Totals]] = defaultdict(Totals)
        """Open rows of each queue; ``bytes`` includes rows not committed yet."""
        self._ages: Final[defaultdict[Queue, QueueAge]] = defaultdict(QueueAge)
        self.last_seq = 0
        """The highest seq known to be durable."""
        self.open_bytes = 0
        self.uncommitted_bytes = 0
        self.retained_bytes = 0

    # Adding rows.

    def admit(self, entries: Iterable[Entry]) -> None:
        """Reserve space for rows.

        Raises:
            RefusedError: a limit would be exceeded; nothing has changed.
        """
        sizes: defaultdict[Queue, int] = defaultdict(int)
        for entry in entries:
            sizes[entry.queue] += entry.size
        total = sum(sizes.values())
        if self.uncommitted_bytes and self.uncommitted_bytes + total > self._limits.max_uncommitted_bytes:
            raise RefusedError(
                "requests arrive faster than the disk can store them: retry, or use a faster disk",
                retry_after_s=_BUSY_RETRY_S,
            )
        if self.open_bytes + total > self._limits.max_pending_bytes:
            raise RefusedError(
                "the journal is full: the backend accepts spans more slowly than they arrive",
                retry_after_s=_FULL_RETRY_S,
            )
        share = self._limits.max_pending_bytes * self._limits.max_queue_share
        for queue, size in sizes.items():
            waiting = self.waiting.get(queue)
            if (waiting.bytes if waiting else 0) + size > share:
                raise RefusedError(
                    f"this tenant's share of the journal is full ({queue.signal.value} not forwarded yet)",
                    retry_after_s=_FULL_RETRY_S,
                )
        self.uncommitted_bytes += total
        for entry in entries:
            self._open(entry.queue, 0, entry.size, entry.received_ns)

    def cancel(self, entries: Iterable[Entry]) -> None:
        """Undo ``admit``: the rows were not stored."""
        for entry in entries:
            self.uncommitted_bytes -= entry.size
            self._ages[entry.queue].take_back(entry.size)
            self._close(entry.queue, 0, entry.size)

    def stored(self, entry: Entry, seq: int, offset: int) -> Generator[None, None, Chunk]:
        """Record that an admitted row is durable; return it. Yields before every few traces in it.

        Args:
            entry: the row.
            seq: its number.
            offset: its offset in the segment's log.
        """
        notes = entry.traces
        for at in range(0, len(notes), TRACES_A_STEP):
            yield
            for note in notes[at : at + TRACES_A_STEP]:
                self._index(TraceKey(entry.tenant, note.trace_id), note.byte_count, seq, entry)
        self.uncommitted_bytes -= entry.size
        self.waiting[entry.queue].items += entry.items
        self.last_seq = max(self.last_seq, seq)
        segment = self.segments.at(segment_of(seq))
        segment.stored_bytes += entry.size
        segment.open_rows += 1
        segment.open_bytes += entry.size
        segment.rows[entry.queue].add(seq & _POSITIONS, offset, entry.size, entry.items, entry.state)
        return Chunk(
            seq=seq, queue=entry.queue, hops=entry.hops, items=entry.items, size=entry.size, body=entry.body
        )

    def _open(self, queue: Queue, items: int, size: int, received_ns: int) -> None:
        self._ages[queue].add(size, received_ns)
        totals = self.waiting[queue]
        totals.items += items
        totals.bytes += size
        self.open_bytes += size

    def _close(self, queue: Queue, items: int, size: int) -> None:
        totals = self.waiting[queue]
        totals.items -= items
        totals.bytes -= size
        self.open_bytes -= size
        if not totals.bytes:
            del self.waiting[queue]
            self._ages.pop(queue, None)

    def _index(self, key: TraceKey, size: int, seq: int, row: Entry | IndexEntry) -> None:
        trace = self.traces.get(key)
        if trace is None:
            trace = self.traces[key] = TraceRows(key=key)
        else:
            self.traces.move_to_end(key)
        (trace.rows if row.signal is Signal.TRACES else trace.logs)[seq] = size
        if row.state is State.HELD:
            self._held[trace.key].add(seq)
        trace.last_ns = max(trace.last_ns, row.received_ns)
        segment = self.segments.at(segment_of(seq))
        segment.index.add(seq, trace.key)  # the stored key, not an equal copy, to save memory
        segment.retained_bytes += size + ROW_OVERHEAD_BYTES
        self.retained_bytes += size + ROW_OVERHEAD_BYTES

    def restore(self, found: RecoveredSegment) -> None:
        """Add a segment that an earlier process wrote."""
        segment = self.segments.at(found.number)
        segment.is_active = False
        self.last_seq = max(self.last_seq, first_seq(found.number + 1) - 1)
        segment.version, segment.rows, segment.rewritten = found.version, found.rows, found.rewritten
        segment.stored_bytes = found.stored_bytes
        segment.open_rows = found.open_rows
        segment.open_bytes = sum(totals.bytes for totals in found.waiting.values())
        for queue, totals in found.waiting.items():
            self._open(queue, totals.items, totals.bytes, totals.oldest_ns)
        for entry in found.index:
            note = entry.note
            self._index(TraceKey(entry.tenant, note.trace_id), note.byte_count, entry.seq, entry)

    def pending(
        self, queue: Queue, after_seq: int, max_bytes: int, skip: Container[int]
    ) -> tuple[list[RowFacts], int, bool]:
        """Return a queue's next pending rows, the last seq examined, and whether there may be more.

        At most ``_ROWS_AT_ONCE`` rows and ``max_bytes``, but at least one row if there is one.
        """
        found: list[RowFacts] = []
        used, upto = 0, after_seq
        for examined, row in enumerate(self.segments.pending(queue, after_seq)):
            is_skipped = row.seq in skip
            if examined == _ROWS_AT_ONCE or (not is_skipped and used and used + row.size > max_bytes):
                return found, upto, True
            if not is_skipped:
                found.append(row)
                used += row.size
            upto = row.seq
        return found, max(upto, self.last_seq), False

    def look(self, signal: Signal) -> QueueLook:
        """Return the state of one signal's queue: bytes waiting and the arrival time of its oldest row."""
        limits = self._limits
        mine = [queue for queue in self.waiting if queue.signal is signal]
        sizes = [self.waiting[queue].bytes for queue in mine]
        ages = (self._ages[queue].oldest_ns for queue in mine)
        share = limits.max_pending_bytes * limits.max_queue_share
        return QueueLook(
            size_bytes=sum(sizes),
            capacity_bytes=limits.max_pending_bytes,
            fullness=max(max(sizes, default=0) / share, self.open_bytes / limits.max_pending_bytes),
            oldest_ns=min((age for age in ages if age is not None), default=None),
        )

    # Removing rows.

    def settled(self, chunk: Chunk) -> None:
        """Record that a row was forwarded or permanently rejected."""
        self._ages[chunk.queue].remove(chunk.size)
        self._close(chunk.queue, chunk.items, chunk.size)
        self.segments.raise_to(chunk.queue, chunk.seq, State.DONE)
        segment = self.segments.at(segment_of(chunk.seq))
        segment.open_rows -= 1
        segment.open_bytes -= chunk.size

    def forget(self, key: TraceKey) -> TraceRows:
        """Remove a trace from the index and return its rows, which may still have to be forwarded."""
        self._held.pop(key, None)
        trace = self.traces.pop(key, None) or TraceRows(key=key)
        for seq, size in (*trace.rows.items(), *trace.logs.items()):
            segment = self.segments.at(segment_of(seq))
            segment.index.discard(seq, key)
            segment.retained_bytes -= size + ROW_OVERHEAD_BYTES
        self.retained_bytes -= trace.size
        return trace

    def holder(self, seq: int) -> TraceKey | None:
        """Return the trace that a held row belongs to; ``None`` if the row is not held."""
        keys = self.segments.traces_in(seq)
        return next((key for key in keys if seq in self._held.get(key, ())), None)

    def held(self, key: TraceKey) -> frozenset[int]:
        """Return the trace's held rows."""
        return frozenset(self._held.get(key, ()))

    def release(self, key: TraceKey, seqs: Iterable[int]) -> None:
        """Record that rows of a trace are being released: they are no longer held."""
        held = self._held.get(key, set())
        held.difference_update(seqs)
        if not held:
            self._held.pop(key, None)

    def released(self, queue: Queue, seqs: Iterable[int]) -> None:
        """Record that rows were released durably: they may be forwarded."""
        for seq in seqs:
            self.segments.raise_to(queue, seq, State.PENDING)

    @property
    def is_over_quota(self) -> bool:
        """Whether the retained traces exceed their limits."""
        limits = self._limits
        too_many = len(self.traces) > limits.max_retained_traces
        return too_many or self.retained_bytes > limits.max_retained_bytes

    def overdue(self, now_ns: int) -> list[TraceKey]:
        """Return the traces to evict, oldest first: those too old or over the limits on count and bytes."""
        limits = self._limits
        oldest_ns = now_ns - int(limits.max_retained_age_s * 1e9)
        too_many = len(self.traces) - limits.max_retained_traces
        too_much = self.retained_bytes - limits.max_retained_bytes
        found: list[TraceKey] = []
        for key, trace in self.traces.items():
            if trace.last_ns >= oldest_ns and too_many <= 0 and too_much <= 0:
                break
            found.append(key)
            too_many -= 1
            too_much -= trace.size
        return found


@dataclass(slots=True)
class QueueAge:
    """Marks of one queue; positions are counted in bytes, not rows."""

    came: int = 0
    went: int = 0
    step_ns: int = _STEP_NS
    marks: deque[tuple[int, int]] = field(default_factory=deque)
    """Arrival time in Unix ns, and the bytes that had arrived before it."""

    def add(self, size: int, received_ns: int) -> None:
        """Record that ``size`` bytes arrived."""
        if not self.marks or received_ns - self.marks[-1][0] >= self.step_ns:
            self.marks.append((received_ns, self.came))
            if len(self.marks) > MAX_MARKS:
                self._thin()
        self.came += size

    def take_back(self, size: int) -> None:
        """Undo the newest ``add``: the bytes were not stored."""
        self.came -= size

    def remove(self, size: int) -> None:
        """Record that ``size`` bytes left."""
        self.went += size
        while len(self.marks) > 1 and self.marks[1][1] <= self.went:
            self.marks.popleft()
        if self.went >= self.came:
            self.marks.clear()

    @property
    def oldest_ns(self) -> int | None:
        """Arrival time of the oldest remaining row, as precise as the marks; ``None`` for an empty queue."""
        return self.marks[0][0] if self.marks and self.came > self.went else None

    def _thin(self) -> None:
        self.marks = deque(mark for place, mark in enumerate(self.marks) if place % 2 == 0)
        self.step_ns *= 2


class KnownTraces:
    """Trace ids of one tenant's agent traces."""

    def __init__(self, traces: Container[TraceKey], tenant: Tenant) -> None:
        self._traces: Final = traces
        self._tenant: Final = tenant

    def __contains__(self, trace_id: object) -> bool:
        return (self._tenant, trace_id) in self._traces
