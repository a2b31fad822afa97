"""What log and metric requests hold, without decoding them. Pure.

A log record belongs to a trace as a span does, and is told to the slow lane with it; a metric
belongs to none, and is counted by its data points.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from collector_processor.framing import fields
from collector_processor.notes import TraceNote
from collector_processor.otlp import MalformedRequestError
from collector_processor.raw_ids import TRACE_ID_BYTES, record_trace_id
from collector_processor.survey.found import Survey
from collector_processor.survey.marks import MARKED, OURS, is_marked_record, scope_kind
from collector_processor.survey.spans import OUR_TRACES
from collector_processor.wire import parse
from semconv.model import TraceId

_POINT_FIELDS: Final = frozenset({5, 7, 9, 10, 11})
"""Metric.gauge, sum, histogram, exponential_histogram, summary; each holds its points in field 1."""


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
    return Survey(item_count=count, traces=traces, max_item_bytes=largest)


def _log_note(body: bytes, trace_id: bytes, records: list[tuple[int, int]], marked: set[bytes]) -> TraceNote:
    is_agent = trace_id in marked or any(is_marked_record(body, start, end) for start, end in records)
    return TraceNote(
        trace_id=TraceId(trace_id.hex()),
        span_count=len(records),
        byte_count=sum(end - start for start, end in records),
        is_agent=is_agent and not trace_id.startswith(OUR_TRACES),
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
