"""Collector half and analyzer half, built from the settings. Not pure.

Both use one store in PostgreSQL: the collector puts each failed run into a table of jobs, and analyzers take
them from there. All processes of a store share one hourly budget.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector, CollectorRegistry

from analyzer.analyses.codec import write_offer
from analyzer.analyses.composition import budget_of, open_cleaner, open_late_analyst, open_opinions, tls_files
from analyzer.analyses.job_client import ANALYZER, OFFER, JobAnalyst, JobAsk, JobOpinions
from analyzer.analyses.local_analyst import LocalAnalyst
from analyzer.analyses.models.budget import HourlyBudget, StoredSpending
from analyzer.methods.choice import Called, Choice, Opinions
from analyzer.service.job_worker import JobWorker
from analyzer.service.lifetime import Lifetime
from analyzer.service.replicas import Announcer, SharedStore, open_shared_store
from analyzer.service.upload_process import UploadReader
from analyzer.telemetry import metric_table as table
from analyzer.telemetry.process_stats import ProcessStats
from analyzer.web.app import AnalyzerPages, analyzer_routes, common_routes
from analyzer.web.front import shown_settings
from analyzer.web.guard import GuardRules, Sessions, guarding
from analyzer.web.requested_analyses import JobLimits, Jobs
from collector_processor.core.analysis import Analyst, Earned
from collector_processor.core.http_server import HttpServer
from collector_processor.otlp import Address
from collector_processor.otlp.tls import TlsFiles
from collector_processor.settings import Settings, SettingsError
from collector_processor.store.jobs import NO_JOBS, JobRows, ReplicaRows, Waiting
from collector_processor.store.small_tables import SpendingRows
from semconv.model import Attribution, Status, Trajectory

_GRACE_S: Final = 1.0
"""Seconds for responses in progress when an analyzer stops."""
STOP_S: Final = 120.0
"""Longest shutdown of an analyzer in seconds: the time of a slow model's answer."""


def require_store(settings: Settings, use: str) -> None:
    """Check that a store is set that several processes can use.

    Raises:
        SettingsError: it is not; ``use`` says what the store is for.
    """
    if settings.store_url is None:
        raise SettingsError(f"BLAMESPAN_STORE_URL is not set: expected the PostgreSQL {use}")


def collector_settings(settings: Settings) -> Settings:
    """Return a collector half's settings: without the model, which the analyzers ask."""
    return settings.model_copy(update={"asks_analyzers": True, "model": None, "method": "auto"})


@asynccontextmanager
async def asking(settings: Settings) -> AsyncIterator[Analyst]:
    """Yield the analyst of a collector half, until the block ends.

    Raises:
        CollectorError: the store cannot be used; the message says why.
    """
    async with AsyncExitStack() as stack:
        store = open_shared_store(settings, stack)
        jobs, replicas = JobRows(store.db), ReplicaRows(store.db)
        ask = JobAsk(jobs, replicas, store.thread.run, timeout_s=settings.analyzer_timeout_s)
        yield JobAnalyst(ask=ask, local=open_late_analyst(collector_settings(settings)))


def opinions_of(settings: Settings, analyst: Analyst) -> Opinions | None:
    """Return the opinions for choices on the pages, local or remote; ``None`` if not available."""
    match analyst:
        case JobAnalyst():
            return JobOpinions(analyst.ask)
        case LocalAnalyst():
            return open_opinions(settings, analyst)
        case _:
            return None


@dataclass(eq=False, slots=True, kw_only=True)
class AnalyzerMetrics(Collector):
    """Counts of one analyzer, and values read from its parts at each scrape.

    They count what this process did and spent itself, also on answers that came too late; the collector half
    counts verdicts and the cost of runs, over all analyzers.
    """

    budget: HourlyBudget | None
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

    token: str | None = field(repr=False)
    metrics_token: str | None = field(repr=False)
    allowed_hosts: tuple[str, ...]
    tls: TlsFiles | None


class AnalyzerServer:
    """Serves probes, metrics and pages of an analyzer until it is stopped."""

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


class AnalyzerHalf:
    """Analyses runs by the settings, or by a person's choice, and counts what that cost."""

    def __init__(self, settings: Settings, analyst: LocalAnalyst) -> None:
        """Create it; nothing is started."""
        self._settings: Final = settings
        self._analyst: Final = analyst
        self._opinions: Final = open_opinions(settings, analyst)
        self.metrics: Final = AnalyzerMetrics(budget=budget_of(analyst))

    async def __call__(
        self, trajectory: Trajectory, choice: Choice | None, earned: Earned, called: Called
    ) -> Attribution:
        """Analyse a run.

        Raises:
            NotOffered: the choice is not on offer.
        """
        if choice is None:
            attribution = (await self._analyst.analyse(trajectory, earned)).attribution
        else:
            attribution = await self._opinions.ask(trajectory, choice, called, earned)
        self.metrics.made(attribution)
        return attribution

    def server(self) -> AnalyzerServer:
        """Return the server of its pages; it does not listen yet."""
        settings = self._settings
        rules = AnalyzerRules(
            token=settings.token,
            metrics_token=settings.metrics_token,
            allowed_hosts=settings.allowed_host_names,
            tls=tls_files(settings),
        )
        read = UploadReader(settings, open_cleaner(settings))
        pages = AnalyzerPages(
            jobs=Jobs(self._opinions, read, JobLimits(at_once=settings.concurrency)),
            settings=shown_settings(settings),
            runs_at=settings.web_url.rstrip("/") if settings.web_url else None,
        )
        return AnalyzerServer(settings.listeners[2], rules, self.metrics, pages)

    async def take_jobs(self, store: SharedStore, lifetime: Lifetime) -> JobWorker:
        """Take jobs from the store from now on, until the worker is stopped."""
        worker = JobWorker(JobRows(store.db), store.thread, self, at_once=self._settings.concurrency)
        self.metrics.waiting = lambda: worker.waiting
        self.metrics.under_way = lambda: worker.under_way
        facts = {OFFER: write_offer(await self._opinions.offer()).decode()}
        announcer = Announcer(ReplicaRows(store.db), store.thread.run, ANALYZER, facts)
        lifetime.stack.push_async_callback(announcer.leave)
        for work in (announcer.run(), worker.look(), worker.run()):
            lifetime.background(work)
        return worker


async def share_spending(store: SharedStore, budget: HourlyBudget) -> None:
    """Keep the hour's spending in the store, where all its processes spend from one budget."""
    spending = StoredSpending(rows=SpendingRows(store.db), in_db=store.thread.run, wall_ns=time.time_ns)
    await budget.keep_in(spending)
