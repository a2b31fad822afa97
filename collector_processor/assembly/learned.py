"""Facts learned from earlier traces: how late spans are, which parents and links never come. Pure; bounded.

A trace whose top span has ended waits for spans that its services still hold back: SDKs' batch
processors send every 5 s by default, others every 30 s. Two quantities are measured:

* the *lateness* of a process (one Resource): the time from a span's end to its arrival. Hosts'
  clocks may differ by any amount, so it is measured relative to that process's smallest value;
* the *tail* of a kind of run: the longest silence after its top span that was followed by another span, even
  after the verdict. Services that send nothing until the root has ended are visible only here.

Each is kept as a histogram with geometric buckets; old counts fade.

A missing parent means that more spans are coming, because a parent ends after its children. But some
parents never arrive: an unsampled web request, a span dropped by a filter. One trace cannot tell the
two apart, but the same line of code behaves the same way again: after waiting in vain for the parent of
a kind of span (``facts.kind_of``), the assembler does not wait for such parents again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from math import log
from typing import Final, Generic, TypeAlias, TypeVar

from collector_processor.assembly.open_trace import Absence, OpenTrace
from collector_processor.otlp import Tenant, TraceKey
from collector_processor.wire.facts import SpanNote
from semconv.model import TraceId

K = TypeVar("K", bound=Hashable)

MAX_KINDS: Final = 10_000
"""Bound on kinds, about 2 MB; the kinds unseen for longest are dropped and learned again."""
_MISSES: Final = 3
"""Consecutive misses after which parents of a kind are no longer expected."""


@dataclass(slots=True)
class _Seen:
    misses: int = 0
    """Misses since a parent last arrived."""
    has_arrived: bool = False
    silences: int = 0
    """Consecutive runs that waited for such a parent and are all silent now."""
    silent_from: float = float("-inf")
    """Time at which the newest of these traces became silent."""


class AbsentParents(Generic[K]):
    """Counts, for each kind of span, how often the parent arrived or was missed."""

    def __init__(self) -> None:
        self._seen: Final[OrderedDict[K, _Seen]] = OrderedDict()

    def arrived(self, kind: K) -> bool:
        """Record that the parent of a span of this kind arrived; return whether it was no longer expected."""
        was_never = self.is_never(kind)
        seen = self._touch(kind)
        seen.misses, seen.silences, seen.has_arrived = 0, 0, True
        return was_never

    def fell_silent(self, kind: K, began: float, silent_from: float) -> None:
        """Record that a run which waits for the parent of such a span has been silent for a long time.

        A run counts only if it began after the previous one had fallen silent: concurrent runs may all pause
        for the same reason.
        """
        seen = self._touch(kind)
        if began >= seen.silent_from:
            seen.silences += 1
            seen.silent_from = silent_from

    def went_on(self, kind: K) -> None:
        """Note that a silent run continued after all."""
        self._touch(kind).silences = 0

    def is_silent(self, kind: K) -> bool:
        """Return whether enough runs fell silent to stop expecting the parents of such spans."""
        seen = self._seen.get(kind)
        return seen is not None and seen.silences >= _MISSES

    def missed(self, kind: K, *, is_sure: bool) -> bool:
        """Note that the parent of such a span did not arrive; return whether it is no longer expected.

        Args:
            kind: kind of the child span.
            is_sure: the run seems to be over, so one miss is enough, unless the parent of
                such a span has arrived before.
        """
        was_never = self.is_never(kind)
        seen = self._touch(kind)
        seen.misses += _MISSES if is_sure and not seen.has_arrived else 1
        return self.is_never(kind) and not was_never

    def is_never(self, kind: K) -> bool:
        """Return whether the parent of such a span is no longer expected."""
        seen = self._seen.get(kind)
        return seen is not None and seen.misses >= _MISSES

    def has_arrived(self, kind: K) -> bool:
        """Return whether the parent of such a span has ever arrived."""
        seen = self._seen.get(kind)
        return seen is not None and seen.has_arrived

    def _touch(self, kind: K) -> _Seen:
        seen = self._seen.pop(kind, None) or _Seen()
        self._seen[kind] = seen
        if len(self._seen) > MAX_KINDS:
            self._seen.popitem(last=False)
        return seen


MARGIN: Final = 1.25
"""Factor on each learned wait: the next batch may be slower than all before."""
_MARGIN_S: Final = 1.0
"""Seconds added to each learned wait, for the network and our own queue."""
_QUANTILE: Final = 0.999
_LEAST_S: Final = 0.05
_GROWTH: Final = 1.2
_LOG_GROWTH: Final = log(_GROWTH)
_BUCKETS: Final = 64
"""The first bucket is 0.05 s wide and each next one 1.2 times wider; the last begins above 4,000 s."""
_FADE: Final = 20_000
"""Observations after which all counts are halved."""
_WINDOW_S: Final = 600.0
"""Seconds for which a process's smallest lateness is used: clocks drift, or are reset."""
MAX_KEYS: Final = 2_000
"""Bound on processes and on kinds of runs, about 600 bytes each; entries unseen for longest are dropped."""


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
    return min(_BUCKETS - 1, 1 + int(log(seconds / _LEAST_S) / _LOG_GROWTH))


class Waits(Generic[K]):
    """Histograms of seconds by key, bounded."""

    def __init__(self) -> None:
        self._known: Final[OrderedDict[K, _Histogram]] = OrderedDict()

    def observe(self, key: K, seconds: float) -> None:
        """Add one observation, in seconds."""
        histogram = self._known.get(key)
        if histogram is None:
            histogram = self._known[key] = _Histogram()
            if len(self._known) > MAX_KEYS:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(key)
        histogram.add(seconds)

    def count(self, key: K) -> int:
        """Return the number of observations; old ones fade."""
        histogram = self._known.get(key)
        return histogram.total if histogram else 0

    def wait_s(self, key: K) -> float:
        """Return the seconds to wait: the 99.9th percentile with a margin; 0 without observations."""
        histogram = self._known.get(key)
        longest = histogram.quantile() if histogram else 0.0
        return longest * MARGIN + _MARGIN_S if longest else 0.0


@dataclass(slots=True)
class _Least:
    """Minimum over the current and the previous time window."""

    since: float
    now: float
    before: float

    def add(self, seconds: float, now: float) -> float:
        if now - self.since > _WINDOW_S:
            self.since, self.before, self.now = now, self.now, seconds
        self.now = min(self.now, seconds)
        return min(self.now, self.before)


class Lateness(Generic[K]):
    """Learns the time from spans' end to their arrival, for each process."""

    def __init__(self) -> None:
        self._waits: Final[Waits[K]] = Waits()
        self._least: Final[OrderedDict[K, _Least]] = OrderedDict()

    def observe(self, process: K, least_s: float, most_s: float, now: float) -> None:
        """Learn from the spans of one process in one request.

        Args:
            process: the process that sent them.
            least_s: smallest time in seconds from a span's end, by its host's clock, to its arrival, by ours.
            most_s: the largest such time.
            now: seconds; never runs backwards.
        """
        least = self._least.get(process)
        if least is None:
            least = self._least[process] = _Least(since=now, now=least_s, before=least_s)
            if len(self._least) > MAX_KEYS:
                self._least.popitem(last=False)
        else:
            self._least.move_to_end(process)
        self._waits.observe(process, most_s - least.add(least_s, now))

    def wait_s(self, process: K) -> float:
        """Return the seconds to wait for this process's spans."""
        return self._waits.wait_s(process)


Kind: TypeAlias = tuple[Tenant, int]
"""A kind of span (``kind_of``) of one tenant."""

_LINK: Final = 1 << 32
"""Distinguishes the kind of a linking span from the kind of a child span."""
_MAX_SOUGHT: Final = 4_000
_FLUSHED_S: Final = 1.0
"""A root that arrives within this many seconds of its end was not held back for a batch."""
_FAMILIAR: Final = 10
"""Runs of a kind after which the facts learned about it are relied on."""
_NS: Final = 1e-9
_FLUSHED_NS: Final = round(_FLUSHED_S / _NS)


def _ends_by_source(notes: Sequence[SpanNote]) -> dict[int, list[int]]:
    """Return the known end times of the spans of each process."""
    ends: dict[int, list[int]] = {}
    for _, _, _, end_ns, source, _, _ in notes:
        if end_ns:
            if source in ends:
                ends[source].append(end_ns)
            else:
                ends[source] = [end_ns]
    return ends


class Learned:
    """Learns from each tenant's traces how long later ones must wait, and for which spans."""

    def __init__(self, longest_s: float) -> None:
        """Start without any facts.

        Args:
            longest_s: the longest that a trace waits for late spans; a longer silence teaches nothing,
                because no wait would have covered it.
        """
        self._longest_s: Final = longest_s
        self._lateness: Final[Lateness[Kind]] = Lateness()
        self._tails: Final[Waits[Kind]] = Waits()
        self._absent: Final[AbsentParents[Kind]] = AbsentParents()
        self._arrived: Final[set[Kind]] = set()
        self._sought: Final[OrderedDict[TraceKey, Kind]] = OrderedDict()
        """Traces that had not arrived when a trace that links to them was released."""

    def observe(self, tenant: Tenant, notes: Sequence[SpanNote], received_ns: int, now: float) -> float:
        """Learn how late the spans of one request arrived, for each process in it.

        Returns:
            the longest time in seconds that a process held back one of these spans, if both clocks are right.
            The clocks are taken as wrong if that is longer than any trace waits. A process that sent a root
            at once is left out: it waited for the run to end, not for a batch to fill.
        """
        latest_s = 0.0
        flushed_ns = received_ns - _FLUSHED_NS
        flushed = {note[4] for note in notes if not note[1] and note[3] >= flushed_ns}
        for source, ended in _ends_by_source(notes).items():
            least_s, most_s = (received_ns - max(ended)) * _NS, (received_ns - min(ended)) * _NS
            self._lateness.observe((tenant, source), least_s, most_s, now)
            if most_s <= self._longest_s and source not in flushed:
                latest_s = max(latest_s, most_s)
        return latest_s

    def observe_tail(self, tenant: Tenant, trace: OpenTrace, seconds: float) -> None:
        """Learn how long a trace was silent between its top span and the next span or linked trace."""
        if seconds <= self._longest_s:
            self._tails.observe((tenant, trace.top_kind), seconds)

    def lateness_s(self, tenant: Tenant, trace: OpenTrace) -> float:
        """Return how long this trace's services may still hold spans back, after its top has ended.

        The process that sent the top span is left out: it sends spans in the order in which they end.
        """
        others = (source for source in trace.sources if source != trace.top_source)
        waits = [self._lateness.wait_s((tenant, source)) for source in others]
        if trace.top_kind:
            waits.append(self._tails.wait_s((tenant, trace.top_kind)))
        return max(waits, default=0.0)

    def is_familiar(self, tenant: Tenant, trace: OpenTrace) -> bool:
        """Return whether enough runs of its kind have ended for ``lateness_s`` to be reliable."""
        return self._tails.count((tenant, trace.top_kind)) >= _FAMILIAR

    def parent_arrived(self, tenant: Tenant, absence: Absence) -> None:
        """Learn that a parent arrived in a later request than its children."""
        for kind in ((tenant, kind) for kind in absence.kinds):
            is_news = absence.is_candidate and not self._absent.has_arrived(kind)
            if self._absent.arrived(kind) or is_news:
                self._arrived.add(kind)

    def parent_missed(self, tenant: Tenant, absence: Absence, *, is_sure: bool) -> frozenset[int]:
        """Learn that a parent did not arrive; return the kinds that are no longer expected."""
        missed = {kind: self._absent.missed((tenant, kind), is_sure=is_sure) for kind in absence.kinds}
        return frozenset(kind for kind, is_given_up in missed.items() if is_given_up)

    def recall(self, never: Iterable[Kind], arriving: Iterable[Kind]) -> None:
        """Restore facts after a restart: kinds whose parents never arrive, and kinds whose parents do."""
        for kind in never:
            self._absent.missed(kind, is_sure=True)
        for kind in arriving:
            self._absent.arrived(kind)

    def take_arrived(self) -> frozenset[Kind]:
        """Return the kinds to store because their parents have arrived since the last call."""
        arrived = frozenset(self._arrived)
        self._arrived.clear()
        return arrived

    def is_given_up(self, tenant: Tenant, absence: Absence) -> bool:
        """Return whether a parent is no longer expected."""
        return any(self._absent.is_never((tenant, kind)) for kind in absence.kinds)

    def has_hope(self, tenant: Tenant, absence: Absence) -> bool:
        """Return whether a parent of children like these has ever arrived."""
        return any(self._absent.has_arrived((tenant, kind)) for kind in absence.kinds)

    def fell_silent(self, tenant: Tenant, absence: Absence, trace: OpenTrace) -> None:
        """Learn that a trace that waits for a parent has long been silent."""
        for kind in absence.kinds:
            self._absent.fell_silent((tenant, kind), trace.opened, trace.last + self._longest_s)

    def went_on(self, tenant: Tenant, trace: OpenTrace) -> None:
        """Learn that spans of a trace arrived after a long silence."""
        for absence in trace.absences():
            for kind in absence.kinds:
                self._absent.went_on((tenant, kind))

    def is_silent(self, tenant: Tenant, absence: Absence) -> bool:
        """Return whether several runs, one after another, have waited for such a parent in silence."""
        return any(self._absent.is_silent((tenant, kind)) for kind in absence.kinds)

    def link_arrived(self, tenant: Tenant, sources: Iterable[OpenTrace], target: TraceId) -> None:
        """Learn that a trace arrived after open traces that link to it."""
        for source in sources:
            self._absent.arrived((tenant, source.targets[target] + _LINK))

    def link_missed(self, target: TraceKey, source: OpenTrace) -> None:
        """Learn that a trace was released before the trace it links to arrived."""
        kind = (target.tenant, source.targets[target.trace_id] + _LINK)
        self._absent.missed(kind, is_sure=False)
        self._sought[target] = kind
        if len(self._sought) > _MAX_SOUGHT:
            self._sought.popitem(last=False)

    def opened(self, key: TraceKey) -> None:
        """Learn that a trace arrived; released traces may link to it."""
        if (sought := self._sought.pop(key, None)) is not None:
            self._absent.arrived(sought)

    def hopes_for(self, target: TraceKey, source: OpenTrace) -> bool:
        """Return whether such a link has led to a trace that came later."""
        kind = (target.tenant, source.targets[target.trace_id] + _LINK)
        return self._absent.has_arrived(kind) and not self._absent.is_never(kind)
