"""Counters of settled verdicts: runs, tasks, failures, confidence, lag, cost. Each run counts once.

A run counts when its first verdict is settled (durable and not provisional). A correction
moves it: because a counter never falls, the earlier count is added to a second counter, of
withdrawn counts, and the run is counted again in its new place. The difference of the two is
the current number. Both have the same labels and start at 0 together, so a query can always
subtract one from the other. The cost of an analysis is counted each time it is paid.

A new series is shown at zero for a while: Prometheus computes an ``increase`` of 0 for a series that it
first sees at 6, so the first failures of a rare agent would raise no alarm. The time is measured by
the clock, not by scrapes, so that a second reader does not shorten it for the first.

``prometheus_client.Counter`` has no such delay and accepts no clock. It also adds a ``_created`` series to
each series, which only a process-wide switch turns off, and takes 0.65 KB per series instead of 0.14 KB; the
label bounds allow 63,000 series. Its families, its exemplars and its ``Histogram`` are used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import Histogram
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.samples import Exemplar

from analyzer.inquiry.verdict import FailureMode
from analyzer.telemetry import metric_table as table
from analyzer.telemetry.metric import MAX_MODELS, AgentNames, BoundedNames, Labels, Metric, Point
from collector_processor.core.records import StoredVerdict, VerdictSummary
from semconv.model import Status

CONFIDENCE_BOUNDS: Final = tuple(tenth / 10 for tenth in range(1, 11))
LAG_BOUNDS_S: Final = (1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
MAX_LAG_S: Final = 86_400.0
"""Longest plausible lag: beyond it the run was replayed or its clock is wrong, and no lag is measured."""
_NS: Final = 1e9
_MODES: Final = frozenset(mode.value for mode in FailureMode)


@dataclass(slots=True)
class _Series:
    born_s: float
    value: float = 0.0
    exemplar: Exemplar | None = None


@dataclass(slots=True)
class Counter:
    """Sums that only grow, one for each set of labels; ``now`` is monotonic seconds throughout."""

    metric: Metric
    _series: dict[Labels, _Series] = field(default_factory=dict)

    def __contains__(self, labels: Labels) -> bool:
        return labels in self._series

    def see(self, labels: Labels, now: float) -> None:
        """Create the series at zero if it is new."""
        if labels not in self._series:
            self._series[labels] = _Series(now)

    def add(self, labels: Labels, now: float, amount: float = 1.0, exemplar: Exemplar | None = None) -> None:
        """Add to a series."""
        self.see(labels, now)
        series = self._series[labels]
        series.value += amount
        series.exemplar = exemplar or series.exemplar

    def points(self, now: float, settle_s: float) -> Iterator[Point]:
        """Yield every series, oldest first; one younger than ``settle_s`` is shown at zero."""
        for labels, series in self._series.items():
            is_settled = now - series.born_s >= settle_s
            yield Point(labels, series.value, series.exemplar) if is_settled else Point(labels, 0.0)

    def family(self, now: float, settle_s: float) -> Family:
        """Return the series of ``points`` as a family of prometheus_client."""
        return self.metric.family(self.points(now, settle_s))


@dataclass(slots=True)
class Moving:
    """A counter, and a second one for the counts withdrawn by corrections, since counters never fall."""

    counted: Counter
    withdrawn: Counter

    def see(self, labels: Labels, now: float) -> None:
        """Create both series at zero if they are new."""
        self.counted.see(labels, now)
        self.withdrawn.see(labels, now)

    def move(
        self, before: set[Labels], after: set[Labels], now: float, exemplar: Exemplar | None = None
    ) -> None:
        """Withdraw the series only in ``before``, and count those only in ``after``."""
        for labels in sorted(before | after):
            self.see(labels, now)
        for labels in before - after:
            self.withdrawn.add(labels, now)
        for labels in after - before:
            self.counted.add(labels, now, exemplar=exemplar)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCount:
    """The label values under which one run is counted."""

    service: str
    status: str
    agents: tuple[str, ...] = ()
    """All agents that took part."""
    blamed: str | None = None
    mode: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A run counted for the first time, or moved to other label values."""

    before: RunCount | None
    after: RunCount
    exemplar: Exemplar | None = None
    """The blamed span."""


@dataclass(slots=True, kw_only=True)
class VerdictCounters:
    """Counters of the verdicts of one process since its start; used on one event loop."""

    monotonic: Callable[[], float]
    runs: Moving = field(default_factory=lambda: _moving(table.RUNS, table.RUNS_WITHDRAWN))
    tasks: Moving = field(default_factory=lambda: _moving(table.TASKS, table.TASKS_WITHDRAWN))
    failures: Moving = field(default_factory=lambda: _moving(table.FAILURES, table.FAILURES_WITHDRAWN))
    suspicions: Moving = field(default_factory=lambda: _moving(table.SUSPICIONS, table.SUSPICIONS_WITHDRAWN))
    superseded: Counter = field(default_factory=lambda: Counter(table.SUPERSEDED))
    calls: Counter = field(default_factory=lambda: Counter(table.CALLS))
    tokens: Counter = field(default_factory=lambda: Counter(table.TOKENS))
    cost_usd: Counter = field(default_factory=lambda: Counter(table.COST))
    unpriced: Counter = field(default_factory=lambda: Counter(table.UNPRICED))
    confidence: Histogram = field(default_factory=lambda: table.CONFIDENCE.histogram(CONFIDENCE_BOUNDS))
    lag_s: Histogram = field(default_factory=lambda: table.LAG.histogram(LAG_BOUNDS_S))
    _names: AgentNames = field(default_factory=AgentNames)
    _models: BoundedNames = field(default_factory=lambda: BoundedNames(MAX_MODELS, "unknown"))

    def __post_init__(self) -> None:
        self.superseded.see((), self.monotonic())

    def collect(self, settle_s: float) -> Iterator[Family]:
        """Yield every family, as of now; counters' series younger than ``settle_s`` at zero."""
        now = self.monotonic()
        for pair in (self.runs, self.tasks, self.failures, self.suspicions):
            yield pair.counted.family(now, settle_s)
            yield pair.withdrawn.family(now, settle_s)
        yield self.superseded.family(now, settle_s)
        yield _without_created(self.confidence)
        yield _without_created(self.lag_s)
        for counter in (self.calls, self.tokens, self.cost_usd, self.unpriced):
            yield counter.family(now, settle_s)

    def count(self, summary: VerdictSummary, verdict: StoredVerdict) -> None:
        """Count what belongs to a verdict rather than to its run: cost, lag, confidence, superseded verdicts.

        Args:
            summary: the analysis result and the run's previous verdict.
            verdict: durable and not provisional, as stored; the previous one if it says the same.
        """
        now, previous = self.monotonic(), summary.previous
        self._pay(summary, now)
        counted = previous if previous is not None and not previous.is_provisional else None
        if counted is None:
            if not summary.is_carried:  # otherwise it is known once the backend has the carrier
                self.delivered(summary.ended_ns, summary.decided_ns)
        elif verdict.version > counted.version:
            self.superseded.add((), now)
        if summary.blamed is not None and (counted is None or counted.agent is None):
            exemplar = exemplar_of(verdict)
            self.confidence.observe(summary.confidence, exemplar and exemplar.labels)

    def delivered(self, ended_ns: int, now_ns: int) -> None:
        """Measure the lag of a run's first verdict: until the backend had its carrier, if there is one."""
        lag_s = (now_ns - ended_ns) / _NS
        if lag_s <= MAX_LAG_S:
            self.lag_s.observe(max(0.0, lag_s))  # a client's clock may run ahead of ours

    def move(self, move: Move) -> None:
        """Count a run in its new place and withdraw it from its old one."""
        now, before, after = self.monotonic(), move.before, move.after
        for one in filter(None, (before, after)):
            for agent in one.agents:
                self._meet(self._names(one.service, agent), now)
        self.runs.move(self._status(before), self._status(after), now)
        self.tasks.move(self._tasks(before), self._tasks(after), now)
        self.failures.move(self._failure(before), self._failure(after), now, move.exemplar)
        self.suspicions.move(self._suspicion(before), self._suspicion(after), now, move.exemplar)

    def _status(self, run: RunCount | None) -> set[Labels]:
        return {(self._names.services(run.service), run.status)} if run else set()

    def _tasks(self, run: RunCount | None) -> set[Labels]:
        return {self._names(run.service, agent) for agent in run.agents} if run else set()

    def _failure(self, run: RunCount | None) -> set[Labels]:
        if run is None or run.status == Status.SUSPECTED:
            return set()
        return self._blamed(run)

    def _suspicion(self, run: RunCount | None) -> set[Labels]:
        if run is None or run.status != Status.SUSPECTED:
            return set()
        return self._blamed(run)

    def _blamed(self, run: RunCount) -> set[Labels]:
        if run.blamed is None:
            return set()
        pair, now = self._names(run.service, run.blamed), self.monotonic()
        self._meet(pair, now)
        return {(*pair, run.mode if run.mode in _MODES else FailureMode.OTHER.value)}

    def _meet(self, pair: tuple[str, str], now: float) -> None:
        """Create every series of an agent, including those of failure modes that it never had."""
        if pair in self.tasks.counted:
            return
        self.tasks.see(pair, now)
        for mode in FailureMode:
            self.failures.see((*pair, mode.value), now)
            self.suspicions.see((*pair, mode.value), now)

    def _pay(self, summary: VerdictSummary, now: float) -> None:
        effort = summary.effort
        if not effort.calls:
            return
        model = self._models(summary.model or "")
        self.calls.add((model,), now, effort.calls)
        self.tokens.add((model, "input"), now, effort.input_tokens)
        self.tokens.add((model, "output"), now, effort.output_tokens)
        self.cost_usd.add((model,), now, effort.cost_usd or 0.0)
        self.unpriced.add((model,), now, float(effort.cost_usd is None))


def exemplar_of(verdict: StoredVerdict) -> Exemplar | None:
    """Return the blamed span of a verdict as the exemplar of one count; ``None`` if it blames no span."""
    if verdict.trace_id is None or verdict.span_id is None:
        return None
    ids = {"trace_id": verdict.trace_id, "span_id": verdict.span_id}
    return Exemplar(ids, 1.0, verdict.decided_ns / _NS)


def _moving(counted: Metric, withdrawn: Metric) -> Moving:
    return Moving(Counter(counted), Counter(withdrawn))


def _without_created(histogram: Histogram) -> Family:
    """Return a histogram's family without the ``_created`` series, which is not in the table."""
    (family,) = histogram.collect()
    family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
    return family
