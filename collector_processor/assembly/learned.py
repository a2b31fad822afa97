"""What earlier traces taught: how late spans arrive, and which parents and links never do. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from collector_processor.assembly.absent import AbsentParents
from collector_processor.assembly.lateness import Lateness, Waits
from collector_processor.assembly.open_trace import Absence, OpenTrace
from collector_processor.notes import SpanNote, TraceKey
from collector_processor.otlp import Tenant
from semconv.model import TraceId

Kind: TypeAlias = tuple[Tenant, int]
"""A kind of span (``SpanNote.kind``) of one tenant."""

_LINK: Final = 1 << 32
"""Distinguishes the kind of a span's link from the kind of its parent."""
_MAX_SOUGHT: Final = 4_000
_NS: Final = 1e-9


class Learned:
    """Learns from each tenant's traces how long the next ones must wait, and for what."""

    def __init__(self, longest_s: float) -> None:
        """Know nothing yet.

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

    def observe(self, tenant: Tenant, notes: Sequence[SpanNote], received_ns: int, now: float) -> None:
        """Learn how late the spans of one request arrived, for each process in it."""
        ends: dict[int, tuple[int, int]] = {}
        for note in notes:
            if note.end_ns:
                first, last = ends.get(note.source, (note.end_ns, note.end_ns))
                ends[note.source] = (min(first, note.end_ns), max(last, note.end_ns))
        for source, (first, last) in ends.items():
            least_s, most_s = (received_ns - last) * _NS, (received_ns - first) * _NS
            self._lateness.observe((tenant, source), least_s, most_s, now)

    def observe_tail(self, tenant: Tenant, trace: OpenTrace, seconds: float) -> None:
        """Learn a silence after a trace's top span that a further span or linked trace ended."""
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

    def parent_arrived(self, tenant: Tenant, absence: Absence) -> None:
        """Learn that a parent arrived in a later request than its children."""
        for kind in ((tenant, kind) for kind in absence.kinds):
            is_news = absence.is_candidate and not self._absent.has_arrived(kind)
            if self._absent.arrived(kind) or is_news:
                self._arrived.add(kind)

    def parent_missed(self, tenant: Tenant, absence: Absence, *, is_sure: bool) -> frozenset[int]:
        """Learn that a parent did not arrive; return the kinds that are now given up."""
        missed = {kind: self._absent.missed((tenant, kind), is_sure=is_sure) for kind in absence.kinds}
        return frozenset(kind for kind, is_given_up in missed.items() if is_given_up)

    def recall(self, never: Iterable[Kind], arriving: Iterable[Kind]) -> None:
        """Restore what was known before a restart: kinds whose parents never arrive, and kinds whose do."""
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
        """Whether a parent is known never to arrive."""
        return any(self._absent.is_never((tenant, kind)) for kind in absence.kinds)

    def has_hope(self, tenant: Tenant, absence: Absence) -> bool:
        """Whether such a parent has ever arrived."""
        return any(self._absent.has_arrived((tenant, kind)) for kind in absence.kinds)

    def link_arrived(self, tenant: Tenant, sources: Iterable[OpenTrace], target: TraceId) -> None:
        """Learn that open traces link to a trace that arrived after them."""
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
        """Learn that a trace arrived; a released trace may link to it."""
        if (sought := self._sought.pop(key, None)) is not None:
            self._absent.arrived(sought)

    def hopes_for(self, target: TraceKey, source: OpenTrace) -> bool:
        """Whether such a link has led to a trace that came later."""
        kind = (target.tenant, source.targets[target.trace_id] + _LINK)
        return self._absent.has_arrived(kind) and not self._absent.is_never(kind)
