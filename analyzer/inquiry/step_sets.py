"""Sets of steps that hold the decisive one with a stated coverage: split-conformal prediction. Pure.

The steps of a run are taken up in an order: by probability (Romano, Sesia & Candès, NeurIPS 2020, without
randomisation), or from the most probable step to its more probable neighbour, which keeps the set contiguous
on the run's path (arXiv:2605.06788). The mass that is taken up before the decisive step, over labelled runs
that the probabilities had not seen, has a quantile; the set of a new run holds every step that is reached
within it. If the new run is exchangeable with those, the set holds its decisive step with that coverage.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from analyzer.inquiry.intervals import Interval, wilson
from analyzer.inquiry.posterior import LogShares

COVERAGE: Final = 0.9
"""Coverage that a set states."""
LEAST_RUNS: Final = 50
"""Calibrating runs below which no set is shown."""
LEAST_COVERED: Final = 0.85
"""Bound on the lower end of the observed coverage's interval, below which no set is shown."""
_ROUNDING: Final = 1e-9


class Order(StrEnum):
    """The order in which a run's steps are taken up."""

    CONTIGUOUS = "contiguous"
    BY_PROBABILITY = "by_probability"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetRule:
    """How to make a run's set, and how often the sets of labelled runs held the decisive step."""

    order: Order
    mass: float
    """Steps that are taken up within this mass belong to the set; 0 leaves the first one."""
    covered: int
    """Labelled runs whose decisive step was in a set made without them and the runs related to them."""
    n: int

    @property
    def interval(self) -> Interval:
        """The 95 % interval of the observed coverage."""
        return wilson(self.covered, self.n)

    @property
    def is_shown(self) -> bool:
        """Whether there are enough calibrating runs, and the observed coverage is high enough."""
        return self.n >= LEAST_RUNS and self.interval.low >= LEAST_COVERED


def steps_within(shares: LogShares, rule: SetRule) -> tuple[int, ...]:
    """Return the positions of the set's steps, ascending; at least one for a run with steps."""
    reached = _masses_before(shares, rule.order)
    return tuple(sorted(step for step, before in reached if before <= rule.mass + _ROUNDING))


def set_rule(
    shares: Sequence[LogShares], right: Sequence[int], folds: Sequence[Sequence[int]]
) -> SetRule | None:
    """Return the rule whose sets are smaller on the labelled runs; contiguous ones if they are no larger.

    Args:
        shares: log-probabilities of each run's steps, from a model that had not seen its label.
        right: the position of each run's decisive step.
        folds: positions of the runs in parts; related runs are in one part.

    Returns:
        ``None`` if there are too few runs for the coverage.
    """
    rules = [rule for order in Order if (rule := _rule(order, shares, right, folds))]
    return min(rules, key=lambda rule: _size(shares, rule), default=None)


def _rule(
    order: Order, shares: Sequence[LogShares], right: Sequence[int], folds: Sequence[Sequence[int]]
) -> SetRule | None:
    scores = [dict(_masses_before(one, order))[step] for one, step in zip(shares, right, strict=True)]
    mass = _quantile(scores)
    if mass is None:
        return None
    covered = 0
    for held in folds:
        outside = set(held)
        of_others = _quantile([score for run, score in enumerate(scores) if run not in outside])
        covered += len(held) if of_others is None else sum(scores[r] <= of_others + _ROUNDING for r in held)
    return SetRule(order=order, mass=round(mass, 9), covered=covered, n=len(scores))


def _quantile(scores: Sequence[float]) -> float | None:
    """Return the score that the coverage needs; ``None`` if only a set of all steps would have it."""
    place = math.ceil((len(scores) + 1) * COVERAGE)
    return sorted(scores)[place - 1] if 0 < place <= len(scores) else None


def _size(shares: Sequence[LogShares], rule: SetRule) -> int:
    return sum(len(steps_within(one, rule)) for one in shares)


def _masses_before(shares: LogShares, order: Order) -> Iterator[tuple[int, float]]:
    """Yield each step in the order in which it is taken up, with the probability taken up before it."""
    taken = 0.0
    for step in _outwards(shares) if order is Order.CONTIGUOUS else _descending(shares):
        yield step, taken
        taken += math.exp(shares[step])


def _descending(shares: LogShares) -> Iterator[int]:
    yield from sorted(range(len(shares)), key=lambda step: (-shares[step], step))


def _outwards(shares: LogShares) -> Iterator[int]:
    """Yield the most probable step, then always the more probable neighbour of those yielded."""
    if not shares:
        return
    first = next(_descending(shares))
    low, high = first - 1, first + 1
    yield first
    while low >= 0 or high < len(shares):
        if high >= len(shares) or (low >= 0 and shares[low] >= shares[high]):
            yield low
            low -= 1
        else:
            yield high
            high += 1
