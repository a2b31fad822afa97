"""What was done in the last hour and day, summed now and then: it looks at many runs, and changes slowly."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from analyzer.web.sources import RunSource, Work

FRESH_NS: Final = 30 * 10**9
_HOUR_NS: Final = 3600 * 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkDone:
    """The sums, and when they were made."""

    hour: Work
    day: Work
    at_ns: int


@dataclass(slots=True, kw_only=True)
class RecentWork:
    """Keeps the sums for a while."""

    runs: RunSource
    now_ns: Callable[[], int]
    _known: WorkDone | None = None
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def read(self) -> WorkDone:
        """Return the sums, at most ``FRESH_NS`` old."""
        async with self._turn:
            now_ns = self.now_ns()
            if self._known is None or not 0 <= now_ns - self._known.at_ns < FRESH_NS:
                hour = await self.runs.work_since(now_ns - _HOUR_NS)
                day = await self.runs.work_since(now_ns - 24 * _HOUR_NS)
                self._known = WorkDone(hour=hour, day=day, at_ns=now_ns)
            return self._known
