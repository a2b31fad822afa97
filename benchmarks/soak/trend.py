"""Test of whether a quantity is flat over a soak. Pure.

It is not flat if it grows significantly (the slope's 95 % interval is above zero) *and* by more than is
tolerated, comparing the last third's median with the first third's. Neither alone is enough: noise has
slopes, and in a long soak even the smallest growth is significant.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Final

LEAST_SAMPLES: Final = 9
_WITHIN: Final = 1.96


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """Trend of a quantity, relative to its first third's median."""

    first: float
    """The first third's median, in the quantity's own unit."""
    last: float
    """The last third's median."""
    slope: float
    """Growth over the whole soak by the best straight line, as a share of ``first``."""
    low: float
    high: float
    """95 % interval of the slope."""

    @property
    def growth(self) -> float:
        """Growth from the first third to the last, as a share."""
        return self.last / self.first - 1

    def is_flat(self, tolerated: float) -> bool:
        """Return whether it does not grow significantly by more than ``tolerated``, a share."""
        return self.low <= 0 or self.growth <= tolerated


def trend(values: Sequence[float]) -> Trend:
    """Return the trend of values taken at even intervals.

    Raises: ValueError: there are too few values, or some are not above zero.
    """
    count = len(values)
    if count < LEAST_SAMPLES:
        raise ValueError(f"expected at least {LEAST_SAMPLES} samples, not {count}")
    third = count // 3
    first, last = median(values[:third]), median(values[-third:])
    if first <= 0:
        raise ValueError(f"expected values above zero, not {first}")
    times = [place / (count - 1) for place in range(count)]
    middle, level = fmean(times), fmean(values)
    spread = math.fsum((time - middle) ** 2 for time in times)
    slope = math.fsum((time - middle) * value for time, value in zip(times, values, strict=True)) / spread
    residuals = math.fsum(
        (value - level - slope * (time - middle)) ** 2 for time, value in zip(times, values, strict=True)
    )
    error = math.sqrt(residuals / (count - 2) / spread)
    return Trend(
        first=first,
        last=last,
        slope=slope / first,
        low=(slope - _WITHIN * error) / first,
        high=(slope + _WITHIN * error) / first,
    )
