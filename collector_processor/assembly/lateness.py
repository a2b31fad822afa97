"""How late spans come: learned per process and per kind of run, bounded. Pure.

A trace whose top span has ended waits for what its own services still hold back: the
SDKs' batch processors send every 5 s by default, others every 30 s. Two things are measured:

* the *lateness* of a process (one Resource): how long after its end a span was received. Hosts'
  clocks differ by any amount, so it is measured against the least seen of that process;
* the *tail* of a kind of run: the longest silence after its top span that another span ended,
  also after the trace was judged. A service that sends nothing until the root has ended
  is seen only here.

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
"""What a wait is multiplied by: the next batch may be slower than all before."""
_MARGIN_S: Final = 1.0
"""And what is added: the network, and our own queue."""
_QUANTILE: Final = 0.999
_LEAST_S: Final = 0.05
_GROWTH: Final = 1.2
_BUCKETS: Final = 64
"""Of 0.05 s, each 1.2 times as long as the one before: the last begins beyond 4,000 s."""
_FADE: Final = 20_000
"""Observations after which all counts are halved."""
_WINDOW_S: Final = 600.0
"""How long a process's least lateness is believed: clocks drift, and are set."""
MAX_KEYS: Final = 2_000
"""Processes, and kinds of runs, remembered; each takes about 600 bytes. The longest unseen go first."""


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
        """Learn that something took so long."""
        histogram = self._known.pop(key, None) or _Histogram()
        self._known[key] = histogram
        histogram.add(seconds)
        if len(self._known) > MAX_KEYS:
            self._known.popitem(last=False)

    def wait_s(self, key: K) -> float:
        """Return how long to wait for the slowest one in a thousand, with a margin; 0 if nothing is known."""
        known = self._known.get(key)
        longest = known.quantile() if known else 0.0
        return longest * MARGIN + _MARGIN_S if longest else 0.0


@dataclass(slots=True)
class _Least:
    """The least of two windows of time."""

    since: float
    now: float
    before: float

    def add(self, seconds: float, now: float) -> float:
        if now - self.since > _WINDOW_S:
            self.since, self.before, self.now = now, self.now, seconds
        self.now = min(self.now, seconds)
        return min(self.now, self.before)


class Lateness(Generic[K]):
    """How long after their end the spans of each process are received."""

    def __init__(self) -> None:
        self._waits: Final[Waits[K]] = Waits()
        self._least: Final[OrderedDict[K, _Least]] = OrderedDict()

    def observe(self, process: K, least_s: float, most_s: float, now: float) -> None:
        """Learn from the spans of one process that came in one request.

        Args:
            process: whose they are.
            least_s: the least time between a span's end, by its host's clock, and its arrival, by ours.
            most_s: the most.
            now: seconds; never runs backwards.
        """
        least = self._least.pop(process, None) or _Least(since=now, now=least_s, before=least_s)
        self._least[process] = least
        if len(self._least) > MAX_KEYS:
            self._least.popitem(last=False)
        self._waits.observe(process, most_s - least.add(least_s, now))

    def wait_s(self, process: K) -> float:
        """Return how long to wait for this process's spans."""
        return self._waits.wait_s(process)
