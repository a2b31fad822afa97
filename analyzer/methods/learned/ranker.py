"""Inference of the learned ranker: a few tables of numbers, and the code that applies them.

A linear learner (conditional logit: the steps of a run compete) is pooled with the signals, which are not
learned; calibration turns the result into a probability. ``training.py`` produces the numbers. Using a model
needs no library, and no file of numbers can run code.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from analyzer.inquiry.calibration import Calibration
from analyzer.inquiry.posterior import LogShares, Opinion, SetRule, log_softmax, pool
from analyzer.methods.learned.features import FEATURES, Table

_PRIOR: Final = 3.0
"""Pseudo-count, in runs, that shrinks an agent's record towards an even chance."""
MOST_ASKED: Final = 0.5
"""Largest share of steps by known agents that a model may require to count a system as known."""
_ANYONES: Final = frozenset(
    {
        *("agent", "ai", "assistant", "bot", "chatbot", "environment", "function", "human", "llm", "model"),
        *("system", "tool", "unknown", "user"),
    }
)
"""Normalised agent names that occur everywhere, and so identify no system."""
_SIGNALS: Final = FEATURES.index("signals_log")
STEP_COLUMNS: Final = len(FEATURES) + 2
"""Columns of a step: the features, and two for its agent's record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Number of training runs in which an agent took part, and in which it was to blame."""

    runs: int = 0
    blamed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A linear learner and the signals, pooled; either may be absent."""

    weights: tuple[float, ...] = ()
    """Coefficients of the linear learner, times its weight in the pool; a pool of such learners is again
    one."""
    signals: float = 0.0
    """The signals' weight in the pool, 0..1."""

    def opinion(self, rows: Sequence[Sequence[float]]) -> LogShares:
        """Return the panel's log-probabilities over the rows of one run."""
        heard = [Opinion(shares=signal_shares(rows), weight=self.signals)]
        if self.weights:
            heard.append(Opinion(shares=linear_shares(self.weights, rows)))
        return pool(heard)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranker:
    """A trained model."""

    features_version: int
    steps: Panel
    records: Mapping[str, Record]
    """Records of the training systems' agents, by normalised name."""
    calibration: Calibration = field(default_factory=Calibration)
    home: float = MOST_ASKED
    """Familiarity from which a run counts as one of a training system; above 0."""
    systems: tuple[str, ...] = ()
    """The data sets or systems trained on."""
    set_rule: SetRule | None = None
    """How to make sets of steps with a stated coverage; ``None`` with too few labels."""
    card: Mapping[str, Any] = field(default_factory=dict)
    """Training data and measured accuracy, for people."""

    def rank(self, table: Table) -> LogShares:
        """Return the calibrated log-probability of each step of a run with at least one."""
        return self.calibration.apply(self.steps.opinion(step_rows(table, self.records)))

    def is_at_home(self, agents: Sequence[str]) -> bool:
        """Return whether a run, given its steps' normalised agents, comes from a training system."""
        return familiarity(self.records, agents) >= self.home


def familiarity(known: Collection[str], agents: Sequence[str]) -> float:
    """Return the share of steps by known agents, given the steps' normalised agents; 0 without steps.

    Generic names count only if there are no others.
    """
    own = [agent for agent in agents if agent not in _ANYONES] or agents
    telling = {name for name in known if name not in _ANYONES} or set(known)
    return sum(agent in telling for agent in own) / len(own) if own else 0.0


def linear_shares(weights: Sequence[float], rows: Sequence[Sequence[float]]) -> LogShares:
    """Return the log-probabilities of a linear learner, which needs no constant term."""
    return log_softmax([sum(w * x for w, x in zip(weights, row, strict=True)) for row in rows])


def signal_shares(rows: Sequence[Sequence[float]]) -> LogShares:
    """Return the log-probabilities of the signals, which are one of the features."""
    return log_softmax([row[_SIGNALS] for row in rows])


def step_rows(
    table: Table, records: Mapping[str, Record], own: str | None = None
) -> tuple[tuple[float, ...], ...]:
    """Return the panel's input rows: the features, and the record of each step's agent.

    ``own`` is the agent blamed by this run's label if the records include the run: its own
    label must not leak into the input.
    """
    record = {name: _record_columns(name, table, records, own) for name in set(table.agents)}
    return tuple((*row, *record[agent]) for row, agent in zip(table.rows, table.agents, strict=True))


def _record_columns(
    name: str, table: Table, records: Mapping[str, Record], own: str | None
) -> tuple[float, float]:
    """Return the log-odds of the agent's record, shrunk towards even, and the length of the record."""
    record = records.get(name, Record())
    runs = record.runs - (own is not None)
    blamed = record.blamed - (own == name)
    even = 1 / len(set(table.agents))
    return math.log((blamed + _PRIOR * even) / (max(0, runs) + _PRIOR)), math.log1p(max(0, runs))
