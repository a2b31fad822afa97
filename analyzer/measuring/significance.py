"""How far figures from a few dozen runs can be trusted: intervals and paired tests, plain mathematics.

Sources: E. B. Wilson 1927 (score interval); Q. McNemar 1947 in its exact binomial
form; B. Efron 1979 (percentile bootstrap). Resampling draws from a generator of
its own with a fixed seed, so that the same runs give the same figures.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

_Z_95: Final = 1.959964
_RESAMPLES: Final = 500
_SEED: Final = 20_505

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A 95 % confidence interval."""

    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """How two methods fared on the same runs."""

    both: int
    only_first: int
    only_second: int
    neither: int
    p_value: float
    """Of McNemar's exact test, two-sided: how likely so uneven a split is if neither is better."""

    @property
    def n(self) -> int:
        """Return the number of runs."""
        return self.both + self.only_first + self.only_second + self.neither

    @property
    def difference(self) -> float:
        """Return the second's share of right answers less the first's; 0 without runs."""
        return (self.only_second - self.only_first) / self.n if self.n else 0.0


def wilson(right: int, n: int) -> Interval:
    """Return the 95 % Wilson score interval of ``right`` out of ``n``; all of 0..1 for none."""
    if n == 0:
        return Interval(low=0.0, high=1.0)
    share, z2 = right / n, _Z_95**2
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z_95 / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    return Interval(low=max(0.0, middle - half), high=min(1.0, middle + half))


def paired(first: Sequence[bool], second: Sequence[bool]) -> Paired:
    """Compare two methods on the same runs in the same order.

    Raises:
        ValueError: there are not as many of the one as of the other.
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


def bootstrap(
    items: Sequence[Item], statistic: Callable[[Sequence[Item]], float], resamples: int = _RESAMPLES
) -> Interval:
    """Return the 95 % percentile interval of a statistic of the items.

    Raises:
        ValueError: there are no items.
    """
    if not items:
        raise ValueError("nothing to draw from: expected at least one item")
    draw = generator()
    found = sorted(statistic(draw.choices(items, k=len(items))) for _ in range(resamples))
    return Interval(low=found[int(0.025 * resamples)], high=found[int(0.975 * resamples)])


def difference_interval(first: Sequence[bool], second: Sequence[bool]) -> Interval:
    """Return the 95 % interval of the difference of two shares on the same runs, by paired bootstrap."""
    gains = [int(other) - int(one) for one, other in zip(first, second, strict=True)]
    return bootstrap(gains, lambda drawn: sum(drawn) / len(drawn))


def generator() -> random.Random:
    """Return a generator that draws the same every time."""
    return random.Random(_SEED)  # noqa: S311 - statistics, not secrets
