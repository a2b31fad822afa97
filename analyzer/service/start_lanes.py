"""Start-up of the forwarder, the analyses, the delivery of their verdicts, and the issue service."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from analyzer.analyses.commit import Committer, Leaving
from analyzer.analyses.composition import budget_of, carrier_policy, notice_text
from analyzer.analyses.early import Announce, EarlyWarning
from analyzer.analyses.examine import Examiner
from analyzer.analyses.executor import open_executor
from analyzer.analyses.models.budget import HourlyBudget, StoredSpending
from analyzer.analyses.pool import Pool
from analyzer.analyses.prepared import keeping
from analyzer.analyses.run_comparison import ReadWorths, RunComparison
from analyzer.analyses.scheduler import Pipeline, PipelineLimits
from analyzer.issues.beside_verdicts import BesideVerdicts, TextsBehind, keeper
from analyzer.issues.correcting import Corrections, SecondOpinions
from analyzer.issues.counting import IssueCounting
from analyzer.issues.issue_service import IssueCounts, IssueCountsReader, IssueService
from analyzer.issues.issue_store import IssueStore
from analyzer.issues.labels.label_store import OpinionStore
from analyzer.issues.receivers import counting_rules, receivers_of
from analyzer.methods.registry import AUTO
from analyzer.service.commands import CommandTask
from analyzer.service.durable import Files
from analyzer.service.lifetime import Lifetime
from analyzer.service.scores_back import ScoresBack
from analyzer.telemetry.verdict_counters import Move, VerdictCounters
from collector_processor.core.analysis import Analyst, ReadEarned
from collector_processor.core.disk import StoreError, patiently
from collector_processor.core.records import Outgoing, StoredVerdict, VerdictSummary
from collector_processor.core.scores import Lane
from collector_processor.exporters import open_exporters
from collector_processor.forwarding.forwarder import Forwarder
from collector_processor.forwarding.ledger import Ledger
from collector_processor.forwarding.outbox import OutboxDelivery
from collector_processor.forwarding.sender import Sender, exporting
from collector_processor.journal import Journal
from collector_processor.mapping_files import open_reader
from collector_processor.otlp import Exporter, Signal, TraceKey
from collector_processor.rebuild.redaction import Cleaner, make_redactor, read_kinds
from collector_processor.settings import Settings, WriteBack
from collector_processor.sinks.client import SinkOutlet
from collector_processor.store.run_text import RunTextRows

_LOOK_S: Final = 10.0
"""Seconds between looks for scores of runs that another process deleted."""
_SPENDING_S: Final = 5.0
_ANALYSES_SHARE: Final = 0.5
"""Share of the shutdown time for analyses; the rest is for sending their verdicts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisParts:
    """The parts that analyse complete traces and receive the results."""

    analyst: Analyst
    pool: Pool
    """Worker processes of the analyst and of the preparation."""
    cleaner: Cleaner
    verdict_counters: VerdictCounters
    issues: Issues
    earned: ReadEarned
    """Returns what models have earned with a tenant."""
    worths: ReadWorths
    """Returns what evidence has earned with a tenant."""
    owns: Callable[[TraceKey], bool]
    """Whether this process has a trace's spans; with Kafka, they may go to another."""
    early: EarlyWarning | None
    """``None`` if early warnings are off."""


def open_routes(settings: Settings, lifetime: Lifetime, instance_id: str) -> Mapping[Signal, Exporter]:
    """Open the exporter of each signal; no exporter without an endpoint."""
    if not settings.endpoints:
        return {}
    router = open_exporters(settings.endpoints, instance_id)
    lifetime.stack.push_async_callback(router.close)
    return router.routes


def open_senders(
    settings: Settings, lifetime: Lifetime, exporters: Mapping[Signal, Exporter]
) -> Mapping[Signal | Lane, Sender]:
    """Return the senders to the backend and to the sinks of scores, for rows and verdicts alike."""
    senders: dict[Signal | Lane, Sender] = {
        signal: exporting(signal, exporter) for signal, exporter in exporters.items()
    }
    for target in settings.score_targets:
        outlet = SinkOutlet(target)
        lifetime.stack.push_async_callback(outlet.close)
        senders[target.lane] = Sender(target.lane, outlet.send, max_bytes=0)  # one run in each exchange
    return senders


def start_forwarder(
    lifetime: Lifetime, journal: Journal, ledger: Ledger, senders: Mapping[Signal | Lane, Sender]
) -> Forwarder:
    """Start the forwarder of received requests."""
    own = {signal: senders[signal] for signal in Signal if signal in senders}
    forwarder = Forwarder(journal=journal, ledger=ledger, senders=own)
    lifetime.background(forwarder.run())
    lifetime.drained(forwarder.drain)  # the drain runs before ``run`` is cancelled
    forwarder.resume()
    return forwarder


def start_deliveries(
    settings: Settings,
    lifetime: Lifetime,
    files: Files,
    senders: Mapping[Signal | Lane, Sender],
    analysis: AnalysisParts,
) -> tuple[Examiner, tuple[OutboxDelivery, ...]]:
    """Start the delivery of verdicts; return the examiner, which commits verdicts, and the deliveries."""
    deliveries: list[OutboxDelivery] = []
    store = files.store

    def wake() -> None:
        for delivery in deliveries:
            delivery.wake()

    def delivered(entry: Outgoing) -> None:
        if entry.ended_ns:
            analysis.verdict_counters.delivered(entry.ended_ns, time.time_ns())

    examiner = _examiner(settings, lifetime, files, analysis, wake)
    lifetime.watched.callback(files.thread.close)
    kept = [target.lane for target in settings.score_targets]
    lifetime.background(patiently(lambda: files.thread.run(store.keep_lanes, kept), asyncio.sleep))
    lanes: tuple[Signal | Lane, ...] = (Signal.TRACES, Signal.LOGS, *kept)
    for lane in lanes:
        delivery = OutboxDelivery(
            lane,
            read=lambda signal, skip: files.thread.run(store.outbox, signal, skip),
            forget=lambda ids: files.thread.run(store.delivered, ids),
            sender=senders.get(lane),
            look_s=None if isinstance(lane, Signal) else _LOOK_S,
            delivered=delivered,
        )
        deliveries.append(delivery)
        lifetime.drained(delivery.drain)
        lifetime.background(delivery.run())  # cancelled first, so that nothing is sent twice
    return examiner, tuple(deliveries)


def _examiner(
    settings: Settings, lifetime: Lifetime, files: Files, analysis: AnalysisParts, wake: Callable[[], None]
) -> Examiner:
    def tell(summary: VerdictSummary, verdict: StoredVerdict) -> None:
        analysis.verdict_counters.count(summary, verdict)
        analysis.issues.service.committed(summary, verdict)

    lifetime.stack.push_async_callback(analysis.pool.close)  # after the drain, which needs it
    committer = Committer(
        source=files.journal,
        store=files.store,
        thread=files.thread,
        leaving=Leaving(
            policy=carrier_policy(settings),
            wall_ns=time.time_ns,
            wake_outbox=wake,
            keep=keeper(analysis.issues.beside),
            tell=tell,
            count_redacted=analysis.cleaner.add,
        ),
    )
    return Examiner(
        committer=committer,
        prepare=open_executor(settings, analysis.analyst, analysis.cleaner, analysis.pool),
        analyst=analysis.analyst,
        kept=keeping(settings),
        comparison=_comparison(settings, files, analysis.worths),
        early=analysis.early,
        earned=analysis.earned,
        owns=analysis.owns,
    )


def _comparison(settings: Settings, files: Files, worths: ReadWorths) -> RunComparison | None:
    """Return the comparison of failed runs with other runs; only the method ``auto`` uses it."""
    if settings.method != AUTO:
        return None
    return RunComparison(
        read=lambda tenant, service, workflow, limit: files.thread.insist(
            files.store.history.told, tenant, service, workflow, limit
        ),
        clean=notice_text(settings),
        least_confidence=settings.precision,
        clock=time.monotonic,
        worths=worths,
    )


def open_early_warning(settings: Settings, files: Files, announce: Announce) -> EarlyWarning | None:
    """Return the early warning of runs; ``None`` if the settings turn it off."""
    share = settings.early_false_alarms
    if not share:
        return None
    return EarlyWarning(
        read=lambda tenant, run_ids: files.thread.insist(files.store.history.outcomes, tenant, run_ids),
        share=share,
        announce=announce,
    )


def start_corrections(
    settings: Settings, lifetime: Lifetime, files: Files, examiner: Examiner, issues: Issues
) -> Corrections:
    """Start the task that applies labels to verdicts and traces."""
    corrections = Corrections(
        commits=examiner.committer,
        store=files.store,
        labels=files.labels,
        policy=carrier_policy(settings),
        now_ns=time.time_ns,
        count=issues.counting.apply_labels,
        counted=issues.service.counted,
        clean=make_redactor(read_kinds(settings.redact), settings.redact_patterns).redact,
    )
    lifetime.background(corrections.run())
    return corrections


def open_commands(settings: Settings, files: Files, examiner: Examiner, issues: Issues) -> CommandTask:
    """Return the task that carries out the commands of other processes."""
    second = SecondOpinions(
        commits=examiner.committer,
        store=files.store,
        opinions=OpinionStore(files.db),
        beside=issues.beside,
        kept=keeping(settings),
        policy=carrier_policy(settings),
        now_ns=time.time_ns,
    )
    return CommandTask(
        second=second, db=files.db, reader=open_reader(settings.mappings), lanes=settings.score_lanes
    )


def start_scores_back(settings: Settings, lifetime: Lifetime, corrections: Corrections) -> None:
    """Start reading people's scores from the backends that are set so."""
    for target in settings.score_targets:
        if target.is_read:
            outlet = SinkOutlet(target)
            lifetime.stack.push_async_callback(outlet.close)
            back = ScoresBack(
                lane=target.lane,
                tenant=target.tenant,
                reader=outlet,
                corrections=corrections,
                every_s=settings.score_read_s,
                now_ns=time.time_ns,
            )
            lifetime.background(back.run())


async def open_budget(analyst: Analyst, files: Files, lifetime: Lifetime) -> HourlyBudget | None:
    """Persist the cost of model calls from now on; ``None`` without a model."""
    budget = budget_of(analyst)
    if budget is not None:
        spending = StoredSpending(rows=files.store.spending, in_db=files.thread.run, wall_ns=time.time_ns)
        await budget.keep_in(spending)
        lifetime.background(_look_at_spending(budget))
    return budget


async def _look_at_spending(budget: HourlyBudget) -> None:
    """Read periodically what the pages' process has spent from the same budget."""
    while True:
        await asyncio.sleep(_SPENDING_S)
        with suppress(StoreError):  # the metric is older meanwhile
            await budget.look()


async def start_pipeline(
    settings: Settings, lifetime: Lifetime, journal: Journal, examiner: Examiner
) -> Pipeline:
    """Start the analyses, first of the traces that an earlier process left in the journal."""
    hold_max_s = settings.hold_max / 1000 if settings.write_back is WriteBack.HOLD else None
    limits = PipelineLimits(
        assembler=settings.assembler_limits, hold_max_s=hold_max_s, concurrency=settings.concurrency
    )
    pipeline = Pipeline(examiner, limits, time.monotonic)
    journal.on_evicted = pipeline.evicted
    await pipeline.recover(journal.agent_traces())
    lifetime.drained(pipeline.drain, share=_ANALYSES_SHARE)
    if pipeline.looks is not None:
        lifetime.background(pipeline.looks.run())
    lifetime.background(pipeline.run())  # cancelled first: nothing new begins while it drains
    return pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Issues:
    """The parts that count runs, keep them beside their verdicts, and notify receivers."""

    counting: IssueCounting
    beside: BesideVerdicts
    service: IssueService
    texts: TextsBehind


def open_issues(
    settings: Settings, lifetime: Lifetime, files: Files, moved: Callable[[Move], None]
) -> Issues:
    """Count runs in the transactions of their verdicts from now on.

    ``moved`` is called for each run counted or moved.

    Raises:
        SettingsError: a receiver of notices cannot be used.
    """
    counting = IssueCounting(files.issues, files.labels, counting_rules(settings))
    service = IssueService(
        counting=counting,
        store=files.issues,
        reader=IssueStore(files.database.connect()),
        in_db=files.thread.run,
        receivers=receivers_of(settings),
        moved=moved,
    )
    texts = TextsBehind(RunTextRows(files.db))
    beside = BesideVerdicts(
        files.db, files.labels, counting, service.now_ns, spans=files.store.spans, texts=texts
    )
    files.store.also = beside.write
    lifetime.stack.callback(service.close)
    lifetime.stack.callback(texts.close)
    return Issues(counting=counting, beside=beside, service=service, texts=texts)


def count_issues(lifetime: Lifetime, service: IssueService) -> Callable[[], IssueCounts]:
    """Start counting issues periodically; return the reader of the last counts."""
    gauge = IssueCountsReader(read=service.counts)
    lifetime.background(gauge.run())
    return gauge.counts
