"""When is a run's trace complete? Pure: no clock, socket, thread or task.

The caller owns time: it passes ``now`` (seconds, any monotonic clock) and
sleeps until ``next_deadline``. Only facts come in, never spans: the journal
keeps the bytes.

Spans are sent when they *end*, so silence alone proves nothing: during a slow model call,
a human approval or an hour of coding a healthy run is silent. What the spans themselves
say decides how long a trace must be quiet before it is released for a final verdict:

=====================================================  =======================================
the trace                                              is quiet for
=====================================================  =======================================
its root ended, and no parent is missing               the *grace*: ``root_grace_s``, or as long as
                                                       its services' spans have come late
                                                       (``assembly.lateness``)
what is missing is known never to arrive               the grace under a workflow or a remote
(``assembly.absent``)                                  parent, else ``idle_close_s``
its root ended, and other parents are missing; or      ``absent_idle_s``
agents and workflows ended under missing parents
that were never seen to arrive
anything else                                          it is not released before ``max_age_s``
=====================================================  =======================================

Linked open traces are released together. A link to a trace that has not arrived delays the release (by
``idle_close_s``) only if such a link has led to a later trace before: most links lead to traces without
agents' spans, which never arrive here. Caps on age, spans and bytes release a trace at once. A trace that
is quiet for ``idle_close_s`` without a release comes out once as ``IDLE_OPEN``, for a provisional verdict.

A span that arrives after the release opens the trace again; the wait doubles with each analysis. The two
timers come from Honeycomb Refinery (``collect/collect.go``), which does not track missing parents and
therefore cuts long agent runs in two.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final

from collector_processor.assembly.groups import LinkedTraces
from collector_processor.assembly.learned import Learned
from collector_processor.assembly.open_trace import Absence, OpenTrace
from collector_processor.notes import SpanNote, TraceKey
from collector_processor.otlp import Tenant
from semconv.model import Completion

__all__ = ["Assembler", "AssemblerLimits", "Released", "TraceKey"]

_SPARE_TIMERS: Final = 1_000
"""How many may be of traces that are not open any more, beside as many as are."""
_MOST_DOUBLINGS: Final = 16
"""Upper bound of the backoff exponent: beyond it every wait exceeds ``max_age_s``."""
_MAX_CLOSED: Final = 4_000
"""Released traces kept, so that a late span finds its trace; older ones are dropped."""
_MAX_CLOSED_SPANS: Final = 50_000
"""Spans of all released traces kept; about 4 MB."""
_CAPS: Final = frozenset({Completion.MAX_AGE, Completion.SPAN_LIMIT, Completion.BYTE_LIMIT})


@dataclass(frozen=True, slots=True, kw_only=True)
class AssemblerLimits:
    """Times in seconds; see the module docstring."""

    root_grace_s: float = 10.0
    """Twice the 5 s for which SDKs' batch processors hold spans back."""
    idle_close_s: float = 60.0
    absent_idle_s: float = 600.0
    max_age_s: float = 3600.0
    max_spans: int = 100_000
    max_bytes: int = 256 << 20
    max_traces: int = 50_000
    """Open at once; the longest silent are released first (``EVICTED``)."""
    max_open_spans: int = 500_000
    """Of all open traces; a missing parent or a link counts as six. Each takes about 70 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """A trace to analyse, and why now."""

    key: TraceKey
    completion: Completion
    analyses: int = 0
    """Earlier analyses of this trace; the wait doubled with each."""
    along: tuple[TraceKey, ...] = ()
    """Linked traces that are released together with it."""
    given_up: frozenset[int] = frozenset()
    """Kinds of spans whose missing parents the assembler no longer waits for."""


class Assembler:
    """Knows the open traces; every one comes out exactly once per analysis it needs."""

    def __init__(self, limits: AssemblerLimits) -> None:
        self._limits: Final = limits
        self._open: Final[dict[TraceKey, OpenTrace]] = {}
        self._open_spans = 0
        self._closed: Final[OrderedDict[TraceKey, OpenTrace]] = OrderedDict()
        self._closed_spans = 0
        self._timers: list[tuple[float, TraceKey]] = []
        self._ready: list[Released] = []
        self._links: Final = LinkedTraces()
        self.learned: Final = Learned(limits.idle_close_s)
        """The caller saves and restores it across restarts."""
        self._soonest_s: Final = min(limits.root_grace_s, limits.idle_close_s)

    def __len__(self) -> int:
        """Traces open now."""
        return len(self._open)

    def is_open(self, key: TraceKey) -> bool:
        """Whether the trace is held now."""
        return key in self._open

    def receive(
        self,
        key: TraceKey,
        notes: Sequence[SpanNote],
        byte_count: int,
        now: float,
        *,
        analyses: int = 0,
        received_ns: int = 0,
    ) -> None:
        """Learn that these spans of the trace ended.

        Args:
            key: the trace.
            notes: the spans; none for log records, which only keep the trace awake.
            byte_count: their size on the wire.
            now: seconds; never runs backwards.
            analyses: how often the trace was analysed before, when it is not open: it
                waits longer each time.
            received_ns: wall clock at which the spans came; 0 learns nothing of their lateness.
        """
        trace = self._open.pop(key, None) or self._begin(key, now, analyses)
        self._open[key] = trace  # last in, last to be evicted
        trace.bytes += byte_count
        if notes:
            self._note(key, trace, notes, now)
            if received_ns:
                self.learned.observe(key.tenant, notes, received_ns, now)
        trace.last, trace.is_ready = now, False
        trace.is_glanced = trace.is_glanced and trace.analyses > 0
        is_capped = trace.spans >= self._limits.max_spans or trace.bytes >= self._limits.max_bytes
        self._arm(key, trace, now if is_capped else now + self._soonest_s)
        while len(self._open) > self._limits.max_traces or self._is_over_spans():
            self._evict(next(iter(self._open)))

    def remember(self, key: TraceKey, notes: Sequence[SpanNote], now: float) -> None:
        """Learn of spans that were analysed before a restart, for those that may come late."""
        trace = self._closed.pop(key, None) or OpenTrace(opened=now, last=now)
        self._closed_spans -= trace.size
        trace.note(notes)
        self._close(key, trace)

    def forget(self, key: TraceKey) -> None:
        """Drop a trace; it does not come out."""
        trace = self._open.pop(key, None)
        if trace is not None:
            self._open_spans -= trace.size
            self._rearm_company(key)
            self._links.closed(key)

    def take_ready(self, now: float) -> list[Released]:
        """Remove and return the traces whose deadline is at or before ``now``."""
        while self._timers and self._timers[0][0] <= now:
            fired, key = heappop(self._timers)
            trace = self._open.get(key)
            if trace is not None and trace.timer == fired:  # else a stale timer
                trace.timer = None
                self._look_at(key, trace, now)
        ready, self._ready = self._ready, []
        return ready

    def next_deadline(self) -> float | None:
        """When ``take_ready`` may next return something; perhaps too early, never too late."""
        if self._ready:
            return float("-inf")
        return self._timers[0][0] if self._timers else None

    def drain(self) -> list[Released]:
        """Remove and return all that is open."""
        for key in tuple(self._open):
            if key in self._open:
                self._release(key, Completion.DRAINED)
        ready, self._ready = self._ready, []
        return ready

    def _begin(self, key: TraceKey, now: float, analyses: int) -> OpenTrace:
        trace = self._closed.pop(key, None)
        if trace is None:
            trace = OpenTrace(opened=now, last=now, is_partial=analyses > 0)
        else:
            self._closed_spans -= trace.size
            self._open_spans += trace.size
            trace.opened, trace.timer = now, None
            trace.spans = trace.bytes = 0
        trace.analyses = analyses
        trace.is_glanced = analyses > 0  # it has a verdict that stands
        sources = [self._open[source] for source in self._links.opened(key)]
        self.learned.link_arrived(key.tenant, sources, key.trace_id)
        self.learned.opened(key)
        return trace

    def _note(self, key: TraceKey, trace: OpenTrace, notes: Sequence[SpanNote], now: float) -> None:
        """Learn from the spans what is missing, what is linked, and what came late."""
        had_ended, known, targets, size = trace.top_ended, len(trace.seen), len(trace.targets), trace.size
        for absence in trace.note(notes):
            self.learned.parent_arrived(key.tenant, absence)
        self._open_spans += trace.size - size
        if had_ended and len(trace.seen) > known:
            trace.tail_s = max(trace.tail_s, now - trace.last)
            if trace.analyses:
                self.learned.observe_tail(key.tenant, trace, trace.tail_s)
        if len(trace.targets) > targets:
            for target in tuple(trace.targets)[targets:]:
                self._link(key, TraceKey(key.tenant, target), now)

    def _link(self, key: TraceKey, target: TraceKey, now: float) -> None:
        closed = self._closed.get(target)
        if closed is None:
            self._links.link(key, target, is_open=target in self._open)
        elif closed.top_ended:  # it should have waited for this one
            self.learned.observe_tail(key.tenant, closed, now - closed.last)

    def _look_at(self, key: TraceKey, trace: OpenTrace, now: float) -> None:
        due, completion = self._due(key, trace, now)
        if due > now:
            self._arm(key, trace, due)
        elif completion is Completion.IDLE_OPEN:
            self._glance_at(key, trace)
            self._arm(key, trace, self._due(key, trace, now)[0])
        elif completion in _CAPS or all(self._open[one].is_ready for one in self._links.company(key)):
            self._release(key, completion)
        elif now >= trace.opened + self._limits.max_age_s:
            self._release(key, Completion.MAX_AGE)
        else:
            trace.is_ready = True
            self._wait_for_company(key, trace, now)

    def _wait_for_company(self, key: TraceKey, trace: OpenTrace, now: float) -> None:
        glance = trace.last + self._limits.idle_close_s
        if glance <= now and not trace.is_glanced:
            self._glance_at(key, trace)
        oldest = trace.opened + self._limits.max_age_s
        self._arm(key, trace, oldest if trace.is_glanced else min(glance, oldest))

    def _glance_at(self, key: TraceKey, trace: OpenTrace) -> None:
        trace.is_glanced = True
        self._ready.append(Released(key=key, completion=Completion.IDLE_OPEN, analyses=trace.analyses))

    def _due(self, key: TraceKey, trace: OpenTrace, now: float) -> tuple[float, Completion]:
        """Return when the trace comes out next, and as what."""
        limits = self._limits
        if trace.spans >= limits.max_spans:
            return trace.last, Completion.SPAN_LIMIT
        if trace.bytes >= limits.max_bytes:
            return trace.last, Completion.BYTE_LIMIT
        wait, completion = self._patience(key, trace)
        due = trace.last + wait * 2 ** min(trace.analyses, _MOST_DOUBLINGS)
        oldest = trace.opened + limits.max_age_s
        if oldest <= due:
            due, completion = oldest, Completion.MAX_AGE
        glance = trace.last + limits.idle_close_s
        if glance < due and now < due and not trace.is_glanced:
            return glance, Completion.IDLE_OPEN
        return due, completion

    def _patience(self, key: TraceKey, trace: OpenTrace) -> tuple[float, Completion]:
        """Return how long the trace must be quiet, for the reasons of the module docstring."""
        limits, missing = self._limits, trace.absences()
        until_cap = limits.max_age_s, Completion.MAX_AGE
        grace = self._grace(key, trace)
        awaited = [absence for absence in missing if not self.learned.is_given_up(key.tenant, absence)]
        if awaited:
            is_stuck = trace.root_ended or self._is_hopeless(key.tenant, awaited)
            return (limits.absent_idle_s, Completion.IDLE) if is_stuck else until_cap
        if trace.top_ended or trace.is_partial:
            return grace, Completion.ROOT_ENDED
        if any(absence.is_remote for absence in missing):
            return grace, Completion.IDLE
        return (max(grace, limits.idle_close_s), Completion.IDLE) if missing else until_cap

    def _grace(self, key: TraceKey, trace: OpenTrace) -> float:
        """Return how long this trace's services may hold spans back after its top has ended."""
        limits = self._limits
        wait = self.learned.lateness_s(key.tenant, trace)
        if any(self.learned.hopes_for(target, trace) for target in self._links.awaits(key)):
            wait = limits.idle_close_s
        return max(limits.root_grace_s, min(wait, limits.idle_close_s))

    def _is_hopeless(self, tenant: Tenant, missing: Iterable[Absence]) -> bool:
        """Whether whole agents ended under each missing parent, and none of its kind ever arrived."""
        return all(absence.is_candidate and not self.learned.has_hope(tenant, absence) for absence in missing)

    def _arm(self, key: TraceKey, trace: OpenTrace, at: float) -> None:
        if trace.timer is None or at < trace.timer:
            trace.timer = at
            heappush(self._timers, (at, key))
            if len(self._timers) > 2 * len(self._open) + _SPARE_TIMERS:
                self._sweep_timers()

    def _sweep_timers(self) -> None:
        """Drop what the released have left: each that ends early leaves a timer for a minute or an hour."""
        live = self._open.items()
        self._timers = [(trace.timer, key) for key, trace in live if trace.timer is not None]
        heapify(self._timers)

    def _is_over_spans(self) -> bool:
        return self._open_spans > self._limits.max_open_spans and len(self._open) > 1

    def _evict(self, key: TraceKey) -> None:
        self._rearm_company(key)
        self._release(key, Completion.EVICTED, alone=True)

    def _release(self, key: TraceKey, completion: Completion, *, alone: bool = False) -> None:
        along = () if alone else tuple(self._links.company(key))
        traces = [self._open[one] for one in (key, *along)]
        self._ready.append(
            Released(
                key=key,
                completion=completion,
                analyses=max(trace.analyses for trace in traces),
                along=along,
                given_up=self._learned(key, traces[0], completion),
            )
        )
        for one in (key, *along):
            del self._open[one]
        for one, trace in zip((key, *along), traces, strict=True):
            self._open_spans -= trace.size
            if trace.top_ended and not trace.analyses:
                self.learned.observe_tail(one.tenant, trace, trace.tail_s)
            for target in self._links.awaits(one):
                self.learned.link_missed(target, trace)
            self._links.closed(one)
            self._close(one, trace)

    def _learned(self, key: TraceKey, trace: OpenTrace, completion: Completion) -> frozenset[int]:
        """Learn whose parents never arrive, where they were waited for as long as can be."""
        if completion not in {Completion.IDLE, Completion.MAX_AGE}:
            return frozenset()
        found: set[int] = set()
        for absence in trace.absences():
            is_sure = trace.root_ended or absence.is_candidate
            found |= self.learned.parent_missed(key.tenant, absence, is_sure=is_sure)
        return frozenset(found)

    def _rearm_company(self, key: TraceKey) -> None:
        """Have those that wait for a trace looked at: they may have waited for it alone."""
        for other in self._links.company(key):
            if (trace := self._open[other]).is_ready:
                self._arm(other, trace, float("-inf"))

    def _close(self, key: TraceKey, trace: OpenTrace) -> None:
        trace.timer = None
        self._closed[key] = trace
        self._closed_spans += trace.size
        while len(self._closed) > _MAX_CLOSED or self._closed_spans > _MAX_CLOSED_SPANS:
            _, forgotten = self._closed.popitem(last=False)
            self._closed_spans -= forgotten.size
