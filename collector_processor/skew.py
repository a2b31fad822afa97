"""Clocks that differ between services, corrected against the parent.

A span cannot start before the span that caused it, and a server's answer cannot
end after the call that waited for it. Where a span of another service does, its
clock is wrong, and with it that of all that follows in its service. Source of
the idea: Jaeger's clock skew adjuster. Work that merely outlives its parent is
no proof, and stays.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from semconv.attributes import SERVICE_NAME
from semconv.dialects.surroundings import Key, Surroundings, key_of
from semconv.model import Span, Trace

_CLOCK_KEYS: Final = (SERVICE_NAME, "service.instance.id", "host.name", "host.id")
_SERVER, _CLIENT = 2, 3

_Clock: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Placed:
    """A span's clock, and what is added to its times."""

    clock: _Clock
    shift_ns: int


def correct_skew(trace: Trace) -> Trace:
    """Shift spans of services whose clock is provably wrong; warn once a service."""
    clocks = {id(span.resource): _clock(span) for span in trace.spans}
    if len(set(clocks.values())) < 2:
        return trace
    forest = Surroundings(trace.spans)
    placed: dict[Key, _Placed] = {}
    for span in forest.walk():
        parent = forest.parent(span)
        clock = clocks[id(span.resource)]
        above = placed[key_of(parent)] if parent is not None else None
        if parent is None or above is None:
            shift_ns = 0
        elif above.clock == clock:
            shift_ns = above.shift_ns
        else:
            shift_ns = _needed_shift(span, parent, above.shift_ns)
        placed[key_of(span)] = _Placed(clock, shift_ns)
    return _shifted(trace, placed)


def _clock(span: Span) -> _Clock:
    return tuple(str(span.resource.attributes.get(key, "")) for key in _CLOCK_KEYS)


def _needed_shift(span: Span, parent: Span, parent_shift_ns: int) -> int:
    """Return what puts ``span`` inside ``parent``: centred, as if the way there and back took as long."""
    start_ns, end_ns = parent.start_ns + parent_shift_ns, parent.end_ns + parent_shift_ns
    slack_ns = (end_ns - start_ns) - (span.end_ns - span.start_ns)
    is_answered = span.kind == _SERVER and parent.kind == _CLIENT and slack_ns >= 0
    if span.start_ns >= start_ns and not (is_answered and span.end_ns > end_ns):
        return 0
    return start_ns + max(slack_ns, 0) // 2 - span.start_ns


def _shifted(trace: Trace, placed: dict[Key, _Placed]) -> Trace:
    counts: Counter[str] = Counter()
    largest: Counter[str] = Counter()
    spans: list[Span] = []
    for span in trace.spans:
        found = placed[key_of(span)]
        if found.shift_ns:
            service = found.clock[0] or "unnamed service"
            counts[service] += 1
            largest[service] = max(largest[service], abs(found.shift_ns))
            span = replace(  # noqa: PLW2901 - the same span, at its right time
                span, start_ns=span.start_ns + found.shift_ns, end_ns=span.end_ns + found.shift_ns
            )
        spans.append(span)
    if not counts:
        return trace
    warnings = tuple(
        f"clock skew of {service} corrected by up to {largest[service] / 1e6:.3g} ms ({count})"
        for service, count in sorted(counts.items())
    )
    return replace(trace, spans=tuple(spans), warnings=(*trace.warnings, *warnings))
