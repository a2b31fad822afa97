"""The two lanes, started: the forwarder of all traffic; analyses, and the outbox of their verdicts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from analyzer.analyst import RunAnalyst
from analyzer.budget import HourlyBudget
from analyzer.composition import budget_of, carrier_policy, kept_texts
from analyzer.drafting.keeping import DraftKeeper
from analyzer.drafting.opening import open_executor
from analyzer.drafting.tally import DraftTally
from analyzer.issue_desk import IssueDesk, both
from analyzer.labels.correcting import Corrections
from analyzer.labels.labelling import InDb, keeper
from analyzer.serving.files import Files
from analyzer.serving.lifetime import Lifetime
from analyzer.spending import StoredSpending
from analyzer.tallies import VerdictTallies
from collector_processor.analyst import Analyst
from collector_processor.cleaning import Cleaner
from collector_processor.delivery import OutboxDelivery
from collector_processor.draft import Drafts
from collector_processor.examine import Examiner
from collector_processor.exporters import open_exporters
from collector_processor.forwarder import Forwarder
from collector_processor.journal import Journal
from collector_processor.ledger import Ledger
from collector_processor.otlp import Exporter, Signal
from collector_processor.pipeline import Pipeline, PipelineLimits
from collector_processor.runstore import RunStore
from collector_processor.settings import Settings, WriteBack
from collector_processor.stored import Outgoing, StoredVerdict
from collector_processor.writeback import Gist

_ANALYSES_SHARE: Final = 0.5
"""Of the time that a shutdown may take: what analyses leave behind must still be sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinking:
    """Who looks at complete traces, and who is told."""

    analyst: Analyst
    cleaner: Cleaner
    tallies: VerdictTallies
    desk: IssueDesk
    drafts: DraftTally = field(default_factory=DraftTally)
    """What became of verdicts that were drafted, and of the process that does so."""


def open_routes(settings: Settings, lifetime: Lifetime, instance_id: str) -> Mapping[Signal, Exporter]:
    """Open what signals go on by; none where no endpoint is set."""
    if not settings.endpoints:
        return {}
    router = open_exporters(settings.endpoints, instance_id)
    lifetime.stack.push_async_callback(router.close)
    return router.routes


def start_forwarder(
    lifetime: Lifetime, journal: Journal, ledger: Ledger, exporters: Mapping[Signal, Exporter]
) -> Forwarder:
    """Start what sends originals on."""
    forwarder = Forwarder(journal=journal, ledger=ledger, exporters=exporters)
    lifetime.background(forwarder.run())
    lifetime.drained(forwarder.drain)  # runs before the one above is cancelled
    forwarder.resume()
    return forwarder


def start_deliveries(
    settings: Settings,
    lifetime: Lifetime,
    files: Files,
    exporters: Mapping[Signal, Exporter],
    thinking: Thinking,
) -> tuple[Examiner, tuple[OutboxDelivery, ...]]:
    """Start what sends verdicts, and return it with the examiner whose verdicts they are."""
    deliveries: list[OutboxDelivery] = []
    store = files.store

    def wake() -> None:
        for delivery in deliveries:
            delivery.wake()

    def landed(entry: Outgoing) -> None:
        if entry.ended_ns:
            thinking.tallies.landed(entry.ended_ns, time.time_ns())

    examiner = _examiner(settings, lifetime, files, thinking, wake)
    lifetime.watched.callback(examiner.close)
    for signal in (Signal.TRACES, Signal.LOGS):
        delivery = OutboxDelivery(
            signal,
            read=lambda signal, skip: examiner.in_db(store.outbox, signal, skip),
            forget=lambda ids: examiner.in_db(store.delivered, ids),
            exporters=exporters,
            landed=landed,
        )
        deliveries.append(delivery)
        lifetime.drained(delivery.drain)
        lifetime.background(delivery.run())  # cancelled first, so that nothing is sent by two
    return examiner, tuple(deliveries)


def _examiner(
    settings: Settings, lifetime: Lifetime, files: Files, thinking: Thinking, wake: Callable[[], None]
) -> Examiner:
    async def in_db(*call: Any) -> Any:
        return await examiner.in_db(*call)

    def tell(gist: Gist, verdict: StoredVerdict) -> None:
        thinking.tallies.count(gist, verdict)
        thinking.desk.committed(gist, verdict)

    policy = carrier_policy(settings)
    examiner = Examiner(
        source=files.journal,
        store=files.store,
        analyst=thinking.analyst,
        policy=policy,
        wall_ns=time.time_ns,
        wake_outbox=wake,
        keep=both(keeper(files.labels, kept_texts(settings), time.time_ns, in_db), thinking.desk.keep),
        tell=tell,
        clean=thinking.cleaner,
        drafts=_drafts(settings, lifetime, files, thinking, in_db),
    )
    return examiner


def _drafts(
    settings: Settings, lifetime: Lifetime, files: Files, thinking: Thinking, in_db: InDb
) -> Drafts | None:
    """Return who drafts verdicts; ``None`` where analysts are elsewhere, or originals wait for verdicts."""
    if not isinstance(thinking.analyst, RunAnalyst) or settings.write_back is WriteBack.HOLD:
        return None
    executor = open_executor(settings, thinking.analyst, thinking.cleaner, thinking.drafts)
    lifetime.stack.push_async_callback(executor.close)  # after the drain, which needs it
    keep = DraftKeeper(
        labels=files.labels, in_db=in_db, desk=thinking.desk, cleaner=thinking.cleaner, now_ns=time.time_ns
    )
    return Drafts(write=executor, keep=keep)


def start_corrections(
    settings: Settings, lifetime: Lifetime, files: Files, examiner: Examiner
) -> Corrections:
    """Start the task that applies labels to verdicts and traces."""
    corrections = Corrections(
        examiner=examiner,
        store=files.store,
        labels=files.labels,
        policy=carrier_policy(settings),
        now_ns=time.time_ns,
    )
    lifetime.background(corrections.run())
    return corrections


async def open_budget(analyst: Analyst, store: RunStore, examiner: Examiner) -> HourlyBudget | None:
    """Have what models cost kept, before anybody can ask one; ``None`` where there is none."""
    budget = budget_of(analyst)
    if budget is not None:
        await budget.keep_in(StoredSpending(rows=store.spending, in_db=examiner.in_db, wall_ns=time.time_ns))
    return budget


async def start_pipeline(
    settings: Settings, lifetime: Lifetime, journal: Journal, examiner: Examiner
) -> Pipeline:
    """Start the slow lane with the traces that the journal has of an earlier life."""
    hold_max_s = settings.hold_max / 1000 if settings.write_back is WriteBack.HOLD else None
    limits = PipelineLimits(
        assembler=settings.assembler_limits, hold_max_s=hold_max_s, concurrency=settings.concurrency
    )
    pipeline = Pipeline(examiner, limits, time.monotonic)
    journal.on_evicted = pipeline.evicted
    await pipeline.recover(journal.agent_traces())
    lifetime.drained(pipeline.drain, share=_ANALYSES_SHARE)
    lifetime.background(pipeline.run())  # cancelled first: nothing new begins while it drains
    return pipeline
