"""What the journal stores and gives back, and how a body looks on disk. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple
from zlib import crc32

import lz4.block

from collector_processor.notes import TraceNote
from collector_processor.otlp import CollectorError, Signal, Tenant

MEBIBYTE: Final = 1 << 20
ROW_OVERHEAD_BYTES: Final = 256
"""Counted for each row beside its body, so that a flood of tiny requests is bounded too."""


class JournalError(CollectorError):
    """The journal cannot be opened; the message says why and what to do."""


class CorruptBodyError(CollectorError):
    """A stored body is not what was written."""


class State(IntEnum):
    """What still has to happen to a row. It only ever goes up."""

    HELD = 0
    """Waits for a verdict before it is forwarded (hold mode)."""
    PENDING = 1
    """To be forwarded."""
    DONE = 2
    """Forwarded, or rejected for good: kept at most for analysis."""


class Queue(NamedTuple):
    """What is forwarded apart from all else."""

    signal: Signal
    tenant: Tenant


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One row to be."""

    signal: Signal
    tenant: Tenant
    hops: tuple[str, ...]
    received_ns: int
    items: int
    """Spans, log records or data points."""
    body: bytes = field(repr=False)
    state: State = State.PENDING
    traces: tuple[TraceNote, ...] = ()
    """The agent traces in it, to be found again by id."""

    @property
    def queue(self) -> Queue:
        """Where it is forwarded."""
        return Queue(self.signal, self.tenant)

    @property
    def size(self) -> int:
        """Bytes it counts for against limits."""
        return len(self.body) + ROW_OVERHEAD_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """One row as it is stored, with its body in memory."""

    seq: int
    """Ascending over the journal's whole life; the upper half is the segment's number."""
    queue: Queue
    hops: tuple[str, ...]
    items: int
    size: int
    """Bytes it counts for against limits."""
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which pending rows to read back."""

    queue: Queue
    after_seq: int
    upto_seq: int
    max_bytes: int
    """At least one row comes, if there is one."""
    skip: Container[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """Rows read back for forwarding, and what could not be read."""

    chunks: tuple[Chunk, ...] = ()
    lost: tuple[Chunk, ...] = ()
    """Rows whose bytes are damaged; their ``body`` is empty."""
    upto_seq: int = 0
    """The highest row looked at."""
    is_more: bool = False
    """Whether there may be rows behind it."""


@dataclass(slots=True)
class Totals:
    """What waits in the journal."""

    items: int = 0
    bytes: int = 0
    oldest_ns: int = 0
    """Arrival time of the oldest row, Unix ns; known only for a reopened segment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLook:
    """The current queue of one signal."""

    size_bytes: int
    """Of all tenants."""
    capacity_bytes: int
    """Bytes for all signals together; beyond it requests are refused."""
    fullness: float
    """0 to 1; at 1 the fullest tenant's requests are refused."""
    oldest_ns: int | None
    """Arrival time of the oldest item, Unix ns; ``None`` if nothing waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexEntry:
    """One row's part of one agent trace, as the journal keeps it."""

    tenant: Tenant
    note: TraceNote
    seq: int
    signal: Signal
    received_ns: int
    state: State


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSummary:
    """What a segment holds when it is opened again."""

    number: int
    stored_bytes: int
    open_rows: int
    open_bytes: int
    waiting: Mapping[Queue, Totals]
    """Pending and held, for each queue."""
    index: tuple[IndexEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalLimits:
    """Bounds, in bytes before compression unless said otherwise."""

    max_pending_bytes: int = 2048 * MEBIBYTE
    """Not yet forwarded, over all queues; beyond it requests are refused."""
    max_queue_share: float = 0.5
    """Of ``max_pending_bytes``, what one signal of one tenant may take: it fills only its own."""
    max_uncommitted_bytes: int = 128 * MEBIBYTE
    """In memory on the way to the disk."""
    max_retained_bytes: int = 1024 * MEBIBYTE
    """Of agent traces kept for analysis; beyond it the oldest are evicted."""
    max_retained_traces: int = 200_000
    max_retained_age_s: float = 86_400.0
    segment_bytes: int = 64 * MEBIBYTE
    """On disk, after compression; a segment is deleted whole."""
    segment_age_s: float = 300.0
    rest_s: float = 5.0
    """How long a segment that takes no more rows is left alone before it is compacted."""
    group_bytes: int = 16 * MEBIBYTE
    """Most that one commit takes along."""


def segment_of(seq: int) -> int:
    """Return the number of the segment that holds row ``seq``."""
    return seq >> 32


def by_segment(seqs: Iterable[int]) -> dict[int, tuple[int, ...]]:
    """Return rows by the number of their segment, each in the order in which they came."""
    found: defaultdict[int, list[int]] = defaultdict(list)
    for seq in seqs:
        found[segment_of(seq)].append(seq)
    return {number: tuple(those) for number, those in found.items()}


def first_seq(segment: int) -> int:
    """Return the seq before a segment's first row."""
    return segment << 32


def pack_body(body: bytes) -> tuple[int, bytes]:
    """Return the checksum and the compressed bytes that are stored for ``body``."""
    packed = lz4.block.compress(body)
    return crc32(packed), packed


def unpack_body(checksum: int, packed: bytes) -> bytes:
    """Return the body that ``pack_body`` packed.

    Raises:
        CorruptBodyError: the bytes are not those that were stored.
    """
    if crc32(packed) != checksum:
        raise CorruptBodyError("the checksum does not match")
    try:
        body: bytes = lz4.block.decompress(packed)
    except (lz4.block.LZ4BlockError, ValueError) as error:
        raise CorruptBodyError(str(error)) from error
    return body
