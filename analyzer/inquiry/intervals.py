"""Intervals of shares and of their differences, in plain Python.

Sources: E. B. Wilson 1927 (score interval of one share); R. G. Newcombe, Statistics in Medicine 17 (1998),
method 10 (difference of two independent shares, from their score intervals); R. A. Fisher 1934 (exact test).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

Z_95: Final = 1.959964
"""Quantile of two-sided 95 % intervals."""
Z_90: Final = 1.644854
"""Quantile of two-sided 90 % intervals, and of one-sided tests at 5 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A confidence interval, of 95 % unless stated otherwise."""

    low: float
    high: float


def wilson(right: float, n: float, z: float = Z_95) -> Interval:
    """Return the Wilson score interval of ``right`` out of ``n``; all of 0..1 for none."""
    if n == 0:
        return Interval(low=0.0, high=1.0)
    share, z2 = right / n, z**2
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = z / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    return Interval(low=max(0.0, middle - half), high=min(1.0, middle + half))


def binomial_at_most(k: int, n: int, rate: float) -> float:
    """Return the probability of at most ``k`` successes in ``n`` trials; no ``n`` overflows."""
    if not 0 < rate < 1 or k >= n:
        return float(rate <= 0 or k >= n)
    log_p, log_q = math.log(rate), math.log1p(-rate)
    ways = [math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1) for i in range(k + 1)]
    return min(1.0, sum(math.exp(way + i * log_p + (n - i) * log_q) for i, way in enumerate(ways)))


def fisher(first: tuple[int, int], second: tuple[int, int]) -> float:
    """Return the two-sided p-value of Fisher's exact test of two shares, each given as (right, n)."""
    (one, many), (other, more) = first, second
    right, n = one + other, many + more
    first_k, last_k = max(0, right - more), min(many, right)
    ways = [math.comb(many, first_k) * math.comb(more, right - first_k)]
    for k in range(
        first_k, last_k
    ):  # each from the one before, exactly: ``comb`` for each takes milliseconds
        ways.append(ways[-1] * (many - k) * (right - k) // ((k + 1) * (more - right + k + 1)))
    own = ways[one - first_k]
    return sum(way for way in ways if way <= own) / math.comb(n, right)


def newcombe(first: tuple[int, int], second: tuple[int, int], z: float = Z_95) -> Interval:
    """Return the interval of the first share minus the second, each given as (right, n)."""
    (one, many), (other, more) = first, second
    if not many or not more:
        return Interval(low=-1.0, high=1.0)
    left, right = wilson(one, many, z), wilson(other, more, z)
    p, q = one / many, other / more
    below = math.hypot(p - left.low, right.high - q)
    above = math.hypot(left.high - p, q - right.low)
    return Interval(low=max(-1.0, p - q - below), high=min(1.0, p - q + above))
