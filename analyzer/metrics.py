"""The service's own telemetry, read when somebody asks: ``metric_table.py`` says what there is.

Values are all of one moment, so that the conservation law can be checked from
outside: received = refused + acknowledged, and acknowledged = forwarded +
rejected + unsupported + lost + kept + held.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector, CollectorRegistry

from analyzer import metric_table as table
from analyzer.budget import HourlyBudget
from analyzer.drafting.tally import DraftTally, Outcome
from analyzer.families import counter, gauge, histogram, sums
from analyzer.issue_gauge import IssueCounts
from analyzer.notifiers import NoticeTally
from analyzer.process_stats import ProcessStats
from analyzer.tallies import VerdictTallies
from collector_processor.cleaning import Cleaner
from collector_processor.delivery import OutboxDelivery
from collector_processor.journal import Journal
from collector_processor.journal.chunks import QueueLook
from collector_processor.ledger import Ledger
from collector_processor.otlp import Cause, Setback, Signal
from collector_processor.pipeline import Pipeline
from collector_processor.tls import Renewals

_NS: Final = 1e9


@dataclass(eq=False, slots=True, kw_only=True)
class ServiceMetrics(Collector):
    """Reads the parts of one service."""

    ledger: Ledger
    journal: Journal
    now_ns: Callable[[], int]
    """Wall clock in Unix ns; the journal records arrival times by it."""
    pipeline: Pipeline
    deliveries: Sequence[OutboxDelivery]
    cleaner: Cleaner
    tallies: VerdictTallies
    settle_s: float
    """How long a new series is shown at zero (``tallies/series.py`` says why)."""
    budget: HourlyBudget | None = None
    renewals: Renewals = field(default_factory=Renewals)
    issues: Callable[[], IssueCounts] = IssueCounts
    """What stands of issues; must not block."""
    repetitions: Callable[[], int] = int
    """How many failures nobody was told of, since they were an issue already; must not block."""
    notices: Sequence[NoticeTally] = ()
    refusals: Counter[Cause] = field(default_factory=Counter)
    """What the receivers refused."""
    process: ProcessStats = field(default_factory=ProcessStats)
    drafts: DraftTally | None = None
    """What became of drafts, where they are written here."""
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    def __post_init__(self) -> None:
        self.registry.register(self)

    def describe(self) -> Iterable[Family]:
        """Nothing to describe ahead: names are in the table."""
        return ()

    def collect(self) -> Iterator[Family]:
        """Yield every family, as of now."""
        yield from self._items()
        yield from self._queues()
        yield from self.process.collect()
        yield from self._slow_lane()
        yield from self._drafting()
        yield from self._verdicts()
        yield from self._money()
        yield from self._issues()

    def _items(self) -> Iterator[Family]:
        snapshot = self.ledger.snapshot()
        for metric in table.ITEMS:
            what = metric.name.removeprefix("blamespan_items_")
            values = (((signal.value,), getattr(counts, what)) for signal, counts in snapshot.items())
            yield sums(metric, values)
        yield gauge(table.HELD, (((signal.value,), counts.held) for signal, counts in snapshot.items()))
        yield sums(table.MALFORMED, [((), self.ledger.malformed_requests)])

    def _queues(self) -> Iterator[Family]:
        looks = {signal: self.journal.look(signal) for signal in Signal}
        now_ns = self.now_ns()
        yield gauge(table.QUEUE_SIZE, (((one.value,), look.size_bytes) for one, look in looks.items()))
        yield gauge(
            table.QUEUE_CAPACITY, (((one.value,), look.capacity_bytes) for one, look in looks.items())
        )
        yield gauge(table.QUEUE_FULLNESS, (((one.value,), look.fullness) for one, look in looks.items()))
        yield gauge(table.QUEUE_AGE, (((one.value,), _age_s(look, now_ns)) for one, look in looks.items()))
        yield sums(table.SEND_FAILURES, self._setbacks())
        yield sums(table.REFUSALS, (((cause.value,), self.refusals[cause]) for cause in Cause))

    def _setbacks(self) -> Iterator[tuple[Sequence[str], float]]:
        """Yield failed sends, originals and verdicts together; every series exists from the start."""
        for signal in Signal:
            own = [one.setbacks for one in self.deliveries if one.signal is signal]
            for setback in Setback:
                count = self.ledger.setbacks[signal, setback] + sum(one[setback] for one in own)
                yield (signal.value, setback.value), count

    def _slow_lane(self) -> Iterator[Family]:
        yield gauge(table.OPEN_TRACES, [((), self.pipeline.open_traces)])
        yield gauge(table.EXAMINATIONS, [((), self.pipeline.under_way)])
        yield sums(table.EVICTED, [((), self.pipeline.evictions)])
        yield sums(table.TLS_FAILED, [((), self.renewals.failed)])
        yield sums(table.VERDICTS_SENT, (((one.signal.value,), one.sent) for one in self.deliveries))
        yield sums(table.VERDICTS_REFUSED, (((one.signal.value,), one.refused) for one in self.deliveries))
        unsupported = (((one.signal.value,), one.unsupported) for one in self.deliveries)
        yield sums(table.VERDICTS_UNSUPPORTED, unsupported)
        yield sums(table.REDACTED, (((kind,), self.cleaner.count(kind)) for kind in self.cleaner.kinds))

    def _drafting(self) -> Iterator[Family]:
        if self.drafts is None:
            return
        yield sums(table.DRAFTS, (((one.value,), self.drafts.traces[one]) for one in Outcome))
        yield sums(table.DRAFTING_S, [((), self.drafts.busy_s)])
        yield gauge(table.PROCESSES, [((), self.drafts.processes)])
        yield sums(table.PROCESS_STARTS, [((), self.drafts.started)])
        yield sums(table.PROCESS_DEATHS, [((), self.drafts.ended)])

    def _issues(self) -> Iterator[Family]:
        found = self.issues()
        yield gauge(table.ISSUES, (((state,), count) for state, count in found.states.items()))
        yield gauge(table.STANDING, found.standing.items())
        yield gauge(table.ALARM, found.alarms.items())
        yield gauge(table.SHARE_LOW, found.shares_low.items())
        yield sums(table.REPEATED, [((), self.repetitions())])
        for metric in table.NOTICES:
            what = metric.name.removeprefix("blamespan_notices_")
            yield sums(metric, (((one.receiver,), getattr(one, what)) for one in self.notices))

    def _verdicts(self) -> Iterator[Family]:
        tallies, now = self.tallies, self.tallies.monotonic()
        for metric, kept in (
            (table.RUNS, tallies.runs.counted),
            (table.RUNS_WITHDRAWN, tallies.runs.withdrawn),
            (table.TASKS, tallies.tasks.counted),
            (table.TASKS_WITHDRAWN, tallies.tasks.withdrawn),
            (table.FAILURES, tallies.failures.counted),
            (table.FAILURES_WITHDRAWN, tallies.failures.withdrawn),
            (table.SUPERSEDED, tallies.superseded),
        ):
            yield counter(metric, kept.points(now, self.settle_s))
        yield histogram(table.CONFIDENCE, tallies.confidence)
        yield histogram(table.LAG, tallies.lag_s)

    def _money(self) -> Iterator[Family]:
        tallies, now = self.tallies, self.tallies.monotonic()
        for metric, kept in (
            (table.CALLS, tallies.calls),
            (table.TOKENS, tallies.tokens),
            (table.COST, tallies.cost_usd),
            (table.UNPRICED, tallies.unpriced),
        ):
            yield counter(metric, kept.points(now, self.settle_s))
        if self.budget is not None:
            yield sums(table.BUDGET_REFUSALS, [((), self.budget.refused)])
            yield gauge(table.BUDGET_SPENT, [((), self.budget.spent_usd)])
            yield gauge(table.BUDGET_LIMIT, [((), self.budget.usd)])


def _age_s(look: QueueLook, now_ns: int) -> float:
    return 0.0 if look.oldest_ns is None else max(0.0, (now_ns - look.oldest_ns) / _NS)
