"""Records and limits of the journal. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from collector_processor.otlp import CollectorError, RefusedError, Signal, Tenant, TraceKey
from collector_processor.wire.facts import TraceArrival, TraceNote
from semconv.record import record

MEBIBYTE: Final = 1 << 20
ROW_OVERHEAD_BYTES: Final = 256
"""Bytes counted for each row besides its body, so that the limits also bound many tiny requests."""

TRACES_A_STEP: Final = 4
"""Traces of a row that are handled in one step: some tens of microseconds."""


class JournalError(CollectorError):
    """The journal cannot be opened; the message says why and what to do."""


class DiskFullError(RefusedError):
    """The disk has no room: space must be freed first."""


class CorruptBodyError(CollectorError):
    """The stored bytes of a body are damaged."""


class State(IntEnum):
    """State of a row; it never decreases."""

    HELD = 0
    """Waits for a verdict before it is forwarded (hold mode)."""
    PENDING = 1
    """Waits to be forwarded."""
    DONE = 2
    """Forwarded, or permanently rejected; kept only while a trace in it may be analysed."""


class Queue(NamedTuple):
    """A signal of a tenant; queues are forwarded independently."""

    signal: Signal
    tenant: Tenant


@record
class Entry:
    """A row to be stored."""

    signal: Signal
    tenant: Tenant
    hops: tuple[str, ...]
    received_ns: int
    items: int
    """Spans, log records or data points."""
    body: bytes = field(repr=False)
    state: State = State.PENDING
    traces: tuple[TraceNote, ...] = ()
    """The agent traces in it, indexed by trace id."""

    @property
    def queue(self) -> Queue:
        """The queue that forwards it."""
        return Queue(self.signal, self.tenant)

    @property
    def size(self) -> int:
        """Bytes counted against the limits."""
        return len(self.body) + ROW_OVERHEAD_BYTES


@record
class Chunk:
    """A stored row, with its body in memory."""

    seq: int
    """Ascending over the lifetime of the journal; the upper 32 bits are the segment's number."""
    queue: Queue
    hops: tuple[str, ...]
    items: int
    size: int
    """Bytes counted against the limits."""
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """Rows read back for forwarding, and rows that could not be read."""

    chunks: tuple[Chunk, ...]
    lost: tuple[Chunk, ...]
    """Rows whose bytes are damaged; their ``body`` is empty."""
    upto_seq: int
    """The highest seq that was examined."""
    is_more: bool
    """Whether there may be further rows."""


@dataclass(slots=True)
class Totals:
    """Items and bytes of a queue's open rows."""

    items: int = 0
    bytes: int = 0
    oldest_ns: int = 0
    """Arrival time of the oldest row, Unix ns; known only for a reopened segment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLook:
    """Current state of one signal's queue."""

    size_bytes: int
    """Bytes waiting, of all tenants."""
    capacity_bytes: int
    """Bytes for all signals together; beyond it requests are refused."""
    fullness: float
    """0 to 1; at 1 the fullest tenant's requests are refused."""
    oldest_ns: int | None
    """Arrival time of the oldest item, Unix ns; ``None`` if nothing waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexEntry:
    """One row's part of one agent trace."""

    tenant: Tenant
    note: TraceNote
    seq: int
    signal: Signal
    received_ns: int
    state: State

    @property
    def arrival(self) -> TraceArrival:
        """The arrival as it was reported to the slow lane when the row was stored."""
        return TraceArrival(
            seq=self.seq,
            key=TraceKey(self.tenant, self.note.trace_id),
            received_ns=self.received_ns,
            byte_count=self.note.byte_count,
            notes=self.note.spans,
            is_held=self.state is State.HELD,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalLimits:
    """Bounds, in bytes before compression unless said otherwise."""

    max_pending_bytes: int = 2048 * MEBIBYTE
    """Bytes not forwarded yet, over all queues; requests beyond it are refused."""
    max_queue_share: float = 0.5
    """Share of ``max_pending_bytes`` for one signal of one tenant; a slow tenant cannot fill the journal."""
    max_uncommitted_bytes: int = 128 * MEBIBYTE
    """Bytes in memory that wait for a commit."""
    max_retained_bytes: int = 1024 * MEBIBYTE
    """Bytes of agent traces kept for analysis; beyond it the oldest traces are evicted."""
    max_retained_traces: int = 200_000
    max_retained_age_s: float = 86_400.0
    segment_bytes: int = 64 * MEBIBYTE
    """Size on disk, after compression, at which a new segment is begun; segments are deleted whole."""
    segment_age_s: float = 300.0
    rest_s: float = 5.0
    """Seconds between a segment's last row and its compaction: it may be deleted as a whole first."""
    group_bytes: int = 16 * MEBIBYTE
    """Bound on the total size of the bodies in one commit."""


def segment_of(seq: int) -> int:
    """Return the number of the segment that holds row ``seq``."""
    return seq >> 32


def by_segment(seqs: Iterable[int]) -> dict[int, tuple[int, ...]]:
    """Return rows by the number of their segment, in the given order."""
    found: defaultdict[int, list[int]] = defaultdict(list)
    for seq in seqs:
        found[segment_of(seq)].append(seq)
    return {number: tuple(those) for number, those in found.items()}


_COMMIT_TRACES: Final = 4_000
"""Agent traces in one commit of a request that has several rows; it takes some tens of milliseconds."""


def commits_of(rows: Sequence[Entry]) -> Iterator[tuple[Entry, ...]]:
    """Split the rows of one request, in order, into commits; a larger row is alone in one."""
    part: list[Entry] = []
    traces = 0
    for row in rows:
        traces += len(row.traces)
        if part and traces > _COMMIT_TRACES:
            yield tuple(part)
            part, traces = [], len(row.traces)
        part.append(row)
    if part:
        yield tuple(part)


def first_seq(segment: int) -> int:
    """Return the sequence number that precedes those of a segment's rows."""
    return segment << 32
