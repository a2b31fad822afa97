"""What verdicts add up to: runs, tasks, failures, confidence, lag, cost. Each run counts once.

A counter cannot be taken back. So a run counts with its first durable verdict;
when a later one says something else, that is counted as superseded, and the run
becomes a failure only if it was none before. What an analysis cost counts every
time, for every time it was paid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from analyzer.modes import FailureMode
from analyzer.tallies.names import AgentNames, BoundedNames
from analyzer.tallies.series import Counter, Exemplar, Histogram
from collector_processor.stored import StoredVerdict
from collector_processor.writeback import Gist

CONFIDENCE_BOUNDS: Final = tuple(tenth / 10 for tenth in range(1, 11))
LAG_BOUNDS_S: Final = (1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
MAX_LAG_S: Final = 86_400.0
"""A run that ended longer ago was played back, not waited for; or its clock is wrong."""
MAX_MODELS: Final = 30
_NS: Final = 1e9
_MODES: Final = frozenset(mode.value for mode in FailureMode)


@dataclass(slots=True, kw_only=True)
class VerdictTallies:
    """Counts the verdicts of one process from its start; lives on one event loop."""

    monotonic: Callable[[], float]
    runs: Counter = field(default_factory=Counter)
    """By service and status."""
    tasks: Counter = field(default_factory=Counter)
    """Runs that an agent took part in, by service and agent."""
    failures: Counter = field(default_factory=Counter)
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
        """Count a verdict that is durable now, and not provisional.

        Args:
            gist: what was found, and what was said of the run before.
            verdict: as stored; the one before where it says the same.
        """
        now = self.monotonic()
        self._pay(gist, now)
        previous = gist.previous
        if previous is None or previous.is_provisional:
            self._first(gist, verdict, now)
        elif verdict.version > previous.version:
            self.superseded.add((), now)
            if previous.agent is None:
                self._blame(gist, verdict, now)

    def landed(self, ended_ns: int, now_ns: int) -> None:
        """Count how long a run's first verdict took; with a carrier, until the backend had that."""
        lag_s = (now_ns - ended_ns) / _NS
        if lag_s <= MAX_LAG_S:
            self.lag_s.add(max(0.0, lag_s))  # a client's clock may run ahead of ours

    def _first(self, gist: Gist, verdict: StoredVerdict, now: float) -> None:
        self.runs.add((self._names.services(verdict.service), verdict.status), now)
        for pair in dict.fromkeys(self._names(verdict.service, agent) for agent in gist.acting):
            self._meet(pair, now)
            self.tasks.add(pair, now)
        if not gist.is_carried:
            self.landed(gist.ended_ns, gist.decided_ns)
        self._blame(gist, verdict, now)

    def _blame(self, gist: Gist, verdict: StoredVerdict, now: float) -> None:
        if gist.blamed is None:
            return
        pair = self._names(verdict.service, gist.blamed)
        self._meet(pair, now)
        mode = gist.mode if gist.mode in _MODES else FailureMode.OTHER.value
        self.failures.add((*pair, mode), now, exemplar=_exemplar(verdict, 1.0))
        self.confidence.add(gist.confidence, _exemplar(verdict, gist.confidence))

    def _meet(self, pair: tuple[str, str], now: float) -> None:
        """Have every series of an agent exist: those of failures that it never had too."""
        if pair in self.tasks:
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


def _exemplar(verdict: StoredVerdict, value: float) -> Exemplar | None:
    if verdict.trace_id is None or verdict.span_id is None:
        return None
    return Exemplar(
        trace_id=verdict.trace_id, span_id=verdict.span_id, at_s=verdict.decided_ns / _NS, value=value
    )
