"""Hold deadlines (hold mode): tracks which traces are held and releases them in time. Not pure.

A trace is held from its first span until its verdict is written onto it, at most ``hold_max``. Afterwards its
spans are forwarded at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from heapq import heappop, heappush
from itertools import islice
from typing import Final

from collector_processor.otlp import TraceKey

logger = logging.getLogger(__name__)

_MAX_RELEASED: Final = 100_000
"""Recently released traces (bounded). Forgetting one only means that it may be held again."""
_AT_ONCE: Final = 128
"""Traces released before other tasks get the event loop: some milliseconds."""


class Holds:
    """Hold deadlines of one process; used on one event loop."""

    def __init__(self, hold_max_s: float | None, release: Callable[[TraceKey], Awaitable[None]]) -> None:
        """Create it without deadlines.

        Args:
            hold_max_s: seconds a trace may be held; ``None`` to hold nothing (late mode).
            release: forwards the trace's held rows unchanged.
        """
        self._hold_max_s: Final = hold_max_s
        self._release: Final = release
        self._deadlines: Final[dict[TraceKey, float]] = {}
        self._timers: Final[list[tuple[float, TraceKey]]] = []
        self._claimed: Final[set[TraceKey]] = set()
        """Traces whose verdict is being committed; they have no deadline."""
        self._released: Final[OrderedDict[TraceKey, None]] = OrderedDict()
        self._releases: Final[set[asyncio.Future[None]]] = set()
        """Releases in progress."""

    @property
    def is_off(self) -> bool:
        """Whether hold mode is off."""
        return self._hold_max_s is None

    @property
    def next_deadline(self) -> float | None:
        """Earliest time at which a trace may have to be released."""
        return self._timers[0][0] if self._timers else None

    @property
    def claimed(self) -> tuple[TraceKey, ...]:
        """Traces whose verdict is being committed."""
        return tuple(self._claimed)

    def holds(self, key: TraceKey) -> bool:
        """Return whether new spans of this trace must wait for a verdict."""
        return not self.is_off and key not in self._released

    def hold(self, key: TraceKey, now: float) -> None:
        """Start the deadline of a trace that has held spans, unless it is already running."""
        if self._hold_max_s is not None and key not in self._deadlines:
            self._deadlines[key] = now + self._hold_max_s
            heappush(self._timers, (self._deadlines[key], key))

    def claim(self, key: TraceKey) -> bool:
        """Stop the deadline of a trace that has a verdict; return ``False`` if it was released before."""
        if self._deadlines.pop(key, None) is not None:
            self._claimed.add(key)
        return key in self._claimed

    async def release_overdue(self, now: float) -> None:
        """Release the traces whose deadline has passed."""
        overdue: list[TraceKey] = []
        while self._timers and self._timers[0][0] <= now:
            deadline, key = heappop(self._timers)
            if self._deadlines.get(key) == deadline:
                overdue.append(key)
        if overdue:  # one log line: a request may hold thousands of traces
            context = {"traces": len(overdue), "trace_id": overdue[0].trace_id}
            logger.warning("held traces released without a verdict", extra=context)
        await self.release_all(overdue)

    async def release_all(self, keys: Iterable[TraceKey]) -> None:
        """Release many traces together, so that they share commits of the journal."""
        waiting = iter(tuple(keys))
        while some := tuple(islice(waiting, _AT_ONCE)):
            await asyncio.gather(*map(self.release, some))

    async def release(self, key: TraceKey) -> None:
        """Release a trace: its held spans are forwarded now, later ones at once."""
        if self.is_off:
            return
        self._released[key] = None
        while len(self._released) > _MAX_RELEASED:
            self._released.popitem(last=False)
        self._deadlines.pop(key, None)
        self._claimed.discard(key)
        release = asyncio.ensure_future(self._release(key))
        self._releases.add(release)
        release.add_done_callback(self._releases.discard)
        await asyncio.shield(release)

    async def release_everything(self) -> None:
        """Release all held traces, and wait for releases still in progress."""
        await self.release_all(self._deadlines)
        await asyncio.gather(*self._releases)
