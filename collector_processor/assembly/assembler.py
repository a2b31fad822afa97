"""Decides when a run's trace is complete. Pure: no clock, socket, thread or task.

The caller owns time: it passes ``now`` (seconds, any monotonic clock) and
sleeps until ``next_deadline``. Only facts come in, never spans: the journal
keeps the bytes.

Spans are sent when they *end*, so silence alone proves nothing: a healthy run is silent during a slow model
call, a human approval or an hour of coding. The spans themselves decide how long a trace must be quiet before
it is released for a final verdict:

=====================================================  =======================================
the trace                                              is quiet for
=====================================================  =======================================
its root ended, and no parent is missing               the *grace*: ``root_grace_s``, or longer if
                                                       its services' spans usually arrive later
                                                       (``assembly.learned``)
what is missing is known never to arrive               the grace if a workflow ended or a missing
(``assembly.learned``)                                 parent is remote, else ``idle_close_s``
its root ended, and other parents are missing; or no   ``absent_idle_s``
such parent was ever seen to arrive, and below each a
workflow ended, or an agent whose parent is remote, or
an agent for whose parent several runs waited in vain
anything else: it is still running                     ``max_silence_s``
=====================================================  =======================================

Linked open traces are released together. A link to a trace that has not arrived delays the release (by
``idle_close_s``) only if such a link has led to a later trace before: most links lead to traces without
agents' spans, which never arrive here. Caps on age, spans and bytes release a trace at once. A trace that
is quiet for ``idle_close_s``, or goes on for ``max_silence_s``, without a release comes out as ``IDLE_OPEN``,
for a provisional verdict.

A span that arrives after the release opens the trace again; the wait doubles with each analysis. The two
timers come from Honeycomb Refinery (``collect/collect.go``), which does not track missing parents and
therefore cuts long agent runs in two.
"""

from __future__ import annotations

import sys
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final

from collector_processor.assembly.learned import Learned
from collector_processor.assembly.open_trace import (
    Absence,
    ClosedTraces,
    LinkedTraces,
    OpenTrace,
    OpenTraces,
    Released,
)
from collector_processor.otlp import Tenant, TraceKey
from collector_processor.wire.facts import SpanNote
from semconv.model import Completion

__all__ = ["Assembler", "AssemblerLimits", "Released"]

_SPARE_TIMERS: Final = 1_000
"""Stale timers kept in addition to one for each open trace; beyond that they are swept."""
_POSTPONED_S: Final = 1.0
"""Seconds until the next check of a trace whose tenant has unread arrivals."""
_MOST_DOUBLINGS: Final = 16
"""Upper bound of the backoff exponent: beyond it every wait exceeds ``max_silence_s``."""
_PROMPT: Final = 0.6
"""Part of the grace (6 of 10 s) within which spans from SDKs with the default 5 s batch delay arrive."""
_UNFAMILIAR: Final = 4
"""Graces (40 s) for an unfamiliar kind of run, if its spans take longer: some SDKs batch for 30 s."""
_CAPS: Final = frozenset({Completion.MAX_AGE, Completion.SPAN_LIMIT, Completion.BYTE_LIMIT})


@dataclass(frozen=True, slots=True, kw_only=True)
class AssemblerLimits:
    """Times in seconds; see the module docstring."""

    root_grace_s: float = 10.0
    """Twice the 5 s for which SDKs' batch processors hold spans back."""
    idle_close_s: float = 60.0
    absent_idle_s: float = 600.0
    max_silence_s: float = 4500.0
    """The longest wait after a span: an hour, for which a run may be silent, plus a margin."""
    max_age_s: float = 12 * 3600.0
    """Longest wait since a trace's first span, even if more spans arrive."""
    max_spans: int = 100_000
    max_bytes: int = 256 << 20
    max_traces: int = 50_000
    """Bound on open traces; beyond it, the tenant using the most memory evicts its longest-silent one."""
    max_open_spans: int = 500_000
    """Bound on spans of all open traces, about 70 bytes each; a missing parent or a link counts as six."""


class Assembler:
    """Tracks the open traces; every trace comes out exactly once per analysis it needs."""

    def __init__(self, limits: AssemblerLimits) -> None:
        self._limits: Final = limits
        self._open: Final = OpenTraces()
        self._closed: Final = ClosedTraces()
        self._timers: list[tuple[float, TraceKey]] = []
        self._ready: list[Released] = []
        self._links: Final = LinkedTraces()
        self.learned: Final = Learned(limits.idle_close_s)
        """The caller saves it and restores it after a restart."""
        self._soonest_s: Final = min(limits.root_grace_s, limits.idle_close_s, limits.max_silence_s)

    def __len__(self) -> int:
        """Number of open traces."""
        return len(self._open)

    def is_open(self, key: TraceKey) -> bool:
        """Return whether the trace is open."""
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
        """Record that these spans of the trace have ended.

        Args:
            key: the trace.
            notes: the spans; empty for log records, which only postpone the trace's release.
            byte_count: their size on the wire.
            now: seconds; never runs backwards.
            analyses: how often the trace was analysed before, if it is not open; it waits longer each time.
            received_ns: wall-clock time at which the spans arrived; with 0, nothing is learned about their
            lateness.
        """
        trace = self._open.get(key) or self._begin(key, now, analyses)
        size = trace.size
        trace.bytes += byte_count
        if notes:
            self._note(key, trace, notes, now)
            if received_ns:
                late_s = self.learned.observe(key.tenant, notes, received_ns, now)
                trace.late_s = max(trace.late_s, late_s)
        self._open.heard(key, trace.size - size)
        trace.last, trace.is_ready = now, False
        trace.is_glanced = trace.is_glanced and trace.analyses > 0
        is_capped = trace.spans >= self._limits.max_spans or trace.bytes >= self._limits.max_bytes
        self._arm(key, trace, now if is_capped else now + self._soonest_s)
        while len(self._open) > self._limits.max_traces or self._is_over_spans():
            self._release(self._open.next_to_evict(), Completion.EVICTED)

    def remember(self, key: TraceKey, notes: Sequence[SpanNote], now: float) -> None:
        """Record spans that were analysed before a restart, so that late spans find their trace."""
        trace = self._closed.take(key) or OpenTrace(opened=now, last=now)
        trace.note(notes, now)
        self._closed.put(key, trace)

    def forget(self, key: TraceKey) -> None:
        """Drop a trace without releasing it."""
        if self._open.close(key) is not None:
            self._rearm_company(key)
            self._links.closed(key)

    def take_ready(self, now: float, most: int = sys.maxsize, but: Container[Tenant] = ()) -> list[Released]:
        """Remove and return traces whose deadline is at or before ``now``; checks ``most`` timers at most.

        Traces of the tenants in ``but`` are checked again later: more of their spans have arrived.
        """
        looked = 0
        while self._timers and self._timers[0][0] <= now and looked < most:
            looked += 1
            fired, key = heappop(self._timers)
            trace = self._open.get(key)
            if trace is not None and trace.timer == fired:  # else the timer is stale
                trace.timer = None
                if key.tenant in but:
                    self._arm(key, trace, now + _POSTPONED_S)
                else:
                    self._look_at(key, trace, now)
        ready, self._ready = self._ready, []
        return ready

    def was_glanced(self, key: TraceKey, at: float) -> None:
        """Record that a provisional verdict covers the trace as it was at that time."""
        trace = self._open.get(key)
        if trace is not None and trace.last <= at:
            trace.is_glanced, trace.looked = True, at

    def glance_again(self, key: TraceKey, now: float) -> None:
        """Let the trace come out for a provisional verdict once more, as soon as it is silent."""
        trace = self._open.get(key)
        if trace is not None:
            trace.is_glanced = False
            self._arm(key, trace, now)

    def is_due(self, now: float) -> bool:
        """Return whether ``take_ready`` has timers to check."""
        deadline = self.next_deadline()
        return deadline is not None and deadline <= now

    def next_deadline(self) -> float | None:
        """Earliest time at which ``take_ready`` may return traces; it may be too early, never too late."""
        if self._ready:
            return float("-inf")
        return self._timers[0][0] if self._timers else None

    def _begin(self, key: TraceKey, now: float, analyses: int) -> OpenTrace:
        trace = self._closed.take(key)
        if trace is None:
            trace = OpenTrace(opened=now, last=now, looked=now, is_partial=analyses > 0)
        else:
            trace.opened, trace.timer = now, None
            trace.spans = trace.bytes = 0
        trace.analyses = analyses
        trace.is_glanced = analyses > 0  # its verdict is kept
        if waiting := self._links.opened(key):
            self.learned.link_arrived(key.tenant, [self._open[one] for one in waiting], key.trace_id)
        self.learned.opened(key)
        self._open.open(key, trace)
        return trace

    def _note(self, key: TraceKey, trace: OpenTrace, notes: Sequence[SpanNote], now: float) -> None:
        """Learn from the spans about missing parents, links and late arrivals."""
        if trace.is_silent:
            trace.is_silent = False
            self.learned.went_on(key.tenant, trace)
        had_ended, known, targets = trace.top_ended, len(trace.seen), len(trace.targets)
        for absence in trace.note(notes, now):
            self.learned.parent_arrived(key.tenant, absence)
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
        elif closed.top_ended:  # the released trace should have waited for this one
            self.learned.observe_tail(key.tenant, closed, now - closed.last)

    def _look_at(self, key: TraceKey, trace: OpenTrace, now: float) -> None:
        self._note_silence(key, trace, now)
        due, completion = self._due(key, trace, now)
        if due > now:
            self._arm(key, trace, min(due, self._next_look(trace, now)))
        elif completion is Completion.IDLE_OPEN:
            self._glance_at(key, trace, now)
            self._arm(key, trace, min(self._due(key, trace, now)[0], self._next_look(trace, now)))
        elif completion in _CAPS or all(self._open[one].is_ready for one in self._links.company(key)):
            self._release(key, completion)
        elif now >= trace.opened + self._limits.max_age_s:
            self._release(key, Completion.MAX_AGE)
        else:
            trace.is_ready = True
            self._wait_for_company(key, trace, now)

    def _next_look(self, trace: OpenTrace, now: float) -> float:
        """Return when to check a trace that is not due: meanwhile, missing parents may be given up."""
        silent = trace.last + self._limits.absent_idle_s
        return silent if silent > now else now + self._limits.absent_idle_s

    def _wait_for_company(self, key: TraceKey, trace: OpenTrace, now: float) -> None:
        glance = trace.last + self._limits.idle_close_s
        if glance <= now and not trace.is_glanced:
            self._glance_at(key, trace, now)
        oldest = trace.opened + self._limits.max_age_s
        self._arm(key, trace, oldest if trace.is_glanced else min(glance, oldest))

    def _note_silence(self, key: TraceKey, trace: OpenTrace, now: float) -> None:
        """Record, once, that the trace has been silent for a long time, also for its missing parents."""
        if trace.is_silent or now < trace.last + self._limits.absent_idle_s:
            return
        trace.is_silent = True
        for absence in trace.absences():
            if absence.is_candidate:
                self.learned.fell_silent(key.tenant, absence, trace)

    def _glance_at(self, key: TraceKey, trace: OpenTrace, now: float) -> None:
        for one in (trace, *(self._open[other] for other in self._links.company(key))):
            one.is_glanced, one.looked = True, now  # they form one run and are checked together
        self._ready.append(Released(key=key, completion=Completion.IDLE_OPEN, analyses=trace.analyses))

    def _due(self, key: TraceKey, trace: OpenTrace, now: float) -> tuple[float, Completion]:
        """Return when the trace is released next, and with which completion."""
        limits = self._limits
        if trace.spans >= limits.max_spans:
            return trace.last, Completion.SPAN_LIMIT
        if trace.bytes >= limits.max_bytes:
            return trace.last, Completion.BYTE_LIMIT
        wait, completion = self._patience(key, trace)
        due = trace.last + wait * 2 ** min(trace.analyses, _MOST_DOUBLINGS)
        latest = min(trace.last + limits.max_silence_s, trace.opened + limits.max_age_s)
        if latest <= due:
            due, completion = latest, Completion.MAX_AGE
        glance = min(trace.last + limits.idle_close_s, trace.looked + limits.max_silence_s)
        if glance < due and now < due and not trace.is_glanced:
            return glance, Completion.IDLE_OPEN
        return due, completion

    def _patience(self, key: TraceKey, trace: OpenTrace) -> tuple[float, Completion]:
        """Return how long the trace must be quiet, as the module docstring explains."""
        limits, missing = self._limits, trace.absences()
        until_cap = limits.max_silence_s, Completion.MAX_AGE
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
        if trace.late_s > _PROMPT * limits.root_grace_s and not self.learned.is_familiar(key.tenant, trace):
            wait = max(wait, _UNFAMILIAR * limits.root_grace_s)
        if any(self.learned.hopes_for(target, trace) for target in self._links.awaits(key)):
            wait = limits.idle_close_s
        return max(limits.root_grace_s, min(wait, limits.idle_close_s))

    def _is_hopeless(self, tenant: Tenant, missing: Iterable[Absence]) -> bool:
        """Return whether no such parent ever arrived, and each encloses a run or was awaited in vain."""
        return all(
            not self.learned.has_hope(tenant, absence)
            and (absence.is_outside or self.learned.is_silent(tenant, absence))
            for absence in missing
        )

    def _arm(self, key: TraceKey, trace: OpenTrace, at: float) -> None:
        if trace.timer is None or at < trace.timer:
            trace.timer = at
            heappush(self._timers, (at, key))
            if len(self._timers) > 2 * len(self._open) + _SPARE_TIMERS:
                self._sweep_timers()

    def _sweep_timers(self) -> None:
        """Drop timers of released traces: a trace that ends early leaves a timer of a minute or an hour."""
        live = ((self._open[key].timer, key) for key in self._open)
        self._timers = [(timer, key) for timer, key in live if timer is not None]
        heapify(self._timers)

    def _is_over_spans(self) -> bool:
        return self._open.spans > self._limits.max_open_spans and len(self._open) > 1

    def _release(self, key: TraceKey, completion: Completion) -> None:
        along = tuple(self._links.company(key))
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
            self._open.close(one)
        for one, trace in zip((key, *along), traces, strict=True):
            if trace.top_ended and not trace.analyses:
                self.learned.observe_tail(one.tenant, trace, trace.tail_s)
            for target in self._links.awaits(one):
                self.learned.link_missed(target, trace)
            self._links.closed(one)
            self._closed.put(one, trace)

    def _learned(self, key: TraceKey, trace: OpenTrace, completion: Completion) -> frozenset[int]:
        """Learn which parents never arrive, from traces that waited for them for the longest time."""
        if completion not in {Completion.IDLE, Completion.MAX_AGE}:
            return frozenset()
        found: set[int] = set()
        for absence in trace.absences():
            is_sure = trace.root_ended or absence.is_candidate
            found |= self.learned.parent_missed(key.tenant, absence, is_sure=is_sure)
        return frozenset(found)

    def _rearm_company(self, key: TraceKey) -> None:
        """Schedule a check of the other traces that wait for this one: they may have waited for it alone."""
        for other in self._links.company(key):
            if (trace := self._open[other]).is_ready:
                self._arm(other, trace, float("-inf"))
