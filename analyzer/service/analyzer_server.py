"""HTTP server of the analyzer half: probes, metrics and pages. Not pure; keeps no run.

The metrics count what this process did and spent itself, also on answers that came too late; the collector
half counts verdicts and the cost of runs, over all analyzers.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector, CollectorRegistry

from analyzer.executor.models.budget import HourlyBudget
from analyzer.telemetry import metric_table as table
from analyzer.telemetry.process_stats import ProcessStats
from analyzer.web.app import common_routes
from analyzer.web.guard import GuardRules, Sessions, guarding
from analyzer.web.pages.analyzer_half import AnalyzerPages, analyzer_routes
from collector_processor.core.http_server import HttpServer
from collector_processor.otlp import Address
from collector_processor.otlp.tls import TlsFiles
from collector_processor.store.jobs import NO_JOBS, Waiting
from semconv.model import Attribution, Status

_GRACE_S: Final = 1.0


@dataclass(eq=False, slots=True, kw_only=True)
class AnalyzerMetrics(Collector):
    """Counts of one analyzer, and values read from its parts at each scrape."""

    budget: HourlyBudget | None = None
    under_way: Callable[[], int] = lambda: 0
    """Returns the number of analyses in progress."""
    waiting: Callable[[], Waiting] = lambda: NO_JOBS
    """Returns the jobs that wait in the store."""
    process: ProcessStats = field(default_factory=ProcessStats)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    _analyses: Counter[str] = field(default_factory=Counter)
    _cost_usd: float = 0.0

    def __post_init__(self) -> None:
        self.registry.register(self)

    def made(self, attribution: Attribution) -> None:
        """Count an analysis and its cost."""
        self._analyses[attribution.status.value] += 1
        self._cost_usd += attribution.effort.cost_usd or 0.0

    def collect(self) -> Iterator[Family]:
        """Yield every family, as of now."""
        yield from self.process.collect()
        yield table.ANALYSES.family(((status.value,), self._analyses[status.value]) for status in Status)
        yield table.UNDER_WAY.single(self.under_way())
        yield table.SPENT.single(self._cost_usd)
        found = self.waiting()
        yield table.OLDEST_ACTIONABLE.single(found.oldest_age_s)
        yield table.JOBS_WAITING.single(found.count)
        if self.budget is not None:
            yield table.BUDGET_REFUSALS.single(self.budget.refused)
            yield table.SUSPECT_USAGE.single(self.budget.suspect)
            yield table.BUDGET_SPENT.single(self.budget.spent_usd)
            yield table.BUDGET_LIMIT.single(self.budget.usd)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzerRules:
    """Access rules."""

    token: str | None = field(default=None, repr=False)
    metrics_token: str | None = field(default=None, repr=False)
    allowed_hosts: tuple[str, ...] = ()
    tls: TlsFiles | None = None


class AnalyzerServer:
    """Serves an analyzer's pages until it is stopped."""

    def __init__(
        self, listen: Address, rules: AnalyzerRules, metrics: AnalyzerMetrics, pages: AnalyzerPages
    ) -> None:
        """Create the server; it does not listen yet."""
        self._rules: Final = rules
        self._metrics: Final = metrics
        self._pages: Final = pages
        self._is_ready = False
        self._server: Final = HttpServer(self._app(), listen, rules.tls, grace_s=_GRACE_S)

    async def start(self) -> int:
        """Listen, and return the bound port; raises as ``HttpServer.start``."""
        port = await self._server.start()
        self._is_ready = True
        return port

    def close(self) -> None:
        """Accept no further connections."""
        self._is_ready = False
        self._server.close()

    async def stop(self) -> None:
        """Stop the analyses of pages and end all connections."""
        self.close()
        if self._pages.jobs is not None:
            await self._pages.jobs.close()
        await self._server.stop()

    def _app(self) -> web.Application:
        sessions = Sessions(clock=time.monotonic, is_secure=self._rules.tls is not None)
        rules = GuardRules(
            token=self._rules.token,
            metrics_token=self._rules.metrics_token,
            allowed_hosts=self._rules.allowed_hosts,
            wants_certificate=self._rules.tls is not None and self._rules.tls.client_ca is not None,
            is_signed_in=sessions.is_signed_in,
        )
        app = web.Application(middlewares=[guarding(rules)])
        app.add_routes(
            [
                *common_routes(lambda: self._is_ready, self._metrics.registry),
                *analyzer_routes(self._pages, sessions, self._metrics.registry, self._rules.token),
            ]
        )
        return app
