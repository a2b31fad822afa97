"""Scan raw log and metric requests without decoding them: number of items, and the agents' traces. Pure.

Log records belong to traces as spans do; metrics belong to none, and are counted by their data points.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from itertools import islice
from typing import Final

from collector_processor.otlp import MalformedRequestError
from collector_processor.wire.agent_markers import MARKED, OUR_TRACES, OURS, is_marked_record, scope_kind
from collector_processor.wire.facts import ScanResult, TraceNote
from collector_processor.wire.protobuf import (
    LENGTH_DELIMITED,
    TRACE_ID_BYTES,
    Field,
    fields,
    most_fields,
    record_trace_id,
    some_fields,
    too_many,
)
from collector_processor.wire.split import parse
from semconv.model import TraceId

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
    for found in fields(body, at, end):
        yield found
        if path[1:] and found.number == path[0] and found.wire_type == LENGTH_DELIMITED:
            yield from _members(body, found.start, found.end, path[1:])


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
