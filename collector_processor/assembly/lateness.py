"""Learns how late spans arrive, per process and per kind of run. Pure; bounded.

A trace whose top span has ended waits for spans that its services still hold back: SDKs' batch
processors send every 5 s by default, others every 30 s. Two quantities are measured:

* the *lateness* of a process (one Resource): the time from a span's end to its arrival. Hosts'
  clocks may differ by any amount, so it is taken relative to the smallest of that process;
* the *tail* of a kind of run: the longest silence after its top span that a further span ended,
  even after the verdict. Services that send nothing until the root has ended show up only here.

Each is kept as a histogram with geometric buckets; old counts fade.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from math import log
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

MARGIN: Final = 1.25
"""Factor on each learned wait: the next batch may be slower than all before."""
_MARGIN_S: Final = 1.0
"""Seconds added to each learned wait, for the network and our own queue."""
_QUANTILE: Final = 0.999
_LEAST_S: Final = 0.05
_GROWTH: Final = 1.2
_BUCKETS: Final = 64
"""The first bucket is 0.05 s wide, each next one 1.2 times wider; the last begins beyond 4,000 s."""
_FADE: Final = 20_000
"""Observations after which all counts are halved."""
_WINDOW_S: Final = 600.0
"""Seconds for which a process's smallest lateness is used: clocks drift and are reset."""
MAX_KEYS: Final = 2_000
"""Bound on processes, and on kinds of runs; about 600 bytes each. Those unseen for longest are dropped."""


@dataclass(slots=True)
class _Histogram:
    counts: list[int] = field(default_factory=lambda: [0] * _BUCKETS)
    total: int = 0

    def add(self, seconds: float) -> None:
        self.counts[_bucket(seconds)] += 1
        self.total += 1
        if self.total >= _FADE:
            self.counts = [count // 2 for count in self.counts]
            self.total = sum(self.counts)

    def quantile(self) -> float:
        """Return the upper edge of the bucket that holds the 99.9th percentile; 0 without observations."""
        above = self.total * (1 - _QUANTILE)
        for index in range(_BUCKETS - 1, 0, -1):
            above -= self.counts[index]
            if above < 0:
                return _LEAST_S * _GROWTH**index
        return 0.0


def _bucket(seconds: float) -> int:
    if seconds <= _LEAST_S:
        return 0
    return min(_BUCKETS - 1, 1 + int(log(seconds / _LEAST_S) / log(_GROWTH)))


class Waits(Generic[K]):
    """Histograms of seconds by key, bounded."""

    def __init__(self) -> None:
        self._known: Final[OrderedDict[K, _Histogram]] = OrderedDict()

    def observe(self, key: K, seconds: float) -> None:
        """Add one observation, in seconds."""
        histogram = self._known.pop(key, None) or _Histogram()
        self._known[key] = histogram
        histogram.add(seconds)
        if len(self._known) > MAX_KEYS:
            self._known.popitem(last=False)

    def wait_s(self, key: K) -> float:
        """Return the seconds to wait: the 99.9th percentile with a margin; 0 without observations."""
        known = self._known.get(key)
        longest = known.quantile() if known else 0.0
        return longest * MARGIN + _MARGIN_S if longest else 0.0


@dataclass(slots=True)
class _Least:
    """Minimum over the current and the previous window of time."""

    since: float
    now: float
    before: float

    def add(self, seconds: float, now: float) -> float:
        if now - self.since > _WINDOW_S:
            self.since, self.before, self.now = now, self.now, seconds
        self.now = min(self.now, seconds)
        return min(self.now, self.before)


class Lateness(Generic[K]):
    """Learns how long after their end the spans of each process arrive."""

    def __init__(self) -> None:
        self._waits: Final[Waits[K]] = Waits()
        self._least: Final[OrderedDict[K, _Least]] = OrderedDict()

    def observe(self, process: K, least_s: float, most_s: float, now: float) -> None:
        """Learn from the spans of one process in one request.

        Args:
            process: whose they are.
            least_s: smallest time in seconds from a span's end, by its host's clock, to its arrival, by ours.
            most_s: the most.
            now: seconds; never runs backwards.
        """
        least = self._least.pop(process, None) or _Least(since=now, now=least_s, before=least_s)
        self._least[process] = least
        if len(self._least) > MAX_KEYS:
            self._least.popitem(last=False)
        self._waits.observe(process, most_s - least.add(least_s, now))

    def wait_s(self, process: K) -> float:
        """Return the seconds to wait for this process's spans."""
        return self._waits.wait_s(process)
