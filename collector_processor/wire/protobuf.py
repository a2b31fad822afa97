"""Protobuf wire format: fields, lengths and varints of raw bytes, and the ids in them. Pure; on the hot path.

Covers what OTLP uses. Most encoders begin a span with its trace id and span id; the Collector writes its
buffer backwards and ends it with them. Both are read in place; any other order is read field by field.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

import re2

from collector_processor.otlp import MalformedRequestError

GROUP_TAG: Final = 0x0A
"""Field 1, length-delimited: a resource group in a request."""
LENGTH_DELIMITED: Final = 2
_MAX_VARINT_BYTES: Final = 10


class Field(NamedTuple):
    """One field of a message: its tag is at ``at``, its value from ``start`` to ``end``."""

    number: int
    wire_type: int
    at: int
    start: int
    end: int


def read_varint(body: bytes, at: int, end: int) -> tuple[int, int]:
    """Return the number at ``at`` and the offset after it.

    Raises:
        MalformedRequestError: it runs past ``end`` or is longer than ten bytes.
    """
    if at < end and body[at] < 0x80:
        return body[at], at + 1
    if at + 1 < end and body[at + 1] < 0x80:  # the length of most spans
        return body[at] & 0x7F | body[at + 1] << 7, at + 2
    value = shift = 0
    for position in range(at, min(end, at + _MAX_VARINT_BYTES)):
        byte = body[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position + 1
        shift += 7
    raise MalformedRequestError(
        "expected a varint of at most ten bytes: the request is cut short or not protobuf"
    )


def write_varint(value: int) -> bytes:
    """Return ``value`` as a protobuf varint."""
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


def write_field(tag: bytes, raw: bytes) -> bytes:
    """Return a length-delimited field."""
    return tag + write_varint(len(raw)) + raw


def fields(body: bytes, at: int, end: int) -> Iterator[Field]:
    """Iterate over the fields of the message in ``body[at:end]``.

    Raises:
        MalformedRequestError: a field runs past ``end``, or is not a proto3 field.
    """
    while at < end:
        tag, start = body[at], at + 1
        if tag > 0x7F:
            tag, start = read_varint(body, at, end)
        wire_type = tag & 7
        if wire_type == LENGTH_DELIMITED:
            length, start = read_varint(body, start, end)
            stop = start + length
        elif wire_type == 0:
            stop = read_varint(body, start, end)[1]
        elif wire_type in {1, 5}:
            stop = start + (8 if wire_type == 1 else 4)
        else:
            raise MalformedRequestError(
                f"the field at byte {at} has wire type {wire_type}, which OTLP does not use"
            )
        if not 8 <= tag < 1 << 32:  # field numbers are 1 to 2^29 - 1
            raise MalformedRequestError(
                f"the field at byte {at} has number {tag >> 3}: expected 1 to 2^29 - 1"
            )
        if stop > end:
            raise past_the_end(at)
        yield Field(tag >> 3, wire_type, at, start, stop)
        at = stop


def most_fields(size: int) -> int:
    """Return how many fields, groups or items of a message of ``size`` bytes are read individually.

    Real messages have fewer: an attribute with a key and a value takes ten bytes, a span 28 or more.
    """
    return 32 + size // 8


def some_fields(body: bytes, at: int, end: int) -> Iterator[Field]:
    """Iterate over fields as ``fields``, up to ``most_fields``.

    Raises:
        MalformedRequestError: as ``fields``, or there are more fields.
    """
    found = fields(body, at, end)
    yield from islice(found, most_fields(end - at))
    if next(found, None):
        raise too_many(at)


def too_many(at: int) -> MalformedRequestError:
    """Return the error for a message with more fields, groups or items than ``most_fields``."""
    return MalformedRequestError(f"the message at byte {at} has more fields than its size allows")


def past_the_end(at: int) -> MalformedRequestError:
    """Return the error for a field that is longer than its message."""
    return MalformedRequestError(f"the field at byte {at} runs past the end of its message")


def require_message(found: Field) -> None:
    """Require a field to be length-delimited.

    Raises:
        MalformedRequestError: the field has another wire type.
    """
    if found.wire_type != LENGTH_DELIMITED:
        raise MalformedRequestError(f"the field at byte {found.at} should be a message")


def messages(body: bytes, at: int, end: int, number: int) -> Iterator[Field]:
    """Iterate over the length-delimited fields with this number of the message in ``body[at:end]``.

    Raises:
        MalformedRequestError: as ``some_fields``.
    """
    for found in some_fields(body, at, end):
        if found.number == number and found.wire_type == LENGTH_DELIMITED:
            yield found


TRACE_ID_BYTES, SPAN_ID_BYTES = 16, 8
TRACE_ID_HEAD: Final = b"\x0a\x10"
SPAN_ID_HEAD: Final = b"\x12\x08"
PARENT_HEAD: Final = b"\x22\x08"
NO_PARENT: Final = b"\x22\x00"
SHORTEST_SPAN: Final = 28
"""Bytes of both ids with their headers."""
_RECORD_TRACE_ID: Final = 9


_SHORT: Final = b"\x12(?:%s)" % b"|".join(b"\\x%02x.{%d}" % (size, size) for size in range(SHORTEST_SPAN))
"""Pattern of a field 2 with fewer bytes than the two ids of a span."""
RE2_BYTES: Final = re2.Options()
RE2_BYTES.encoding = re2.Options.Encoding.LATIN1
RE2_BYTES.dot_nl = True
_SHORT_RUN: Final = re2.compile(b"(?:%s)+" % _SHORT, RE2_BYTES)
_SHORT_ONE: Final = re.compile(_SHORT, re.DOTALL)
_PATIENCE: Final = 1_000
"""Consecutive short fields to read one at a time; beyond that, the regular expressions are faster."""
_SLICE: Final = 64 << 10
"""Bytes skipped in one call, which holds the interpreter's lock for some milliseconds."""


def skip_short(body: bytes, at: int, end: int) -> tuple[int, int]:
    """Skip fields 2 that are too short for a span's ids; return the offset after them and their number.

    A request may hold ten million of them: each takes a tenth of the time of ``fields``, or less.
    """
    first, count = at, 0
    while count < _PATIENCE and at + 1 < end and body[at] == 0x12 and body[at + 1] < SHORTEST_SPAN:
        first = at
        at += 2 + body[at + 1]
        count += 1
    if at > end:  # cut short
        return first, count - 1
    while count >= _PATIENCE and (run := _SHORT_RUN.match(body, at, min(end, at + _SLICE))):
        stop: int = run.end()
        count += _SHORT_ONE.subn(b"", body[at:stop])[1]
        at = stop
    return at, count


def span_ids(body: bytes, start: int, end: int) -> tuple[bytes, bytes]:
    """Return a span's trace id and span id, by the rules of ``scan_traces``."""
    if has_usual_head(body, start, end):
        return body[start + 2 : start + 18], body[start + 20 : start + 28]
    if has_usual_tail(body, start, end):
        return body[end - 16 : end], body[end - 26 : end - 18]
    return read_span_ids(body, start, end)


def span_trace_id(body: bytes, start: int, end: int) -> bytes:
    """Return a span's trace id; called for each span of a request."""
    if has_usual_head(body, start, end):
        return body[start + 2 : start + 18]
    return span_ids(body, start, end)[0]


def has_usual_head(body: bytes, start: int, end: int) -> bool:
    """Return whether a span begins with valid ids, as most encoders write it."""
    return (
        end - start > SHORTEST_SPAN
        and body[start] == 0x0A  # compared byte for byte: two calls would cost more
        and body[start + 1] == 0x10
        and body[start + 18] == 0x12
        and body[start + 19] == 0x08
    )


def has_usual_tail(body: bytes, start: int, end: int) -> bool:
    """Return whether a span ends with valid ids, as the Collector writes it."""
    return (
        end - start > SHORTEST_SPAN
        and body[start] != TRACE_ID_HEAD[0]
        and body.startswith(SPAN_ID_HEAD, end - 28)
        and body.startswith(TRACE_ID_HEAD, end - 18)
    )


def parent_id_of(body: bytes, at: int, end: int) -> bytes:
    """Return the id of the span's parent; empty if it has none."""
    if has_usual_head(body, at, end):
        if body.startswith(PARENT_HEAD, at + 28):
            return body[at + 30 : at + 38]
        if body[at + 28] not in {0x22, 0x1A}:
            return b""
    elif has_usual_tail(body, at, end):
        has_none = body.startswith(NO_PARENT, max(at, end - 30))
        has_one = body.startswith(PARENT_HEAD, max(at, end - 38))
        if has_none != has_one:  # if both match, one of them is an id or a time with the same bytes
            return body[end - 36 : end - 28] if has_one else b""
    parent_id = b""
    for found in _messages_or_nothing(body, at, end):  # the backend judges malformed bytes
        if found.number == 4:
            parent_id = body[found.start : found.end]
    return parent_id if len(parent_id) == SPAN_ID_BYTES else b""


def record_trace_id(body: bytes, at: int, end: int) -> bytes:
    """Return a log record's trace id; empty if it has none or is unreadable."""
    trace_id = b""
    try:
        for found in some_fields(body, at, end):
            if found.number == _RECORD_TRACE_ID:
                trace_id = body[found.start : found.end]
    except MalformedRequestError:
        return b""
    return trace_id


def read_span_ids(body: bytes, at: int, end: int) -> tuple[bytes, bytes]:
    """Return a span's trace id and span id, empty if missing; the last of each counts."""
    trace_id = span_id = b""
    for found in _messages_or_nothing(body, at, end):
        if found.number == 1:
            trace_id = body[found.start : found.end]
        elif found.number == 2:
            span_id = body[found.start : found.end]
    return trace_id, span_id


def _messages_or_nothing(body: bytes, at: int, end: int) -> Iterator[Field]:
    """Iterate over length-delimited fields up to the first broken one."""
    try:
        for found in some_fields(body, at, end):
            if found.wire_type == LENGTH_DELIMITED:
                yield found
    except MalformedRequestError:
        return
