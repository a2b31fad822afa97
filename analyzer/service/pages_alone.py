"""The pages and the API over a store that another process writes: a process of their own.

As a module, it is the process that ``blamespan serve`` starts (``pages_process.py``). ``serve pages`` runs
any number of them elsewhere, over PostgreSQL. Pages read the store, and write labels, the state of
issues and commands to it (``commands.py``). The process that owns the store applies them: at once if it
started the pages, else within seconds.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Final

import uvloop
from prometheus_client.registry import Collector, CollectorRegistry

from analyzer.analyses.composition import budget_of, open_cleaner, open_late_analyst, prepare_model, tls_files
from analyzer.analyses.executor import open_pool, stepping_in
from analyzer.analyses.local_analyst import LocalAnalyst
from analyzer.analyses.pool import Pool
from analyzer.issues.counting import IssueCounting
from analyzer.issues.issue_store import IssueStore
from analyzer.issues.labels.label_store import LabelStore
from analyzer.issues.labels.labelling import AcceptedLabel, accept_label
from analyzer.issues.labels.run_label import Label, Statement
from analyzer.issues.labels.track_records import open_track_records
from analyzer.issues.receivers import counting_rules
from analyzer.methods.choice import Called, Choice, Offer, Opinions
from analyzer.recordings.uploads import load_readers
from analyzer.service.commands import CommandGiver, nothing
from analyzer.service.halves import asking, opinions_of, share_spending
from analyzer.service.lifetime import Lifetime, collecting_rarely
from analyzer.service.pages_process import Service, connected
from analyzer.service.replicas import Announcer, SharedStore, open_shared_store
from analyzer.service.upload_process import UploadReader
from analyzer.telemetry.json_lines import configure_logging
from analyzer.telemetry.process_stats import ProcessStats
from analyzer.web.api import Deleting
from analyzer.web.app import WebParts, web_server
from analyzer.web.front import Labels, Pages, TraceLink, shown_settings
from analyzer.web.probes import Probe, Probes
from analyzer.web.reads.archive import RunArchive
from analyzer.web.reads.issue_reads import IssueReader, WorkflowReader
from analyzer.web.requested_analyses import JobLimits, Jobs
from collector_processor.core.analysis import NOTHING_EARNED, Analyst, Earned
from collector_processor.core.http_server import HttpServer
from collector_processor.core.records import StoredVerdict
from collector_processor.mapping_files import open_reader
from collector_processor.otlp import CollectorError, Tenant
from collector_processor.rebuild.redaction import Cleaner, make_redactor, read_kinds
from collector_processor.settings import Settings
from collector_processor.store.jobs import ReplicaRows
from collector_processor.store.verdicts import RunStore
from semconv.model import Attribution, Trajectory

logger = logging.getLogger(__name__)

WEB: Final = "web"
"""Kind of replica that serves pages."""


class _Process(Collector):
    """The metrics of this process; the store's owner has the metrics of runs."""

    def __init__(self) -> None:
        self._stats: Final = ProcessStats()

    def collect(self) -> Any:
        """Yield the families of the process."""
        return self._stats.collect()


def open_pages_alone(settings: Settings, stack: AsyncExitStack, lifetime: Lifetime) -> HttpServer:
    """Return the server of the pages over the shared store; it does not listen yet.

    Raises:
        CollectorError: the store cannot be used; the message says why.
    """
    store = open_shared_store(settings, stack)
    registry = CollectorRegistry()
    registry.register(_Process())
    announcer = Announcer(ReplicaRows(store.db), store.thread.run, WEB, {})
    stack.push_async_callback(announcer.leave)
    lifetime.background(announcer.run())
    probe = Probes(is_ready=lambda: True, metrics=registry, stores={"verdicts": store.thread.condition})
    parts = _Parts(settings=settings, store=store, stack=stack, clean=open_cleaner(settings), probe=probe)
    return web_server(parts.web(), settings.listeners[2])


async def _open_pages_of(
    settings: Settings, stack: AsyncExitStack, service: Service, *, is_analysing: bool
) -> HttpServer:
    """Return the server of the pages of a service that started this process."""
    store = open_shared_store(settings, stack)
    parts = _Parts(
        settings=settings,
        store=store,
        stack=stack,
        clean=open_cleaner(settings),
        probe=service.probe,
        carry_out=service.carry_out,
        signs_out_durably=True,
    )
    if is_analysing:
        analyst, pool = await _open_analyst(settings, stack)
        budget = budget_of(analyst)
        if budget is not None:
            await share_spending(store, budget)
        parts.requested = _requested(parts, analyst, pool)
    return web_server(parts.web(), settings.listeners[2])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Requested:
    """The parts that analyse what people request."""

    jobs: Jobs | None = None
    card: Mapping[str, Any] = field(default_factory=dict)


async def _open_analyst(settings: Settings, stack: AsyncExitStack) -> tuple[Analyst, Pool]:
    """Return the analyst, and the pool of processes that run its steps: none where analyzers do."""
    if settings.asks_analyzers:
        return await stack.enter_async_context(asking(settings)), Pool()
    analyst = open_late_analyst(settings)
    pool = open_pool(settings, analyst)
    stack.push_async_callback(pool.close)
    return stepping_in(pool, analyst), pool


def _requested(parts: _Parts, analyst: Analyst, pool: Pool) -> _Requested:
    settings = parts.settings
    opinions = opinions_of(settings, analyst)
    ranker = analyst.ranker if isinstance(analyst, LocalAnalyst) else None
    if opinions is None:
        return _Requested()

    async def prepare() -> None:
        await asyncio.gather(asyncio.to_thread(load_readers), pool.start_ahead())

    jobs = Jobs(
        _PreparedOpinions(opinions=opinions, prepare=lambda: prepare_model(settings)),
        UploadReader(settings, parts.clean),
        JobLimits(at_once=settings.concurrency),
        earned=open_track_records(parts.stack, parts.store.database)[0],
        prepare=prepare,
    )
    parts.stack.push_async_callback(jobs.close)
    return _Requested(jobs=jobs, card={} if ranker is None else ranker.card)


@dataclass(slots=True, kw_only=True)
class _PreparedOpinions:
    """Opinions whose model is imported before the first one: it takes seconds and a hundred megabytes."""

    opinions: Opinions
    prepare: Callable[[], Awaitable[None]]
    _is_prepared: bool = False
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def offer(self) -> Offer:
        """Return the methods and models on offer."""
        return await self.opinions.offer()

    async def ask(
        self, trajectory: Trajectory, choice: Choice, called: Called, earned: Earned = NOTHING_EARNED
    ) -> Attribution:
        """Analyse by a choice on offer."""
        async with self._turn:
            if not self._is_prepared:
                await self.prepare()
                self._is_prepared = True
        return await self.opinions.ask(trajectory, choice, called, earned)


@dataclass(slots=True, kw_only=True)
class _Parts:
    """The parts of the pages over one store."""

    settings: Settings
    store: SharedStore
    stack: AsyncExitStack
    clean: Cleaner
    probe: Probe
    carry_out: Callable[[], Awaitable[None]] = nothing
    """Has what was written to the store applied now."""
    signs_out_durably: bool = False
    """Whether ended sessions are kept in the data directory."""
    requested: _Requested = field(default_factory=_Requested)

    def web(self) -> WebParts:
        """Return all that the application needs."""
        settings, store = self.settings, self.store
        runs = RunStore(store.db)
        giver = CommandGiver(db=store.db, thread=store.thread, poke=self.carry_out)
        own = IssueStore(store.database.connect())
        workflows = WorkflowReader(own, time.time_ns, is_fair_sample=settings.is_fair_sample)
        self.stack.callback(workflows.close)
        is_remembered = self.signs_out_durably and settings.token
        return WebParts(
            probe=self.probe,
            find=lambda run_id: store.thread.run(runs.find, run_id),
            labels=self._labels(runs),
            deleting=Deleting(run=giver.delete_run, tenant=giver.delete_tenant),
            workflows=workflows,
            token=settings.token,
            metrics_token=settings.metrics_token,
            tenant_header_names=settings.tenant_header_names,
            allowed_hosts=settings.allowed_host_names,
            signed_out=settings.data_dir / "signed-out" if is_remembered else None,
            tls=tls_files(settings),
            pages=self._pages(giver),
        )

    def _issues(self) -> IssueReader:
        store = self.store
        rules, own = counting_rules(self.settings), IssueStore(store.database.connect())
        counting = IssueCounting(IssueStore(store.db), LabelStore(store.db), rules)
        reader = IssueReader(counting, own, store.thread.run, time.time_ns)
        self.stack.callback(reader.close)
        return reader

    def _labels(self, runs: RunStore) -> Labels:
        store, labels = self.store, LabelStore(self.store.db)
        clean = make_redactor(read_kinds(self.settings.redact), self.settings.redact_patterns).redact

        def take(verdict: StoredVerdict, statement: Statement) -> AcceptedLabel:
            return accept_label(labels, verdict, statement, time.time_ns(), verdicts=runs, clean=clean)

        async def give(verdict: StoredVerdict, statement: Statement) -> AcceptedLabel:
            accepted = await store.thread.run(take, verdict, statement)
            await self.carry_out()
            return accepted

        async def of(tenant: Tenant, run_id: str) -> Sequence[Label]:
            return await store.thread.run(labels.labels, tenant, run_id)

        return Labels(give=give, of=of)

    def _pages(self, giver: CommandGiver) -> Pages:
        settings, store = self.settings, self.store
        archive = RunArchive(store.database)
        self.stack.callback(archive.close)
        return Pages(
            runs=archive,
            clean=self.clean,
            reader=open_reader(settings.mappings),
            jobs=self.requested.jobs,
            issues=self._issues(),
            trace_link=TraceLink(template=settings.trace_url or ""),
            settings=shown_settings(settings),
            second=giver,
            now_ns=time.time_ns,
            card=self.requested.card,
        )


async def _serve(channel: int, listening: Sequence[int]) -> None:
    """Serve pages until the service ends."""
    said, service = await connected(channel)
    if said is None:
        return
    settings = Settings.model_validate(said["settings"])
    async with AsyncExitStack() as stack:
        lifetime = Lifetime(stack)
        await stack.enter_async_context(lifetime.watched)
        ended = asyncio.create_task(service.listen())
        server = await _open_pages_of(settings, stack, service, is_analysing=said["is_analysing"])
        await server.start_on([socket.socket(fileno=one) for one in listening])
        stack.push_async_callback(server.stop)
        async with collecting_rarely():
            lifetime.background(service.beat())
            await service.ready()
            await asyncio.wait({ended, lifetime.failure}, return_when=asyncio.FIRST_COMPLETED)
    if lifetime.failure.done():
        lifetime.failure.result()


def main(channel: int, *listening: int) -> None:
    """Serve pages on sockets that listen, until the service at the other end of ``channel`` ends."""
    for name in (signal.SIGINT, signal.SIGTERM):  # of a terminal or an orchestrator: the service decides
        signal.signal(name, signal.SIG_IGN)
    configure_logging()
    try:
        uvloop.run(_serve(channel, listening))
    except CollectorError as error:  # the service starts another process, with growing pauses
        logger.error("the pages cannot be served", extra={"reason": str(error)})  # noqa: TRY400 - foreseen
        os._exit(1)
    os._exit(0)  # without waiting for threads that still read an upload


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
