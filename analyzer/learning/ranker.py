"""The learned ranker, as far as it is used: a few tables of numbers, and the code that reads them.

Two small learners look at a run's steps, a linear one (conditional logit: the
steps of a run compete) and a forest. They are pooled with the signals, which
learned nothing; a calibration makes the result a probability. Which learners there
are, what they weigh and where the numbers come from is ``training.py``'s
business: using a model needs no library, and no file of numbers can run code.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from analyzer.calibration import Calibration
from analyzer.learning.features import FEATURES, Table
from analyzer.posterior import LogShares, Opinion, log_softmax, pool

_PRIOR: Final = 3.0
"""Runs' worth of doubt about an agent before its record counts."""
MOST_ASKED: Final = 0.5
"""Most of a run's steps whose agents a model asks to know before it is at home."""
_ANYONES: Final = frozenset(
    {
        *("agent", "ai", "assistant", "bot", "chatbot", "environment", "function", "human", "llm", "model"),
        *("system", "tool", "unknown", "user"),
    }
)
"""Names, normalised, that agents bear everywhere: they tell no system from another."""
_FLOOR: Final = 1e-3
"""Added to the forest's shares, which may be 0."""
_SIGNALS: Final = FEATURES.index("signals_log")
STEP_COLUMNS: Final = len(FEATURES) + 2
"""Columns of a step: the features, and two of its agent's record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """How often an agent took part in the runs learned from, and how often it was to blame."""

    runs: int = 0
    blamed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """A binary tree in arrays: node 0 is the root; a leaf has the feature -1."""

    feature: tuple[int, ...]
    threshold: tuple[float, ...]
    left: tuple[int, ...]
    """Where a value at or below the threshold goes; always a later node, so that a walk ends."""
    right: tuple[int, ...]
    value: tuple[float, ...]

    def read(self, row: Sequence[float]) -> float:
        """Return the value of the leaf that a row falls into."""
        node = 0
        while (feature := self.feature[node]) >= 0:
            goes_left = row[feature] <= self.threshold[node]
            node = self.left[node] if goes_left else self.right[node]
        return self.value[node]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A linear learner, a forest and the signals, pooled; any of them may be absent."""

    weights: tuple[float, ...] = ()
    """Of the linear learner, times its weight in the pool; several such learners pooled are one."""
    trees: tuple[Tree, ...] = ()
    forest: float = 0.0
    """The forest's weight in the pool, 0..1."""
    signals: float = 0.0
    """The signals' weight in the pool, 0..1."""

    def opinion(self, rows: Sequence[Sequence[float]]) -> LogShares:
        """Return the panel's log-probabilities of the rows of one run; they compete."""
        heard = [Opinion(shares=signal_shares(rows), weight=self.signals)]
        if self.weights:
            heard.append(Opinion(shares=linear_shares(self.weights, rows)))
        if self.trees:
            heard.append(Opinion(shares=forest_shares(self.trees, rows), weight=self.forest))
        return pool(heard)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranker:
    """A trained model."""

    features_version: int
    steps: Panel
    records: Mapping[str, Record]
    """By normalised name: what was learned of the agents of the systems trained on."""
    calibration: Calibration = field(default_factory=Calibration)
    home: float = MOST_ASKED
    """Familiarity from which a run is one of a system that the model was trained on; above 0."""
    systems: tuple[str, ...] = ()
    """The data sets or systems trained on."""
    card: Mapping[str, Any] = field(default_factory=dict)
    """What it was trained on and how well it did, for people."""

    def rank(self, table: Table) -> LogShares:
        """Return the calibrated log-probability of each step of a run that has any."""
        return self.calibration.apply(self.steps.opinion(step_rows(table, self.records)))

    def is_at_home(self, agents: Sequence[str]) -> bool:
        """Tell whether a run, given its steps' normalised agents, looks like one of a system trained on."""
        return familiarity(self.records, agents) >= self.home


def familiarity(known: Collection[str], agents: Sequence[str]) -> float:
    """Return the share of steps, given their normalised agents, that known agents took; 0 without steps.

    Names that agents bear everywhere count only where there are no others.
    """
    own = [agent for agent in agents if agent not in _ANYONES] or agents
    telling = {name for name in known if name not in _ANYONES} or set(known)
    return sum(agent in telling for agent in own) / len(own) if own else 0.0


def linear_shares(weights: Sequence[float], rows: Sequence[Sequence[float]]) -> LogShares:
    """Return the log-probabilities of a linear learner; a constant term would change nothing."""
    return log_softmax([sum(w * x for w, x in zip(weights, row, strict=True)) for row in rows])


def forest_shares(trees: Sequence[Tree], rows: Sequence[Sequence[float]]) -> LogShares:
    """Return the log-probabilities of a forest of at least one tree."""
    n = len(trees)
    return log_softmax([math.log(_FLOOR + sum(tree.read(row) for tree in trees) / n) for row in rows])


def signal_shares(rows: Sequence[Sequence[float]]) -> LogShares:
    """Return the log-probabilities of the signals, which are one of the features."""
    return log_softmax([row[_SIGNALS] for row in rows])


def step_rows(
    table: Table, records: Mapping[str, Record], own: str | None = None
) -> tuple[tuple[float, ...], ...]:
    """Return what the steps' panel sees: the features, and the record of each step's agent.

    ``own`` is the agent that this very run's label blames, where the run is one
    of those the records count: its own label must not speak for it.
    """
    record = {name: _record_columns(name, table, records, own) for name in set(table.agents)}
    return tuple((*row, *record[agent]) for row, agent in zip(table.rows, table.agents, strict=True))


def _record_columns(
    name: str, table: Table, records: Mapping[str, Record], own: str | None
) -> tuple[float, float]:
    """Log-odds of the agent's record, shrunk to an even chance, and how long the record is."""
    record = records.get(name, Record())
    runs = record.runs - (own is not None)
    blamed = record.blamed - (own == name)
    even = 1 / len(set(table.agents))
    return math.log((blamed + _PRIOR * even) / (max(0, runs) + _PRIOR)), math.log1p(max(0, runs))
