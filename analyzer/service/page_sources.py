"""Wiring of the pages and the API to the stores, and of stored experiments to verdicts. Not pure.

``blamespan experiment`` is another process, so it cannot commit verdicts itself: it would race with analyses,
and could not notify the service's tasks. The service reads its results, keeps each as an opinion, and commits
it like a second opinion.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from prometheus_client.registry import CollectorRegistry

from analyzer.executor.analyst import RunAnalyst
from analyzer.executor.codec import read_answer
from analyzer.executor.composition import carrier_policy, tls_files
from analyzer.inquiry.errors import AnalyzerError
from analyzer.issues.issue_store import IssueStore
from analyzer.issues.labels.correcting import Corrections, SecondOpinions, Wanted
from analyzer.issues.labels.kept_trace import kept_trace
from analyzer.issues.labels.label_store import LabelStore
from analyzer.issues.labels.opinion_store import OpinionStore, Waiting, WaitingExperiments
from analyzer.issues.labels.run_label import Label
from analyzer.service.durable import Files, conditions
from analyzer.service.halves import opinions_of
from analyzer.service.lifetime import Lifetime
from analyzer.service.preparing import keeping
from analyzer.service.start_lanes import AnalysisParts, start_corrections, start_scores_back
from analyzer.service.upload_process import UploadReader
from analyzer.web.api import Deleting, Labels
from analyzer.web.app import WebParts
from analyzer.web.pages.front import shown_settings
from analyzer.web.pages.run_pages import Pages
from analyzer.web.reads.archive import RunArchive
from analyzer.web.reads.issue_reads import IssueReader
from analyzer.web.reads.workflow_reads import WorkflowReader
from analyzer.web.requested_analyses import JobLimits, Jobs
from analyzer.web.views.run_page import TraceLink
from collector_processor.core.analysis import Analyst
from collector_processor.core.disk import StoreError
from collector_processor.core.records import EXPERIMENT
from collector_processor.mapping_files import open_reader
from collector_processor.otlp import Tenant
from collector_processor.otlp.tls import Renewals
from collector_processor.pipeline.examine import Examiner
from collector_processor.settings import Settings
from collector_processor.sinks.deleting import delete_run_and_scores, delete_tenant_and_scores
from collector_processor.store.database.connection import StoreConnection
from semconv.dialects import USUAL, Reader


def web_parts(
    settings: Settings,
    lifetime: Lifetime,
    files: Files,
    examiner: Examiner,
    analysis: AnalysisParts,
    *,
    is_ready: Callable[[], bool],
    registry: CollectorRegistry,
    renewals: Renewals,
) -> WebParts:
    """Return the parts of the pages and the API; they query the stores on the stores' own thread."""
    second = SecondOpinions(
        commits=examiner,
        store=files.store,
        opinions=OpinionStore(files.db),
        beside=analysis.issues.beside,
        kept=keeping(settings),
        policy=carrier_policy(settings),
        now_ns=time.time_ns,
    )
    lifetime.background(Proving(second=second, db=files.db, reader=open_reader(settings.mappings)).run())
    lanes = settings.score_lanes
    corrections = start_corrections(settings, lifetime, files, examiner, analysis.issues)
    start_scores_back(settings, lifetime, corrections)
    return WebParts(
        is_ready=is_ready,
        stores=conditions(files),
        recent=lambda limit: examiner.in_db(files.store.recent, limit),
        find=lambda run_id: examiner.in_db(files.store.find, run_id),
        metrics=registry,
        labels=_label_parts(files, examiner, corrections),
        deleting=Deleting(
            run=lambda tenant, run_id: examiner.in_turn(
                delete_run_and_scores, files.db, tenant, run_id, lanes, time.time_ns()
            ),
            tenant=lambda tenant: examiner.in_turn(
                delete_tenant_and_scores, files.db, tenant, lanes, time.time_ns()
            ),
        ),
        issues=analysis.issues.service,
        workflows=_open_workflows(settings, lifetime, files),
        token=settings.token,
        metrics_token=settings.metrics_token,
        tenant_header_names=settings.tenant_header_names,
        allowed_hosts=settings.allowed_host_names,
        signed_out=settings.data_dir / "signed-out" if settings.token else None,
        tls=tls_files(settings, renewals),
        pages=replace(_open_pages(settings, lifetime, files, analysis), second=second),
    )


def _open_pages(settings: Settings, lifetime: Lifetime, files: Files, analysis: AnalysisParts) -> Pages:
    """Open the pages; uploads are analysed in this process, or by the configured analyzers."""
    # The listener is opened later and closed before these.
    archive = RunArchive(files.database)
    lifetime.watched.callback(archive.close)
    issues = IssueReader(
        analysis.issues.service,
        IssueStore(files.database.connect()),
        time.time_ns,
        is_fair_sample=settings.is_fair_sample,
    )
    lifetime.watched.callback(issues.close)
    opinions = opinions_of(settings, analysis.analyst)
    read = UploadReader(settings, analysis.cleaner)
    limits = JobLimits(at_once=settings.concurrency)
    jobs = None if opinions is None else Jobs(opinions, read, limits, earned=analysis.earned)
    if jobs is not None:
        lifetime.watched.push_async_callback(jobs.close)
    return Pages(
        runs=archive,
        clean=analysis.cleaner,
        reader=open_reader(settings.mappings),
        jobs=jobs,
        issues=issues,
        trace_link=TraceLink(template=settings.trace_url or ""),
        settings=shown_settings(settings),
        now_ns=time.time_ns,
        card=_card(analysis.analyst),
    )


def _open_workflows(settings: Settings, lifetime: Lifetime, files: Files) -> WorkflowReader:
    store = IssueStore(files.database.connect())
    workflows = WorkflowReader(store, time.time_ns, is_fair_sample=settings.is_fair_sample)
    lifetime.watched.callback(workflows.close)
    return workflows


def _card(analyst: Analyst) -> Mapping[str, Any]:
    ranker = analyst.attributor.ranker if isinstance(analyst, RunAnalyst) else None
    return {} if ranker is None else ranker.card


def _label_parts(files: Files, examiner: Examiner, corrections: Corrections) -> Labels:
    labels = files.labels

    async def of(tenant: Tenant, run_id: str) -> Sequence[Label]:
        return await examiner.in_db(labels.labels, tenant, run_id)

    return Labels(give=corrections.give, of=of)


logger = logging.getLogger(__name__)

WATCH_EVERY_S: Final = 2.0
"""Seconds between reads of the table: results come from another process."""


@dataclass(slots=True, kw_only=True)
class Proving:
    """Task that turns experiments' results into verdicts while the service runs."""

    second: SecondOpinions
    db: StoreConnection
    """The connection on which verdicts are committed."""
    reader: Reader = USUAL
    """Reader of the spans of kept runs."""
    _waits: bool = field(default=False, init=False)

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            await self.follow()
            await asyncio.sleep(WATCH_EVERY_S)

    async def follow(self) -> None:
        """Commit waiting results; if the store refuses, the next call retries."""
        queue, in_db = WaitingExperiments(self.db), self.second.commits.in_db
        try:
            for waiting in await in_db(queue.all):
                await self._commit(waiting)
                await self._pin(waiting)
                await in_db(queue.done, waiting)
        except StoreError as error:
            if not self._waits:
                logger.warning("results of experiments wait for the store", extra={"reason": str(error)})
            self._waits = True
        else:
            self._waits = False

    async def _commit(self, waiting: Waiting) -> None:
        wanted = Wanted(
            tenant=waiting.tenant,
            run_id=waiting.run_id,
            method=EXPERIMENT,
            model="",
            digest=f"experiment {waiting.id} of {waiting.given_ns}",
        )
        if await self.second.known(wanted) is not None:  # already committed before the process died
            return
        extra: dict[str, object] = {"run_id": waiting.run_id}
        try:
            kept = await self.second.commits.in_db(
                kept_trace, self.db, waiting.run_id, waiting.tenant, self.reader
            )
            trajectory = (await asyncio.to_thread(kept.run)).trajectory
            attribution = read_answer(waiting.document.encode(), trajectory)
        except AnalyzerError as error:
            logger.warning("result of an experiment is dropped", extra={**extra, "reason": str(error)})
            return
        outcome = await self.second.take(wanted, trajectory, attribution)
        logger.info("experiment decided", extra={**extra, "outcome": outcome.value})

    async def _pin(self, waiting: Waiting) -> None:
        """Keep the run for ``train``, without delaying the verdict."""
        try:
            await self.second.commits.in_db(LabelStore(self.db).pin, waiting.tenant, waiting.run_id)
        except StoreError as error:
            extra = {"run_id": waiting.run_id, "reason": str(error)}
            logger.warning("run of an experiment is not kept for training", extra=extra)
