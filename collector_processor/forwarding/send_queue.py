"""Send queue of one signal and tenant, and the limits of forwarding. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from collector_processor.journal.chunks import MEBIBYTE, Chunk, Queue
from collector_processor.otlp import Setback


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwarderLimits:
    """Limits and waits of the forwarder."""

    max_in_flight: int = 8
    """Concurrent requests of one send queue."""
    eager_in_flight: int = 1
    """With this many requests in flight, another one is started only for a full batch."""
    batch_bytes: int = MEBIBYTE
    """Neighbouring rows are sent in one request up to this size."""
    queue_memory_bytes: int = 32 * MEBIBYTE
    """Bytes of bodies kept in memory for one queue; rows beyond it are read back from the journal."""
    memory_bytes: int = 128 * MEBIBYTE
    """The same bound for all queues together; each queue may always hold one request."""
    first_wait_s: float = 0.5
    longest_wait_s: float = 30.0
    no_service_s: float = 300.0
    """Seconds for which a signal's items are dropped, before a retry, if the backend does not take it."""
    futile_sends: int = 48
    """Refusals while bisecting a request, without a success, after which the rest is rejected."""


@dataclass(slots=True)
class SendQueue:
    """Rows of one signal and tenant on their way to the backend; modified by the forwarder."""

    key: Queue
    memory: deque[Chunk] = field(default_factory=deque)
    """Rows to be sent next."""
    queued_bytes: int = 0
    """Bytes of ``memory``."""
    memory_bytes: int = 0
    """Bytes of ``memory`` and of requests in flight."""
    known: set[int] = field(default_factory=set)
    """Seqs of rows in memory or in flight."""
    is_due: bool = False
    """Whether a call of ``_pump`` is scheduled."""
    in_flight: int = 0
    waiting: int = 0
    """Requests in flight that wait for their retry."""
    is_behind: bool = False
    """Whether the journal has rows after ``cursor`` that are not in memory."""
    cursor: int = 0
    is_reading: bool = False
    missed: int | None = None
    """The lowest row that was added to the backlog while it was being read."""
    failures: int = 0
    """Failures since the last success; concurrent ones count as one."""
    logged: Setback | None = None
    """The cause logged last for a backend that accepts nothing; ``None`` while it accepts."""

    @property
    def is_idle(self) -> bool:
        """Whether memory and journal hold nothing more to send."""
        return not (self.memory or self.in_flight or self.is_behind or self.is_reading)

    def may_send(self, limits: ForwarderLimits) -> bool:
        """Return whether to start a request; while one is in flight, small rows wait to be sent together."""
        if not self.memory or self.waiting or self.in_flight >= limits.max_in_flight:
            return False
        return self.in_flight < limits.eager_in_flight or self.queued_bytes >= limits.batch_bytes

    def fall_behind(self, seq: int) -> None:
        """Mark rows from ``seq`` onwards to be read back from the journal."""
        self.cursor = min(self.cursor, seq - 1) if self.is_behind else seq - 1
        self.is_behind = True
        if self.is_reading:
            self.missed = seq if self.missed is None else min(self.missed, seq)

    def has_read(self, upto_seq: int, *, is_more: bool) -> None:
        """Continue after the rows just read, or earlier if rows were added meanwhile."""
        missed, self.missed, self.is_reading = self.missed, None, False
        if missed is not None and missed <= upto_seq:
            self.cursor = missed - 1
        else:
            self.cursor = upto_seq
            self.is_behind = is_more or missed is not None
