"""Client and server of remote analyses, built from the settings, for commands and the service. Not pure.

It also gives the pages of a collector half the analyzers' opinions. The analyzers' offer is cached for a
while, so that pages do not wait each time when no analyzer is reachable.

With a data directory, an analyzer keeps the hour's spending, so that a crash does not reset it. Any number
of analyzers may run on one machine, each with its own budget, so a directory belongs to one process.

Analyzers with a store in PostgreSQL take jobs from it, and share one budget. Each claim of a job is renewed
while its analysis runs. If a renewal says that the claim is no longer valid, because another analyzer took
the job over or the collector gave it up, the analysis is cancelled: it would cost money for nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any, Final

from analyzer.executor.analyst import RunAnalyst
from analyzer.executor.codec import (
    Progress,
    read_choice,
    read_earned,
    read_run,
    write_answer,
    write_offer,
    write_progress,
)
from analyzer.executor.composition import budget_of, open_analyst, open_cleaner, open_opinions, tls_files
from analyzer.executor.job_client import ANALYZER, OFFER, JobAsk
from analyzer.executor.models.budget import HourlyBudget, StoredSpending
from analyzer.executor.remote import AwayError, ChoosingAsk, HttpAsk, RemoteAnalyst
from analyzer.inquiry.errors import AnalyzerError, UnreadableInput
from analyzer.methods.choice import Called, Choice, NotOffered, Offer, Opinions
from analyzer.service.analyzer_server import AnalyzerRules, AnalyzerServer, BusyError
from analyzer.service.lifetime import Lifetime
from analyzer.service.replicas import Announcer, SharedStore, open_shared_store
from analyzer.service.upload_process import UploadReader
from analyzer.web.pages.analyzer_half import AnalyzerPages
from analyzer.web.pages.front import shown_settings
from analyzer.web.requested_analyses import JobLimits, Jobs
from collector_processor.core.analysis import NOTHING_EARNED, Analyst, Earned
from collector_processor.core.disk import RUNS, StoreError
from collector_processor.journal.directory import DirectoryLock
from collector_processor.otlp import CollectorError
from collector_processor.otlp.tls import ClientFiles, ClientTls, open_client_tls
from collector_processor.settings import Settings, SettingsError
from collector_processor.settings.fields import JOBS_IN_STORE
from collector_processor.store.database.places import connected
from collector_processor.store.database.thread import StoreThread
from collector_processor.store.jobs import BEAT_S, LEASE_S, NO_JOBS, Job, JobRows, ReplicaRows
from collector_processor.store.small_tables import SpendingRows
from semconv.model import Attribution, Trajectory

logger = logging.getLogger(__name__)

MAX_RUN_BYTES: Final = 128 << 20
"""Largest run as JSON: more than the assembler lets a trace grow to."""
FOLDER: Final = "analyzer"
"""Subfolder of the data directory; a collector may use the rest."""
FRESH_S: Final = 30.0
"""Seconds for which an offer is cached."""
AWAY_S: Final = 5.0
"""Seconds without another attempt after no analyzer answered."""


class RemoteOpinions:
    """``Opinions`` of other processes."""

    def __init__(self, ask: ChoosingAsk, clock: Callable[[], float] = time.monotonic) -> None:
        """Create a client over ``ask``; ``clock`` returns seconds."""
        self._ask: Final = ask
        self._clock: Final = clock
        self._known: Offer | str = "not asked yet"
        self._fresh_until = float("-inf")

    async def offer(self) -> Offer:
        """Return the methods and models that can be chosen there.

        Raises:
            AwayError: no analyzer answers.
        """
        if self._clock() >= self._fresh_until:
            try:
                self._known, lasts_s = await self._ask.offer(), FRESH_S
            except AnalyzerError as error:
                self._known, lasts_s = str(error), AWAY_S
            self._fresh_until = self._clock() + lasts_s
        if isinstance(self._known, str):
            raise AwayError(self._known)
        return self._known

    async def ask(
        self, trajectory: Trajectory, choice: Choice, called: Called, earned: Earned = NOTHING_EARNED
    ) -> Attribution:
        """Have a run analysed remotely; ``called`` learns of its model calls about once a second."""
        told = Progress()

        def watch(so_far: Progress) -> None:
            nonlocal told
            called(so_far.calls - told.calls, so_far.cost_usd - told.cost_usd)
            told = so_far

        attribution = await self._ask(trajectory, choice, watch, earned)
        effort = attribution.effort
        watch(Progress(calls=effort.calls, cost_usd=effort.cost_usd or 0.0))
        return attribution


def without_model(settings: Settings) -> Settings:
    """Return a collector half's settings without the model: the analyzers ask it."""
    return settings.model_copy(update={"model": None, "method": "auto"})


@asynccontextmanager
async def asking(settings: Settings) -> AsyncIterator[Analyst]:
    """Yield an analyst that calls the configured analyzers, until the block ends.

    Raises:
        SettingsError: no analyzer is set, or a certificate cannot be read.
    """
    if settings.analyzer_endpoint is None:
        raise SettingsError(
            "BLAMESPAN_ANALYZER_ENDPOINT is not set: expected http://host:port of an analyzer, or store"
        )
    async with AsyncExitStack() as stack:
        over_store = settings.analyzer_endpoint == JOBS_IN_STORE
        ask = _job_ask(settings, stack) if over_store else _http_ask(settings, settings.analyzer_endpoint)
        stack.push_async_callback(ask.close)
        yield RemoteAnalyst(ask=ask, local=open_analyst(without_model(settings)))


def _job_ask(settings: Settings, stack: AsyncExitStack) -> JobAsk:
    if settings.store_url is None:
        raise SettingsError(
            "BLAMESPAN_ANALYZER_ENDPOINT=store without BLAMESPAN_STORE_URL: expected the PostgreSQL that"
            " analyzers use too"
        )
    store = open_shared_store(settings, stack)
    return JobAsk(
        JobRows(store.db), ReplicaRows(store.db), store.thread.run, timeout_s=settings.analyzer_timeout_s
    )


def _http_ask(settings: Settings, endpoint: str) -> HttpAsk:
    is_secure = endpoint.startswith("https:")
    if settings.token and not is_secure:
        logger.warning(
            "analyzers are called without TLS: token and runs are sent in clear text",
            extra={"endpoint": endpoint},
        )
    return HttpAsk(
        endpoint,
        timeout_s=settings.analyzer_timeout_s,
        token=settings.token,
        tls=analyzer_trust(settings) if is_secure else None,
    )


def analyzer_server(settings: Settings, analyst: RunAnalyst) -> AnalyzerServer:
    """Return the server configured by the settings; it does not listen yet."""
    rules = AnalyzerRules(
        at_once=settings.concurrency,
        max_run_bytes=min(MAX_RUN_BYTES, settings.receiving_bytes),
        token=settings.token,
        metrics_token=settings.metrics_token,
        allowed_hosts=settings.allowed_host_names,
        tls=tls_files(settings),
        room_bytes=settings.receiving_bytes,
    )
    opinions = open_opinions(settings, analyst)
    read = UploadReader(settings, open_cleaner(settings))
    pages = AnalyzerPages(
        jobs=Jobs(opinions, read, JobLimits(at_once=settings.concurrency)),
        settings=shown_settings(settings),
        runs_at=settings.web_url.rstrip("/") if settings.web_url else None,
    )
    return AnalyzerServer(
        analyst, settings.listeners[2], rules, budget=budget_of(analyst), opinions=opinions, pages=pages
    )


def opinions_of(settings: Settings, analyst: Analyst) -> Opinions | None:
    """Return the opinions for choices on the pages, local or remote; ``None`` if not available."""
    match analyst:
        case RunAnalyst():
            return open_opinions(settings, analyst)
        case RemoteAnalyst(ask=HttpAsk() | JobAsk() as ask):
            return RemoteOpinions(ask)
        case _:
            return None


def analyzer_trust(settings: Settings) -> ClientTls:
    """Return the TLS trust for analyzers; our client certificate is that of our own listeners.

    Raises:
        SettingsError: a file cannot be read.
    """
    files = ClientFiles(
        authorities=settings.analyzer_ca, certificate=settings.tls_certificate, key=settings.tls_key
    )
    return open_client_tls(files, SettingsError)


async def keep_spending(data_dir: Path, budget: HourlyBudget, lifetime: Lifetime) -> None:
    """Restore the hour's spending of an earlier process, and record each call from now on.

    Raises:
        CollectorError: another analyzer uses the directory, or it cannot be written to.
    """
    folder = data_dir / FOLDER
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = DirectoryLock(folder)
    except OSError as error:
        raise CollectorError(f"{folder}: cannot store the cost of models: {error.strerror}") from error
    lifetime.stack.callback(lock.release)
    db = lifetime.stack.enter_context(closing(connected(folder / RUNS)))
    thread = StoreThread(name="spending")
    lifetime.stack.callback(thread.close)
    rows = SpendingRows(db)
    await budget.keep_in(StoredSpending(rows=rows, in_db=thread.run, wall_ns=time.time_ns))


async def share_spending(store: SharedStore, budget: HourlyBudget) -> None:
    """Keep the hour's spending in the store, where all its processes spend from one budget."""
    spending = StoredSpending(rows=SpendingRows(store.db), in_db=store.thread.run, wall_ns=time.time_ns)
    await budget.keep_in(spending)


async def take_jobs(server: AnalyzerServer, store: SharedStore, lifetime: Lifetime) -> None:
    """Take jobs from the store from now on, as long as the server is ready."""
    worker = JobWorker(JobRows(store.db), store.thread, server.begin, server.room, progress=server.progress)
    server.metrics.waiting = lambda: worker.waiting
    facts = {OFFER: write_offer(await server.offer()).decode()}
    announcer = Announcer(ReplicaRows(store.db), store.thread.run, ANALYZER, facts)
    lifetime.stack.push_async_callback(announcer.leave)
    lifetime.stack.push_async_callback(worker.finish)
    for work in (announcer.run(), worker.look(), worker.run()):
        lifetime.background(work)


POLL_S: Final = 0.5
"""Seconds between claims while there is no job."""

Begin = Callable[[bytes, Trajectory, Choice | None, Earned], asyncio.Future[Attribution]]
"""Begins an analysis under a key; raises ``BusyError`` if too many run."""


class JobWorker:
    """Claims jobs as long as there is room for them, until it is stopped."""

    def __init__(
        self,
        jobs: JobRows,
        thread: StoreThread,
        begin: Begin,
        room: Callable[[], int],
        *,
        progress: Callable[[bytes], Progress] = lambda _key: Progress(),
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        beat_s: float = BEAT_S,
        lease_s: float = LEASE_S,
    ) -> None:
        """Create a worker; it claims nothing yet.

        Args:
            jobs: the table of jobs.
            thread: runs calls on it.
            begin: begins an analysis.
            room: returns how many more analyses may begin.
            progress: returns what the analysis under a key has spent; each renewal reports it.
            pause: sleeps for the given seconds.
            beat_s: seconds between renewals of a claim.
            lease_s: seconds after which a claim that is not renewed expires.
        """
        self._jobs: Final = jobs
        self._thread: Final = thread
        self._begin: Final = begin
        self._room: Final = room
        self._progress: Final = progress
        self._pause: Final = pause
        self._beat_s: Final = beat_s
        self._lease_s: Final = lease_s
        self._working: Final[set[asyncio.Task[None]]] = set()
        self._reading = 0
        """Claimed jobs whose runs are being read; ``room`` counts only analyses that have begun."""
        self._is_stopped = False
        self.waiting = NO_JOBS
        """Jobs that waited for an analyzer at the last look; read by metrics."""

    async def run(self) -> None:
        """Claim jobs until stopped."""
        while not self._is_stopped:
            job = await self._next() if self._room() > self._reading else None
            if job is None:
                await self._pause(POLL_S)
            else:
                task = asyncio.create_task(self._work(job))
                self._working.add(task)
                task.add_done_callback(self._working.discard)
                await asyncio.sleep(0)  # lets the reading begin, so that it is counted

    def stop(self) -> None:
        """Claim no more jobs."""
        self._is_stopped = True

    async def finish(self) -> None:
        """Wait for the jobs in progress; analyses that were cancelled give theirs back."""
        while self._working:
            await asyncio.wait(set(self._working))

    async def look(self) -> None:
        """Refresh ``waiting`` every few seconds until cancelled."""
        while True:
            try:
                self.waiting = await self._thread.run(self._jobs.waiting)
            except StoreError as error:
                logger.warning("cannot read the jobs", extra={"reason": str(error)})
            await self._pause(self._beat_s)

    async def _next(self) -> Job | None:
        try:
            return await self._thread.run(self._jobs.claim, self._lease_s)
        except StoreError as error:
            logger.warning("cannot claim a job", extra={"reason": str(error)})
            return None

    async def _work(self, job: Job) -> None:
        try:
            analysis = await self._read(job)
        except BusyError:
            await self._give_back(job)
            return
        except (
            UnreadableInput,
            NotOffered,
            ValueError,
        ) as error:  # no analyzer of this version can answer it
            logger.warning("a job cannot be read", extra={"job": job.id, "reason": str(error)})
            return
        if analysis is None or not await self._kept(job, analysis):
            return
        if analysis.cancelled():
            await self._give_back(job)
            return
        if analysis.exception() is not None:  # the claim counts, and the job is free when its lease expires
            return
        if not await self._thread.insist(self._jobs.answer, job, write_answer(analysis.result())):
            logger.warning("an answer came too late", extra={"job": job.id})

    async def _read(self, job: Job) -> asyncio.Future[Attribution] | None:
        """Begin a job's analysis; return ``None`` if its claim was lost while its run was read."""
        self._reading += 1
        try:
            beginning = asyncio.create_task(self._begun(job))
            return beginning.result() if await self._kept(job, beginning) else None
        finally:
            self._reading -= 1

    async def _kept(self, job: Job, work: asyncio.Future[Any]) -> bool:
        """Renew a claim until some work on its job ends; cancel the work if the claim is lost."""
        while not (await asyncio.wait({work}, timeout=self._beat_s))[0]:
            if not await self._renewed(job):
                logger.warning("a job was taken over or given up", extra={"job": job.id})
                work.cancel()
                await asyncio.wait({work})
                return False
        return True

    async def _begun(self, job: Job) -> asyncio.Future[Attribution]:
        trajectory = await asyncio.to_thread(read_run, job.body)
        return self._begin(_key(job), trajectory, read_choice(job.choice), read_earned(job.choice))

    async def _renewed(self, job: Job) -> bool:
        try:
            progress = write_progress(self._progress(_key(job))).decode()
            return await self._thread.run(self._jobs.renew, job, self._lease_s, progress)
        except StoreError as error:  # the next renewal or the answer tells whether the claim is still valid
            logger.warning("cannot renew a claim", extra={"job": job.id, "reason": str(error)})
            return True

    async def _give_back(self, job: Job) -> None:
        try:
            await self._thread.run(self._jobs.give_back, job)
        except StoreError as error:  # its lease expires
            logger.warning("cannot give a job back", extra={"job": job.id, "reason": str(error)})


def _key(job: Job) -> bytes:
    """Return the key of a claim's analysis: another claim of the job begins another analysis."""
    return f"{job.id}/{job.claim}".encode()
