"""The whole line in one process: receivers, journal, forwarder, slow lane, outbox, API.

Start-up opens what is durable first and the doors last; the way down is the
other way round: not ready, doors shut, forwarder and slow lane drained by a
deadline, files closed. What is not finished by then is resumed at the next
start.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from analyzer.analyst import RunAnalyst
from analyzer.budget import HourlyBudget
from analyzer.composition import (
    budget_of,
    carrier_policy,
    open_analyst,
    open_cleaner,
    prepare_model,
    tls_files,
)
from analyzer.issue_gauge import IssueCounts, IssueGauge
from analyzer.issues.desk import DeskParts, IssueDesk, both
from analyzer.issues.store import open_issues
from analyzer.labels import Label, Said
from analyzer.labels.labelling import RUNS, Given, give, keeper, open_labels
from analyzer.labels.store import LabelStore
from analyzer.metrics import ServiceMetrics
from analyzer.notifiers.opening import counting_rules, receivers_of
from analyzer.otlp_metrics import MetricsSender
from analyzer.spending import StoredSpending
from analyzer.tallies import VerdictTallies
from analyzer.web.app import WebParts, WebServer
from analyzer.web.archive import RunArchive
from analyzer.web.issue_source import DeskIssues
from analyzer.web.jobs import Jobs
from analyzer.web.labels import Labels
from analyzer.web.links import TraceLinks
from analyzer.web.pages import Pages
from analyzer.web.settings_shown import shown_settings
from collector_processor.analyst import Analyst
from collector_processor.delivery import OutboxDelivery
from collector_processor.examine import Examiner
from collector_processor.exporters import open_exporters
from collector_processor.forwarder import Forwarder
from collector_processor.intake import Intake, IntakeRules
from collector_processor.journal import Journal, open_journal
from collector_processor.journal.chunks import JournalLimits
from collector_processor.ledger import Ledger
from collector_processor.loops import own_listener
from collector_processor.otlp import Exporter, Signal, Tenant
from collector_processor.pipeline import Pipeline, PipelineLimits
from collector_processor.receivers import DoorRules, GrpcReceiver, HttpReceiver, HttpRoom
from collector_processor.runstore import RunStore, StoredVerdict
from collector_processor.settings import Address, Settings, SettingsError, WriteBack
from collector_processor.stores import StoreError
from collector_processor.writeback import Decision

logger = logging.getLogger(__name__)

_ANALYSES_SHARE: Final = 0.5
"""Of the time that a shutdown may take: what analyses leave behind must still be sent."""
MAX_VERDICTS: Final = 100_000
"""The store forgets older ones; backends keep theirs."""
_EXPIRE_EVERY_S: Final = 60.0
_DOORS_GRACE_S: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A service that takes spans."""

    grpc: Address
    http: Address
    web: Address
    instance_id: str
    recent: Callable[[int], Awaitable[Sequence[StoredVerdict]]]
    find: Callable[[str], Awaitable[Sequence[StoredVerdict]]]
    failure: asyncio.Future[None]
    """Raises, to whoever awaits it, what ended a part of the service."""
    undelivered: Callable[[], Awaitable[int]]
    """Items and verdicts that the backend does not have yet."""
    rejected: Callable[[], int]
    """Items that the backend refused for good."""


@asynccontextmanager
async def running_service(
    settings: Settings, analyst: Analyst | None = None, *, exporters: Mapping[Signal, Exporter] | None = None
) -> AsyncIterator[Running]:
    """Run the service until the block ends, then shut down in order.

    Args:
        settings: all of it.
        analyst: who analyses; by default what the settings ask for.
        exporters: where signals go on to; by default where the settings say.

    Raises:
        SettingsError: the settings contradict each other.
        CollectorError: a file, port or backend cannot be had; the message says which.
    """
    async with AsyncExitStack() as stack:
        service = _Service(settings, analyst or open_analyst(settings), exporters, stack)
        running = await service.start()
        try:
            yield running
        finally:
            service.shut_down()


class _Service:
    """Everything that lives as long as the process."""

    def __init__(
        self,
        settings: Settings,
        analyst: Analyst,
        exporters: Mapping[Signal, Exporter] | None,
        stack: AsyncExitStack,
    ) -> None:
        self._settings: Final = settings
        self._analyst: Final = analyst
        self._given_exporters: Final = exporters
        self._stack: Final = stack
        self._instance_id: Final = secrets.token_hex(8)
        self._cleaner: Final = open_cleaner(settings)
        self._tallies: Final = VerdictTallies(monotonic=time.monotonic)
        self._failure: Final[asyncio.Future[None]] = asyncio.get_running_loop().create_future()
        self._watched: Final = AsyncExitStack()
        self._began_ns: Final = time.time_ns() - time.monotonic_ns()
        self._ends_at = time.monotonic()
        """When a shutdown must be through; where starting fails there is nothing to wait for."""
        self.is_ready = False

    async def start(self) -> Running:
        """Open everything, the doors last."""
        settings = self._settings
        self._refuse_own_endpoint(settings.listeners)
        journal = await self._open_journal()
        store, labels = self._open_store(), self._open_labels()
        desk = self._start_issues()
        exporters = self._open_exporters()
        # Closed when all is drained: until then probes hear that we are not ready, and people how far we are.
        await self._stack.enter_async_context(self._watched)
        ledger = Ledger(journal.held_items)
        forwarder = self._start_forwarder(journal, ledger, exporters)
        examiner, deliveries = self._start_deliveries(journal, store, labels, exporters, desk)
        budget = await self._open_budget(store, examiner)
        pipeline = await self._start_pipeline(journal, examiner)
        intake = Intake(journal, ledger, forwarder, self._intake_rules(pipeline, exporters))
        self._background(self._expire(journal, examiner, store))
        self._background(prepare_model(settings))
        metrics = ServiceMetrics(
            ledger=ledger,
            pipeline=pipeline,
            deliveries=deliveries,
            cleaner=self._cleaner,
            tallies=self._tallies,
            settle_s=settings.metrics_settle / 1000,
            budget=budget,
            issues=self._count_issues(desk),
            repetitions=lambda: desk.repetitions,
            notices=desk.tallies,
        )
        self._send_metrics(metrics, exporters)
        parts = WebParts(
            is_ready=lambda: self.is_ready,
            recent=lambda limit: examiner.in_db(store.recent, limit),
            find=lambda run_id: examiner.in_db(store.find, run_id),
            metrics=metrics.registry,
            labels=_label_parts(labels, examiner),
            issues=desk,
            token=settings.token,
            tenant_header_names=settings.tenant_header_names,
            allowed_hosts=settings.allowed_host_names,
            tls=tls_files(settings),
            most_connections=settings.max_connections,
            pages=self._open_pages(desk),
        )

        async def undelivered() -> int:
            waiting = await examiner.in_db(store.outbox_size)
            return waiting + sum(counts.held for counts in ledger.snapshot().values())

        def rejected() -> int:
            return sum(counts.rejected for counts in ledger.snapshot().values())

        running = await self._open_doors(intake, parts, undelivered, rejected)
        self.is_ready = True
        return running

    def shut_down(self) -> None:
        """Begin the way down; the stack does the rest."""
        self.is_ready = False
        self._ends_at = time.monotonic() + self._settings.shutdown_max / 1000
        logger.info("shutting down")

    def _steady_ns(self) -> int:
        """Return the wall clock as if nobody had set it since the start: ages are told by it.

        A clock put right (a machine that woke up in 1970) must not make every open trace look silent
        for years, nor for ever.
        """
        return self._began_ns + time.monotonic_ns()

    def _refuse_own_endpoint(self, listeners: Sequence[Address]) -> None:
        for signal, destination in self._settings.endpoints.items():
            own = own_listener(destination.endpoint, listeners)
            if own is not None:
                raise SettingsError(
                    f"the endpoint for {signal.value}, {destination.shown}, is our own listener {own}:"
                    " spans would go round in circles; set BLAMESPAN_FORWARD_ENDPOINT to the backend"
                )

    async def _open_journal(self) -> Journal:
        settings = self._settings
        limits = JournalLimits(
            max_pending_bytes=settings.max_pending_bytes, max_retained_bytes=settings.max_retained_bytes
        )
        journal = await open_journal(settings.data_dir / "ingest", limits)
        self._stack.push_async_callback(journal.close)
        self._background(_fails_with(journal.failure))
        return journal

    def _open_store(self) -> RunStore:
        store = RunStore(self._settings.data_dir / RUNS)
        self._stack.callback(store.close)
        return store

    def _open_labels(self) -> LabelStore:
        labels = open_labels(self._settings.data_dir)
        self._stack.callback(labels.close)
        return labels

    def _open_pages(self, desk: IssueDesk) -> Pages:
        settings, archive = self._settings, RunArchive(self._settings.data_dir)
        self._stack.callback(archive.close)
        jobs = Jobs(self._analyst) if isinstance(self._analyst, RunAnalyst) else None
        if jobs is not None:
            self._stack.push_async_callback(jobs.close)
        return Pages(
            runs=archive,
            clean=self._cleaner,
            jobs=jobs,
            issues=DeskIssues(desk=desk),
            links=TraceLinks(
                jaeger=settings.jaeger_url,
                grafana=settings.grafana_url,
                tempo_uid=settings.grafana_tempo_uid,
            ),
            settings=shown_settings(settings),
            now_ns=time.time_ns,
        )

    def _open_exporters(self) -> Mapping[Signal, Exporter]:
        if self._given_exporters is not None:
            return self._given_exporters
        if not self._settings.endpoints:
            return {}
        router = open_exporters(self._settings.endpoints, self._instance_id)
        self._stack.push_async_callback(router.close)
        return router.routes

    def _start_forwarder(
        self, journal: Journal, ledger: Ledger, exporters: Mapping[Signal, Exporter]
    ) -> Forwarder:
        forwarder = Forwarder(journal=journal, ledger=ledger, exporters=exporters)
        self._background(forwarder.run())
        self._drained(forwarder.drain)  # runs before the one above is cancelled
        forwarder.resume()
        return forwarder

    def _start_issues(self) -> IssueDesk:
        settings = self._settings
        receivers = receivers_of(settings)
        desk = IssueDesk(
            DeskParts(
                store=open_issues(settings.data_dir),
                rules=counting_rules(settings, receivers),
                receivers=receivers,
            ),
            lambda: RunStore(settings.data_dir / RUNS),
            open_labels(settings.data_dir),
        )
        self._stack.callback(desk.close)
        self._background(desk.run())
        return desk

    def _start_deliveries(
        self,
        journal: Journal,
        store: RunStore,
        labels: LabelStore,
        exporters: Mapping[Signal, Exporter],
        desk: IssueDesk,
    ) -> tuple[Examiner, tuple[OutboxDelivery, ...]]:
        deliveries: list[OutboxDelivery] = []

        def wake() -> None:
            for delivery in deliveries:
                delivery.wake()

        async def in_db(*call: Any) -> Any:
            return await examiner.in_db(*call)

        def tell(decision: Decision, verdict: StoredVerdict) -> None:
            self._tallies.count(decision, verdict)
            desk.wake()

        policy = carrier_policy(self._settings)
        examiner = Examiner(
            source=journal,
            store=store,
            analyst=self._analyst,
            policy=policy,
            wall_ns=time.time_ns,
            wake_outbox=wake,
            keep=both(keeper(labels, policy.clean, time.time_ns, in_db), desk.keep),
            tell=tell,
            clean=self._cleaner,
        )
        self._watched.callback(examiner.close)
        for signal in (Signal.TRACES, Signal.LOGS):
            delivery = OutboxDelivery(
                signal,
                read=lambda signal, skip: examiner.in_db(store.outbox, signal, skip),
                forget=lambda ids: examiner.in_db(store.delivered, ids),
                exporters=exporters,
            )
            deliveries.append(delivery)
            self._drained(delivery.drain)
            self._background(delivery.run())  # cancelled first, so that nothing is sent by two
        return examiner, tuple(deliveries)

    async def _open_budget(self, store: RunStore, examiner: Examiner) -> HourlyBudget | None:
        """Have what models cost kept, before anybody can ask one; ``None`` where there is none."""
        budget = budget_of(self._analyst)
        if budget is not None:
            await budget.keep_in(StoredSpending(store=store, in_db=examiner.in_db, wall_ns=time.time_ns))
        return budget

    async def _start_pipeline(self, journal: Journal, examiner: Examiner) -> Pipeline:
        settings = self._settings
        hold_max_s = settings.hold_max / 1000 if settings.write_back is WriteBack.HOLD else None
        limits = PipelineLimits(
            assembler=settings.assembler_limits, hold_max_s=hold_max_s, concurrency=settings.concurrency
        )
        pipeline = Pipeline(examiner, limits, time.monotonic)
        journal.on_evicted = pipeline.evicted
        await pipeline.recover(journal.agent_traces())
        self._drained(pipeline.drain, share=_ANALYSES_SHARE)
        self._background(pipeline.run())  # cancelled first: nothing new begins while it drains
        return pipeline

    def _count_issues(self, desk: IssueDesk) -> Callable[[], IssueCounts]:
        gauge = IssueGauge(read=desk.counts)
        self._background(gauge.run())
        return gauge.counts

    def _send_metrics(self, metrics: ServiceMetrics, exporters: Mapping[Signal, Exporter]) -> None:
        every_s, exporter = self._settings.metrics_interval / 1000, exporters.get(Signal.METRICS)
        if not every_s:
            return
        if exporter is None:
            logger.warning("own metrics go nowhere: there is no endpoint for metrics")
            return
        sender = MetricsSender(
            read=metrics.collect,
            exporter=exporter,
            instance_id=self._instance_id,
            every_s=every_s,
            wall_ns=time.time_ns,
        )
        self._background(sender.run())

    def _intake_rules(self, pipeline: Pipeline, exporters: Mapping[Signal, Exporter]) -> IntakeRules:
        return IntakeRules(
            instance_id=self._instance_id,
            now_ns=self._steady_ns,
            holds=pipeline.holds,
            feed=pipeline.feed,
            max_item_bytes={signal: exporter.max_bytes for signal, exporter in exporters.items()},
        )

    async def _open_doors(
        self,
        intake: Intake,
        parts: WebParts,
        undelivered: Callable[[], Awaitable[int]],
        rejected: Callable[[], int],
    ) -> Running:
        settings = self._settings
        grpc_listen, http_listen, web_listen = settings.listeners
        rules = DoorRules(
            token=settings.token,
            tenant_header_names=settings.tenant_header_names,
            max_bytes=settings.max_request_bytes,
            local_names=settings.allowed_host_names,
        )
        room = HttpRoom(bytes=settings.max_receiving_bytes, connections=settings.max_connections)
        receivers = (
            GrpcReceiver(intake, grpc_listen, rules, parts.tls),
            HttpReceiver(intake, http_listen, rules, parts.tls, room=room),
        )
        _warn_of_clear_text(settings)
        web = WebServer(parts, web_listen)
        web_port = await web.start()
        self._watched.push_async_callback(web.stop)
        ports: list[int] = []
        for receiver in receivers:
            ports.append(await receiver.start())
            self._stack.push_async_callback(receiver.stop, _DOORS_GRACE_S)
        bound = (replace(grpc_listen, port=ports[0]), replace(http_listen, port=ports[1]))
        self._refuse_own_endpoint(bound)  # a port given as 0 is known only now
        return Running(
            grpc=bound[0],
            http=bound[1],
            web=replace(web_listen, port=web_port),
            instance_id=self._instance_id,
            recent=parts.recent,
            find=parts.find,
            failure=self._failure,
            undelivered=undelivered,
            rejected=rejected,
        )

    async def _expire(self, journal: Journal, examiner: Examiner, store: RunStore) -> None:
        while True:
            journal.expire(self._steady_ns())
            try:
                await examiner.in_db(store.prune, MAX_VERDICTS)
            except StoreError as error:
                logger.warning("old verdicts cannot be pruned", extra={"reason": str(error)})
            await asyncio.sleep(_EXPIRE_EVERY_S)

    def _drained(self, drain: Callable[[float], Awaitable[None]], *, share: float = 1.0) -> None:
        """Have a part drained on the way down, in its share of what is left of the time for all."""

        async def drain_in_time() -> None:
            await drain(max(0.0, self._ends_at - time.monotonic()) * share)

        self._stack.push_async_callback(drain_in_time)

    def _background(self, work: Coroutine[None, None, None]) -> None:
        """Run a part for as long as the service; if it fails, the service ends and says why."""
        task = asyncio.create_task(work)
        task.add_done_callback(self._ended)
        self._stack.push_async_callback(_cancel, task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None and not self._failure.done():
            error = task.exception()
            assert error is not None
            logger.critical("a part of the service failed", exc_info=error)
            self._failure.set_exception(error)


def _warn_of_clear_text(settings: Settings) -> None:
    beyond = [str(listener) for listener in settings.listeners if not listener.is_loopback]
    if beyond and settings.tls_certificate is None:
        logger.warning(
            "listening beyond this machine without TLS: token and spans travel in clear text",
            extra={"listeners": beyond, "mend": "set BLAMESPAN_TLS_CERTIFICATE and BLAMESPAN_TLS_KEY"},
        )


def _label_parts(labels: LabelStore, examiner: Examiner) -> Labels:
    async def take(verdict: StoredVerdict, said: Said) -> Given:
        return await examiner.in_db(give, labels, verdict, said, time.time_ns())

    async def of(tenant: Tenant, run_id: str) -> Sequence[Label]:
        return await examiner.in_db(labels.labels, tenant, run_id)

    return Labels(give=take, of=of)


async def _fails_with(failure: asyncio.Future[None]) -> None:
    await failure


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
