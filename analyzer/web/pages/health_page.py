"""Pages of health: totals of the analyses of the last hour and day, items and backlog, settings. Not pure.

A day may have twenty thousand verdicts, each a document to parse: a fifth of a second of CPU
time, and more if the disk must fetch them. So past analyses stay in memory and only new ones
are read; the first read happens at start-up.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from statistics import median
from typing import Final

from aiohttp import web
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import CollectorRegistry

from analyzer.web.front import PageContext, routed
from analyzer.web.guard import METRICS
from analyzer.web.probes import Probe
from analyzer.web.reads.archive import Analysed

FRESH_NS: Final = 30 * 10**9
MOST: Final = 20_000
"""Largest number of analyses included; the newest if there are more."""
_HOUR_NS: Final = 3600 * 10**9
_DAY_NS: Final = 24 * _HOUR_NS
_UNSETTLED_NS: Final = 60 * 10**9
"""Verdicts this recent are read again: a verdict is committed shortly after its decision time."""
_BACKLOG: Final = ("blamespan_open_traces", "blamespan_examinations")
_ITEMS: Final = "blamespan_items_"
_OURS: Final = "blamespan_analyzer_"
_BUDGET: Final = "blamespan_budget_"


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
    return [analysis for analysis in analyses if analysis.decided_ns > since_ns]


def work_of(analyses: Sequence[Analysed]) -> Work:
    """Return the totals of some analyses."""
    durations = [analysis.duration_s for analysis in analyses]
    return Work(
        runs=len(analyses),
        by_status=tuple(sorted(Counter(analysis.status for analysis in analyses).items())),
        cost_usd=sum(analysis.cost_usd or 0.0 for analysis in analyses),
        unpriced=sum(analysis.calls > 0 and analysis.cost_usd is None for analysis in analyses),
        calls=sum(analysis.calls for analysis in analyses),
        median_s=median(durations) if durations else None,
        slowest_s=max(durations, default=None),
        is_whole=len(analyses) < MOST,
    )


def health_routes(context: PageContext, probe: Probe, recent: RecentWork) -> list[web.RouteDef]:
    """Return the route of the health page."""

    async def health(context: PageContext, request: web.Request) -> web.StreamResponse:
        metrics = await _metrics(probe)
        return await context.front.show(
            request,
            "health.html",
            done=await recent.read(),
            items=items_of(metrics),
            backlog=backlog_of(metrics),
            settings=context.pages.settings,
        )

    return routed(context, ("GET", "/health", health))


async def _metrics(probe: Probe) -> list[Metric]:
    """Return the metrics of the process that takes spans; none while it does not answer."""
    answer = await probe(METRICS, "")
    return list(text_string_to_metric_families(answer.body)) if answer.status == HTTPStatus.OK else []


def items_of(metrics: Iterable[Metric]) -> dict[str, dict[str, int]]:
    """Return the numbers of items received, forwarded, lost and so on, by signal."""
    found: dict[str, dict[str, int]] = {}
    for family in metrics:
        if family.name.startswith(_ITEMS):
            for sample in family.samples:
                counts = found.setdefault(family.name.removeprefix(_ITEMS), {})
                counts[sample.labels.get("signal", "")] = int(sample.value)
    return found


def backlog_of(metrics: Iterable[Metric]) -> dict[str, int]:
    """Return the work waiting and in progress by the metrics' descriptions."""
    return {
        family.documentation: int(family.samples[0].value)
        for family in metrics
        if family.name in _BACKLOG and family.samples
    }


def counts_of(metrics: CollectorRegistry) -> list[tuple[str, float]]:
    """Return this analyzer's counts by the metrics' descriptions."""
    return [
        (", ".join([family.documentation, *sample.labels.values()]), sample.value)
        for family in metrics.collect()
        if family.name.startswith((_OURS, _BUDGET))
        for sample in family.samples
        if not sample.name.endswith("_created")
    ]
