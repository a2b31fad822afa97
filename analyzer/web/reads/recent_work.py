"""Totals of the analyses of the last hour and day, cached for a while.

A day may have twenty thousand verdicts, each a document to parse: a fifth of a second of CPU
time, and more if the disk must fetch them. So past analyses stay in memory and only new ones
are read; the first read happens at start-up.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from analyzer.web.reads.page_records import Analysed

FRESH_NS: Final = 30 * 10**9
MOST: Final = 20_000
"""Largest number of analyses included; the newest if there are more."""
_HOUR_NS: Final = 3600 * 10**9
_DAY_NS: Final = 24 * _HOUR_NS
_UNSETTLED_NS: Final = 60 * 10**9
"""Verdicts this recent are read again: a verdict is committed shortly after its decision time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Totals of the analyses in a period."""

    runs: int = 0
    by_status: tuple[tuple[str, int], ...] = ()
    cost_usd: float = 0.0
    unpriced: int = 0
    """Runs of unknown cost."""
    calls: int = 0
    median_s: float | None = None
    """Median duration of an analysis."""
    slowest_s: float | None = None
    is_whole: bool = True
    """Whether all runs of the period are included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkDone:
    """Totals of the analyses of the last hour and day."""

    hour: Work
    day: Work
    at_ns: int


@dataclass(slots=True, kw_only=True)
class RecentWork:
    """Caches a day's analyses, and the totals for a while."""

    analyses_since: Callable[[int, int], Awaitable[Sequence[Analysed]]]
    """Returns the analyses after a time, newest first, up to a limit."""
    now_ns: Callable[[], int]
    _read: tuple[Analysed, ...] = ()
    """Analyses of the last 24 hours, newest first."""
    _known: WorkDone | None = None
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def read(self) -> WorkDone:
        """Return the totals, at most ``FRESH_NS`` old."""
        async with self._turn:
            now_ns = self.now_ns()
            if self._known is None or not 0 <= now_ns - self._known.at_ns < FRESH_NS:
                self._known = await self._summed(now_ns)
            return self._known

    async def _summed(self, now_ns: int) -> WorkDone:
        # Filtered each time: a clock that was set back must not hide later decisions.
        settled = [one for one in self._read if one.decided_ns <= now_ns - _UNSETTLED_NS]
        newest_ns = settled[0].decided_ns if settled else 0
        found = await self.analyses_since(max(newest_ns, now_ns - _DAY_NS), MOST)
        day = within([*found, *settled], now_ns - _DAY_NS)[:MOST]
        hour = within(day, now_ns - _HOUR_NS)
        self._read = tuple(day)
        of_hour, of_day = await asyncio.to_thread(lambda: (work_of(hour), work_of(day)))
        return WorkDone(hour=of_hour, day=of_day, at_ns=now_ns)


def within(analyses: Sequence[Analysed], since_ns: int) -> Sequence[Analysed]:
    """Return the analyses decided since ``since_ns``."""
    return [one for one in analyses if one.decided_ns > since_ns]


def work_of(analyses: Sequence[Analysed]) -> Work:
    """Return the totals of some analyses."""
    durations = [one.duration_s for one in analyses]
    return Work(
        runs=len(analyses),
        by_status=tuple(sorted(Counter(one.status for one in analyses).items())),
        cost_usd=sum(one.cost_usd or 0.0 for one in analyses),
        unpriced=sum(one.calls > 0 and one.cost_usd is None for one in analyses),
        calls=sum(one.calls for one in analyses),
        median_s=median(durations) if durations else None,
        slowest_s=max(durations, default=None),
        is_whole=len(analyses) < MOST,
    )
