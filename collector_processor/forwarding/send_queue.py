"""What waits for the backend: one lane a signal and tenant, and how hard is tried. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from collector_processor.journal.chunks import MEBIBYTE, Chunk, Queue
from collector_processor.otlp import Setback


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwarderLimits:
    """How hard it tries."""

    max_in_flight: int = 8
    """Requests of one lane at once."""
    eager_in_flight: int = 1
    """From then on a request is started only when there is enough for a full one."""
    batch_bytes: int = MEBIBYTE
    """Neighbouring rows go in one request up to this size."""
    lane_memory_bytes: int = 32 * MEBIBYTE
    """Bodies one lane keeps in memory before it relies on the journal."""
    memory_bytes: int = 128 * MEBIBYTE
    """The same for all lanes; beyond it each still has one request's worth."""
    first_wait_s: float = 0.5
    longest_wait_s: float = 30.0
    no_service_s: float = 300.0
    """How long a signal that the backend does not take is dropped before it is tried once more."""
    futile_sends: int = 48
    """Refusals of one request's parts, without a single success, after which the rest is not tried."""


@dataclass(slots=True)
class Lane:
    """One signal of one tenant on its way to the backend; changed by the forwarder."""

    queue: Queue
    memory: deque[Chunk] = field(default_factory=deque)
    """Rows to be sent next."""
    queued_bytes: int = 0
    """Of ``memory``."""
    memory_bytes: int = 0
    """Of ``memory`` and of what is in flight."""
    known: set[int] = field(default_factory=set)
    """Rows in memory or in flight."""
    is_due: bool = False
    """Will be looked at as soon as everything that is there now was offered."""
    in_flight: int = 0
    waiting: int = 0
    """Requests in flight whose next try is later."""
    is_behind: bool = False
    """There are rows in the journal, after ``cursor``, that are not known here."""
    cursor: int = 0
    is_reading: bool = False
    missed: int | None = None
    """The lowest row that was said to be in the journal while it was being read."""
    failures: int = 0
    """Rounds of tries that failed since the last success."""
    told: Setback | None = None
    """The cause logged last for a backend that accepts nothing; ``None`` while it accepts."""

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing left to send, here or in the journal."""
        return not (self.memory or self.in_flight or self.is_behind or self.is_reading)

    def may_send(self, limits: ForwarderLimits) -> bool:
        """Whether to start a request; while one is under way, small rows wait for company."""
        if not self.memory or self.waiting or self.in_flight >= limits.max_in_flight:
            return False
        return self.in_flight < limits.eager_in_flight or self.queued_bytes >= limits.batch_bytes

    def fall_behind(self, seq: int) -> None:
        """Rely on the journal from row ``seq`` on."""
        self.cursor = min(self.cursor, seq - 1) if self.is_behind else seq - 1
        self.is_behind = True
        if self.is_reading:
            self.missed = seq if self.missed is None else min(self.missed, seq)

    def has_read(self, upto_seq: int, *, is_more: bool) -> None:
        """Go on behind what was read, unless more was said to be there meanwhile."""
        missed, self.missed, self.is_reading = self.missed, None, False
        if missed is not None and missed <= upto_seq:
            self.cursor = missed - 1
        else:
            self.cursor = upto_seq
            self.is_behind = is_more or missed is not None
