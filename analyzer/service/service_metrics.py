"""Prometheus collector of one service: reads its parts at each scrape, by ``metric_table``.

Values are all of one moment, so that the conservation law can be checked from outside: received =
refused + acknowledged, and acknowledged = forwarded + rejected + unsupported + lost + kept + returned +
held.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector, CollectorRegistry

from analyzer.analyses.early import EarlyWarning
from analyzer.analyses.models.budget import HourlyBudget
from analyzer.analyses.pool import Outcome, PoolCounters
from analyzer.analyses.scheduler import Pipeline
from analyzer.issues.issue_service import IssueCounts
from analyzer.issues.notifier import DeliveryCounters
from analyzer.telemetry import metric_table
from analyzer.telemetry import metric_table as table
from analyzer.telemetry.metric import Labels
from analyzer.telemetry.process_stats import ProcessStats
from analyzer.telemetry.verdict_counters import VerdictCounters
from collector_processor.core.disk import Condition
from collector_processor.core.scores import Lane
from collector_processor.forwarding.ledger import Ledger
from collector_processor.forwarding.outbox import OutboxDelivery
from collector_processor.forwarding.sender import Sender
from collector_processor.journal import Journal
from collector_processor.journal.chunks import QueueLook
from collector_processor.otlp import Cause, Setback, Signal
from collector_processor.otlp.tls import Renewals
from collector_processor.rebuild.redaction import Cleaner

_NS: Final = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaCounts:
    """Counts of one process of a Kafka group; zero without Kafka."""

    published: int = 0
    read: int = 0
    reread: int = 0
    aside: int = 0
    expired: int = 0
    stale_commits: int = 0
    failed_commits: int = 0
    partitions: int = 0
    spilled: int = 0
    recalled: int = 0
    damaged: int = 0
    spilled_bytes: int = 0


@dataclass(eq=False, slots=True, kw_only=True)
class ServiceMetrics(Collector):
    """Reads the parts of one service; on its event loop, without waiting."""

    ledger: Ledger
    journal: Journal
    now_ns: Callable[[], int]
    """Wall clock in Unix ns; the journal records arrival times by it."""
    pipeline: Pipeline
    senders: Mapping[Signal | Lane, Sender]
    deliveries: Sequence[OutboxDelivery]
    cleaner: Cleaner
    verdicts: VerdictCounters
    settle_s: float
    """Time for which a new series is shown at zero (``telemetry/verdict_counters.py`` says why)."""
    budget: HourlyBudget | None
    renewals: Renewals = field(default_factory=Renewals)
    issues: Callable[[], IssueCounts]
    """Current issues and alarms; must not block."""
    repetitions: Callable[[], int]
    """Number of failures that repeat a known issue and were not announced; must not block."""
    notices: Sequence[DeliveryCounters]
    refusals: Counter[Cause]
    """Requests that the receivers refused."""
    stores: Mapping[str, Condition]
    early: EarlyWarning | None
    """Early warnings; ``None`` if they are off."""
    kafka: Callable[[], KafkaCounts]
    """Counts of the records of Kafka."""
    process: ProcessStats = field(default_factory=ProcessStats)
    executor: PoolCounters
    """Prepared traces and worker processes."""
    pages_restarts: Callable[[], int] = int
    """Number of processes of the pages that ended by themselves."""
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    def __post_init__(self) -> None:
        self.registry.register(self)

    def collect(self) -> Iterator[Family]:
        """Yield every family, as of now."""
        yield from self._items()
        yield from self._queues()
        yield from self.process.collect()
        yield from self._analyses()
        yield from self._preparing()
        yield from self.verdicts.collect(self.settle_s)
        yield from self._budget()
        yield from self._issues()

    def _items(self) -> Iterator[Family]:
        snapshot = self.ledger.snapshot()
        for metric in table.ITEMS:
            what = metric.name.removeprefix("blamespan_items_")
            yield metric.family(((one.value,), getattr(counts, what)) for one, counts in snapshot.items())
        yield table.HELD.family(((signal.value,), counts.held) for signal, counts in snapshot.items())
        kafka = self.kafka()
        yield table.KAFKA_RECORDS.family(
            ((name,), getattr(kafka, name)) for name in ("published", "read", "reread", "aside", "expired")
        )
        yield table.KAFKA_REFUSED_COMMITS.family(
            ((reason,), getattr(kafka, f"{reason}_commits")) for reason in ("stale", "failed")
        )
        yield table.KAFKA_PARTITIONS.single(kafka.partitions)
        yield table.KAFKA_SPILLED_PARTS.family(
            ((name,), getattr(kafka, name)) for name in ("spilled", "recalled", "damaged")
        )
        yield table.KAFKA_SPILLED_BYTES.single(kafka.spilled_bytes)
        yield table.MALFORMED.single(self.ledger.malformed_requests)

    def _queues(self) -> Iterator[Family]:
        looks = {(signal.value,): self.journal.look(signal) for signal in Signal}
        now_ns = self.now_ns()
        yield table.QUEUE_SIZE.family((one, look.size_bytes) for one, look in looks.items())
        yield table.QUEUE_CAPACITY.family((one, look.capacity_bytes) for one, look in looks.items())
        yield table.QUEUE_FULLNESS.family((one, look.fullness) for one, look in looks.items())
        yield table.QUEUE_AGE.family((one, _age_s(look, now_ns)) for one, look in looks.items())
        yield table.OLDEST_ACTIONABLE.single(self.pipeline.oldest_actionable_s)
        yield table.SEND_FAILURES.family(self._setbacks())
        yield table.REFUSALS.family(((cause.value,), self.refusals[cause]) for cause in Cause)

    def _setbacks(self) -> Iterator[tuple[Labels, float]]:
        """Yield failed sends, of received data and of verdicts; every series exists from the start."""
        for name in dict.fromkeys((*Signal, *self.senders)):
            sender = self.senders.get(name)
            for setback in Setback:
                yield (str(name), setback.value), sender.setbacks[setback] if sender else 0

    def _analyses(self) -> Iterator[Family]:
        yield table.OPEN_TRACES.single(self.pipeline.open_traces)
        yield table.EXAMINATIONS.single(self.pipeline.under_way)
        if self.early is not None and (looks := self.pipeline.looks) is not None:
            yield table.EARLY_WARNINGS.single(self.early.warnings)
            counts = (("done", looks.done), ("skipped", looks.skipped))
            yield table.EARLY_LOOKS.family(((name,), count) for name, count in counts)
        yield table.EVICTED.single(self.pipeline.evictions)
        yield table.STORE_FAULTY.family(
            ((name,), float(condition.fault is not None)) for name, condition in self.stores.items()
        )
        yield table.TLS_FAILED.single(self.renewals.failed)
        yield table.VERDICTS_SENT.family(((str(one.signal),), one.sent) for one in self.deliveries)
        yield table.VERDICTS_REFUSED.family(((str(one.signal),), one.refused) for one in self.deliveries)
        unsupported = (((str(delivery.signal),), delivery.unsupported) for delivery in self.deliveries)
        yield table.VERDICTS_UNSUPPORTED.family(unsupported)
        yield table.REDACTED.family(((kind,), self.cleaner.count(kind)) for kind in self.cleaner.kinds)

    def _preparing(self) -> Iterator[Family]:
        yield table.PREPARED.family(((outcome.value,), self.executor.traces[outcome]) for outcome in Outcome)
        yield table.PREPARING_S.single(self.executor.busy_s)
        yield table.PROCESSES.single(self.executor.processes)
        yield table.PROCESS_STARTS.single(self.executor.started)
        yield table.PROCESS_DEATHS.single(self.executor.ended)
        yield table.PAGES_RESTARTS.single(self.pages_restarts())

    def _budget(self) -> Iterator[Family]:
        if self.budget is not None:
            yield table.BUDGET_REFUSALS.single(self.budget.refused)
            yield table.SUSPECT_USAGE.single(self.budget.suspect)
            yield table.BUDGET_SPENT.single(self.budget.spent_by_all_usd)
            yield table.BUDGET_LIMIT.single(self.budget.usd)

    def _issues(self) -> Iterator[Family]:
        counts = self.issues()
        yield metric_table.ISSUES.family(((state,), count) for state, count in counts.states.items())
        yield metric_table.STANDING.family(counts.standing.items())
        yield metric_table.ALARM.family(counts.alarms.items())
        yield metric_table.SHARE_LOW.family(counts.shares_low.items())
        yield metric_table.WORKFLOW_REGRESSED.family(counts.regressed.items())
        yield metric_table.WORKFLOW_PASSED.family(counts.passed_shares.items())
        yield metric_table.REPEATED.single(self.repetitions())
        for metric in metric_table.NOTICES:
            what = metric.name.removeprefix("blamespan_notices_")
            yield metric.family(((notice.receiver,), getattr(notice, what)) for notice in self.notices)


def _age_s(look: QueueLook, now_ns: int) -> float:
    return 0.0 if look.oldest_ns is None else max(0.0, (now_ns - look.oldest_ns) / _NS)
