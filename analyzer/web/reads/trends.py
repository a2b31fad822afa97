"""Runs and failures over time: periods of a round length, and the last results cached for a while."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from analyzer.web.reads.run_query import RunQuery, Sort
from semconv.model import BLAMELESS


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """The runs of a period, counted."""

    since_ns: int
    runs: int
    failed: int
    """Runs that failed, or may have: all but those without a sign of failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """Runs and failures over time; periods without runs are included."""

    width_ns: int
    """Length of each period."""
    buckets: tuple[Bucket, ...] = ()
    """Oldest first."""
    is_whole: bool = True
    """Whether all runs that fit are counted, and not only the newest."""


MOST_BUCKETS: Final = 60
FRESH_NS: Final = 30 * 10**9
_EMPTY_NS: Final = FRESH_NS // 10
"""``FRESH_NS`` for a trend without runs, so that the first runs show soon."""
_REMEMBERED: Final = 64
_SECOND: Final = 10**9
_WIDTHS: Final = tuple(
    seconds * _SECOND
    for seconds in (60, 300, 900, 3_600, 3 * 3_600, 6 * 3_600, 12 * 3_600, 86_400, 7 * 86_400, 30 * 86_400)
)


def bucket_width(since_ns: int, until_ns: int) -> int:
    """Return the shortest round period that divides a time into at most ``MOST_BUCKETS``."""
    lasts = max(0, until_ns - since_ns)
    fitting = (width for width in _WIDTHS if lasts <= width * (MOST_BUCKETS - 1))
    return next(fitting, max(_WIDTHS[-1], lasts // (MOST_BUCKETS - 1) + 1))


def trend_of(
    rows: Sequence[Sequence[Any]], since_ns: int, until_ns: int, width_ns: int, *, is_whole: bool
) -> Trend:
    """Return the trend of counts: each row a period's number, a status, and how many runs have it."""
    runs: Counter[int] = Counter()
    failed: Counter[int] = Counter()
    for bucket, status, count in rows:
        runs[bucket] += count
        failed[bucket] += count if status not in BLAMELESS else 0
    if not runs:
        return Trend(width_ns=width_ns, is_whole=is_whole)
    numbers = range(since_ns // width_ns, max(until_ns - 1, since_ns) // width_ns + 1)
    buckets = (
        Bucket(since_ns=number * width_ns, runs=runs[number], failed=failed[number]) for number in numbers
    )
    return Trend(width_ns=width_ns, buckets=tuple(buckets), is_whole=is_whole)


@dataclass(slots=True, kw_only=True)
class Trends:
    """Caches trends by their filters."""

    read: Callable[[RunQuery, int], Awaitable[Trend]]
    """Returns the trend of a query at a time."""
    now_ns: Callable[[], int]
    _known: OrderedDict[RunQuery, tuple[int, Trend]] = field(default_factory=OrderedDict)
    _renewing: dict[RunQuery, asyncio.Task[Trend]] = field(default_factory=dict)

    async def of(self, query: RunQuery) -> Trend:
        """Return a query's trend; an old one is returned while it is renewed, unless it has no runs."""
        key, now_ns = _key_of(query), self.now_ns()
        known = self._known.get(key)
        if known is not None and 0 <= now_ns - known[0] < (FRESH_NS if known[1].buckets else _EMPTY_NS):
            return known[1]
        renewing = self._renewing.get(key)
        if renewing is None:
            renewing = self._renewing[key] = asyncio.create_task(self._renewed(key, now_ns))
            renewing.add_done_callback(lambda _task: self._renewing.pop(key, None))
        return known[1] if known is not None and known[1].buckets else await asyncio.shield(renewing)

    async def _renewed(self, key: RunQuery, now_ns: int) -> Trend:
        trend = await self.read(key, now_ns)
        self._known[key] = (now_ns, trend)
        self._known.move_to_end(key)
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return trend


def _key_of(query: RunQuery) -> RunQuery:
    """Return the part of a query that its trend depends on; a time that moves on is rounded."""
    since_ns = None if query.since_ns is None else query.since_ns // FRESH_NS * FRESH_NS
    return replace(query, since_ns=since_ns, text="", sort=Sort.NEWEST, before=None, limit=0)
