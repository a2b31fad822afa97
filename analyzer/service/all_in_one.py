"""The whole line in one process: receivers, journal, forwarder, slow lane, outbox, API.

Start-up opens what is durable first and the doors last; the way down is the
other way round: not ready, doors shut, forwarder and slow lane drained by a
deadline, files closed. What is not finished by then is resumed at the next
start. What each part is made of stands in ``serving/``.
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
from typing import Final

from analyzer.analyst import RunAnalyst
from analyzer.composition import open_analyst, open_cleaner, prepare_model
from analyzer.metrics import ServiceMetrics
from analyzer.serving.doors import open_doors, refuse_own_endpoint
from analyzer.serving.files import expire, open_files, steady_clock
from analyzer.serving.issues import count_issues, start_issues
from analyzer.serving.lanes import (
    Thinking,
    open_budget,
    open_routes,
    start_deliveries,
    start_forwarder,
    start_pipeline,
)
from analyzer.serving.lifetime import Lifetime
from analyzer.serving.own_metrics import send_metrics
from analyzer.serving.pages import web_parts
from analyzer.tallies import VerdictTallies
from collector_processor.analyst import Analyst
from collector_processor.intake import Intake, IntakeRules
from collector_processor.ledger import Ledger
from collector_processor.otlp import Cause, Exporter, Signal
from collector_processor.settings import Address, Settings
from collector_processor.stored import StoredVerdict

logger = logging.getLogger(__name__)


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
        service = _Service(settings, analyst or open_analyst(settings), Lifetime(stack))
        running = await service.start(exporters)
        try:
            yield running
        finally:
            service.shut_down()


class _Service:
    """What is started, and in which order."""

    def __init__(self, settings: Settings, analyst: Analyst, lifetime: Lifetime) -> None:
        self._settings: Final = settings
        self._analyst: Final = analyst
        self._lifetime: Final = lifetime
        self._is_ready = False

    async def start(self, given: Mapping[Signal, Exporter] | None) -> Running:
        """Open everything, the doors last."""
        settings, lifetime, instance_id = self._settings, self._lifetime, secrets.token_hex(8)
        cleaner, now_ns = open_cleaner(settings), steady_clock()
        tallies = VerdictTallies(monotonic=time.monotonic)
        refuse_own_endpoint(settings, settings.listeners)
        files = await open_files(settings, lifetime)
        desk = start_issues(settings, lifetime, tallies.move)
        exporters = open_routes(settings, lifetime, instance_id) if given is None else given
        await lifetime.stack.enter_async_context(lifetime.watched)
        ledger = Ledger(files.journal.held_items, files.journal.lost)
        forwarder = start_forwarder(lifetime, files.journal, ledger, exporters)
        thinking = Thinking(analyst=self._analyst, cleaner=cleaner, tallies=tallies, desk=desk)
        examiner, deliveries = start_deliveries(settings, lifetime, files, exporters, thinking)
        budget = await open_budget(self._analyst, files.store, examiner)
        pipeline = await start_pipeline(settings, lifetime, files.journal, examiner)
        rules = IntakeRules(
            instance_id=instance_id,
            now_ns=now_ns,
            holds=pipeline.holds,
            feed=pipeline.feed,
            max_item_bytes={signal: exporter.max_bytes for signal, exporter in exporters.items()},
        )
        intake = Intake(files.journal, ledger, forwarder, rules)
        lifetime.background(expire(files, examiner, now_ns))
        lifetime.background(prepare_model(settings))
        refusals: Counter[Cause] = Counter()
        metrics = ServiceMetrics(
            ledger=ledger,
            journal=files.journal,
            now_ns=now_ns,
            refusals=refusals,
            pipeline=pipeline,
            deliveries=deliveries,
            cleaner=cleaner,
            tallies=tallies,
            settle_s=settings.metrics_settle / 1000,
            budget=budget,
            issues=count_issues(lifetime, desk),
            repetitions=lambda: desk.repetitions,
            notices=desk.tallies,
            drafts=thinking.drafts if isinstance(self._analyst, RunAnalyst) else None,
        )
        send_metrics(settings, lifetime, metrics.collect, exporters, instance_id)
        parts = web_parts(
            settings,
            lifetime,
            files,
            examiner,
            thinking,
            is_ready=lambda: self._is_ready,
            registry=metrics.registry,
            renewals=metrics.renewals,
        )
        doors = await open_doors(settings, lifetime, intake, parts, refusals)

        async def undelivered() -> int:
            waiting = await examiner.in_db(files.store.outbox_size)
            return waiting + sum(counts.held for counts in ledger.snapshot().values())

        self._is_ready = True
        return Running(
            grpc=doors.grpc,
            http=doors.http,
            web=doors.web,
            instance_id=instance_id,
            recent=parts.recent,
            find=parts.find,
            failure=lifetime.failure,
            undelivered=undelivered,
            rejected=lambda: sum(counts.rejected for counts in ledger.snapshot().values()),
        )

    def shut_down(self) -> None:
        """Begin the way down; the lifetime does the rest."""
        self._is_ready = False
        self._lifetime.begin_end(self._settings.shutdown_max / 1000)
        logger.info("shutting down")
