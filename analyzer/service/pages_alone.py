"""Composition of ``blamespan serve pages``: the pages and the API over a store that another process writes.

Any number of such processes show the same runs. People may label runs, and resolve and mute issues; the
process that owns the store applies labels to verdicts and traces within seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

from prometheus_client.registry import Collector, CollectorRegistry

from analyzer.executor.composition import open_cleaner, tls_files
from analyzer.issues.counting import IssueCounting
from analyzer.issues.issue_service import IssueService
from analyzer.issues.issue_store import IssueStore
from analyzer.issues.labels.label_store import LabelStore
from analyzer.issues.labels.labelling import AcceptedLabel, accept_label
from analyzer.issues.labels.run_label import Label, Statement
from analyzer.issues.receivers import counting_rules
from analyzer.service.lifetime import Lifetime
from analyzer.service.replicas import Announcer, SharedStore, open_shared_store
from analyzer.telemetry.process_stats import ProcessStats
from analyzer.web.api import Labels
from analyzer.web.app import WebParts, web_server
from analyzer.web.pages.front import shown_settings
from analyzer.web.pages.run_pages import Pages
from analyzer.web.reads.archive import RunArchive
from analyzer.web.reads.issue_reads import IssueReader
from analyzer.web.reads.workflow_reads import WorkflowReader
from analyzer.web.views.run_page import TraceLink
from collector_processor.core.http_server import HttpServer
from collector_processor.core.records import StoredVerdict
from collector_processor.mapping_files import open_reader
from collector_processor.otlp import Tenant
from collector_processor.settings import Settings
from collector_processor.store.jobs import ReplicaRows
from collector_processor.store.verdicts import RunStore

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
    runs = RunStore(store.db)
    issues = _issues(settings, store, stack)
    workflows = WorkflowReader(
        IssueStore(store.database.connect()), time.time_ns, is_fair_sample=settings.is_fair_sample
    )
    stack.callback(workflows.close)
    parts = WebParts(
        is_ready=lambda: True,
        stores={"verdicts": store.thread.condition},
        recent=lambda limit: store.thread.run(runs.recent, limit),
        find=lambda run_id: store.thread.run(runs.find, run_id),
        metrics=registry,
        labels=_labels(store, runs),
        issues=issues,
        workflows=workflows,
        token=settings.token,
        metrics_token=settings.metrics_token,
        tenant_header_names=settings.tenant_header_names,
        allowed_hosts=settings.allowed_host_names,
        tls=tls_files(settings),
        pages=_pages(settings, store, issues, stack),
    )
    return web_server(parts, settings.listeners[2])


def _issues(settings: Settings, store: SharedStore, stack: AsyncExitStack) -> IssueService:
    own, labels = IssueStore(store.db), LabelStore(store.db)
    service = IssueService(
        counting=IssueCounting(own, labels, counting_rules(settings)),
        store=own,
        reader=IssueStore(store.database.connect()),
        in_db=store.thread.run,
    )
    stack.callback(service.close)
    return service


def _labels(store: SharedStore, runs: RunStore) -> Labels:
    labels, now_ns = LabelStore(store.db), time.time_ns

    def take(verdict: StoredVerdict, statement: Statement) -> AcceptedLabel:
        with runs.transaction():
            return accept_label(labels, verdict, statement, now_ns(), verdicts=runs)

    async def of(tenant: Tenant, run_id: str) -> Sequence[Label]:
        return await store.thread.run(labels.labels, tenant, run_id)

    return Labels(give=lambda verdict, statement: store.thread.run(take, verdict, statement), of=of)


def _pages(settings: Settings, store: SharedStore, issues: IssueService, stack: AsyncExitStack) -> Pages:
    archive = RunArchive(store.database)
    stack.callback(archive.close)
    now_ns: Callable[[], int] = time.time_ns
    reader = IssueReader(
        issues, IssueStore(store.database.connect()), now_ns, is_fair_sample=settings.is_fair_sample
    )
    stack.callback(reader.close)
    return Pages(
        runs=archive,
        clean=open_cleaner(settings),
        reader=open_reader(settings.mappings),
        issues=reader,
        trace_link=TraceLink(template=settings.trace_url or ""),
        settings=shown_settings(settings),
        now_ns=now_ns,
    )
