"""Where the ids of spans and log records stand in raw bytes. Pure, and on the hot path.

Most encoders begin a span with its trace id and span id; the Collector, which writes from its
buffer's end, ends it with them. Both are read where they stand; any other order field by field.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from collector_processor.framing import LENGTH_DELIMITED, Field, fields
from collector_processor.otlp import MalformedRequestError

TRACE_ID_BYTES, SPAN_ID_BYTES = 16, 8
TRACE_ID_HEAD: Final = b"\x0a\x10"
SPAN_ID_HEAD: Final = b"\x12\x08"
_PARENT_HEAD: Final = b"\x22\x08"
_NO_PARENT: Final = b"\x22\x00"
SHORTEST_SPAN: Final = 28
"""Both ids with their headers."""
_RECORD_TRACE_ID: Final = 9


def span_ids(body: bytes, start: int, end: int) -> tuple[bytes, bytes]:
    """Return a span's ids as ``survey`` reads them."""
    if has_usual_head(body, start, end):
        return body[start + 2 : start + 18], body[start + 20 : start + 28]
    if has_usual_tail(body, start, end):
        return body[end - 16 : end], body[end - 26 : end - 18]
    return read_span_ids(body, start, end)


def span_trace_id(body: bytes, start: int, end: int) -> bytes:
    """Return the first of a span's ids: asked of each span of a request to find those of a trace."""
    if has_usual_head(body, start, end):
        return body[start + 2 : start + 18]
    return span_ids(body, start, end)[0]


def has_usual_head(body: bytes, start: int, end: int) -> bool:
    """Whether a span begins with sound ids, as most encoders write it."""
    return (
        end - start > SHORTEST_SPAN
        and body[start] == 0x0A  # both heads byte by byte: a call for each is dearer
        and body[start + 1] == 0x10
        and body[start + 18] == 0x12
        and body[start + 19] == 0x08
    )


def has_usual_tail(body: bytes, start: int, end: int) -> bool:
    """Whether a span ends with sound ids, as the Collector writes it."""
    return (
        end - start > SHORTEST_SPAN
        and body[start] != TRACE_ID_HEAD[0]
        and body.startswith(SPAN_ID_HEAD, end - 28)
        and body.startswith(TRACE_ID_HEAD, end - 18)
    )


def parent_id_of(body: bytes, at: int, end: int) -> bytes:
    """Return the id of the span's parent, empty if it has none."""
    if has_usual_head(body, at, end):
        if body.startswith(_PARENT_HEAD, at + 28):
            return body[at + 30 : at + 38]
        if body[at + 28] not in {0x22, 0x1A}:
            return b""
    elif has_usual_tail(body, at, end):
        has_none = body.startswith(_NO_PARENT, max(at, end - 30))
        has_one = body.startswith(_PARENT_HEAD, max(at, end - 38))
        if has_none != has_one:  # both: one of them is an id or a time that looks so
            return body[end - 36 : end - 28] if has_one else b""
    parent_id = b""
    for found in _messages_or_nothing(body, at, end):  # the backend has the last word on broken bytes
        if found.number == 4:
            parent_id = body[found.start : found.end]
    return parent_id if len(parent_id) == SPAN_ID_BYTES else b""


def record_trace_id(body: bytes, at: int, end: int) -> bytes:
    """Return a log record's trace id; empty where it has none, or cannot be read."""
    trace_id = b""
    try:
        for found in fields(body, at, end):
            if found.number == _RECORD_TRACE_ID:
                trace_id = body[found.start : found.end]
    except MalformedRequestError:
        return b""
    return trace_id


def read_span_ids(body: bytes, at: int, end: int) -> tuple[bytes, bytes]:
    """Return a span's trace id and span id, empty where it has none; the last of each counts."""
    trace_id = span_id = b""
    for found in _messages_or_nothing(body, at, end):
        if found.number == 1:
            trace_id = body[found.start : found.end]
        elif found.number == 2:
            span_id = body[found.start : found.end]
    return trace_id, span_id


def _messages_or_nothing(body: bytes, at: int, end: int) -> Iterator[Field]:
    """Iterate over length-delimited fields, ending quietly where the message is broken."""
    try:
        for found in fields(body, at, end):
            if found.wire_type == LENGTH_DELIMITED:
                yield found
    except MalformedRequestError:
        return
