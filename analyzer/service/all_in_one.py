"""Composition of the whole service: receivers, journal, forwarder, analyses, outbox, API.

Start-up opens the durable files first and the listeners last; shutdown runs in
reverse: not ready, listeners closed, forwarder and analyses drained until a deadline,
files closed. Unfinished work resumes at the next start. The parts are started by
the other modules of this package.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from analyzer.executor.composition import open_analyst, open_cleaner, prepare_model
from analyzer.service.analyses import stepping_elsewhere
from analyzer.service.durable import conditions, expire, look_for_damage, open_files, steady_clock
from analyzer.service.early_warning import open_early_warning, start_early_looks
from analyzer.service.kafka_lane import open_kafka, start_reading, start_spilling
from analyzer.service.lifetime import Lifetime
from analyzer.service.listeners import open_listeners, refuse_own_endpoint
from analyzer.service.page_sources import web_parts
from analyzer.service.service_metrics import KafkaCounts, ServiceMetrics
from analyzer.service.start_lanes import (
    AnalysisParts,
    count_issues,
    open_budget,
    open_issues,
    open_routes,
    open_track_records,
    start_deliveries,
    start_forwarder,
    start_pipeline,
)
from analyzer.telemetry.otlp_metrics import export_metrics
from analyzer.telemetry.verdict_counters import VerdictCounters
from collector_processor.core.analysis import Analyst
from collector_processor.core.records import StoredVerdict
from collector_processor.forwarding.ledger import Ledger
from collector_processor.mapping_files import open_reader
from collector_processor.otlp import Address, Cause, Exporter, Signal
from collector_processor.pipeline.examine import owns_all
from collector_processor.receivers.intake import Intake, IntakeRules, holds_nothing
from collector_processor.settings import Settings, WriteBack
from collector_processor.store.spilled_parts import SpilledPartRows
from collector_processor.wire.agent_markers import hints_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A running service that receives spans."""

    grpc: Address
    http: Address
    web: Address
    instance_id: str
    recent: Callable[[int], Awaitable[Sequence[StoredVerdict]]]
    find: Callable[[str], Awaitable[Sequence[StoredVerdict]]]
    failure: asyncio.Future[None]
    """Raises the failure of a part of the service when awaited."""
    undelivered: Callable[[], Awaitable[int]]
    """Items and verdicts not yet delivered to the backend."""
    rejected: Callable[[], int]
    """Items that the backend permanently rejected."""


@asynccontextmanager
async def running_service(
    settings: Settings, analyst: Analyst | None = None, *, exporters: Mapping[Signal, Exporter] | None = None
) -> AsyncIterator[Running]:
    """Run the service until the block ends, then shut down gracefully.

    ``analyst`` analyses the runs, and ``exporters`` are the destinations; by default the configured ones.

    Raises:
        SettingsError: the settings contradict each other.
        CollectorError: a file, port or backend is not available; the message says which.
    """
    async with AsyncExitStack() as stack:
        service = _Service(settings, analyst or open_analyst(settings), Lifetime(stack))
        running = await service.start(exporters)
        try:
            yield running
        finally:
            service.shut_down()


class _Service:
    """Starts the parts in order."""

    def __init__(self, settings: Settings, analyst: Analyst, lifetime: Lifetime) -> None:
        self._settings: Final = settings
        self._analyst: Final = analyst
        self._lifetime: Final = lifetime
        self._is_ready = False
        self._is_warm = False

    async def start(self, given: Mapping[Signal, Exporter] | None) -> Running:
        """Open everything, the listeners last."""
        settings, lifetime, instance_id = self._settings, self._lifetime, secrets.token_hex(8)
        cleaner, now_ns = open_cleaner(settings), steady_clock()
        analyst = stepping_elsewhere(settings, self._analyst, lifetime)
        counters = VerdictCounters(monotonic=time.monotonic)
        refuse_own_endpoint(settings, settings.listeners)
        files = await open_files(settings, lifetime)

        async def in_db(*call: Any) -> Any:
            return await examiner.in_db(*call)

        issues = open_issues(settings, lifetime, files, counters.move, in_db)
        issue_service, earned = issues.service, open_track_records(lifetime, files)
        exporters = open_routes(settings, lifetime, instance_id) if given is None else given
        await lifetime.stack.enter_async_context(lifetime.watched)
        kafka = open_kafka(settings, lifetime, files.journal)
        ledger = Ledger(files.journal.held_items, files.journal.lost)
        forwarder = start_forwarder(lifetime, files.journal, ledger, exporters)
        analysis = AnalysisParts(
            analyst=analyst,
            cleaner=cleaner,
            verdict_counters=counters,
            issues=issues,
            earned=earned,
            owns=owns_all if kafka is None else kafka.owns,
            early=open_early_warning(settings, issue_service.announce),
        )
        examiner, deliveries = start_deliveries(settings, lifetime, files, exporters, analysis)
        lifetime.background(issue_service.run())
        lifetime.background(issues.texts.run(in_db))
        budget = await open_budget(analyst, files.store, examiner)
        pipeline = await start_pipeline(settings, lifetime, files.journal, examiner)
        early = start_early_looks(lifetime, analysis.early, examiner, pipeline)
        rules = IntakeRules(
            instance_id=instance_id,
            now_ns=now_ns,
            holds=holds_nothing if settings.write_back is WriteBack.LATE else pipeline.holds,
            feed=pipeline.feed if early is None else early.feed,
            max_item_bytes={signal: exporter.max_bytes for signal, exporter in exporters.items()},
            hints=hints_of(open_reader(settings.mappings).marks),
        )
        intake = Intake(files.journal, ledger, forwarder, rules)
        if kafka is not None:

            def wake() -> None:
                for delivery in deliveries:
                    delivery.wake()
                issue_service.counted()

            start_spilling(
                kafka,
                lifetime,
                journal=files.journal,
                rows=SpilledPartRows(files.db),
                in_db=examiner.in_db,
                after_s=settings.spill_s,
            )
            start_reading(
                kafka,
                lifetime,
                journal=files.journal,
                intake=intake,
                forwarder=forwarder,
                ledger=ledger,
                pipeline=pipeline,
                wake=wake,
            )
        door = intake if kafka is None else kafka.door(ledger, forwarder, rules)
        lifetime.background(look_for_damage(files, settings.store_place))
        lifetime.background(expire(files, examiner, now_ns))
        lifetime.background(self._warm_up())
        refusals: Counter[Cause] = Counter()
        metrics = ServiceMetrics(
            ledger=ledger,
            journal=files.journal,
            now_ns=now_ns,
            refusals=refusals,
            stores=conditions(files, examiner),
            pipeline=pipeline,
            deliveries=deliveries,
            cleaner=cleaner,
            verdicts=counters,
            settle_s=settings.settle_s,
            budget=budget,
            issues=count_issues(lifetime, issue_service),
            repetitions=lambda: issue_service.repetitions,
            notices=issue_service.delivery,
            executor=analysis.executor_counters,
            early=early,
            kafka=KafkaCounts if kafka is None else kafka.counts,
        )
        lifetime.background(export_metrics(settings, metrics.collect, exporters, instance_id))
        parts = web_parts(
            settings,
            lifetime,
            files,
            examiner,
            analysis,
            is_ready=lambda: self._is_ready and self._is_warm,
            registry=metrics.registry,
            renewals=metrics.renewals,
        )
        listeners = await open_listeners(settings, lifetime, door, parts, refusals)

        async def undelivered() -> int:
            waiting = await examiner.in_db(files.store.outbox_size)
            return waiting + sum(counts.held for counts in ledger.snapshot().values())

        self._is_ready = True
        return Running(
            grpc=listeners.grpc,
            http=listeners.http,
            web=listeners.web,
            instance_id=instance_id,
            recent=parts.recent,
            find=parts.find,
            failure=lifetime.failure,
            undelivered=undelivered,
            rejected=lambda: sum(counts.rejected for counts in ledger.snapshot().values()),
        )

    async def _warm_up(self) -> None:
        await prepare_model(self._settings)
        self._is_warm = True

    def shut_down(self) -> None:
        """Begin the shutdown; the lifetime does the rest."""
        self._is_ready = False
        self._lifetime.begin_end(self._settings.shutdown_s)
        logger.info("shutting down")
