"""A raw request without some of its spans or log records, all else byte for byte. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from collector_processor.otlp import Signal
from collector_processor.raw_ids import (
    SPAN_ID_BYTES,
    TRACE_ID_BYTES,
    record_trace_id,
    span_ids,
    span_trace_id,
)
from collector_processor.wire import filter_items
from semconv.model import TraceId


def extract(signal: Signal, body: bytes, trace_ids: Iterable[TraceId]) -> bytes:
    """Return a request with only the spans, or log records, of these traces; empty if there are none."""
    wanted = {bytes.fromhex(trace_id) for trace_id in trace_ids}
    read = _READ_TRACE_ID[signal]
    return filter_items(body, lambda start, end: read(body, start, end) in wanted)[0]


def without(signal: Signal, body: bytes, trace_ids: Iterable[TraceId]) -> bytes:
    """Return the request without the spans, or log records, of these traces."""
    unwanted = {bytes.fromhex(trace_id) for trace_id in trace_ids}
    read = _READ_TRACE_ID[signal]
    return filter_items(body, lambda start, end: read(body, start, end) not in unwanted)[0]


def drop_invalid(body: bytes) -> tuple[bytes, int]:
    """Leave out the spans whose ids OTLP calls invalid, and say how many they were.

    Raises:
        MalformedRequestError: the framing is broken.
    """

    def has_valid_ids(start: int, end: int) -> bool:
        trace_id, span_id = span_ids(body, start, end)
        return (
            len(trace_id) == TRACE_ID_BYTES and len(span_id) == SPAN_ID_BYTES and trace_id.strip(b"\0") != b""
        )

    return filter_items(body, has_valid_ids)


_READ_TRACE_ID: Final = {Signal.TRACES: span_trace_id, Signal.LOGS: record_trace_id}
