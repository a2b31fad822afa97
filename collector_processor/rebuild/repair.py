"""Repair of a received trace: unique ids, no cycles, valid times.

A tuple of small transformations, as in Jaeger's ``adjuster``; each adds a warning that says what it changed.
Only the copy for analysis is changed; forwarded spans stay as received. Nothing recurses.

Clock skew. A span cannot start before its parent, and cannot end after a parent that waits for it. Each such
crossing between services bounds how far the second clock is off; a service's clock is shifted within the
bounds of all its crossings. A clock that contradicts nothing is not shifted. If one name stands for several
clocks (replicas, drift), no shift fits all crossings, and each is corrected by itself. Source of the idea:
Jaeger's clock skew adjuster.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import is_
from typing import Final, TypeAlias

from semconv.attributes import CARRIER, SCOPE_ANALYZER, SERVICE_NAME
from semconv.dialects.reading.action import Key, Surroundings, key_of, moment
from semconv.dialects.reading.denormalized import denormalized
from semconv.model import Resource, Span, Trace
from semconv.record import replace

_CLOCK_KEYS: Final = (SERVICE_NAME, "service.instance.id", "host.name", "host.id")
_SERVER, _CLIENT, _PRODUCER, _CONSUMER = 2, 3, 4, 5
_MESSAGING: Final = frozenset({_PRODUCER, _CONSUMER})

_Clock: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Bounds:
    """Bounds of a clock's shift, in nanoseconds."""

    low: int
    high: int | None
    """``None`` if nothing waited for the span."""
    best_high: int
    """Highest likely shift: with it the span still ends before its caller, if it is short enough."""

    @property
    def allow_none(self) -> bool:
        return self.low <= 0 and (self.high is None or self.high >= 0)

    @property
    def middle(self) -> int:
        """The shift that makes the network delay equal in both directions."""
        high = self.best_high if self.high is None else min(self.high, self.best_high)
        return (self.low + max(self.low, high)) // 2


def correct_skew(trace: Trace) -> Trace:
    """Shift the spans of services whose clock is provably wrong; add one warning for each service."""
    resources = {id(span.resource): span.resource for span in trace.spans}
    clocks = {key: _clock(resource) for key, resource in resources.items()}
    if len(set(clocks.values())) < 2:
        return trace
    forest = Surroundings(trace.spans)
    shifts = _shifts(forest, clocks)
    placed: dict[Key, int] = {}
    for span in forest.walked:
        parent, clock = forest.parent(span), clocks[id(span.resource)]
        shift_ns = shifts.get(clock)
        if parent is None:
            placed[key_of(span)] = shift_ns or 0
        elif clocks[id(parent.resource)] == clock:
            placed[key_of(span)] = placed[key_of(parent)]
        else:
            above_ns = placed[key_of(parent)]
            placed[key_of(span)] = _shift(_bounds(span, parent, above_ns)) if shift_ns is None else shift_ns
    return _shifted(trace, clocks, placed)


def _clock(resource: Resource) -> _Clock:
    return tuple([str(resource.attributes.get(key, "")) for key in _CLOCK_KEYS])


def _shifts(forest: Surroundings, clocks: Mapping[int, _Clock]) -> dict[_Clock, int]:
    """Return the shift of each clock; clocks for which no shift fits all crossings are left out.

    Clocks of services that no other service calls are taken as correct; the others are determined from them.
    """
    crossings: defaultdict[_Clock, list[tuple[Span, Span]]] = defaultdict(list)
    for span in forest.walked:
        parent, clock = forest.parent(span), clocks[id(span.resource)]
        if parent is not None and clocks[id(parent.resource)] != clock:
            crossings[clock].append((span, parent))
    shifts = {clock: 0 for clock in clocks.values() if clock not in crossings}
    if not shifts:  # services call each other in a cycle: take the service where the run began
        shifts = {clocks[id(forest.roots[0].resource)]: 0}
    waiting = [clock for clock in crossings if clock not in shifts]
    while waiting:
        found = {clock: _fitting(list(_known(crossings[clock], shifts, clocks))) for clock in waiting}
        settled = {clock: shift_ns for clock, shift_ns in found.items() if shift_ns is not None}
        if not settled:
            break
        shifts |= settled
        waiting = [clock for clock in waiting if clock not in settled]
    return shifts


def _known(
    crossings: Sequence[tuple[Span, Span]], shifts: Mapping[_Clock, int], clocks: Mapping[int, _Clock]
) -> Iterator[_Bounds]:
    """Yield the bounds of crossings from clocks that have a shift."""
    for span, parent in crossings:
        above_ns = shifts.get(clocks[id(parent.resource)])
        if above_ns is not None:
            yield _bounds(span, parent, above_ns)


def _bounds(span: Span, parent: Span, above_ns: int) -> _Bounds:
    low = parent.start_ns + above_ns - span.start_ns
    high = parent.end_ns + above_ns - span.end_ns
    fits = high >= low
    is_answered = span.kind == _SERVER and parent.kind == _CLIENT
    is_late = low + (parent.end_ns - parent.start_ns) < 0  # starts after its caller ended
    waited = is_answered or (is_late and not _MESSAGING & {span.kind, parent.kind})
    return _Bounds(low, high if fits and waited else None, max(low, high))


def _shift(bounds: _Bounds) -> int:
    return 0 if bounds.allow_none else bounds.middle


def _fitting(each: Sequence[_Bounds]) -> int | None:
    """Return a shift within all bounds; ``None`` if there is none."""
    if not each:
        return None
    highs = [bounds.high for bounds in each if bounds.high is not None]
    low, high = max(bounds.low for bounds in each), min(highs, default=None)
    if high is not None and high < low:
        return None
    return _shift(_Bounds(low, high, min(bounds.best_high for bounds in each)))


def _shifted(trace: Trace, clocks: Mapping[int, _Clock], placed: Mapping[Key, int]) -> Trace:
    counts: Counter[str] = Counter()
    largest: Counter[str] = Counter()
    spans: list[Span] = []
    for span in trace.spans:
        shift_ns = placed[key_of(span)]
        if shift_ns:
            service = clocks[id(span.resource)][0] or "unnamed service"
            counts[service] += 1
            largest[service] = max(largest[service], abs(shift_ns))
            span = replace(  # noqa: PLW2901 - the same span with corrected times
                span, start_ns=span.start_ns + shift_ns, end_ns=span.end_ns + shift_ns
            )
        spans.append(span)
    if not counts:
        return trace
    warnings = tuple(
        f"clock skew of {service} corrected by up to {largest[service] / 1e6:.3g} ms ({count})"
        for service, count in sorted(counts.items())
    )
    return replace(trace, spans=tuple(spans), warnings=(*trace.warnings, *warnings))


Repair: TypeAlias = Callable[[Trace], Trace]

_REMOTE_PARENT: Final = 0x300
"""Bits of ``Span.flags`` (OTLP 1.3): the parent is known to be remote."""


def repair(trace: Trace) -> Trace:
    """Return the repaired ``trace``, with a warning for each kind of damage."""
    for mend in REPAIRS:
        trace = mend(trace)
    return trace


def drop_own(trace: Trace) -> Trace:
    """Drop carriers written by any blamespan; spans of our emitting API stay."""
    spans = tuple(span for span in trace.spans if not _is_own(span))
    return trace if len(spans) == len(trace.spans) else replace(trace, spans=spans)


def _is_own(span: Span) -> bool:
    return span.scope.name == SCOPE_ANALYZER or span.attributes.get(CARRIER) is True


def undo_normalizer(trace: Trace) -> Trace:
    """Restore the attributes that the Collector's ``genainormalizer`` copied or removed."""
    spans = tuple(map(denormalized, trace.spans))
    is_same = all(map(is_, spans, trace.spans))
    return trace if is_same else replace(trace, spans=spans)


def deduplicate(trace: Trace) -> Trace:
    """Keep one span of each id: the most complete one, independent of the order of arrival."""
    if len(set(map(key_of, trace.spans))) == len(trace.spans):
        return trace
    versions: defaultdict[Key, list[Span]] = defaultdict(list)
    for span in trace.spans:
        versions[key_of(span)].append(span)
    differing = sum(1 for spans in versions.values() if any(each != spans[0] for each in spans[1:]))
    kept = tuple(max(spans, key=_completeness) for spans in versions.values())
    return _changed(trace, kept, differing, "span id used for different spans; the most complete kept")


def _completeness(span: Span) -> tuple[bool, int, int, int, str]:
    """Rank versions of a span; the repr comes last, so that the order of arrival never matters."""
    return span.end_ns > 0, len(span.attributes), len(span.events), span.end_ns, repr(span)


def break_cycles(trace: Trace) -> Trace:
    """Make the earliest span of each parent cycle a root."""
    spans = {key_of(span): span for span in trace.spans}
    parents = {key: _parent_key(span) for key, span in spans.items()}
    settled: set[Key] = set()
    heads: set[Key] = set()
    for key, parent in parents.items():
        if parent is None or parent in settled:  # most spans: no path to follow
            settled.add(key)
            continue
        path: dict[Key, None] = {}
        at: Key | None = key
        while at is not None and at in parents and at not in settled and at not in path:
            path[at] = None
            at = parents[at]
        if at is not None and at in path:
            walked = list(path)
            cycle = walked[walked.index(at) :]
            heads.add(min(cycle, key=lambda each: moment(spans[each])))
        settled.update(path)
    return _as_roots(trace, heads, "cycle of parents broken")


def reroot_orphans(trace: Trace) -> Trace:
    """Make spans without their parent roots, and mark the trace as incomplete.

    In a trace without a root, a span whose flags say that its parent is remote is not an orphan: the run
    continues a remote trace.
    """
    known = set(map(key_of, trace.spans))
    orphans = {
        key_of(span): span
        for span in trace.spans
        if (parent := _parent_key(span)) is not None and parent not in known
    }
    if not orphans:
        return trace
    rooted = {span.trace_id for span in trace.spans if span.parent_id is None}
    entries = {
        key
        for key, span in orphans.items()
        if span.flags & _REMOTE_PARENT == _REMOTE_PARENT and span.trace_id not in rooted
    }
    cleared = _as_roots(trace, orphans.keys() & entries, "")
    lost = orphans.keys() - entries
    return replace(_as_roots(cleared, lost, "parent missing"), complete=trace.complete and not lost)


def order_times(trace: Trace) -> Trace:
    """Give sortable times to spans without times or with an end before their start."""
    if all(0 < span.start_ns <= span.end_ns for span in trace.spans):
        return trace
    spans = {key_of(span): span for span in trace.spans}
    first_ns = min((span.start_ns or span.end_ns for span in trace.spans if span.end_ns), default=0)
    starts = {key: span.start_ns or span.end_ns for key, span in spans.items()}
    for key in list(starts):
        _fill_start(key, spans, starts, first_ns)
    mended = tuple(
        span
        if span.start_ns == (start_ns := starts[key_of(span)]) and span.end_ns >= start_ns
        else replace(span, start_ns=start_ns, end_ns=max(span.end_ns, start_ns))
        for span in trace.spans
    )
    count = sum(1 for span in trace.spans if not 0 < span.start_ns <= span.end_ns)
    return _changed(trace, mended, count, "zero or negative time put in order")


def _fill_start(key: Key, spans: Mapping[Key, Span], starts: dict[Key, int], first_ns: int) -> None:
    """Give a span without any time the time of its nearest ancestor that has one."""
    path: list[Key] = []
    at: Key | None = key
    while at is not None and at in spans and starts[at] == 0:
        path.append(at)
        at = _parent_key(spans[at])
    found = starts[at] if at is not None and at in spans else first_ns
    for each in path:
        starts[each] = found


def _parent_key(span: Span) -> Key | None:
    return None if span.parent_id is None else (span.trace_id, span.parent_id)


def _as_roots(trace: Trace, keys: Iterable[Key], what: str) -> Trace:
    chosen = set(keys)
    if not chosen:
        return trace
    spans = tuple(replace(span, parent_id=None) if key_of(span) in chosen else span for span in trace.spans)
    return _changed(trace, spans, len(chosen) if what else 0, what)


def _changed(trace: Trace, spans: tuple[Span, ...], count: int, what: str) -> Trace:
    warnings = (*trace.warnings, f"{what} ({count})") if count else trace.warnings
    return replace(trace, spans=spans, warnings=warnings)


REPAIRS: Final[tuple[Repair, ...]] = (
    drop_own,
    deduplicate,  # before all repairs that look spans up by id
    break_cycles,  # before all repairs that walk to the root
    reroot_orphans,
    order_times,  # before times are compared
    correct_skew,
    undo_normalizer,
)
