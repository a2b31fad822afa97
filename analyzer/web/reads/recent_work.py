"""What was done in the last hour and day: summed now and then, of runs that are read once.

A day may be twenty thousand verdicts, each a document to be read: a fifth of a second of the
processor's time, and more where the disk must fetch them. So what was read is kept, and only
what has come since is read anew; the first look is taken before anybody asks.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from analyzer.web.sources import Analysed, RunSource

FRESH_NS: Final = 30 * 10**9
MOST: Final = 20_000
"""Analyses that are looked at; of more, the newest."""
_HOUR_NS: Final = 3600 * 10**9
_DAY_NS: Final = 24 * _HOUR_NS
_UNSETTLED_NS: Final = 60 * 10**9
"""What was decided so lately is read once more: a verdict is committed a little after it was decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What was done in a stretch of time."""

    runs: int = 0
    by_status: tuple[tuple[str, int], ...] = ()
    cost_usd: float = 0.0
    unpriced: int = 0
    """Runs whose cost is not known."""
    calls: int = 0
    median_s: float | None = None
    """Of the time that an analysis took."""
    slowest_s: float | None = None
    is_whole: bool = True
    """Whether all runs of the stretch were looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkDone:
    """The sums, and when they were made."""

    hour: Work
    day: Work
    at_ns: int


@dataclass(slots=True, kw_only=True)
class RecentWork:
    """Keeps what was read of a day, and the sums for a while."""

    runs: RunSource
    now_ns: Callable[[], int]
    _read: tuple[Analysed, ...] = ()
    """What was read of the day before, the newest first."""
    _known: WorkDone | None = None
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def read(self) -> WorkDone:
        """Return the sums, at most ``FRESH_NS`` old."""
        async with self._turn:
            now_ns = self.now_ns()
            if self._known is None or not 0 <= now_ns - self._known.at_ns < FRESH_NS:
                self._known = await self._summed(now_ns)
            return self._known

    async def _summed(self, now_ns: int) -> WorkDone:
        # Filtered anew each time: a clock that was set back must not hide what is decided from then on.
        settled = [one for one in self._read if one.decided_ns <= now_ns - _UNSETTLED_NS]
        newest_ns = settled[0].decided_ns if settled else 0
        found = await self.runs.analyses_since(max(newest_ns, now_ns - _DAY_NS), MOST)
        day = within([*found, *settled], now_ns - _DAY_NS)[:MOST]
        hour = within(day, now_ns - _HOUR_NS)
        self._read = tuple(day)
        of_hour, of_day = await asyncio.to_thread(lambda: (work_of(hour), work_of(day)))
        return WorkDone(hour=of_hour, day=of_day, at_ns=now_ns)


def within(analyses: Sequence[Analysed], since_ns: int) -> Sequence[Analysed]:
    """Return those decided since."""
    return [one for one in analyses if one.decided_ns > since_ns]


def work_of(analyses: Sequence[Analysed]) -> Work:
    """Return the sums of some analyses."""
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
