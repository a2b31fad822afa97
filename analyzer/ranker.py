"""The learned ranker, as far as it is used: a few tables of numbers, and the code that reads them.

Two small learners look at a run's steps, a linear one (conditional logit: the
steps of a run compete) and a forest. With the signals, which learned nothing,
they make three opinions that are pooled evenly; a temperature makes the result
a probability. Where the
numbers come from is ``training.py``'s business: using a model needs no library,
and no file of numbers can run code.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from analyzer.features import FEATURES, Table
from analyzer.posterior import LogShares, log_softmax, pool_evenly, temper

_PRIOR: Final = 3.0
"""Runs' worth of doubt about an agent before its record counts."""
_FAMILIAR: Final = 0.5
"""Share of a run's steps whose agents the model must know to be at home."""
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
    """A linear learner and a forest, either of which may be absent, and the signals beside them."""

    weights: tuple[float, ...] = ()
    trees: tuple[Tree, ...] = ()
    floor: float = 1e-3
    """Added to the forest's shares, which may be 0."""

    def opinion(self, rows: Sequence[Sequence[float]]) -> LogShares:
        """Return the panel's log-probabilities of the rows of one run; they compete."""
        heard = [linear_shares(self.weights, rows)] if self.weights else []
        heard += [self._forest_shares(rows)] if self.trees else []
        signals = log_softmax([row[_SIGNALS] for row in rows])
        return pool_evenly([*heard, signals])

    def _forest_shares(self, rows: Sequence[Sequence[float]]) -> LogShares:
        n = len(self.trees)
        return log_softmax(
            [math.log(self.floor + sum(tree.read(row) for tree in self.trees) / n) for row in rows]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranker:
    """A trained model."""

    features_version: int
    steps: Panel
    records: Mapping[str, Record]
    """By normalised name: what was learned of the agents of the systems trained on."""
    temperature: float
    systems: tuple[str, ...] = ()
    """The data sets or systems trained on."""
    card: Mapping[str, Any] = field(default_factory=dict)
    """What it was trained on and how well it did, for people."""

    def rank(self, table: Table) -> LogShares:
        """Return the calibrated log-probability of each step of a run that has any."""
        return temper(self.steps.opinion(step_rows(table, self.records)), self.temperature)

    def familiarity(self, agents: Iterable[str]) -> float:
        """Return the share of steps, given their normalised agents, that known agents took."""
        known = [agent in self.records for agent in agents]
        return sum(known) / len(known) if known else 0.0

    def is_at_home(self, agents: Iterable[str]) -> bool:
        """Tell whether a run looks like one of a system that the model was trained on."""
        return self.familiarity(agents) >= _FAMILIAR


def linear_shares(weights: Sequence[float], rows: Sequence[Sequence[float]]) -> LogShares:
    """Return the log-probabilities of a linear learner; a constant term would change nothing."""
    return log_softmax([sum(w * x for w, x in zip(weights, row, strict=True)) for row in rows])


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
