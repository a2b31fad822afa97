"""Counters and histograms with labels, as plain sums: read by Prometheus and by OTLP alike.

A counter's series is shown at zero for a while after its birth, whatever it
holds. A series that Prometheus first sees at 6 has not risen by 6 but come out
of nowhere: ``increase`` says 0, and a sparse agent's first failures would raise
no alarm. The time is long enough for a scrape to fall into it; it goes by the
clock and not by who asked, so that a second reader takes nothing from the first.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exemplar:
    """The span that one count stands for."""

    trace_id: str
    span_id: str
    at_s: float
    """Wall clock, seconds since 1970."""
    value: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One series of a counter, as of now."""

    labels: Labels
    value: float
    exemplar: Exemplar | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """How many values of a histogram were at most ``bound``, and the last of those above the bound before."""

    bound: float
    count: int
    exemplar: Exemplar | None = None


@dataclass(slots=True)
class _Series:
    born_s: float
    value: float = 0.0
    exemplar: Exemplar | None = None


@dataclass(slots=True)
class Counter:
    """Sums that only grow, one for each set of labels."""

    _series: dict[Labels, _Series] = field(default_factory=dict)

    def __contains__(self, labels: Labels) -> bool:
        return labels in self._series

    def see(self, labels: Labels, now: float) -> None:
        """Have the series exist, at zero if it is new; ``now`` is monotonic seconds, here and below."""
        if labels not in self._series:
            self._series[labels] = _Series(now)

    def add(self, labels: Labels, now: float, amount: float = 1.0, exemplar: Exemplar | None = None) -> None:
        """Add to a series."""
        self.see(labels, now)
        series = self._series[labels]
        series.value += amount
        series.exemplar = exemplar or series.exemplar

    def points(self, now: float, settle_s: float) -> Iterator[Point]:
        """Yield every series, in order of birth; one younger than ``settle_s`` is shown at zero."""
        for labels, series in self._series.items():
            if now - series.born_s < settle_s:
                yield Point(labels=labels, value=0.0)
            else:
                yield Point(labels=labels, value=series.value, exemplar=series.exemplar)


@dataclass(slots=True, kw_only=True)
class Histogram:
    """How often values fell between bounds."""

    bounds: Sequence[float]
    """Upper ones, ascending, each inclusive; what lies above the last is counted too."""
    total: float = 0.0
    """The sum of all values."""
    _counts: list[int] = field(init=False)
    _exemplars: list[Exemplar | None] = field(init=False)

    def __post_init__(self) -> None:
        self._counts = [0] * (len(self.bounds) + 1)
        self._exemplars = [None] * (len(self.bounds) + 1)

    def add(self, value: float, exemplar: Exemplar | None = None) -> None:
        """Count one value."""
        place = bisect_left(self.bounds, value)
        self._counts[place] += 1
        self._exemplars[place] = exemplar or self._exemplars[place]
        self.total += value

    def buckets(self) -> Iterator[Bucket]:
        """Yield cumulative counts, the last for infinity."""
        so_far = 0
        for bound, count, exemplar in zip(
            (*self.bounds, float("inf")), self._counts, self._exemplars, strict=True
        ):
            so_far += count
            yield Bucket(bound=bound, count=so_far, exemplar=exemplar)
