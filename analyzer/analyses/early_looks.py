"""Looks at open traces, while their spans arrive: when each is due, one at a time.

A look is due at each of a trace's first eight spans, and then whenever the trace has grown by a quarter, so
all looks at a trace together read at most about five times its bytes. Looks wait while complete traces wait
for a place, and a look is followed by a pause as long as it took: a storm of open traces delays no verdict.
It delays no other tenant's looks either: tenants take turns, and a storm's own traces are forgotten first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from collector_processor.core.analysis import AnalysisLostError
from collector_processor.core.disk import StoreError
from collector_processor.core.fair import FairQueue, FairTable
from collector_processor.otlp import Tenant, TraceKey
from collector_processor.wire.facts import TraceArrival

logger = logging.getLogger(__name__)

MOST_TRACES: Final = 10_000
"""Bound on open traces whose spans are counted, and on traces no longer looked at; beyond it, a tenant with
more than its share loses the ones longest without new spans."""
MOST_BYTES: Final = 4 * 1024 * 1024
"""Bytes of a trace and the traces joined to it, above which it is no longer looked at."""
_EACH: Final = 8
_GROWTH: Final = 1.25
_BUSY_S: Final = 0.2
"""Seconds until the next check whether complete traces still wait."""


@dataclass(slots=True)
class _Counted:
    spans: int = 0
    bytes: int = 0
    due: int = 1
    """Number of spans at which it is looked at next."""


class EarlyLooks:
    """Looks at open traces; used on one event loop."""

    def __init__(
        self,
        look: Callable[[TraceKey], Awaitable[None]],
        *,
        is_busy: Callable[[], bool],
        monotonic: Callable[[], float],
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Create it without any traces.

        Args:
            look: looks at one open trace.
            is_busy: returns whether complete traces wait for a place.
            monotonic: returns seconds of a monotonic clock.
            pause: sleeps for the given seconds.
        """
        self._look: Final = look
        self._is_busy: Final = is_busy
        self._monotonic: Final = monotonic
        self._pause: Final = pause
        self._traces: Final[FairTable[Tenant, TraceKey, _Counted]] = FairTable(MOST_TRACES)
        self._over: Final[FairTable[Tenant, TraceKey, bool]] = FairTable(MOST_TRACES)
        """Traces that are not looked at again: their root has ended, or they crash worker processes."""
        self._waiting: Final[FairQueue[Tenant, TraceKey, None]] = FairQueue()
        self._queued: Final[set[TraceKey]] = set()
        self._wake: Final = asyncio.Event()
        self.done = 0
        """Looks so far."""
        self.skipped = 0
        """Looks left out because the trace was forgotten while it waited."""

    @property
    def counted(self) -> int:
        """Open traces whose spans are counted."""
        return len(self._traces)

    @property
    def waiting(self) -> int:
        """Traces that wait for a look."""
        return len(self._queued)

    def feed(self, arrival: TraceArrival) -> None:
        """Count durable spans of an agent's trace. Called on the event loop; never blocks."""
        key = arrival.key
        if any(not parent_id for _, parent_id, *_ in arrival.notes):
            self._end(key)
        if not arrival.notes or self._over.get(key.tenant, key):
            return
        counted = self._traces.get(key.tenant, key) or _Counted()
        counted.spans += len(arrival.notes)
        counted.bytes += arrival.byte_count
        if gone := self._traces.put(key.tenant, key, counted):
            self.skipped += self._unqueue(gone[1])
        if counted.spans >= counted.due and counted.bytes <= MOST_BYTES:
            self._queue(key)

    def _queue(self, key: TraceKey) -> None:
        if key not in self._queued:
            self._queued.add(key)
            self._waiting.put(key.tenant, key, None)
            self._wake.set()

    def _unqueue(self, key: TraceKey) -> bool:
        """Stop waiting for a look; return whether the trace waited."""
        is_waiting = key in self._queued
        if is_waiting:
            self._queued.discard(key)
            self._waiting.discard(key.tenant, key)
        return is_waiting

    def _end(self, key: TraceKey) -> None:
        self._over.put(key.tenant, key, item=True)
        self._traces.pop(key.tenant, key)
        self._unqueue(key)

    async def run(self) -> None:
        """Look at traces until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while (taken := self._waiting.take()) is not None:
                _, key, _ = taken
                self._queued.discard(key)
                await self.look_at(key)

    async def look_at(self, key: TraceKey) -> None:
        """Look at one trace as soon as no complete trace waits, then rest for as long as it took."""
        while self._is_busy():
            await self._pause(_BUSY_S)
        counted = self._traces.get(key.tenant, key)
        if counted is None:
            return
        counted.due = counted.spans + max(
            1, int((_GROWTH - 1) * counted.spans) if counted.spans >= _EACH else 1
        )
        begun = self._monotonic()
        try:
            await self._look(key)
        except StoreError as error:
            logger.warning("early look skipped", extra={"reason": str(error)})
        except AnalysisLostError:
            self._end(key)
            return
        self.done += 1
        await self._pause(self._monotonic() - begun)


__all__ = ["MOST_BYTES", "MOST_TRACES", "EarlyLooks"]
