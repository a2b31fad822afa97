"""Composition of the whole service: receivers, journal, forwarder, analyses, outbox, API.

Start-up opens the durable files first and the listeners for spans and pages last; shutdown runs in
reverse: not ready, listeners closed, forwarder and analyses drained until a deadline,
files closed. Unfinished work resumes at the next start. Most parts are started by
the other modules of this package.

Memory is trimmed periodically. Without that, the C library keeps the memory of the largest burst so far (such
as a backlog sent after an outage of the backend), and each larger burst looks like a leak. The receivers trim
memory themselves after refusals (``receivers/overload.py``).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from analyzer.executor.composition import open_analyst, open_cleaner, prepare_model
from analyzer.executor.models.budget import HourlyBudget
from analyzer.service.analyses import open_pool, stepping_in
from analyzer.service.durable import Files, conditions, expire, look_for_damage, open_files, steady_clock
from analyzer.service.early_warning import EarlyLane, open_early_warning, start_early_looks
from analyzer.service.kafka_lane import KafkaLane, open_kafka, start_reading, start_spilling
from analyzer.service.lifetime import Lifetime
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
from analyzer.web.app import WebParts, web_server
from collector_processor.core.analysis import Analyst
from collector_processor.core.headers import Cors
from collector_processor.core.records import StoredVerdict
from collector_processor.forwarding.forwarder import Forwarder
from collector_processor.forwarding.ledger import Ledger
from collector_processor.forwarding.outbox import OutboxDelivery
from collector_processor.mapping_files import open_reader
from collector_processor.otlp import Address, Cause, Exporter, Signal, Sink
from collector_processor.otlp.destination import own_listener
from collector_processor.otlp.tls import TlsFiles
from collector_processor.pipeline.examine import Examiner, owns_all
from collector_processor.pipeline.scheduler import Pipeline
from collector_processor.receivers import (
    AdmissionRules,
    GrpcReceiver,
    HttpLimits,
    HttpReceiver,
    Receiver,
    Trimmer,
)
from collector_processor.receivers.intake import Intake, IntakeRules, holds_nothing
from collector_processor.receivers.overload import glibc
from collector_processor.settings import Settings, SettingsError, WriteBack
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Base:
    """What the lanes work on: the files, and the way of received requests to the backend."""

    instance_id: str
    now_ns: Callable[[], int]
    files: Files
    analysis: AnalysisParts
    exporters: Mapping[Signal, Exporter]
    kafka: KafkaLane | None
    ledger: Ledger
    forwarder: Forwarder


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lanes:
    """The analyses, and the deliveries of their verdicts."""

    examiner: Examiner
    deliveries: tuple[OutboxDelivery, ...]
    budget: HourlyBudget | None
    pipeline: Pipeline
    early: EarlyLane | None

    def wake(self) -> None:
        """Look for verdicts to deliver."""
        for delivery in self.deliveries:
            delivery.wake()


class _Service:
    """Starts the parts in order."""

    def __init__(self, settings: Settings, analyst: Analyst, lifetime: Lifetime) -> None:
        self._settings: Final = settings
        self._analyst: Final = analyst
        self._lifetime: Final = lifetime
        self._refusals: Final[Counter[Cause]] = Counter()
        self._is_ready = False
        self._is_warm = False

    async def start(self, given: Mapping[Signal, Exporter] | None) -> Running:
        """Open everything, the listeners last."""
        settings, lifetime = self._settings, self._lifetime
        base = await self._open_base(given)
        lanes = await self._start_lanes(base)
        door = self._open_door(base, lanes)
        lifetime.background(look_for_damage(base.files, settings.store_place))
        lifetime.background(expire(base.files, base.now_ns))
        lifetime.background(self._warm_up())
        parts = self._web_parts(base, lanes)
        listeners = await open_listeners(settings, lifetime, door, parts, self._refusals)
        self._is_ready = True
        return self._running(base, parts, listeners)

    async def _open_base(self, given: Mapping[Signal, Exporter] | None) -> _Base:
        settings, lifetime, instance_id = self._settings, self._lifetime, secrets.token_hex(8)
        cleaner, now_ns = open_cleaner(settings), steady_clock()
        pool = open_pool(settings, self._analyst)
        counters = VerdictCounters(monotonic=time.monotonic)
        refuse_own_endpoint(settings, settings.listeners)
        files = await open_files(settings, lifetime)
        issues = open_issues(settings, lifetime, files, counters.move)
        earned = open_track_records(lifetime, files)
        exporters = open_routes(settings, lifetime, instance_id) if given is None else given
        await lifetime.stack.enter_async_context(lifetime.watched)
        kafka = open_kafka(settings, lifetime, files.journal)
        ledger = Ledger(files.journal.held_items, files.journal.lost)
        return _Base(
            instance_id=instance_id,
            now_ns=now_ns,
            files=files,
            analysis=AnalysisParts(
                analyst=stepping_in(pool, self._analyst),
                pool=pool,
                cleaner=cleaner,
                verdict_counters=counters,
                issues=issues,
                earned=earned,
                owns=owns_all if kafka is None else kafka.owns,
                early=open_early_warning(settings, issues.service.announce),
            ),
            exporters=exporters,
            kafka=kafka,
            ledger=ledger,
            forwarder=start_forwarder(lifetime, files.journal, ledger, exporters),
        )

    async def _start_lanes(self, base: _Base) -> _Lanes:
        settings, lifetime, files, analysis = self._settings, self._lifetime, base.files, base.analysis
        examiner, deliveries = start_deliveries(settings, lifetime, files, base.exporters, analysis)
        lifetime.background(analysis.issues.service.run())
        lifetime.background(analysis.issues.texts.run(files.thread.run))
        budget = await open_budget(analysis.analyst, files)
        pipeline = await start_pipeline(settings, lifetime, files.journal, examiner)
        return _Lanes(
            examiner=examiner,
            deliveries=deliveries,
            budget=budget,
            pipeline=pipeline,
            early=start_early_looks(lifetime, analysis.early, examiner, pipeline),
        )

    def _open_door(self, base: _Base, lanes: _Lanes) -> Intake:
        """Return the sink of the receivers; with Kafka, start reading what it holds."""
        settings, pipeline = self._settings, lanes.pipeline
        rules = IntakeRules(
            instance_id=base.instance_id,
            now_ns=base.now_ns,
            holds=holds_nothing if settings.write_back is WriteBack.LATE else pipeline.holds,
            feed=pipeline.feed if lanes.early is None else lanes.early.feed,
            max_item_bytes={signal: exporter.max_bytes for signal, exporter in base.exporters.items()},
            hints=hints_of(open_reader(settings.mappings).marks),
        )
        intake = Intake(base.files.journal, base.ledger, base.forwarder, rules)
        if base.kafka is None:
            return intake
        self._read_kafka(base.kafka, base, lanes, intake)
        return base.kafka.door(base.ledger, base.forwarder, rules)

    def _read_kafka(self, kafka: KafkaLane, base: _Base, lanes: _Lanes, intake: Intake) -> None:
        def wake() -> None:
            lanes.wake()
            base.analysis.issues.service.counted()

        start_spilling(
            kafka,
            self._lifetime,
            journal=base.files.journal,
            rows=SpilledPartRows(base.files.db),
            in_db=base.files.thread.run,
            after_s=self._settings.spill_s,
        )
        start_reading(
            kafka,
            self._lifetime,
            journal=base.files.journal,
            intake=intake,
            forwarder=base.forwarder,
            ledger=base.ledger,
            pipeline=lanes.pipeline,
            wake=wake,
        )

    def _web_parts(self, base: _Base, lanes: _Lanes) -> WebParts:
        """Return the parts of the pages, and of ``/metrics`` among them; metrics are exported too."""
        settings, lifetime = self._settings, self._lifetime
        metrics = self._metrics(base, lanes)
        lifetime.background(export_metrics(settings, metrics.collect, base.exporters, base.instance_id))
        return web_parts(
            settings,
            lifetime,
            base.files,
            lanes.examiner,
            base.analysis,
            is_ready=lambda: self._is_ready and self._is_warm,
            registry=metrics.registry,
            renewals=metrics.renewals,
        )

    def _metrics(self, base: _Base, lanes: _Lanes) -> ServiceMetrics:
        analysis, issue_service = base.analysis, base.analysis.issues.service
        return ServiceMetrics(
            ledger=base.ledger,
            journal=base.files.journal,
            now_ns=base.now_ns,
            refusals=self._refusals,
            stores=conditions(base.files),
            pipeline=lanes.pipeline,
            deliveries=lanes.deliveries,
            cleaner=analysis.cleaner,
            verdicts=analysis.verdict_counters,
            settle_s=self._settings.settle_s,
            budget=lanes.budget,
            issues=count_issues(self._lifetime, issue_service),
            repetitions=lambda: issue_service.repetitions,
            notices=issue_service.delivery,
            executor=analysis.pool.counters,
            early=lanes.early,
            kafka=KafkaCounts if base.kafka is None else base.kafka.counts,
        )

    def _running(self, base: _Base, parts: WebParts, listeners: Listeners) -> Running:
        async def undelivered() -> int:
            waiting = await base.files.thread.run(base.files.store.outbox_size)
            return waiting + sum(counts.held for counts in base.ledger.snapshot().values())

        return Running(
            grpc=listeners.grpc,
            http=listeners.http,
            web=listeners.web,
            instance_id=base.instance_id,
            recent=parts.recent,
            find=parts.find,
            failure=self._lifetime.failure,
            undelivered=undelivered,
            rejected=lambda: sum(counts.rejected for counts in base.ledger.snapshot().values()),
        )

    async def _warm_up(self) -> None:
        await prepare_model(self._settings)
        self._is_warm = True

    def shut_down(self) -> None:
        """Begin the shutdown; the lifetime does the rest."""
        self._is_ready = False
        self._lifetime.begin_end(self._settings.shutdown_s)
        logger.info("shutting down")


_DOORS_GRACE_S: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """Addresses of the open listeners: for port 0, the actual port is known only now."""

    grpc: Address
    http: Address
    web: Address


def refuse_own_endpoint(settings: Settings, listeners: Sequence[Address]) -> None:
    """Refuse settings that forward spans to this service itself.

    Raises:
        SettingsError: an endpoint is one of the listeners.
    """
    for signal, destination in settings.endpoints.items():
        own = own_listener(destination.endpoint, listeners)
        if own is not None:
            raise SettingsError(
                f"the endpoint for {signal.value}, {destination.shown}, is our own listener {own}:"
                " spans would loop forever; set BLAMESPAN_FORWARD_ENDPOINT to the backend"
            )


async def open_listeners(
    settings: Settings, lifetime: Lifetime, intake: Intake, parts: WebParts, refusals: Counter[Cause]
) -> Listeners:
    """Start the listeners; refused requests are counted in ``refusals``.

    Raises:
        SettingsError: an endpoint turns out to be one of our own ports.
        CollectorError: a port is not available.
    """
    grpc_listen, http_listen, web_listen = settings.listeners
    heap = glibc()
    lifetime.background(trim_periodically(heap.trim))
    trimmer = Trimmer(heap)
    lifetime.stack.callback(trimmer.close)
    receivers = make_receivers(settings, intake, parts.tls, trimmer, refusals)
    _warn_of_clear_text(settings)
    web = web_server(parts, web_listen)
    web_port = await web.start()
    lifetime.watched.push_async_callback(web.stop)
    ports: list[int] = []
    for receiver in receivers:
        ports.append(await receiver.start())
        lifetime.stack.push_async_callback(receiver.stop, _DOORS_GRACE_S)
    opened = Listeners(
        grpc=replace(grpc_listen, port=ports[0]),
        http=replace(http_listen, port=ports[1]),
        web=replace(web_listen, port=web_port),
    )
    refuse_own_endpoint(settings, (opened.grpc, opened.http))
    return opened


def make_receivers(
    settings: Settings, sink: Sink, tls: TlsFiles | None, trimmer: Trimmer, refusals: Counter[Cause]
) -> tuple[Receiver, Receiver]:
    """Return the gRPC and HTTP receivers, not yet listening; they share one memory budget."""
    grpc_listen, http_listen, _ = settings.listeners

    def refused(cause: Cause) -> None:
        refusals[cause] += 1

    rules = AdmissionRules(
        token=settings.token,
        tenant_header_names=settings.tenant_header_names,
        local_names=settings.allowed_host_names,
        cors=Cors(origins=settings.origins, tenant_headers=settings.tenant_header_names),
        refused=refused,
    )
    limits = HttpLimits(bytes=settings.receiving_bytes)
    return (
        GrpcReceiver(sink, grpc_listen, rules, tls, buffer_bytes=limits.bytes, when_full=trimmer.when_full),
        HttpReceiver(sink, http_listen, rules, tls, limits=limits, when_full=trimmer.when_full),
    )


def _warn_of_clear_text(settings: Settings) -> None:
    beyond = [str(listener) for listener in settings.listeners if not listener.is_loopback]
    if beyond and settings.tls_certificate is None:
        logger.warning(
            "listening on a network address without TLS: token and spans are sent in clear text",
            extra={"listeners": beyond, "mend": "set BLAMESPAN_TLS_CERTIFICATE and BLAMESPAN_TLS_KEY"},
        )


_EVERY_S: Final = 60.0
"""Seconds between trims. Each takes some milliseconds in a thread and blocks memory allocations meanwhile."""


async def trim_periodically(trim: Callable[[], Any], every_s: float = _EVERY_S) -> None:
    """Return free memory to the system periodically until cancelled; ``trim`` blocks."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(every_s)
        await loop.run_in_executor(None, trim)
