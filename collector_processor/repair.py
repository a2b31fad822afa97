"""A trace as it arrived → a sound one: unique ids, no cycles, sane times.

A tuple of small transformations (the shape is Jaeger's ``adjuster``), each of
which says in a warning what it did. Only the copy that is analysed changes;
what is passed on stays as it came. Nothing recurses.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from collector_processor.skew import correct_skew
from semconv.attributes import CARRIER, SCOPE_ANALYZER
from semconv.dialects.surroundings import Key, key_of, moment
from semconv.model import Span, Trace

Repair: TypeAlias = Callable[[Trace], Trace]

_REMOTE_PARENT: Final = 0x300
"""Bits of ``Span.flags`` (OTLP 1.3): it is known whether the parent is remote, and it is."""


def repair(trace: Trace) -> Trace:
    """Return ``trace`` made sound, with a warning for each kind of damage found."""
    for mend in REPAIRS:
        trace = mend(trace)
    return trace


def drop_own(trace: Trace) -> Trace:
    """Leave out what a blamespan wrote: carriers. Spans of the emitting API stay."""
    kept = tuple(span for span in trace.spans if not _is_own(span))
    return trace if len(kept) == len(trace.spans) else replace(trace, spans=kept)


def _is_own(span: Span) -> bool:
    return span.scope.name == SCOPE_ANALYZER or span.attributes.get(CARRIER) is True


def deduplicate(trace: Trace) -> Trace:
    """Keep one span of each id: of different ones the most complete, whatever came first."""
    versions: defaultdict[Key, list[Span]] = defaultdict(list)
    for span in trace.spans:
        versions[key_of(span)].append(span)
    if len(versions) == len(trace.spans):
        return trace
    differing = sum(1 for found in versions.values() if any(each != found[0] for each in found[1:]))
    kept = tuple(max(found, key=_completeness) for found in versions.values())
    return _changed(trace, kept, differing, "span id used for different spans; the most complete kept")


def _completeness(span: Span) -> tuple[bool, int, int, int, str]:
    """Rank versions of a span; the repr last, so that the choice never depends on arrival."""
    return span.end_ns > 0, len(span.attributes), len(span.events), span.end_ns, repr(span)


def break_cycles(trace: Trace) -> Trace:
    """Make the earliest span of each cycle of parents a root."""
    spans = {key_of(span): span for span in trace.spans}
    settled: set[Key] = set()
    heads: set[Key] = set()
    for key in spans:
        path: dict[Key, None] = {}
        at: Key | None = key
        while at is not None and at in spans and at not in settled and at not in path:
            path[at] = None
            at = _parent_key(spans[at])
        if at is not None and at in path:
            walked = list(path)
            cycle = walked[walked.index(at) :]
            heads.add(min(cycle, key=lambda each: moment(spans[each])))
        settled.update(path)
    return _as_roots(trace, heads, "cycle of parents broken")


def reroot_orphans(trace: Trace) -> Trace:
    """Make spans whose parent is missing roots, and say that the trace is not whole.

    One such span in a trace without root is how a run looks that continues a remote trace: where
    the span's flags say so, nothing is amiss.
    """
    known = {key_of(span) for span in trace.spans}
    orphans = {
        key_of(span): span
        for span in trace.spans
        if (parent := _parent_key(span)) is not None and parent not in known
    }
    if not orphans:
        return trace
    rooted = {span.trace_id for span in trace.spans if span.parent_id is None}
    entries = {key for key, span in orphans.items() if _is_entry(span) and span.trace_id not in rooted}
    cleared = _as_roots(trace, orphans.keys() & entries, "")
    lost = orphans.keys() - entries
    return replace(_as_roots(cleared, lost, "parent missing"), complete=trace.complete and not lost)


def _is_entry(span: Span) -> bool:
    return span.flags & _REMOTE_PARENT == _REMOTE_PARENT


def order_times(trace: Trace) -> Trace:
    """Give spans without start or end, or that end before they start, times that can be ordered."""
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
    """Give a span without any time that of its nearest ancestor that has one."""
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
    deduplicate,  # before all that looks spans up by id
    break_cycles,  # before all that walks to the root
    reroot_orphans,
    order_times,  # before times are compared
    correct_skew,
)
