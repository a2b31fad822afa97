"""What a raw request holds, without decoding it. Pure.

The hot path of all traffic: one pass over the framing groups spans by trace
id, and one search over all bytes says whether there is any agent marker at
all. Only spans of traces with a marker are looked at more closely, for the
assembler, which decides across requests when a run has ended; of all others
nothing is told but how many items they are.

Most encoders write fields in the order of their numbers, so a span begins with
its trace id and span id. The Collector writes them from its buffer's end, so
all stands in the opposite order: a value before its key, a span's ids last, the
scope behind its spans. Both are read quickly; any other order field by field.
What stands behind the ids of an unmarked span is not looked at: a backend that
refuses it has its request bisected.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import Final

import re2

from collector_processor.notes import SpanNote, TraceNote, make_note
from collector_processor.otlp import MalformedRequestError, Signal
from collector_processor.raw_ids import (
    SHORTEST_SPAN,
    SPAN_ID_BYTES,
    TRACE_ID_BYTES,
    has_usual_head,
    parent_id_of,
    record_trace_id,
    span_ids,
)
from collector_processor.wire import (
    GROUP_TAG,
    Field,
    fields,
    member_count,
    parse,
    read_varint,
    write_varint,
)
from semconv.markers import (
    AGENT_VALUES,
    ATTRIBUTE_PREFIXES,
    CARRIER_KEY,
    CARRIER_SCOPE,
    OWN_CALL_TRACE_PREFIX,
    SCOPE_PREFIXES,
    WORKFLOW_VALUES,
)
from semconv.model import TraceId

_PLAIN, _MARKED, _OURS = 0, 1, 2
_TOP_BIT, _AGENT_BIT, _MARKED_BIT, _REMOTE_BIT, _CARRIER_BIT = 1, 2, 4, 8, 16
_POINT_FIELDS: Final = frozenset({5, 7, 9, 10, 11})
"""Metric.gauge, sum, histogram, exponential_histogram, summary; each holds its points in field 1."""

_KEYS: Final = b"|".join(re.escape(prefix.encode()) for prefix in ATTRIBUTE_PREFIXES)
_MARKER: Final = re.compile(rb"J.\n.(?:" + _KEYS + rb")", re.DOTALL)
"""A ``Span.attributes`` field of up to 127 bytes whose key is marked: ``4a <length> 0a <length> key``.

Longer ones need not be found: whoever marks a span gives it a short attribute
too (its kind, its operation), and one rare first byte makes the search fast.
"""
_MARKER_ANYWHERE: Final = re.compile(rb"\n(?<!\x12[^\x00]\n).(?:" + _KEYS + rb")", re.DOTALL)
"""A key in whatever order; of requests that are not in the order of the numbers.

What looks the same and is none is a text, behind the ``12 <length>`` of its
value. Slower, for ``0a`` is everywhere.
"""
_BYTES: Final = re2.Options()
_BYTES.encoding = re2.Options.Encoding.LATIN1
_BYTES.dot_nl = True
_HINT: Final = re2.compile(rb"J.\n.(?:" + _KEYS + rb")", _BYTES)
_HINT_ANYWHERE: Final = re2.compile(rb"\n.(?:" + _KEYS + rb")", _BYTES)
"""The same, asked of a whole request: RE2 skips to the first byte eight times as fast as ``re``.

It has no look-behind, so that texts are found too; what it finds is looked at again.
"""
_RECORD_MARKER: Final = re.compile(rb"(?:\n|b).(?:" + _KEYS + rb")", re.DOTALL)
"""An attribute key (``0a``) or an event name (``62``) of a log record that is marked."""
_SCOPES: Final = tuple(prefix.encode() for prefix in SCOPE_PREFIXES)
_OUR_SCOPE: Final = CARRIER_SCOPE.encode()
_OUR_TRACES: Final = bytes.fromhex(OWN_CALL_TRACE_PREFIX)


def _key_value(key: str, value: bytes) -> bytes:
    """Return a ``KeyValue`` as every encoder writes it."""
    raw = key.encode()
    return b"\x0a" + write_varint(len(raw)) + raw + b"\x12" + write_varint(len(value)) + value


def _value_key(key: str, value: bytes) -> bytes:
    """Return a ``KeyValue`` as the Collector writes it."""
    raw = key.encode()
    return b"\x12" + write_varint(len(value)) + value + b"\x0a" + write_varint(len(raw)) + raw


def _text_value(text: str) -> bytes:
    raw = text.encode()
    return b"\x0a" + write_varint(len(raw)) + raw


_BITS: Final[dict[bytes, int]] = {
    write(key, value): bit
    for write in (_key_value, _value_key)
    for key, value, bit in (
        *((key, _text_value(value), _AGENT_BIT) for key, value in AGENT_VALUES),
        *((key, _text_value(value), _TOP_BIT) for key, value in WORKFLOW_VALUES),
        (CARRIER_KEY, b"\x10\x01", _CARRIER_BIT),
    )
}
_FACT: Final = re.compile(rb"J.(" + b"|".join(map(re.escape, _BITS)) + rb")", re.DOTALL)
_FLAGS_TAG: Final = b"\x85\x01"


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What a request holds."""

    item_count: int
    """Sound spans, log records or data points: the unit of OTLP's ``partial_success``."""
    traces: tuple[TraceNote, ...] = ()
    """Those with a mark of an agent's or of ours, and those known, in order of first appearance."""
    invalid: int = 0
    """Spans whose ids OTLP calls invalid; not in ``item_count``, and in no trace."""
    max_item_bytes: int = 0
    """The largest span, log record or metric."""


class _Group:
    """The spans of one trace in one request: offsets, and what their scope is."""

    __slots__ = ("is_marked", "spans")

    def __init__(self) -> None:
        self.spans: list[tuple[int, int, int]] = []
        self.is_marked = False


def survey(body: bytes, known: Container[TraceId] = ()) -> Survey:
    """Look through a trace request.

    Args:
        body: an ``ExportTraceServiceRequest``.
        known: agent traces seen before; theirs get span notes though no marker is here.

    Raises:
        MalformedRequestError: the framing is broken.
    """
    try:
        found = _group_spans(body)
    except IndexError:
        raise MalformedRequestError("the request is cut short") from None
    marker = _find_marker(body, is_usual=found.is_usual)
    count, invalid = 0, found.strays
    notes: list[TraceNote] = []
    for trace_id, group in found.groups.items():
        if not trace_id.strip(b"\0"):
            invalid += len(group.spans)
            continue
        count += len(group.spans)
        if group.is_marked or (marker and _any_marked(body, group, marker)) or trace_id.hex() in known:
            notes.append(_agent_note(body, trace_id, group, marker))
    return Survey(item_count=count, traces=tuple(notes), invalid=invalid, max_item_bytes=found.largest)


def _find_marker(body: bytes, *, is_usual: bool) -> re.Pattern[bytes] | None:
    """Return what finds marked spans in this request, ``None`` if there are none."""
    if is_usual:
        return _MARKER if _HINT.search(body) else None
    return _MARKER_ANYWHERE if _HINT_ANYWHERE.search(body) and _MARKER_ANYWHERE.search(body) else None


@dataclass(slots=True)
class _Grouped:
    """A request's spans, by trace."""

    groups: dict[bytes, _Group]
    strays: int = 0
    """Spans with ids that are invalid."""
    largest: int = 0
    """Bytes of the largest span."""
    is_usual: bool = True
    """Fields stand in the order of their numbers."""


def _group_spans(body: bytes) -> _Grouped:
    found = _Grouped({})
    for resource in fields(body, 0, len(body)):
        if resource.number != 1:
            continue
        _require_message(resource)
        if resource.start < resource.end and body[resource.start] != GROUP_TAG:
            found.is_usual = False  # the Resource, field 1, is not first
        for scope in fields(body, resource.start, resource.end):
            if scope.number == 2:
                _require_message(scope)
                _group_scope(body, scope.start, scope.end, found)
    return found


def _require_message(found: Field) -> None:
    if found.wire_type != 2:
        raise MalformedRequestError(f"the field at byte {found.at} should be a message")


def _group_scope(body: bytes, at: int, end: int, found: _Grouped) -> None:  # noqa: C901, PLR0912 - hot
    """Add the spans of one scope.

    This loop is where the survey's time goes: hence inlined lengths and no calls.
    """
    kind = _scope_kind(body, at, end)
    groups, largest = found.groups, found.largest
    while at < end:
        tag = body[at]
        if tag != 0x12:
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
            trace_id = body[start + 2 : start + 18]
        elif (
            length > SHORTEST_SPAN
            and body[start] != 0x0A
            and body[at - 18] == 0x0A
            and body[at - 17] == 0x10
            and body[at - 28] == 0x12
            and body[at - 27] == 0x08
        ):
            trace_id = body[at - 16 : at]
        else:
            trace_id, span_id = span_ids(body, start, at)
            if len(trace_id) != TRACE_ID_BYTES or len(span_id) != SPAN_ID_BYTES:
                found.strays += 1
                continue
        group = groups.get(trace_id)
        if group is None:
            group = groups[trace_id] = _Group()
        group.spans.append((start, at, kind))
        if kind:
            group.is_marked = True  # or ours: looked at closely all the same
    found.largest = largest


def _skip(body: bytes, at: int, end: int) -> int:
    """Return where the field at ``at`` ends; a span that is no message is malformed."""
    found = next(fields(body, at, end))
    if found.number == 2:
        _require_message(found)
        raise MalformedRequestError("a span's tag is written in more bytes than it needs")
    return found.end


def _scope_kind(body: bytes, at: int, end: int) -> int:
    """Return whose spans these are, by the name of their scope."""
    for found in fields(body, at, end):
        if found.number == 1:
            _require_message(found)
            for inner in fields(body, found.start, found.end):
                if inner.number == 1:
                    name = body[inner.start : inner.end]
                    return _OURS if name == _OUR_SCOPE else _MARKED if name.startswith(_SCOPES) else _PLAIN
    return _PLAIN


def _any_marked(body: bytes, group: _Group, marker: re.Pattern[bytes]) -> bool:
    return any(marker.search(body, start, end) for start, end, _ in group.spans)


def _agent_note(body: bytes, trace_id: bytes, group: _Group, marker: re.Pattern[bytes] | None) -> TraceNote:
    """Look at each span; spans of our own model calls count as carriers."""
    ours = trace_id.startswith(_OUR_TRACES)
    spans = () if ours else tuple(note for span in group.spans for note in _span_note(body, *span, marker))
    return TraceNote(
        trace_id=TraceId(trace_id.hex()),
        span_count=len(group.spans),
        byte_count=sum(end - start for start, end, _ in group.spans),
        is_agent=any(span.is_marked for span in spans),
        root_ended=any(span.parent_id is None for span in spans),
        carrier_count=len(group.spans) - len(spans),
        spans=spans,
    )


def _span_note(
    body: bytes, at: int, end: int, kind: int, marker: re.Pattern[bytes] | None
) -> Iterator[SpanNote]:
    """Yield the span's note, or nothing for a carrier."""
    if kind == _OURS:
        return
    span_id, parent_id = span_ids(body, at, end)[1], parent_id_of(body, at, end)
    bits = _MARKED_BIT if kind == _MARKED or (marker and marker.search(body, at, end)) else 0
    for fact in _FACT.findall(body, at, end):
        bits |= _BITS[fact]
    if _flags_say_remote(body, at, end):
        bits |= _REMOTE_BIT
    if not bits & _CARRIER_BIT:
        yield make_note(span_id, parent_id, bits)


def _flags_say_remote(body: bytes, at: int, end: int) -> bool:
    """Whether the span's flags say that its parent is in another process.

    They are the last field, or in the Collector's order stand before the parent:
    a tag of two bytes, then four, of which the second holds the two bits.
    """
    flags = end - 6 if has_usual_head(body, at, end) else end - 44
    return flags > at and body.startswith(_FLAGS_TAG, flags) and body[flags + 3] & 3 == 3


def survey_logs(body: bytes, known: Container[TraceId] = ()) -> Survey:
    """Look through a log request; a trace is an agent's if a record of it carries a marker.

    Raises:
        MalformedRequestError: the framing is broken.
    """
    found: dict[bytes, list[tuple[int, int]]] = {}
    count = largest = 0
    marked: set[bytes] = set()
    request = parse(body)
    for resource in request.resources:
        for scope in resource.scopes:
            kind = _scope_kind(scope.others, 0, len(scope.others))
            for item in scope.items:
                count += 1
                largest = max(largest, item.end - item.start)
                trace_id = record_trace_id(body, item.start, item.end)
                if kind != _OURS and len(trace_id) == TRACE_ID_BYTES and trace_id.strip(b"\0"):
                    found.setdefault(trace_id, []).append((item.start, item.end))
                    if kind == _MARKED:
                        marked.add(trace_id)
    notes = (_log_note(body, trace_id, records, marked) for trace_id, records in found.items())
    traces = tuple(note for note in notes if note.is_agent or note.trace_id in known)
    return Survey(item_count=count, traces=traces, max_item_bytes=largest)


def _log_note(body: bytes, trace_id: bytes, records: list[tuple[int, int]], marked: set[bytes]) -> TraceNote:
    is_agent = trace_id in marked or any(_RECORD_MARKER.search(body, start, end) for start, end in records)
    return TraceNote(
        trace_id=TraceId(trace_id.hex()),
        span_count=len(records),
        byte_count=sum(end - start for start, end in records),
        is_agent=is_agent and not trace_id.startswith(_OUR_TRACES),
    )


def survey_metrics(body: bytes) -> Survey:
    """Look through a metric request: how many data points, and the largest metric.

    Raises:
        MalformedRequestError: the framing is broken.
    """
    items = tuple(parse(body).items())
    return Survey(
        item_count=sum(_points(body, item.start, item.end) for item in items),
        max_item_bytes=max((item.end - item.start for item in items), default=0),
    )


def _points(body: bytes, at: int, end: int) -> int:
    count = 0
    try:
        for data in fields(body, at, end):
            if data.number in _POINT_FIELDS and data.wire_type == 2:
                count += sum(point.number == 1 for point in fields(body, data.start, data.end))
    except MalformedRequestError:
        return count
    return count


def survey_signal(signal: Signal, body: bytes, known: Container[TraceId] = ()) -> Survey:
    """Look through a request of any signal.

    Raises:
        MalformedRequestError: the framing is broken.
    """
    if signal is Signal.TRACES:
        return survey(body, known)
    return survey_logs(body, known) if signal is Signal.LOGS else survey_metrics(body)


def item_count(signal: Signal, body: bytes) -> int:
    """Return how many spans, log records or data points a request holds.

    Raises:
        MalformedRequestError: the framing is broken.
    """
    return survey_metrics(body).item_count if signal is Signal.METRICS else member_count(body)
