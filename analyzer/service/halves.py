"""Collector half and analyzer half, built from the settings. Not pure.

Both use one store in PostgreSQL: the collector puts each failed run into a table of jobs, and analyzers take
them from there. All processes of a store share one hourly budget.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from analyzer.executor.analyst import RunAnalyst
from analyzer.executor.codec import write_offer
from analyzer.executor.composition import budget_of, open_analyst, open_cleaner, open_opinions, tls_files
from analyzer.executor.job_client import ANALYZER, OFFER, JobAnalyst, JobAsk, JobOpinions
from analyzer.executor.models.budget import HourlyBudget, StoredSpending
from analyzer.methods.choice import Called, Choice, Opinions
from analyzer.service.analyzer_server import AnalyzerMetrics, AnalyzerRules, AnalyzerServer
from analyzer.service.job_worker import JobWorker
from analyzer.service.lifetime import Lifetime
from analyzer.service.replicas import Announcer, SharedStore, open_shared_store
from analyzer.service.upload_process import UploadReader
from analyzer.web.pages.analyzer_half import AnalyzerPages
from analyzer.web.pages.front import shown_settings
from analyzer.web.requested_analyses import JobLimits, Jobs
from collector_processor.core.analysis import Analyst, Earned
from collector_processor.settings import Settings, SettingsError
from collector_processor.store.jobs import JobRows, ReplicaRows
from collector_processor.store.small_tables import SpendingRows
from semconv.model import Attribution, Trajectory

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
        yield JobAnalyst(ask=ask, local=open_analyst(collector_settings(settings)))


def opinions_of(settings: Settings, analyst: Analyst) -> Opinions | None:
    """Return the opinions for choices on the pages, local or remote; ``None`` if not available."""
    match analyst:
        case RunAnalyst():
            return open_opinions(settings, analyst)
        case JobAnalyst():
            return JobOpinions(analyst.ask)
        case _:
            return None


class AnalyzerHalf:
    """Analyses runs by the settings, or by a person's choice, and counts what that cost."""

    def __init__(self, settings: Settings, analyst: RunAnalyst) -> None:
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
