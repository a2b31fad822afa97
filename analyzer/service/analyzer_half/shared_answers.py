"""Deduplication of analysis requests: pending answers are shared, recent ones cached.

A collector half repeats a request when an answer was lost, and after a restart. The repeated request has
the same bytes, so its hash is the key; a process's settings do not change and need not be part of the key. An
analysis continues when the client disconnects: it is already being paid for. An answer with a failure is not
cached, because the next attempt may succeed.

The metrics count what this process did and spent itself, also on answers that never arrived; the collector
half counts verdicts and the cost of runs, over all analyzers.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector, CollectorRegistry

from analyzer.executor.models.budget import HourlyBudget
from analyzer.telemetry import metric_table as table
from analyzer.telemetry.metric import ANSWERS
from analyzer.telemetry.process_stats import ProcessStats
from collector_processor.store.jobs import NO_JOBS, Waiting
from semconv.model import Attribution, Status

MAX_KEPT: Final = 1_000
"""Cached answers, of some KiB each."""

Analyse = Callable[[], Awaitable[Attribution]]


class BusyError(Exception):
    """The limit of concurrent analyses is reached."""


def key_of(body: bytes) -> bytes:
    """Return a key that two requests share only if they are identical."""
    return hashlib.blake2b(body, digest_size=16).digest()


@dataclass(slots=True, kw_only=True)
class Answers:
    """Pending analyses and recent results. Used from one event loop."""

    at_once: int
    """Limit of concurrent analyses; requests for the same analysis count once."""
    max_kept: int = MAX_KEPT
    shared: int = 0
    """Requests answered with the analysis of another request."""
    _under_way: dict[bytes, asyncio.Task[Attribution]] = field(default_factory=dict)
    _kept: OrderedDict[bytes, Attribution] = field(default_factory=OrderedDict)

    @property
    def under_way(self) -> int:
        """Number of analyses in progress."""
        return len(self._under_way)

    def ask(self, key: bytes, analyse: Analyse) -> asyncio.Future[Attribution]:
        """Return the future answer; callers must await it behind a shield.

        Raises:
            BusyError: the limit of concurrent analyses is reached.
        """
        if (kept := self._kept.get(key)) is not None:
            self._kept.move_to_end(key)
            self.shared += 1
            known: asyncio.Future[Attribution] = asyncio.get_running_loop().create_future()
            known.set_result(kept)
            return known
        if (task := self._under_way.get(key)) is not None:
            self.shared += 1
            return task
        if len(self._under_way) >= self.at_once:
            raise BusyError
        task = asyncio.create_task(self._made(key, analyse))
        # Mark a failure as retrieved even if no client waits any more: ``analyse`` has logged it.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._under_way[key] = task
        return task

    async def drain(self, within_s: float) -> None:
        """Wait for pending analyses, and cancel those not done in time."""
        tasks = list(self._under_way.values())
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=within_s)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    async def _made(self, key: bytes, analyse: Analyse) -> Attribution:
        try:
            attribution = await analyse()
        finally:
            del self._under_way[key]
        if attribution.status is not Status.ERROR and attribution.fallback is None:
            self._kept[key] = attribution
            if len(self._kept) > self.max_kept:
                self._kept.popitem(last=False)
        return attribution


@dataclass(eq=False, slots=True, kw_only=True)
class AnalyzerMetrics(Collector):
    """Counts of one analyzer, and values read from its parts at each scrape."""

    answers: Answers
    budget: HourlyBudget | None = None
    waiting: Callable[[], Waiting] = lambda: NO_JOBS
    """Returns the jobs that wait in the store; none if this analyzer takes none from there."""
    process: ProcessStats = field(default_factory=ProcessStats)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    _questions: Counter[str] = field(default_factory=Counter)
    _analyses: Counter[str] = field(default_factory=Counter)
    _cost_usd: float = 0.0

    def __post_init__(self) -> None:
        self.registry.register(self)

    def asked(self, answer: str) -> None:
        """Count a request, by one of ``ANSWERS``."""
        self._questions[answer] += 1

    def made(self, attribution: Attribution) -> None:
        """Count an analysis and its cost."""
        self._analyses[attribution.status.value] += 1
        self._cost_usd += attribution.effort.cost_usd or 0.0

    def collect(self) -> Iterator[Family]:
        """Yield every family, as of now."""
        yield from self.process.collect()
        yield table.QUESTIONS.family(((answer,), self._questions[answer]) for answer in ANSWERS)
        yield table.ANALYSES.family(((status.value,), self._analyses[status.value]) for status in Status)
        yield table.SHARED.single(self.answers.shared)
        yield table.UNDER_WAY.single(self.answers.under_way)
        yield table.SPENT.single(self._cost_usd)
        found = self.waiting()
        yield table.OLDEST_ACTIONABLE.single(found.oldest_age_s)
        yield table.JOBS_WAITING.single(found.count)
        if self.budget is not None:
            yield table.BUDGET_REFUSALS.single(self.budget.refused)
            yield table.SUSPECT_USAGE.single(self.budget.suspect)
            yield table.BUDGET_SPENT.single(self.budget.spent_usd)
            yield table.BUDGET_LIMIT.single(self.budget.usd)
