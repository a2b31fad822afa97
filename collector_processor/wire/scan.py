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
from itertools import islice
from typing import Final, NamedTuple
from zlib import crc32

from collector_processor.otlp import MalformedRequestError, Signal
from collector_processor.wire.agent_markers import (
    ANY_ORDER,
    CARRIER_BIT,
    MARKED,
    OUR_TRACES,
    OURS,
    PLAIN,
    USUAL_HINTS,
    Found,
    Group,
    Hints,
    SpanPlace,
    find_spans,
    hinted_spans,
    is_marked_record,
    marked_spans,
    marker_bits,
    scope_kind,
)
from collector_processor.wire.facts import (
    FLAGS_TAG,
    MARKED_BIT,
    REMOTE_BIT,
    Origin,
    Process,
    ScanResult,
    SpanNote,
    TraceNote,
    has_usual_link,
    linked_traces,
    may_have_links,
    may_have_remote_parents,
    read_apart,
    read_origin,
    read_process,
    read_usual,
)
from collector_processor.wire.protobuf import (
    LENGTH_DELIMITED,
    SHORTEST_SPAN,
    SPAN_ID_BYTES,
    TRACE_ID_BYTES,
    Field,
    fields,
    has_usual_head,
    most_fields,
    record_trace_id,
    some_fields,
    too_many,
)
from collector_processor.wire.split import member_count, parse
from semconv.model import TraceId

_NO_TRACE: Final = bytes(TRACE_ID_BYTES)
_BEYOND: Final = 1 << 62
"""Past every offset in a request."""
_BEHIND_PARENT: Final = SHORTEST_SPAN + 2 + SPAN_ID_BYTES
"""Offset of the field after the parent, in a span that begins with its ids."""
_NOTE_STEPS, _ODD_NOTE_STEPS = 3, 16
"""Steps for a trace's note (``SpanNote``) of a span; the latter where fields may be in any order."""
_FIELDS_BYTES: Final = 8
"""Bytes that count as one more step where fields may have to be read one at a time."""
_SEARCH_BYTES: Final = 32
"""Bytes that count as one more step where they are searched for links, or in any order of fields."""


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
    spans = find_spans(body, most_steps)
    places = spans.places
    spans.take_steps((len(places) >> 1) + (len(body) // _SEARCH_BYTES if spans.layout is ANY_ORDER else 0))
    traces = dict.fromkeys([place[3] for place in places])
    invalid = 0
    if _NO_TRACE in traces:
        del traces[_NO_TRACE]
        invalid = sum(place[3] == _NO_TRACE for place in places)
    marked = marked_spans(body, places, spans.layout)
    agents = {places[index][3] for index in marked}
    if spans.has_marked_scope:
        agents.update(place[3] for place in places if place[2] != PLAIN)
    # Hints matter only in traces without a marker.
    if len(agents) < len(traces) and (hinted := hinted_spans(body, places, hints)):
        marked |= {index for index in hinted if places[index][3] not in agents and places[index][2] == PLAIN}
        agents.update(places[index][3] for index in marked)
    reported = [trace_id for trace_id in traces if trace_id in agents or trace_id.hex() in known]
    return ScanResult(
        item_count=len(places) - invalid,
        traces=tuple(_notes(body, spans, reported, marked)) if reported else (),
        invalid=spans.invalid + invalid,
        max_item_bytes=spans.largest,
    )


def _notes(body: bytes, found: Found, wanted: Iterable[bytes], marked: frozenset[int]) -> Iterator[TraceNote]:
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

    def __init__(self, body: bytes, groups: list[Group]) -> None:
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
        notes.append((span_id, parent_id, bits, end_ns, source, crc32(name, names), links))
        all_bits |= bits
    return TraceNote(
        trace_id=TraceId(trace_id.hex()),
        span_count=len(indexes),
        byte_count=size,
        is_agent=bool(all_bits & MARKED_BIT),
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


_FEW_BYTES: Final = 64 << 10
"""Requests up to this size cannot hold too many items."""
_POINT_FIELDS: Final = frozenset({5, 7, 9, 10, 11})
"""Fields of ``Metric``: gauge, sum, histogram, exponential_histogram, summary; points are their field 1."""


def scan_logs(body: bytes, known: Container[TraceId] = ()) -> ScanResult:
    """Scan a log request; a trace is an agent's if one of its records has a marker.

    Raises:
        MalformedRequestError: the bytes are not valid protobuf.
    """
    found: dict[bytes, list[tuple[int, int]]] = {}
    count = largest = 0
    marked: set[bytes] = set()
    _require_few(body)
    request = parse(body)
    for resource in request.resources:
        for scope in resource.scopes:
            kind = scope_kind(scope.others, 0, len(scope.others))
            for item in scope.items:
                count += 1
                largest = max(largest, item.end - item.start)
                trace_id = record_trace_id(body, item.start, item.end)
                if kind != OURS and len(trace_id) == TRACE_ID_BYTES and trace_id.strip(b"\0"):
                    found.setdefault(trace_id, []).append((item.start, item.end))
                    if kind == MARKED:
                        marked.add(trace_id)
    notes = (_log_note(body, trace_id, records, marked) for trace_id, records in found.items())
    traces = tuple(note for note in notes if note.is_agent or note.trace_id in known)
    return ScanResult(item_count=count, traces=traces, max_item_bytes=largest)


def _require_few(body: bytes) -> None:
    """Refuse requests of millions of empty items: ten million fit into a request and take gigabytes.

    Raises:
        MalformedRequestError: there are more than ``most_fields``, or the bytes are not valid protobuf.
    """
    if len(body) > _FEW_BYTES:
        beyond = islice(_members(body, 0, len(body), (1, 2, 2)), most_fields(len(body)), None)
        if next(beyond, None):
            raise too_many(0)


def _members(body: bytes, at: int, end: int, path: tuple[int, ...]) -> Iterator[Field]:
    """Iterate over all fields of a request down to its items."""
    for field in fields(body, at, end):
        yield field
        if path[1:] and field.number == path[0] and field.wire_type == LENGTH_DELIMITED:
            yield from _members(body, field.start, field.end, path[1:])


def _log_note(body: bytes, trace_id: bytes, records: list[tuple[int, int]], marked: set[bytes]) -> TraceNote:
    is_agent = trace_id in marked or any(is_marked_record(body, start, end) for start, end in records)
    return TraceNote(
        trace_id=TraceId(trace_id.hex()),
        span_count=len(records),
        byte_count=sum(end - start for start, end in records),
        is_agent=is_agent and not trace_id.startswith(OUR_TRACES),
    )


def scan_metrics(body: bytes) -> ScanResult:
    """Scan a metric request: number of data points, size of the largest metric.

    Raises:
        MalformedRequestError: the bytes are not valid protobuf.
    """
    _require_few(body)
    items = tuple(parse(body).items())
    return ScanResult(
        item_count=sum(_points(body, item.start, item.end) for item in items),
        max_item_bytes=max((item.end - item.start for item in items), default=0),
    )


def _points(body: bytes, at: int, end: int) -> int:
    count = 0
    try:
        for data in some_fields(body, at, end):
            if data.number in _POINT_FIELDS and data.wire_type == 2:
                for point in some_fields(body, data.start, data.end):
                    count += point.number == 1
    except MalformedRequestError:
        return count
    return count
