"""Statistics for a few dozen runs: intervals, paired tests, and reliability of confidences, in plain Python.

Sources: Q. McNemar 1947 in its exact binomial form; B. Efron 1979 (percentile bootstrap).
Resampling uses its own generator with a fixed seed, so that the same runs give the same results.
Reliability works on pairs of a stated
confidence and whether the step was correct, over the runs in which a step was blamed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, TypeVar

from analyzer.inquiry.calibration import Confident
from analyzer.inquiry.intervals import Interval

_RESAMPLES: Final = 500
_SEED: Final = 20_505

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """Results of two methods on the same runs."""

    both: int
    only_first: int
    only_second: int
    neither: int
    p_value: float
    """Two-sided p-value of McNemar's exact test."""

    @property
    def n(self) -> int:
        """Return the number of runs."""
        return self.both + self.only_first + self.only_second + self.neither

    @property
    def difference(self) -> float:
        """Return the second's share of correct answers minus the first's; 0 without runs."""
        return (self.only_second - self.only_first) / self.n if self.n else 0.0


def paired(first: Sequence[bool], second: Sequence[bool]) -> Paired:
    """Compare two methods on the same runs in the same order.

    Raises:
        ValueError: the sequences differ in length.
    """
    counts = {(True, True): 0, (True, False): 0, (False, True): 0, (False, False): 0}
    for one, other in zip(first, second, strict=True):
        counts[one, other] += 1
    only_first, only_second = counts[True, False], counts[False, True]
    return Paired(
        both=counts[True, True],
        only_first=only_first,
        only_second=only_second,
        neither=counts[False, False],
        p_value=mcnemar(only_first, only_second),
    )


def mcnemar(only_first: int, only_second: int) -> float:
    """Return the two-sided p-value of McNemar's exact test on the runs in which two methods differ."""
    n, fewer = only_first + only_second, min(only_first, only_second)
    tail = sum(math.comb(n, k) for k in range(fewer + 1))
    return min(1.0, float(2 * tail / (1 << n)))


def bootstrap(items: Sequence[Item], statistic: Callable[[Sequence[Item]], float]) -> Interval:
    """Return the 95 % percentile interval of a statistic of the items.

    Raises:
        ValueError: there are no items.
    """
    if not items:
        raise ValueError("nothing to draw from: expected at least one item")
    draw = generator()
    found = sorted(statistic(draw.choices(items, k=len(items))) for _ in range(_RESAMPLES))
    return Interval(low=found[int(0.025 * _RESAMPLES)], high=found[int(0.975 * _RESAMPLES)])


def difference_interval(first: Sequence[bool], second: Sequence[bool]) -> Interval:
    """Return the 95 % interval of the difference of two shares on the same runs, by paired bootstrap."""
    gains = [int(other) - int(one) for one, other in zip(first, second, strict=True)]
    return bootstrap(gains, lambda drawn: sum(drawn) / len(drawn))


def generator() -> random.Random:
    """Return a random generator with a fixed seed."""
    return random.Random(_SEED)  # noqa: S311 - for statistics, not secrets


_BINS: Final = 5
_SIMULATIONS: Final = 200
_POINTS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Coverage and precision when answering only with a confidence of at least ``threshold``."""

    threshold: float
    answered: int
    accuracy: float
    """Share of correct steps among the answered runs."""


def brier(pairs: Sequence[Confident]) -> float | None:
    """Return the Brier score: the mean squared distance of confidence from outcome; 0 is best."""
    return sum((c - right) ** 2 for c, right in pairs) / len(pairs) if pairs else None


def calibration_error(pairs: Sequence[Confident]) -> float | None:
    """Return the expected calibration error over five bins of (nearly) equal mass.

    Equal confidences share their mean outcome: a bin's edge may fall between them, and
    their order must not matter.
    """
    ordered = _shared(pairs)
    n = len(ordered)
    if not n:
        return None
    error = 0.0
    for number in range(_BINS):
        held = ordered[n * number // _BINS : n * (number + 1) // _BINS]
        error += abs(sum(c - right for c, right in held)) / n
    return error


def _shared(pairs: Sequence[Confident]) -> list[tuple[float, float]]:
    """Return the pairs by confidence, each outcome replaced by the mean over equal confidences."""
    ordered: list[tuple[float, float]] = []
    for confidence, tied in groupby(sorted(pairs), key=lambda pair: pair[0]):
        outcomes = [right for _, right in tied]
        ordered += [(confidence, sum(outcomes) / len(outcomes))] * len(outcomes)
    return ordered


def error_if_calibrated(pairs: Sequence[Confident]) -> float | None:
    """Return the expected calibration error of these confidences if they were perfectly calibrated.

    With few runs it is far from 0, so compare the measured error with it.
    """
    if not pairs:
        return None
    draw = generator()
    total = 0.0
    for _ in range(_SIMULATIONS):
        total += calibration_error([(c, draw.random() < c) for c, _ in pairs]) or 0.0
    return total / _SIMULATIONS


def coverage_curve(pairs: Sequence[Confident]) -> tuple[Point, ...]:
    """Return about ``_POINTS`` points, from the most confident answers to all; ties stay together."""
    ordered = sorted(pairs, key=lambda pair: -pair[0])
    curve: dict[int, Point] = {}
    for number in range(1, _POINTS + 1):
        least = ordered[max(0, -(-len(ordered) * number // _POINTS) - 1)][0] if ordered else 0.0
        held = [right for c, right in ordered if c >= least]
        if held:
            curve[len(held)] = Point(threshold=least, answered=len(held), accuracy=sum(held) / len(held))
    return tuple(curve.values())
