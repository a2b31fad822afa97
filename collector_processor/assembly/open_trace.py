"""Open traces: which have ended, which form one run because of links, and which is given up first. Pure.

Children end before their parents and are sent before them, so a running trace has spans whose
parents have not arrived. The trace's *top* is its root or, if the root never arrives, a workflow
or agent span below the missing parent.

A link joins two traces into one run, in whichever order they arrive; they are released together. A trace
may link to one that has not arrived yet, or to one that never arrives here: the trace of a queue's producer
or a cron job holds no agents' spans. Traces that link to the same such trace are separate runs.

A tenant with a storm of traces evicts its own: when there are too many, the tenant whose open traces take the
most memory gives up the one that has been silent longest.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from heapq import heapify, heappop, heappush, heapreplace
from types import MappingProxyType
from typing import Final

from collector_processor.otlp import Tenant, TraceKey
from collector_processor.wire.facts import AGENT_BIT, MARKED_BIT, REMOTE_BIT, TOP_BIT, SpanNote
from semconv.model import Completion, TraceId

_MAX_KINDS: Final = 8
"""Bound on kinds of children kept for one missing parent."""
_MAX_SOURCES: Final = 64
"""Bound on processes kept for one trace; it does not wait for further processes."""
_MAX_TARGETS: Final = 256
"""Bound on linked traces kept for one trace."""
_MAX_CLOSED: Final = 4_000
"""Bound on traces in ``ClosedTraces``."""
_MAX_CLOSED_SPANS: Final = 50_000
"""Bound on spans of these traces; about 4 MB."""
_HEAVY: Final = 6
"""Weight of a missing parent or link in spans: it takes about 450 bytes, a span id 70."""


class Ended(IntEnum):
    """Largest unit that ended directly below a missing parent."""

    CALLS = 0
    """Single calls, such as a model's or a tool's."""
    AGENT = 1
    """A whole agent; the next one may be running under the same parent."""
    WORKFLOW = 2
    """A whole workflow."""


_NOTHING: Final[Mapping[int, Ended]] = MappingProxyType({})


@dataclass(slots=True)
class Absence:
    """A missing parent, known only by its children."""

    kinds: set[int]
    """``kind_of`` its children."""
    is_remote: bool
    """Whether the children's flags say that it is in another process."""
    ended: Ended
    since: float
    """Arrival time of its first child."""

    @property
    def is_candidate(self) -> bool:
        """Whether a whole agent or workflow ended directly below it."""
        return self.ended is not Ended.CALLS

    @property
    def is_outside(self) -> bool:
        """Whether it seems to enclose a whole run: a gateway, or a request that started a workflow."""
        return self.is_candidate and (self.is_remote or self.ended is Ended.WORKFLOW)


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """A trace to analyse, and the reason for its release."""

    key: TraceKey
    completion: Completion
    analyses: int = 0
    """Earlier analyses of this trace; the wait doubled with each."""
    along: tuple[TraceKey, ...] = ()
    """Linked traces that are released together with it."""
    given_up: frozenset[int] = frozenset()
    """Kinds of spans whose missing parents the assembler no longer waits for."""


@dataclass(slots=True)
class OpenTrace:
    """A trace that is open, or was released recently."""

    opened: float
    last: float
    """Arrival time of its newest spans or log records."""
    analyses: int = 0
    spans: int = 0
    bytes: int = 0
    root_ended: bool = False
    workflow_ended: bool = False
    is_partial: bool = False
    """The ids of its earlier spans have been dropped, so missing parents cannot be determined."""
    top_kind: int = 0
    """``kind_of`` its root, or of its topmost workflow."""
    top_source: int = 0
    """The process that sent the top span."""
    tail_s: float = 0.0
    """Longest silence in seconds, after the top ended, that was followed by more spans."""
    sources: tuple[int, ...] = ()
    """The processes that sent its spans."""
    seen: set[int] = field(default_factory=set)
    """Ids of its spans."""
    missing: dict[int, Absence] = field(default_factory=dict)
    """Missing parents, by span id."""
    targets: dict[TraceId, int] = field(default_factory=dict)
    """Linked traces, each with the kind of a span that links to it."""
    late_s: float = 0.0
    """Longest time in seconds from a span's end to its arrival, if both clocks are right."""
    looked: float = 0.0
    """Time of the last provisional verdict; before the first one, the time at which the trace was opened."""
    is_glanced: bool = False
    """Whether no span has arrived since the last provisional verdict."""
    is_silent: bool = False
    """Whether its silence has been counted (``Learned.fell_silent``); reset by the next span."""
    is_ready: bool = False
    """Whether its own wait is over and it only waits for the other traces of its group."""
    timer: float | None = None
    """Time of its next check: the only valid entry in the heap."""

    @property
    def size(self) -> int:
        """Memory it takes, in spans; a missing parent or a linked trace counts as six."""
        return len(self.seen) + _HEAVY * (len(self.missing) + len(self.targets))

    @property
    def top_ended(self) -> bool:
        """Whether a span that encloses the whole run has ended."""
        return self.root_ended or self.workflow_ended

    def note(self, spans: Sequence[SpanNote], now: float) -> list[Absence]:
        """Add ended spans; return the absences, recorded before ``now``, that they resolve.

        Many spans of one request are added in pieces, at one time: a parent that came with its children was
        never missing.
        """
        self.spans += len(spans)
        if not spans:
            return []
        # By columns: most of this is then done without a Python call for each span.
        ids, parents, bits, _, sources, kinds, links = zip(*spans, strict=True)
        self._note_sources(sources)
        if any(links):
            self._note_links(spans)
        self.seen.update(ids)
        inherited, ended = self._resolve(spans, now) if self.missing else (_NOTHING, [])
        if 0 in parents or any([bit & TOP_BIT for bit in bits]):  # noqa: C419 - hot: a list is faster
            self._note_tops(spans)
        # Most children are calls like the ones before them, and say nothing new of their parent.
        below = map(inherited.get, ids)
        for parent, one, kind, under in dict.fromkeys(zip(parents, bits, kinds, below, strict=True)):
            if parent and parent not in self.seen:
                self._miss(parent, one, kind, under or Ended.CALLS, now)
        return ended

    def _resolve(self, spans: Sequence[SpanNote], now: float) -> tuple[Mapping[int, Ended], list[Absence]]:
        """Take missing parents that arrived off the list.

        Returns:
            what ended below each one without an agent marker, and the absences recorded before ``now``.
        """
        inherited: dict[int, Ended] = {}
        ended: list[Absence] = []
        for span_id, _, bits, *_ in spans:
            absence = self.missing.pop(span_id, None)
            if absence is not None:
                ended += [absence] if absence.since < now else []
                if not bits & MARKED_BIT:
                    inherited[span_id] = absence.ended
        return inherited, ended

    def _note_sources(self, sources: Iterable[int]) -> None:
        new = set(sources).difference(self.sources)
        if new and len(self.sources) < _MAX_SOURCES:
            self.sources += tuple(new)[: _MAX_SOURCES - len(self.sources)]

    def _note_links(self, spans: Iterable[SpanNote]) -> None:
        for *_, kind, links in spans:
            if links and len(self.targets) < _MAX_TARGETS:
                self.targets.update(dict.fromkeys(links, kind))

    def _note_tops(self, spans: Iterable[SpanNote]) -> None:
        for _, parent_id, bits, _, source, kind, _ in spans:
            if parent_id and not bits & TOP_BIT:
                continue
            self.root_ended = self.root_ended or not parent_id
            self.workflow_ended = self.workflow_ended or bool(parent_id)
            if not parent_id or not self.root_ended:
                self.top_kind, self.top_source = kind, source

    def _miss(self, parent_id: int, bits: int, kind: int, below: Ended, now: float) -> None:
        own = Ended.WORKFLOW if bits & TOP_BIT else Ended.AGENT if bits & AGENT_BIT else Ended.CALLS
        ended, is_remote = max(own, below), bool(bits & REMOTE_BIT)
        absence = self.missing.get(parent_id)
        if absence is None:
            self.missing[parent_id] = Absence({kind}, is_remote, ended, now)
            return
        absence.is_remote = absence.is_remote or is_remote
        absence.ended = max(absence.ended, ended)
        if len(absence.kinds) < _MAX_KINDS:
            absence.kinds.add(kind)

    def absences(self) -> Iterable[Absence]:
        """Return the parents that are known to be missing."""
        return () if self.is_partial else self.missing.values()


class ClosedTraces:
    """Traces that were released recently, so that a late span finds its trace; bounded."""

    def __init__(self) -> None:
        self._traces: Final[OrderedDict[TraceKey, OpenTrace]] = OrderedDict()
        self._spans = 0

    def get(self, key: TraceKey) -> OpenTrace | None:
        """Return a trace."""
        return self._traces.get(key)

    def take(self, key: TraceKey) -> OpenTrace | None:
        """Remove and return a trace."""
        trace = self._traces.pop(key, None)
        if trace is not None:
            self._spans -= trace.size
        return trace

    def put(self, key: TraceKey, trace: OpenTrace) -> None:
        """Add a trace; drop the oldest ones if there are too many."""
        trace.timer = None
        self._traces[key] = trace
        self._spans += trace.size
        while len(self._traces) > _MAX_CLOSED or self._spans > _MAX_CLOSED_SPANS:
            _, dropped = self._traces.popitem(last=False)
            self._spans -= dropped.size


MAX_GROUP: Final = 256
"""Most traces in a group; further ones are treated as separate runs."""


class LinkedTraces:
    """Tracks which open traces belong together."""

    def __init__(self) -> None:
        self._groups: Final[dict[TraceKey, set[TraceKey]]] = {}
        """The group of each trace; members share one set, and a trace without links has none."""
        self._awaited: Final[defaultdict[TraceKey, set[TraceKey]]] = defaultdict(set)
        """For each trace that is not open, the open traces that link to it and wait for it; bounded."""
        self._awaits: Final[defaultdict[TraceKey, set[TraceKey]]] = defaultdict(set)
        """For each open trace, the traces that it links to and that are not open."""

    def link(self, key: TraceKey, target: TraceKey, *, is_open: bool) -> None:
        """Record a link from an open trace to another, open or not."""
        if is_open:
            self._union(key, target)
        elif len(self._awaited[target]) < MAX_GROUP:
            self._awaited[target].add(key)
            self._awaits[key].add(target)

    def opened(self, key: TraceKey) -> Collection[TraceKey]:
        """Join a newly opened trace with the traces that wait for it, and return them."""
        sources = self._awaited.pop(key, ())
        for source in sources:
            self._awaits[source].discard(key)
            self._union(source, key)
        return sources

    def company(self, key: TraceKey) -> Iterator[TraceKey]:
        """Iterate over the other open traces of its group."""
        return (other for other in self._groups.get(key, ()) if other != key)

    def awaits(self, key: TraceKey) -> Iterable[TraceKey]:
        """Return the linked traces that have not arrived."""
        return self._awaits.get(key, ())

    def closed(self, key: TraceKey) -> None:
        """Forget a trace."""
        group = self._groups.pop(key, None)
        if group is not None:
            group.discard(key)
        for target in self._awaits.pop(key, ()):
            sources = self._awaited[target]
            sources.discard(key)
            if not sources:
                del self._awaited[target]

    def _union(self, one: TraceKey, other: TraceKey) -> None:
        small, large = sorted((self._group(one), self._group(other)), key=len)
        if small is large or len(small) + len(large) > MAX_GROUP:
            return
        large |= small
        for key in small:
            self._groups[key] = large

    def _group(self, key: TraceKey) -> set[TraceKey]:
        return self._groups.setdefault(key, {key})


_TRACE: Final = 10
"""Weight of a trace in spans: at both limits of the assembler, a trace has ten."""
_SPARE: Final = 1_000
"""Outdated entries of the heap in addition to one for each tenant; beyond that they are swept."""


class OpenTraces:
    """The open traces of all tenants; each change takes logarithmic time."""

    def __init__(self) -> None:
        self._traces: Final[dict[TraceKey, OpenTrace]] = {}
        self._silent: Final[defaultdict[Tenant, OrderedDict[TraceKey, None]]] = defaultdict(OrderedDict)
        """Each tenant's traces, the one that has been silent longest first.

        Not a ``dict``: finding its first key takes time for each key removed before.
        """
        self._weights: Final[Counter[Tenant]] = Counter()
        self._largest: Final[list[tuple[int, Tenant]]] = []
        """A heap of negative weights; each tenant has an entry of at least its weight."""
        self._entered: Final[dict[Tenant, int]] = {}
        """For each tenant, a weight that one of its entries in the heap reaches."""
        self.spans = 0
        """Size of all traces, in spans."""

    def __len__(self) -> int:
        """Return the number of open traces."""
        return len(self._traces)

    def __contains__(self, key: TraceKey) -> bool:
        """Return whether a trace is open."""
        return key in self._traces

    def __getitem__(self, key: TraceKey) -> OpenTrace:
        """Return an open trace."""
        return self._traces[key]

    def __iter__(self) -> Iterator[TraceKey]:
        """Iterate over the open traces."""
        return iter(self._traces)

    def get(self, key: TraceKey) -> OpenTrace | None:
        """Return a trace if it is open."""
        return self._traces.get(key)

    def open(self, key: TraceKey, trace: OpenTrace) -> None:
        """Add a trace."""
        self._traces[key] = trace
        self._silent[key.tenant][key] = None
        size = trace.size
        self.spans += size
        self._weigh(key.tenant, _TRACE + size)

    def heard(self, key: TraceKey, growth: int) -> None:
        """Record that spans or log records of a trace arrived, and by how much its size grew."""
        self._silent[key.tenant].move_to_end(key)
        self.spans += growth
        self._weigh(key.tenant, growth)

    def close(self, key: TraceKey) -> OpenTrace | None:
        """Remove and return a trace."""
        trace = self._traces.pop(key, None)
        if trace is not None:
            silent = self._silent[key.tenant]
            del silent[key]
            if not silent:
                del self._silent[key.tenant]
            self.spans -= trace.size
            self._weigh(key.tenant, -_TRACE - trace.size)
        return trace

    def next_to_evict(self) -> TraceKey:
        """Return the trace silent for longest, of the tenant whose traces take the most memory."""
        while True:
            noted, tenant = self._largest[0]
            if (weight := -self._weights[tenant]) == noted:
                return next(iter(self._silent[tenant]))
            if weight:
                heapreplace(self._largest, (weight, tenant))
                self._entered[tenant] = -weight
            else:
                heappop(self._largest)
                self._entered.pop(tenant, None)

    def _weigh(self, tenant: Tenant, growth: int) -> None:
        if not growth:
            return
        weight = self._weights[tenant] = self._weights.get(tenant, 0) + growth
        if weight > self._entered.get(tenant, 0):
            # An eighth more, so that a tenant that grows gets few entries.
            self._entered[tenant] = weight + (weight >> 3)
            heappush(self._largest, (-self._entered[tenant], tenant))
            if len(self._largest) > 2 * len(self._weights) + _SPARE:
                self._sweep()
        elif not weight:
            del self._weights[tenant]

    def _sweep(self) -> None:
        self._entered.clear()
        self._entered.update(self._weights)
        self._largest[:] = [(-weight, tenant) for tenant, weight in self._weights.items()]
        heapify(self._largest)
