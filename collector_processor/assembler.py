"""When is a run's trace complete? Pure: no clock, socket, thread or task.

The caller owns time: it passes ``now`` (seconds, any monotonic clock) and
sleeps until ``next_deadline``. Only facts come in, never spans: the journal
keeps the bytes.

Spans are sent when they *end*, so silence alone says nothing: a slow model
call, a human approval, an hour of coding are silent and healthy. A trace is
therefore released for good only when something on top has ended:

* the root, or a workflow span: quiet for ``root_grace_s``;
* a *candidate*: an agent span whose parent has not arrived and is not known to
  be an agent (a web request that still runs, as a rule; a sequence of agents,
  now and then): quiet for ``candidate_grace_s``, longer, for the doubt;
* nothing: idle for ``idle_close_s`` gives ``IDLE_OPEN``, good for a provisional
  verdict, and the trace stays open until a cap (age, spans, bytes).

The two timers are those of Honeycomb Refinery (``collect/collect.go``), which
has no third case and so cuts long agent runs in two.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from collector_processor.notes import SpanNote
from collector_processor.otlp import Tenant
from semconv.model import Completion, TraceId

REOPEN_FACTOR: Final = 4
"""Each analysis of a trace multiplies the wait before the next by this (backoff)."""


_SPARE_TIMERS: Final = 1_000
"""How many may be of traces that are not open any more, beside as many as are."""


class TraceKey(NamedTuple):
    """What a trace is known by; the same trace id of two tenants is two traces."""

    tenant: Tenant
    trace_id: TraceId


@dataclass(frozen=True, slots=True, kw_only=True)
class AssemblerLimits:
    """Times in seconds; see the module docstring."""

    root_grace_s: float = 2.0
    candidate_grace_s: float = 10.0
    idle_close_s: float = 60.0
    max_age_s: float = 3600.0
    max_spans: int = 100_000
    max_bytes: int = 256 << 20
    max_traces: int = 50_000
    """Open at once; the longest silent are released first (``EVICTED``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """A trace to analyse, and why now."""

    key: TraceKey
    completion: Completion
    analyses: int = 0
    """For how many analyses before this one it waited (backoff)."""


@dataclass(slots=True)
class _Open:
    """One trace that is not complete yet."""

    opened: float
    analyses: int
    spans: int = 0
    bytes: int = 0
    top_ended: bool = False
    agent_parents: set[str] = field(default_factory=set)
    """Spans that have not arrived and are agents, since model or tool calls hang under them."""
    waiting: set[str] = field(default_factory=set)
    """Spans that have not arrived and have an ended agent below them."""
    deadline: float = 0.0
    completion: Completion = Completion.IDLE_OPEN
    timer: float | None = None
    """The earliest entry in the heap: a deadline that moves on costs no second one."""

    def note(self, span: SpanNote) -> None:
        """Learn from one ended span."""
        inherits = span.span_id in self.waiting
        self.waiting.discard(span.span_id)
        if span.parent_id is None or span.is_top_kind:
            self.top_ended = True
        elif span.is_agent_kind or (inherits and not span.is_marked):
            self.waiting.add(span.parent_id)
        elif span.is_marked:
            self.agent_parents.add(span.parent_id)

    @property
    def candidate_ended(self) -> bool:
        return bool(self.waiting - self.agent_parents)


class Assembler:
    """Knows the open traces; every one comes out exactly once per analysis it needs."""

    def __init__(self, limits: AssemblerLimits) -> None:
        self._limits: Final = limits
        self._open: dict[TraceKey, _Open] = {}
        self._timers: list[tuple[float, TraceKey]] = []
        self._ready: list[Released] = []

    def __len__(self) -> int:
        """Traces open now."""
        return len(self._open)

    def is_open(self, key: TraceKey) -> bool:
        """Whether the trace is held now."""
        return key in self._open

    def receive(
        self, key: TraceKey, notes: tuple[SpanNote, ...], byte_count: int, now: float, *, analyses: int = 0
    ) -> None:
        """Learn that these spans of the trace ended.

        Args:
            key: the trace.
            notes: the spans; none for log records, which only keep the trace awake.
            byte_count: their size on the wire.
            now: seconds; never runs backwards.
            analyses: how often the trace was analysed before, when it is not open: a
                reopened trace has seen its top end, and waits longer each time.
        """
        trace = self._open.pop(key, None) or _Open(opened=now, analyses=analyses, top_ended=analyses > 0)
        self._open[key] = trace  # last in, last to be evicted
        trace.spans += len(notes)
        trace.bytes += byte_count
        for span in notes:
            trace.note(span)
        self._schedule(key, trace, now)
        while len(self._open) > self._limits.max_traces:
            self._release(next(iter(self._open)), Completion.EVICTED)

    def forget(self, key: TraceKey) -> None:
        """Drop a trace; it does not come out."""
        self._open.pop(key, None)

    def take_ready(self, now: float) -> list[Released]:
        """Remove and return the traces whose deadline is at or before ``now``."""
        while self._timers and self._timers[0][0] <= now:
            fired, key = heappop(self._timers)
            trace = self._open.get(key)
            if trace is None:
                continue
            if trace.timer == fired:
                trace.timer = None
            if trace.deadline > now:  # more spans came since
                self._arm(key, trace, trace.deadline, trace.completion)
            elif trace.completion is Completion.IDLE_OPEN:
                self._ready.append(
                    Released(key=key, completion=Completion.IDLE_OPEN, analyses=trace.analyses)
                )
                self._arm(key, trace, trace.opened + self._limits.max_age_s, Completion.MAX_AGE)
            else:
                self._release(key, trace.completion)
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
            self._release(key, Completion.DRAINED)
        ready, self._ready = self._ready, []
        return ready

    def _schedule(self, key: TraceKey, trace: _Open, now: float) -> None:
        limits = self._limits
        wait, completion = self._patience(trace)
        deadline = now + wait * REOPEN_FACTOR**trace.analyses
        oldest = trace.opened + limits.max_age_s
        if oldest < deadline:
            deadline, completion = oldest, Completion.MAX_AGE
        if trace.spans >= limits.max_spans:
            deadline, completion = now, Completion.SPAN_LIMIT
        if trace.bytes >= limits.max_bytes:
            deadline, completion = now, Completion.BYTE_LIMIT
        self._arm(key, trace, deadline, completion)

    def _patience(self, trace: _Open) -> tuple[float, Completion]:
        if trace.top_ended:
            return self._limits.root_grace_s, Completion.ROOT_ENDED
        if trace.candidate_ended:
            return self._limits.candidate_grace_s, Completion.IDLE
        return self._limits.idle_close_s, Completion.IDLE_OPEN

    def _arm(self, key: TraceKey, trace: _Open, deadline: float, completion: Completion) -> None:
        trace.deadline, trace.completion = deadline, completion
        if trace.timer is None or deadline < trace.timer:
            trace.timer = deadline
            heappush(self._timers, (deadline, key))
            if len(self._timers) > 2 * len(self._open) + _SPARE_TIMERS:
                self._sweep_timers()

    def _sweep_timers(self) -> None:
        """Drop what the released have left: each that ends early leaves a timer for a minute or an hour."""
        live = self._open.items()
        self._timers = [(trace.timer, key) for key, trace in live if trace.timer is not None]
        heapify(self._timers)

    def _release(self, key: TraceKey, completion: Completion) -> None:
        trace = self._open.pop(key)
        self._ready.append(Released(key=key, completion=completion, analyses=trace.analyses))
