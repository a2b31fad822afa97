"""What confidence is worth: calibration, the accuracy-by-coverage curve, and when to abstain.

Everything here works on pairs of a stated confidence and whether the step was
right, over the runs in which a step was blamed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, TypeAlias

from analyzer.measuring.significance import generator

Confident: TypeAlias = tuple[float, bool]
"""Confidence in the blamed step, and whether it was right."""
_BINS: Final = 5
_SIMULATIONS: Final = 200
_POINTS: Final = 10
_STATED: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What is had by answering only where confidence is at least ``threshold``."""

    threshold: float
    answered: int
    accuracy: float
    """Share of right steps among the answered."""


def brier(pairs: Sequence[Confident]) -> float | None:
    """Return the mean squared distance of confidence from outcome; 0 is best."""
    return sum((c - right) ** 2 for c, right in pairs) / len(pairs) if pairs else None


def calibration_error(pairs: Sequence[Confident]) -> float | None:
    """Return the expected calibration error over five bins of (nearly) equal mass.

    Equal confidences share their outcomes: a bin's edge may cut through them, and
    which of them lies on which side must not matter.
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
    """In order of confidence, each outcome as the mean of those with the same confidence."""
    ordered: list[tuple[float, float]] = []
    for confidence, tied in groupby(sorted(pairs), key=lambda pair: pair[0]):
        outcomes = [right for _, right in tied]
        ordered += [(confidence, sum(outcomes) / len(outcomes))] * len(outcomes)
    return ordered


def error_if_calibrated(pairs: Sequence[Confident]) -> float | None:
    """Return the calibration error that these confidences would show on average if all were true.

    With few runs it is far from 0, so the measured error is to be read beside it.
    """
    if not pairs:
        return None
    draw = generator()
    total = 0.0
    for _ in range(_SIMULATIONS):
        total += calibration_error([(c, draw.random() < c) for c, _ in pairs]) or 0.0
    return total / _SIMULATIONS


def coverage_curve(pairs: Sequence[Confident], points: int = _POINTS) -> tuple[Point, ...]:
    """Return about ``points`` points, from the surest answers to all; equal confidences go together."""
    ordered = sorted(pairs, key=lambda pair: -pair[0])
    curve: dict[int, Point] = {}
    for number in range(1, points + 1):
        least = ordered[max(0, -(-len(ordered) * number // points) - 1)][0] if ordered else 0.0
        held = [right for c, right in ordered if c >= least]
        if held:
            curve[len(held)] = Point(threshold=least, answered=len(held), accuracy=sum(held) / len(held))
    return tuple(curve.values())


def least_confidence(pairs: Sequence[Confident], precision: float) -> float | None:
    """Return the lowest threshold at which that share of the answered can be expected to be right.

    The share seen is drawn towards the mean confidence of the answered, which counts as much as
    ``_STATED`` answers: the threshold at which the share *seen* is highest is the luckiest one, and does
    worse on other runs. ``None`` if no threshold promises the precision.
    """
    ordered = sorted(pairs, key=lambda pair: -pair[0])
    found: float | None = None
    right, stated = 0, 0.0
    for number, (confidence, was_right) in enumerate(ordered, start=1):
        right += was_right
        stated += confidence
        ends_a_tie = number == len(ordered) or ordered[number][0] < confidence
        if ends_a_tie and (right + _STATED * stated / number) / (number + _STATED) >= precision:
            found = confidence
    return found
