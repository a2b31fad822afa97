"""Start-up of the parts that Kafka needs: publisher, custody of the partitions, reader."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from analyzer.analyses.scheduler import Pipeline
from analyzer.service.lifetime import Lifetime
from analyzer.service.service_metrics import KafkaCounts
from collector_processor.forwarding.forwarder import Forwarder
from collector_processor.forwarding.ledger import Ledger
from collector_processor.journal import Journal
from collector_processor.otlp import CollectorError, TraceKey
from collector_processor.receivers.intake import Intake, IntakeRules, holds_nothing
from collector_processor.settings import Settings
from collector_processor.settings.kafka import KafkaAccess
from collector_processor.store.small_tables import SpilledPartRows

if TYPE_CHECKING:
    from collector_processor.kafka.custody import Custody
    from collector_processor.kafka.publisher import KafkaPublisher

_WAKE_EVERY_S: Final = 1.0
"""Seconds between looks into the shared store: all processes commit verdicts, but one process sends them."""

_SPILL_EVERY_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaLane:
    """The parts of one process."""

    access: KafkaAccess
    custody: Custody
    publisher: KafkaPublisher

    def counts(self) -> KafkaCounts:
        """Return the counts for ``/metrics``."""
        counts = self.custody.counts
        return KafkaCounts(
            published=self.publisher.published,
            read=counts.read,
            reread=counts.reread,
            aside=counts.aside,
            expired=counts.expired,
            stale_commits=counts.stale_commits,
            failed_commits=counts.failed_commits,
            partitions=len(self.custody.places),
            **self._spill_counts(),
        )

    def _spill_counts(self) -> dict[str, int]:
        spilling = self.custody.spilling
        if spilling is None:
            return {}
        return {**asdict(spilling.counts), "spilled_bytes": spilling.bytes}

    def owns(self, key: TraceKey) -> bool:
        """Return whether this process has the trace's spans."""
        return self.custody.owns(key)

    def door(self, ledger: Ledger, forwarder: Forwarder, rules: IntakeRules) -> Intake:
        """Return the sink of the receivers: what is sent here goes to Kafka first."""
        most = self.publisher.most_bytes
        limits = {signal: min(most, rules.max_item_bytes.get(signal, most)) for signal in self.access.topics}
        own = replace(rules, holds=holds_nothing, max_item_bytes=limits)
        return Intake(self.publisher, ledger, forwarder, own)


def open_kafka(settings: Settings, lifetime: Lifetime, journal: Journal) -> KafkaLane | None:
    """Open the publisher and the custody; ``None`` without Kafka.

    Raises:
        CollectorError: confluent-kafka is not installed, or the settings cannot be used.
    """
    access = settings.kafka
    if access is None:
        return None
    try:
        from collector_processor.kafka.custody import Custody  # noqa: PLC0415 - an extra
        from collector_processor.kafka.publisher import KafkaPublisher  # noqa: PLC0415
    except ImportError as error:
        needed = "BLAMESPAN_QUEUE=kafka://… needs confluent-kafka: pip install '.[server,postgres,kafka]'"
        raise CollectorError(f"{needed} in a checkout") from error
    signals = {topic: signal for signal, topic in access.topics.items()}
    aside = settings.data_dir / "kafka-unreadable"
    custody = Custody(journal, signals, settings.tenant_header_names, aside)
    publisher = KafkaPublisher(access)
    lifetime.stack.push_async_callback(publisher.close)
    return KafkaLane(access=access, custody=custody, publisher=publisher)


def start_spilling(
    lane: KafkaLane,
    lifetime: Lifetime,
    *,
    journal: Journal,
    rows: SpilledPartRows,
    in_db: Callable[..., Awaitable[Any]],
    after_s: float,
) -> None:
    """Move parts of traces that stay open for ``after_s`` seconds into the store; call it before reading."""
    from collector_processor.kafka.spilling import Spilling  # noqa: PLC0415 - an extra

    signals = {topic: signal for signal, topic in lane.access.topics.items()}
    lane.custody.spilling = Spilling(
        rows, in_db, journal, signals, after_s=after_s, monotonic=time.monotonic, wall_ns=time.time_ns
    )
    lifetime.background(_keep_spilling(lane.custody))


def start_reading(
    lane: KafkaLane,
    lifetime: Lifetime,
    *,
    journal: Journal,
    intake: Intake,
    forwarder: Forwarder,
    ledger: Ledger,
    pipeline: Pipeline,
    wake: Callable[[], None],
) -> None:
    """Join the consumer group; it is left before the lanes are drained."""
    from collector_processor.kafka.reader import KafkaReader  # noqa: PLC0415 - an extra

    lane.custody.attach(intake, forwarder, ledger, pipeline)

    def evicted(keys: tuple[TraceKey, ...]) -> None:
        pipeline.evicted(keys)
        lane.custody.evicted(keys)

    journal.on_evicted = evicted
    failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    reader = KafkaReader(lane.access, lane.custody, failure.set_exception)
    lifetime.background(_raise(failure))
    lifetime.background(_keep_waking(wake))
    lifetime.stack.push_async_callback(reader.close)
    reader.start()


async def _raise(failure: asyncio.Future[None]) -> None:
    await failure


async def _keep_waking(wake: Callable[[], None]) -> None:
    while True:
        await asyncio.sleep(_WAKE_EVERY_S)
        wake()


async def _keep_spilling(custody: Custody) -> None:
    while True:
        await asyncio.sleep(_SPILL_EVERY_S)
        await custody.spill()
