"""What verdicts add up to: runs, tasks, failures, confidence, lag, cost. Each run counts once.

A run counts when its first verdict is settled (durable and not provisional). A correction
moves it: because a counter never falls, the earlier count is added to a second counter, of
withdrawn counts, and the run is counted again in its new place. The difference of the two is
the current number. Both have the same labels and start at 0 together, so a query can always
subtract one from the other. The cost of an analysis is counted each time it is paid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from analyzer.modes import FailureMode
from analyzer.tallies.names import AgentNames, BoundedNames
from analyzer.tallies.series import Counter, Exemplar, Histogram, Labels
from collector_processor.stored import StoredVerdict
from collector_processor.writeback import Gist

CONFIDENCE_BOUNDS: Final = tuple(tenth / 10 for tenth in range(1, 11))
LAG_BOUNDS_S: Final = (1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
MAX_LAG_S: Final = 86_400.0
"""A run that ended longer ago was played back, not waited for; or its clock is wrong."""
MAX_MODELS: Final = 30
_NS: Final = 1e9
_MODES: Final = frozenset(mode.value for mode in FailureMode)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCount:
    """The label values under which one run is counted."""

    service: str
    status: str
    agents: tuple[str, ...] = ()
    """All that took part."""
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
class Moving:
    """A counter whose counts can be withdrawn, and the counter of those withdrawn."""

    counted: Counter = field(default_factory=Counter)
    withdrawn: Counter = field(default_factory=Counter)

    def see(self, labels: Labels, now: float) -> None:
        """Create both series at zero if they are new; ``now`` is monotonic seconds, here and below."""
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


@dataclass(slots=True, kw_only=True)
class VerdictTallies:
    """Counts the verdicts of one process from its start; lives on one event loop."""

    monotonic: Callable[[], float]
    runs: Moving = field(default_factory=Moving)
    """By service and status."""
    tasks: Moving = field(default_factory=Moving)
    """Runs that an agent took part in, by service and agent."""
    failures: Moving = field(default_factory=Moving)
    """Runs that an agent broke, by service, agent and mode."""
    superseded: Counter = field(default_factory=Counter)
    calls: Counter = field(default_factory=Counter)
    tokens: Counter = field(default_factory=Counter)
    """By model and direction."""
    cost_usd: Counter = field(default_factory=Counter)
    unpriced: Counter = field(default_factory=Counter)
    confidence: Histogram = field(default_factory=lambda: Histogram(bounds=CONFIDENCE_BOUNDS))
    lag_s: Histogram = field(default_factory=lambda: Histogram(bounds=LAG_BOUNDS_S))
    _names: AgentNames = field(default_factory=AgentNames)
    _models: BoundedNames = field(default_factory=lambda: BoundedNames(MAX_MODELS, "unknown"))

    def __post_init__(self) -> None:
        self.superseded.see((), self.monotonic())

    def count(self, gist: Gist, verdict: StoredVerdict) -> None:
        """Count what belongs to a verdict and not to its run: cost, lag, confidence, superseded verdicts.

        Args:
            gist: what was found, and what was said of the run before.
            verdict: durable and not provisional, as stored; the one before where it says the same.
        """
        now, previous = self.monotonic(), gist.previous
        self._pay(gist, now)
        told = previous if previous is not None and not previous.is_provisional else None
        if told is None:
            if not gist.is_carried:  # else it is known once the backend has the carrier
                self.landed(gist.ended_ns, gist.decided_ns)
        elif verdict.version > told.version:
            self.superseded.add((), now)
        if gist.blamed is not None and (told is None or told.agent is None):
            self.confidence.add(gist.confidence, exemplar_of(verdict, gist.confidence))

    def landed(self, ended_ns: int, now_ns: int) -> None:
        """Count how long a run's first verdict took; with a carrier, until the backend had that."""
        lag_s = (now_ns - ended_ns) / _NS
        if lag_s <= MAX_LAG_S:
            self.lag_s.add(max(0.0, lag_s))  # a client's clock may run ahead of ours

    def move(self, move: Move) -> None:
        """Count a run in its new place and withdraw it from its old one."""
        now, before, after = self.monotonic(), move.before, move.after
        for one in filter(None, (before, after)):
            for agent in one.agents:
                self._meet(self._names(one.service, agent), now)
        self.runs.move(self._status(before), self._status(after), now)
        self.tasks.move(self._tasks(before), self._tasks(after), now)
        self.failures.move(self._failure(before), self._failure(after), now, move.exemplar)

    def _status(self, run: RunCount | None) -> set[Labels]:
        return {(self._names.services(run.service), run.status)} if run else set()

    def _tasks(self, run: RunCount | None) -> set[Labels]:
        return {self._names(run.service, agent) for agent in run.agents} if run else set()

    def _failure(self, run: RunCount | None) -> set[Labels]:
        if run is None or run.blamed is None:
            return set()
        pair, now = self._names(run.service, run.blamed), self.monotonic()
        self._meet(pair, now)
        return {(*pair, run.mode if run.mode in _MODES else FailureMode.OTHER.value)}

    def _meet(self, pair: tuple[str, str], now: float) -> None:
        """Have every series of an agent exist: those of failures that it never had too."""
        if pair in self.tasks.counted:
            return
        self.tasks.see(pair, now)
        for mode in FailureMode:
            self.failures.see((*pair, mode.value), now)

    def _pay(self, gist: Gist, now: float) -> None:
        effort = gist.effort
        if not effort.calls:
            return
        model = self._models(gist.model or "")
        self.calls.add((model,), now, effort.calls)
        self.tokens.add((model, "input"), now, effort.input_tokens)
        self.tokens.add((model, "output"), now, effort.output_tokens)
        self.cost_usd.add((model,), now, effort.cost_usd or 0.0)
        self.unpriced.add((model,), now, float(effort.cost_usd is None))


def exemplar_of(verdict: StoredVerdict, value: float = 1.0) -> Exemplar | None:
    """Return the blamed span of a verdict as an exemplar; ``None`` where it blames none."""
    if verdict.trace_id is None or verdict.span_id is None:
        return None
    return Exemplar(
        trace_id=verdict.trace_id, span_id=verdict.span_id, at_s=verdict.decided_ns / _NS, value=value
    )
