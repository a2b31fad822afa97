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

from aiohttp import web

from analyzer.analyses.composition import open_cleaner, open_late_analyst, prepare_model, tls_files
from analyzer.analyses.examine import Examiner, owns_all
from analyzer.analyses.executor import open_pool, stepping_in
from analyzer.analyses.job_client import JobAnalyst
from analyzer.analyses.local_analyst import LocalAnalyst
from analyzer.analyses.models.budget import HourlyBudget
from analyzer.analyses.scheduler import Pipeline
from analyzer.issues.labels.track_records import open_track_records
from analyzer.service.durable import Files, conditions, expire, look_for_damage, open_files, steady_clock
from analyzer.service.kafka_lane import KafkaLane, open_kafka, start_reading, start_spilling
from analyzer.service.lifetime import Lifetime
from analyzer.service.pages_process import PagesProcess, answering
from analyzer.service.service_metrics import KafkaCounts, ServiceMetrics
from analyzer.service.start_lanes import (
    AnalysisParts,
    count_issues,
    open_budget,
    open_commands,
    open_early_warning,
    open_issues,
    open_routes,
    open_senders,
    start_corrections,
    start_deliveries,
    start_forwarder,
    start_pipeline,
    start_scores_back,
)
from analyzer.telemetry.verdict_counters import VerdictCounters
from analyzer.web.guard import GuardRules
from analyzer.web.probes import Probe, Probes, guarded
from collector_processor.core.analysis import Analyst
from collector_processor.core.headers import Cors, tenant_among
from collector_processor.core.http_server import bind
from collector_processor.core.records import StoredVerdict
from collector_processor.core.scores import Lane
from collector_processor.forwarding.forwarder import Forwarder
from collector_processor.forwarding.ledger import Ledger
from collector_processor.forwarding.outbox import OutboxDelivery
from collector_processor.forwarding.sender import Sender
from collector_processor.mapping_files import open_reader
from collector_processor.otlp import Address, Cause, Exporter, MalformedRequestError, Signal, Sink
from collector_processor.otlp.destination import own_listener
from collector_processor.otlp.tls import TlsFiles
from collector_processor.receivers import (
    AdmissionRules,
    GrpcReceiver,
    HttpLimits,
    HttpReceiver,
    Receiver,
    Trimmer,
)
from collector_processor.receivers.http_receiver import Beside
from collector_processor.receivers.intake import Intake, IntakeRules, holds_nothing
from collector_processor.receivers.overload import glibc
from collector_processor.settings import Settings, SettingsError, WriteBack
from collector_processor.store.small_tables import SpilledPartRows
from collector_processor.wire.agent_markers import hints_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A running service that receives spans."""

    grpc: Address
    http: Address
    web: Address
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
        service = _Service(settings, analyst or open_late_analyst(settings), Lifetime(stack))
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
    senders: Mapping[Signal | Lane, Sender]
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
        self._web: Address = settings.listeners[2]

    async def start(self, given: Mapping[Signal, Exporter] | None) -> Running:
        """Open everything, the listeners last."""
        settings, lifetime = self._settings, self._lifetime
        base = await self._open_base(given)
        lanes = await self._start_lanes(base)
        door = self._open_door(base, lanes)
        lifetime.background(look_for_damage(base.files, settings.store_place))
        lifetime.background(expire(base.files, base.now_ns))
        lifetime.background(self._warm_up())
        metrics = self._metrics(base, lanes)
        lifetime.background(self._export_metrics(base, metrics))
        probe = Probes(
            is_ready=lambda: self._is_ready and self._is_warm,
            metrics=metrics.registry,
            stores=conditions(base.files),
        )
        self._start_pages(base, lanes, probe, metrics)
        listeners = await self._open_listeners(door, probe, metrics)
        self._is_ready = True
        return self._running(base, listeners)

    async def _open_base(self, given: Mapping[Signal, Exporter] | None) -> _Base:
        settings, lifetime, instance_id = self._settings, self._lifetime, secrets.token_hex(8)
        cleaner, now_ns = open_cleaner(settings), steady_clock()
        pool = open_pool(settings, self._analyst)
        counters = VerdictCounters(monotonic=time.monotonic)
        refuse_own_endpoint(settings, settings.listeners)
        files = await open_files(settings, lifetime)
        issues = open_issues(settings, lifetime, files, counters.move)
        earned, worths = open_track_records(lifetime.stack, files.database)
        exporters = open_routes(settings, lifetime, instance_id) if given is None else given
        senders = open_senders(settings, lifetime, exporters)
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
                worths=worths,
                owns=owns_all if kafka is None else kafka.owns,
                early=open_early_warning(settings, files, issues.service.announce),
            ),
            exporters=exporters,
            senders=senders,
            kafka=kafka,
            ledger=ledger,
            forwarder=start_forwarder(lifetime, files.journal, ledger, senders),
        )

    async def _start_lanes(self, base: _Base) -> _Lanes:
        settings, lifetime, files, analysis = self._settings, self._lifetime, base.files, base.analysis
        examiner, deliveries = start_deliveries(settings, lifetime, files, base.senders, analysis)
        lifetime.background(analysis.issues.service.run())
        lifetime.background(analysis.issues.texts.run(files.thread.run))
        budget = await open_budget(analysis.analyst, files, lifetime)
        pipeline = await start_pipeline(settings, lifetime, files.journal, examiner)
        return _Lanes(
            examiner=examiner,
            deliveries=deliveries,
            budget=budget,
            pipeline=pipeline,
        )

    def _open_door(self, base: _Base, lanes: _Lanes) -> Intake:
        """Return the sink of the receivers; with Kafka, start reading what it holds."""
        settings, pipeline = self._settings, lanes.pipeline
        rules = IntakeRules(
            instance_id=base.instance_id,
            now_ns=base.now_ns,
            holds=holds_nothing if settings.write_back is WriteBack.LATE else pipeline.holds,
            feed=pipeline.feed,
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

    def _start_pages(self, base: _Base, lanes: _Lanes, probe: Probe, metrics: ServiceMetrics) -> None:
        """Start the process of the pages, and the tasks that apply what it and other processes write."""
        settings, lifetime, analysis = self._settings, self._lifetime, base.analysis
        corrections = start_corrections(settings, lifetime, base.files, lanes.examiner, analysis.issues)
        start_scores_back(settings, lifetime, corrections)
        commands = open_commands(settings, base.files, lanes.examiner, analysis.issues)
        lifetime.background(commands.run())

        async def carry_out() -> None:
            await corrections.follow()
            await commands.follow()

        sockets = bind(settings.listeners[2])
        for socket in sockets:
            lifetime.watched.callback(socket.close)
        self._web = replace(settings.listeners[2], port=sockets[0].getsockname()[1])
        pages = PagesProcess(
            settings=settings,
            is_analysing=isinstance(self._analyst, LocalAnalyst | JobAnalyst),
            sockets=sockets,
            answer=answering(probe, carry_out),
        )
        metrics.pages_restarts = lambda: pages.restarts
        lifetime.until_drained(pages.run())

    async def _open_listeners(self, door: Sink, probe: Probe, metrics: ServiceMetrics) -> Listeners:
        settings, lifetime, heap = self._settings, self._lifetime, glibc()
        lifetime.background(trim_periodically(heap.trim))
        doors = Doors(
            trimmer=Trimmer(heap),
            refusals=self._refusals,
            tls=tls_files(settings, metrics.renewals),
            beside=guarded(probe_rules(settings), probe),
        )
        lifetime.stack.callback(doors.trimmer.close)
        grpc, http = await open_listeners(settings, lifetime, door, doors)
        return Listeners(grpc=grpc, http=http, web=self._web)

    def _metrics(self, base: _Base, lanes: _Lanes) -> ServiceMetrics:
        analysis, issue_service = base.analysis, base.analysis.issues.service
        return ServiceMetrics(
            ledger=base.ledger,
            journal=base.files.journal,
            now_ns=base.now_ns,
            refusals=self._refusals,
            stores=conditions(base.files),
            pipeline=lanes.pipeline,
            senders=base.senders,
            deliveries=lanes.deliveries,
            cleaner=analysis.cleaner,
            verdicts=analysis.verdict_counters,
            settle_s=self._settings.settle_s,
            budget=lanes.budget,
            issues=count_issues(self._lifetime, issue_service),
            repetitions=lambda: issue_service.repetitions,
            notices=issue_service.delivery,
            executor=analysis.pool.counters,
            early=analysis.early,
            kafka=KafkaCounts if base.kafka is None else base.kafka.counts,
        )

    def _running(self, base: _Base, listeners: Listeners) -> Running:
        thread, store = base.files.thread, base.files.store

        async def undelivered() -> int:
            waiting = await thread.run(store.outbox_size)
            return waiting + sum(counts.held for counts in base.ledger.snapshot().values())

        return Running(
            grpc=listeners.grpc,
            http=listeners.http,
            web=listeners.web,
            find=lambda run_id: thread.run(store.find, run_id),
            failure=self._lifetime.failure,
            undelivered=undelivered,
            rejected=lambda: sum(counts.rejected for counts in base.ledger.snapshot().values()),
        )

    async def _export_metrics(self, base: _Base, metrics: ServiceMetrics) -> None:
        if not self._settings.export_metrics_ms:
            return
        from analyzer.telemetry.otlp_metrics import export_metrics  # noqa: PLC0415 - OpenTelemetry's SDK

        await export_metrics(self._settings, metrics.collect, base.exporters, base.instance_id)

    async def _warm_up(self) -> None:
        await prepare_model(self._settings)
        self._is_warm = True

    def shut_down(self) -> None:
        """Begin the shutdown; the lifetime does the rest."""
        self._is_ready = False
        self._lifetime.begin_end(self._settings.shutdown_s)
        logger.info("shutting down")


_DOORS_SHARE: Final = 0.25
"""Share of the shutdown that each listener gives its requests under way. One that waits for a slow disk is
stored: if it were cut off, its sender would send it again, and its spans would reach the backend twice."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Doors:
    """What the receivers share."""

    trimmer: Trimmer
    refusals: Counter[Cause]
    """Counts refused requests."""
    tls: TlsFiles | None
    beside: Mapping[str, Beside]
    """Answers further paths of the port of OTLP/HTTP."""


async def open_listeners(
    settings: Settings, lifetime: Lifetime, sink: Sink, doors: Doors
) -> tuple[Address, Address]:
    """Start the receivers over gRPC and HTTP, and return their addresses.

    Raises:
        SettingsError: an endpoint turns out to be one of our own ports.
        CollectorError: a port is not available.
    """
    receivers = make_receivers(settings, sink, doors)
    _warn_of_clear_text(settings)
    ports: list[int] = []
    for receiver in receivers:
        ports.append(await receiver.start())
        lifetime.stack.push_async_callback(receiver.stop, settings.shutdown_s * _DOORS_SHARE)
    grpc_listen, http_listen, _ = settings.listeners
    opened = replace(grpc_listen, port=ports[0]), replace(http_listen, port=ports[1])
    refuse_own_endpoint(settings, opened)
    return opened


def make_receivers(settings: Settings, sink: Sink, doors: Doors) -> tuple[Receiver, Receiver]:
    """Return the gRPC and HTTP receivers, not yet listening; they share one memory budget."""
    grpc_listen, http_listen, _ = settings.listeners

    def refused(cause: Cause) -> None:
        doors.refusals[cause] += 1

    rules = AdmissionRules(
        token=settings.token,
        tenant_header_names=settings.tenant_header_names,
        local_names=settings.allowed_host_names,
        cors=Cors(origins=settings.origins, tenant_headers=settings.tenant_header_names),
        refused=refused,
    )
    limits = HttpLimits(bytes=settings.receiving_bytes)
    tls, when_full = doors.tls, doors.trimmer.when_full
    return (
        GrpcReceiver(sink, grpc_listen, rules, tls, buffer_bytes=limits.bytes, when_full=when_full),
        HttpReceiver(sink, http_listen, rules, tls, limits=limits, when_full=when_full, beside=doors.beside),
    )


def probe_rules(settings: Settings) -> GuardRules:
    """Return the rules for probes on the port of OTLP/HTTP: those of the pages."""

    def names_tenant(request: web.BaseRequest) -> bool:
        try:
            return bool(tenant_among(request.headers.items(), settings.tenant_header_names))
        except MalformedRequestError:
            return True

    return GuardRules(
        token=settings.token,
        metrics_token=settings.metrics_token,
        allowed_hosts=settings.allowed_host_names,
        names_tenant=names_tenant,
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
