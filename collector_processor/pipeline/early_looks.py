"""Looks at open traces, while their spans arrive: when each is due, one at a time.

A trace is due at each of its first eight spans and then whenever a quarter more have arrived, so that all
looks at a trace together read at most about five times its bytes. Looks wait while complete traces wait for
a place, a look is followed by a pause as long as it took, and a trace that is due while 1,000 wait is
skipped: a storm of open traces delays no verdict.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from collector_processor.otlp import Tenant, TraceKey
from collector_processor.pipeline.analyst_protocol import AnalysisLostError
from collector_processor.pipeline.queues import FairQueue, key_of
from collector_processor.store.database.connection import StoreError
from collector_processor.wire.facts import TraceArrival

logger = logging.getLogger(__name__)

MOST_TRACES: Final = 10_000
"""Open traces whose spans are counted; of the others, those without spans for longest are forgotten."""
MOST_WAITING: Final = 1_000
"""Traces that wait for a look."""
MOST_BYTES: Final = 4 * 1024 * 1024
"""Bytes of a trace above which it is not looked at any more."""
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
        self._traces: Final[OrderedDict[TraceKey, _Counted]] = OrderedDict()
        self._waiting: Final[FairQueue[Tenant, TraceKey, None]] = FairQueue()
        self._queued: Final[set[TraceKey]] = set()
        self._wake: Final = asyncio.Event()
        self.done = 0
        """Looks so far."""
        self.skipped = 0
        """Looks left out because too many traces waited."""

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
        key = key_of(arrival)
        if any(not note.parent_id for note in arrival.notes):
            self._forget(key)
            return
        if not arrival.notes:
            return
        counted = self._traces.setdefault(key, _Counted())
        self._traces.move_to_end(key)
        counted.spans += len(arrival.notes)
        counted.bytes += arrival.byte_count
        if len(self._traces) > MOST_TRACES:
            self._forget(next(iter(self._traces)))
        if counted.spans >= counted.due and counted.bytes <= MOST_BYTES and key not in self._queued:
            self._queue(key)

    def _queue(self, key: TraceKey) -> None:
        if len(self._queued) >= MOST_WAITING:
            self.skipped += 1
            return
        self._queued.add(key)
        self._waiting.put(key.tenant, key, None)
        self._wake.set()

    def _forget(self, key: TraceKey) -> None:
        self._traces.pop(key, None)
        if key in self._queued:
            self._queued.discard(key)
            self._waiting.discard(key.tenant, key)

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
        counted = self._traces.get(key)
        if counted is None:
            return
        counted.due = counted.spans + max(
            1, int((_GROWTH - 1) * counted.spans) if counted.spans >= _EACH else 1
        )
        begun = self._monotonic()
        try:
            await self._look(key)
        except StoreError as error:
            logger.warning("early look left out", extra={"reason": str(error)})
        except AnalysisLostError:
            self._forget(key)
            return
        self.done += 1
        await self._pause(self._monotonic() - begun)


__all__ = ["MOST_BYTES", "MOST_TRACES", "MOST_WAITING", "EarlyLooks"]
