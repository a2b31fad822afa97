"""Scan raw requests without decoding them: number of items, and the agents' traces among them. Pure.

The hot path of all traffic. In a trace request, one pass over the protobuf fields finds each span and its
trace id; one search over all bytes finds the marked ones. Only spans of traces with a marker are examined
further, for the assembler, which decides across requests when a run has ended. Other spans are only counted.
Log records belong to traces as spans do; metrics belong to none, and are counted by their data points.

Most encoders write fields in the order of their numbers, so a span begins with its trace id and span id. The
Collector writes its buffer backwards, so everything is in the opposite order: a value before its key, a
span's ids last, the scope after its spans. Both are read quickly; any other order is read field by field.
Bytes after the ids of an unmarked span are not checked: a request that the backend refuses is bisected.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias
from zlib import crc32

from collector_processor.otlp import MalformedRequestError, Signal
from collector_processor.wire.agent_markers import (
    ANY_ORDER,
    CARRIER_BIT,
    OUR_TRACES,
    OURS,
    PADDED,
    PLAIN,
    USUAL,
    USUAL_HINTS,
    Hints,
    Layout,
    SpanPlace,
    hinted_spans,
    marked_spans,
    marker_bits,
    scope_kind,
)
from collector_processor.wire.facts import MARKED_BIT, REMOTE_BIT, ScanResult, SpanNote, TraceNote
from collector_processor.wire.protobuf import (
    GROUP_TAG,
    SHORTEST_SPAN,
    SPAN_ID_BYTES,
    TRACE_ID_BYTES,
    fields,
    has_usual_head,
    most_fields,
    read_varint,
    require_message,
    skip_short,
    span_ids,
    too_many,
)
from collector_processor.wire.scan_records import scan_logs, scan_metrics
from collector_processor.wire.span_facts import (
    FLAGS_TAG,
    Origin,
    Process,
    has_usual_link,
    linked_traces,
    may_have_links,
    may_have_remote_parents,
    read_apart,
    read_origin,
    read_process,
    read_usual,
)
from collector_processor.wire.split import member_count
from semconv.model import TraceId

_NO_TRACE: Final = bytes(TRACE_ID_BYTES)
_ROOM: Final = 4
"""Bound on the bytes of a tag and an unpadded length below 2 MiB."""
_BEYOND: Final = 1 << 62
"""Past every offset in a request."""
_BEHIND_PARENT: Final = SHORTEST_SPAN + 2 + SPAN_ID_BYTES
"""Offset of the field after the parent, in a span that begins with its ids."""
_GROUP_STEPS: Final = 4
"""Steps for a group of spans, or for another field instead."""
_NOTE_STEPS, _ODD_NOTE_STEPS = 3, 16
"""Steps for a trace's note (``SpanNote``) of a span; the latter where fields may be in any order."""
_new: Final = tuple.__new__
"""Creates a note in a third of the time of a call of its class."""
_FIELDS_BYTES: Final = 8
"""Bytes that count as one more step where fields may have to be read one at a time."""
_SEARCH_BYTES: Final = 32
"""Bytes that count as one more step where they are searched for links, or in any order of fields."""


class TooCostlyError(Exception):
    """The scan takes more steps than the caller allows."""


def scan_traces(
    body: bytes,
    known: Container[TraceId] = (),
    most_steps: int = _BEYOND,
    hints: Hints = USUAL_HINTS,
) -> ScanResult:
    """Scan a trace request.

    Args:
        body: an ``ExportTraceServiceRequest``.
        known: agent traces seen before; their spans get notes even without a marker in this request.
        most_steps: bound on slow work: groups, spans, fields in an unusual order, notes. A step takes a
        microsecond; searching the bytes comes on top, some 10 ms for a MiB at the worst.
        hints: signs of a model call in spans without a marker.

    Raises:
        MalformedRequestError: the bytes are not valid protobuf.
        TooCostlyError: the scan takes more steps.
    """
    try:
        found = _find_spans(body, _Found(steps_left=most_steps, fields_left=most_fields(len(body))))
    except IndexError:
        raise MalformedRequestError("the request is cut short") from None
    places = found.places
    found.take_steps((len(places) >> 1) + (len(body) // _SEARCH_BYTES if found.layout is ANY_ORDER else 0))
    traces = dict.fromkeys([place[3] for place in places])
    invalid = 0
    if _NO_TRACE in traces:
        del traces[_NO_TRACE]
        invalid = sum(place[3] == _NO_TRACE for place in places)
    marked = marked_spans(body, places, found.layout)
    agents = {places[index][3] for index in marked}
    if found.has_marked_scope:
        agents.update(place[3] for place in places if place[2] != PLAIN)
    # Hints matter only in traces without a marker.
    if len(agents) < len(traces) and (hinted := hinted_spans(body, places, hints)):
        marked |= {index for index in hinted if places[index][3] not in agents and places[index][2] == PLAIN}
        agents.update(places[index][3] for index in marked)
    reported = [trace_id for trace_id in traces if trace_id in agents or trace_id.hex() in known]
    return ScanResult(
        item_count=len(places) - invalid,
        traces=tuple(_notes(body, found, reported, marked)) if reported else (),
        invalid=found.invalid + invalid,
        max_item_bytes=found.largest,
    )


_Group: TypeAlias = tuple[int, int, int, int, int]
"""Index of a scope's first span, and the bounds of its resource and scope messages."""


@dataclass(slots=True)
class _Found:
    """The spans found in a request."""

    places: list[SpanPlace] = field(default_factory=list)
    """Spans, in their order in the request."""
    invalid: int = 0
    """Number of spans with ids of a wrong length; they are left out of ``places``."""
    largest: int = 0
    """Size of the largest span in bytes."""
    layout: Layout = USUAL
    has_marked_scope: bool = False
    """Whether any span is in a scope of an agent framework or of ours."""
    groups: list[_Group] = field(default_factory=list)
    """One entry per scope, in the order of ``places``."""
    steps_left: int = _BEYOND
    fields_left: int = _BEYOND
    """Number of groups and other non-span fields that may still follow."""

    def take_field(self, steps: int) -> None:
        """Count a group or another field, and its steps; raise if there are too many."""
        self.fields_left -= 1
        self.steps_left -= steps  # without a call, which would be more expensive
        if self.fields_left < 0:
            raise too_many(0)
        if self.steps_left < 0:
            raise TooCostlyError

    def take_steps(self, count: int) -> None:
        """Count slow steps; raise if there are too many."""
        self.steps_left -= count
        if self.steps_left < 0:
            raise TooCostlyError


def _find_spans(body: bytes, found: _Found) -> _Found:
    for resource in fields(body, 0, len(body)):
        found.take_field(_GROUP_STEPS)
        if resource.number != 1:
            continue
        require_message(resource)
        if resource.start < resource.end and body[resource.start] != GROUP_TAG:
            found.layout = ANY_ORDER  # the Resource, field 1, is not first
        elif resource.start - resource.at > _ROOM and found.layout is USUAL:
            found.layout = PADDED
        for scope in fields(body, resource.start, resource.end):
            found.take_field(_GROUP_STEPS)
            if scope.number == 2:
                require_message(scope)
                found.groups.append((len(found.places), resource.start, resource.end, scope.start, scope.end))
                _find_in_scope(body, scope.start, scope.end, found)
    return found


def _find_in_scope(body: bytes, at: int, end: int, found: _Found) -> None:  # noqa: C901, PLR0912 - hot
    """Add the spans of one scope.

    Most of the scan's time is spent in this loop: hence inlined lengths and no calls.
    """
    kind = scope_kind(body, at, end, found.take_field)
    if kind != PLAIN:
        found.has_marked_scope = True  # or one of our own, which is examined too
    add, largest = found.places.append, found.largest
    while at < end:
        tag = body[at]
        if tag != 0x12:
            found.take_field(1)
            at = _skip(body, at, end)
            continue
        length = body[at + 1]
        start = at + 2
        if length > 0x7F:
            high = body[at + 2]
            if high < 0x80:
                length += (high - 1) << 7
                start = at + 3
            else:
                length, start = read_varint(body, at + 1, end)
        at = start + length
        if at > end:
            raise MalformedRequestError("a span runs past the end of its scope")
        if length > largest:  # noqa: PLR1730 - hot: a call is dearer
            largest = length
        if (
            length > SHORTEST_SPAN
            and body[start] == 0x0A
            and body[start + 1] == 0x10
            and body[start + 18] == 0x12
            and body[start + 19] == 0x08
        ):
            add((start, at, kind, body[start + 2 : start + 18]))
        elif (
            length > SHORTEST_SPAN
            and body[start] != 0x0A
            and body[at - 18] == 0x0A
            and body[at - 17] == 0x10
            and body[at - 28] == 0x12
            and body[at - 27] == 0x08
        ):
            add((start, at, kind, body[at - 16 : at]))
        else:
            found.take_steps(1 + (length >> 1))  # as many fields as there may be
            trace_id, span_id = span_ids(body, start, at)
            if len(trace_id) != TRACE_ID_BYTES or len(span_id) != SPAN_ID_BYTES:
                at, skipped = skip_short(body, at, end)
                found.invalid += 1 + skipped
            else:
                add((start, at, kind, trace_id))
    found.largest = largest


def _skip(body: bytes, at: int, end: int) -> int:
    """Return the end of the field at ``at``; a span that is not length-delimited is malformed."""
    found = next(fields(body, at, end))
    if found.number == 2:
        require_message(found)
        raise MalformedRequestError("a span's tag is longer than one byte: expected the shortest form")
    return found.end


def _notes(
    body: bytes, found: _Found, wanted: Iterable[bytes], marked: frozenset[int]
) -> Iterator[TraceNote]:
    """Yield a note of each trace in ``wanted``, in that order."""
    own: dict[bytes, list[int]] = {trace_id: [] for trace_id in wanted}
    for index, place in enumerate(found.places):
        if place[3] in own:
            own[place[3]].append(index)
    layout = found.layout
    found.take_steps((_ODD_NOTE_STEPS if layout is ANY_ORDER else _NOTE_STEPS) * len(found.places))
    may_link = layout is ANY_ORDER or has_usual_link(body)
    found.take_steps(len(body) // _SEARCH_BYTES if may_link else 0)
    read = _Reading(
        found.places,
        marker_bits(body, found.places, marked, layout),
        _Origins(body, found.groups),
        may_link,
        may_have_remote_parents(body),
        found.take_steps,
    )
    for trace_id, indexes in own.items():
        yield _trace_note(body, trace_id, indexes, read)


class _Reading(NamedTuple):
    """Facts about a request before its spans' notes are read."""

    places: Sequence[SpanPlace]
    bits: Mapping[int, int]
    """Bits of each marked span, by position."""
    origins: _Origins
    may_link: bool
    """Whether any span may link to another trace."""
    may_be_remote: bool
    """Whether any span's parent may be in another process."""
    take_steps: Callable[[int], None]
    """Called before a span is read field by field; may raise."""


class _Origins:
    """The origins of a request's spans; each group and Resource is read once, on first use."""

    def __init__(self, body: bytes, groups: list[_Group]) -> None:
        self._body: Final = body
        self._groups: Final = groups
        self._known: Final[dict[int, Origin]] = {}
        self._processes: Final[dict[int, Process]] = {}
        self._first, self._behind, self._last = 0, 0, Origin(0, 0)
        """The last origin that was asked for, and the places of the spans that share it."""

    def of(self, index: int) -> tuple[Origin, int]:
        """Return the origin of the span at this place, and the first place behind those that share it."""
        if not self._first <= index < self._behind:
            self._go_to(bisect_right(self._groups, (index, _BEYOND)) - 1)
        return self._last, self._behind

    def _go_to(self, number: int) -> None:
        self._first, resource_at, resource_end, scope_at, scope_end = self._groups[number]
        self._behind = self._groups[number + 1][0] if number + 1 < len(self._groups) else _BEYOND
        if number not in self._known:
            if resource_at not in self._processes:
                self._processes[resource_at] = read_process(self._body, resource_at, resource_end)
            process = self._processes[resource_at]
            self._known[number] = read_origin(self._body, process, scope_at, scope_end)
        self._last = self._known[number]


def _trace_note(body: bytes, trace_id: bytes, indexes: Sequence[int], read: _Reading) -> TraceNote:
    """Return the note of one trace; ``indexes`` ascend. Most of the cost of agents' spans is in this loop."""
    places, known_bits, origins, may_link, may_be_remote, take_steps = read
    notes: list[SpanNote] = []
    size = all_bits = behind = 0
    root_ended = False
    is_ours = trace_id.startswith(OUR_TRACES)  # spans of our own model calls count as carriers
    for index in indexes:
        start, end, scope, _ = places[index]
        size += end - start
        bits = known_bits.get(index, 0 if scope == PLAIN else MARKED_BIT)
        if is_ours or scope == OURS or bits & CARRIER_BIT:
            continue
        head = read_usual(body, start, end)
        if head is None:
            take_steps((end - start) // _FIELDS_BYTES)
            head = read_apart(body, start, end)
        span_id, parent_id, end_ns, name = head
        if may_be_remote and _flags_say_remote(body, start, end):
            bits |= REMOTE_BIT
        if index >= behind:
            (source, names), behind = origins.of(index)
        links = _links(body, start, end, trace_id, take_steps) if may_link else ()
        notes.append(_new(SpanNote, (span_id, parent_id, bits, end_ns, source, crc32(name, names), links)))
        all_bits |= bits
        root_ended = root_ended or not parent_id
    return TraceNote(
        trace_id=TraceId(trace_id.hex()),
        span_count=len(indexes),
        byte_count=size,
        is_agent=bool(all_bits & MARKED_BIT),
        root_ended=root_ended,
        carrier_count=len(indexes) - len(notes),
        spans=tuple(notes),
    )


def _links(
    body: bytes, start: int, end: int, own: bytes, take_steps: Callable[[int], None]
) -> tuple[TraceId, ...]:
    if not may_have_links(body, start, end):
        return ()
    take_steps((end - start) // _FIELDS_BYTES)
    return tuple(TraceId(linked.hex()) for linked in linked_traces(body, start, end, own))


def _flags_say_remote(body: bytes, at: int, end: int) -> bool:
    """Return whether the span's flags say that its parent is in another process.

    Flags are the last field; in the Collector's order they come before the parent, and .NET writes them after
    it. They are a tag of two bytes and a value of four, and the second byte of the value holds the two bits.
    """
    if has_usual_head(body, at, end):
        flags = end - 6
        if not body.startswith(FLAGS_TAG, flags):
            flags = min(flags, at + _BEHIND_PARENT)
    else:
        flags = end - 44
    return flags > at and body.startswith(FLAGS_TAG, flags) and body[flags + 3] & 3 == 3


def scan_request(
    signal: Signal,
    body: bytes,
    known: Container[TraceId] = (),
    most_steps: int = _BEYOND,
    hints: Hints = USUAL_HINTS,
) -> ScanResult:
    """Scan a request of any signal; ``most_steps`` and ``hints`` are for spans.

    Raises:
        MalformedRequestError: the bytes are not valid protobuf.
        TooCostlyError: the scan takes more steps.
    """
    if signal is Signal.TRACES:
        return scan_traces(body, known, most_steps, hints)
    return scan_logs(body, known) if signal is Signal.LOGS else scan_metrics(body)


def item_count(signal: Signal, body: bytes) -> int:
    """Return the number of spans, log records or data points in a request.

    Raises:
        MalformedRequestError: the bytes are not valid protobuf.
    """
    return scan_metrics(body).item_count if signal is Signal.METRICS else member_count(body)
