"""Clocks that differ between services, corrected against the spans that cross between them.

A span cannot start before the span that caused it, and what its caller waits for cannot end after
the caller. Each crossing from one service to another so bounds how far the second clock is off; the
bounds of all crossings together say it for the service. A clock that contradicts nothing stays as it
is. Where one name stands for several clocks (replicas, drift) no shift fits all crossings, and each is
corrected by itself. Source of the idea: Jaeger's clock skew adjuster.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from semconv.attributes import SERVICE_NAME
from semconv.dialects.surroundings import Key, Surroundings, key_of
from semconv.model import Span, Trace

_CLOCK_KEYS: Final = (SERVICE_NAME, "service.instance.id", "host.name", "host.id")
_SERVER, _CLIENT, _PRODUCER, _CONSUMER = 2, 3, 4, 5
_MESSAGING: Final = frozenset({_PRODUCER, _CONSUMER})

_Clock: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Bounds:
    """How far a clock may be shifted, in nanoseconds."""

    low: int
    high: int | None
    """``None`` where nothing waited for the span."""
    best_high: int
    """Up to where a shift is likely: the span still ends within its caller, if it is short enough."""

    @property
    def allow_none(self) -> bool:
        return self.low <= 0 and (self.high is None or self.high >= 0)

    @property
    def middle(self) -> int:
        """The shift that leaves as much time for the way there as for the way back."""
        high = self.best_high if self.high is None else min(self.high, self.best_high)
        return (self.low + max(self.low, high)) // 2


def correct_skew(trace: Trace) -> Trace:
    """Shift spans of services whose clock is provably wrong; warn once a service."""
    clocks = {id(span.resource): _clock(span) for span in trace.spans}
    if len(set(clocks.values())) < 2:
        return trace
    forest = Surroundings(trace.spans)
    shifts = _shifts(forest, clocks)
    placed: dict[Key, int] = {}
    for span in forest.walk():
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


def _clock(span: Span) -> _Clock:
    return tuple(str(span.resource.attributes.get(key, "")) for key in _CLOCK_KEYS)


def _shifts(forest: Surroundings, clocks: Mapping[int, _Clock]) -> dict[_Clock, int]:
    """Return each clock's shift; a clock that no one shift fits is not among them.

    Right by definition are the clocks that nobody calls; from them outwards the others are settled.
    """
    crossings: defaultdict[_Clock, list[tuple[Span, Span]]] = defaultdict(list)
    for span in forest.walk():
        parent, clock = forest.parent(span), clocks[id(span.resource)]
        if parent is not None and clocks[id(parent.resource)] != clock:
            crossings[clock].append((span, parent))
    shifts = {clock: 0 for clock in clocks.values() if clock not in crossings}
    if not shifts:  # services that call each other in a circle: the run began in one of them
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
    crossings: Sequence[tuple[Span, Span]],
    shifts: Mapping[_Clock, int],
    clocks: Mapping[int, _Clock],
) -> Iterator[_Bounds]:
    """Yield the bounds by callers whose own clock is settled."""
    for span, parent in crossings:
        above_ns = shifts.get(clocks[id(parent.resource)])
        if above_ns is not None:
            yield _bounds(span, parent, above_ns)


def _bounds(span: Span, parent: Span, above_ns: int) -> _Bounds:
    low = parent.start_ns + above_ns - span.start_ns
    high = parent.end_ns + above_ns - span.end_ns
    fits = high >= low
    is_answered = span.kind == _SERVER and parent.kind == _CLIENT
    is_late = low + (parent.end_ns - parent.start_ns) < 0  # begins after its caller ended
    waited = is_answered or (is_late and not _MESSAGING & {span.kind, parent.kind})
    return _Bounds(low, high if fits and waited else None, max(low, high))


def _shift(bounds: _Bounds) -> int:
    return 0 if bounds.allow_none else bounds.middle


def _fitting(each: Sequence[_Bounds]) -> int | None:
    """Return the shift that all bounds allow, ``None`` if there is none."""
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
            span = replace(  # noqa: PLW2901 - the same span, at its right time
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
