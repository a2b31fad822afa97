"""Facts about spans: read from raw bytes, noted for the slow lane, and packed for the journal. Pure.

The assembler uses the notes to decide whether more spans of the trace are coming. The journal stores their
packed form, so that a restart need not read every body again. A note's sender is the process and the line of
code. Reading raises nothing: a span that is malformed after its ids has no facts, and the backend decides
whether to accept it.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import starmap
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

import re2

from collector_processor.otlp import MalformedRequestError, TraceKey
from collector_processor.wire.protobuf import (
    LENGTH_DELIMITED,
    NO_PARENT,
    PARENT_HEAD,
    RE2_BYTES,
    SHORTEST_SPAN,
    TRACE_ID_BYTES,
    TRACE_ID_HEAD,
    has_usual_head,
    has_usual_tail,
    messages,
    parent_id_of,
    read_varint,
    some_fields,
    span_ids,
)
from semconv.model import TraceId
from semconv.record import record

TOP_BIT, AGENT_BIT, MARKED_BIT, REMOTE_BIT = 1, 2, 4, 8
"""Bits of a note: the span encloses a whole run (``invoke_workflow``), or one agent's work
(``invoke_agent``); it or its scope carries an agent marker; its parent is in another process."""
MAX_NOTE_LINKS: Final = 32
"""Most links of one span kept in a note; further links are ignored."""
_NOTE: Final = struct.Struct(">QQBQIIB")
_LINKLESS: Final = struct.Struct(">QQBQII?")
"""The same for a note without links, from all of its fields: an empty tuple is packed as a zero."""
_COUNT: Final = struct.Struct(">I")
_LINKS_OF: Final = itemgetter(6)
"""Returns the links of a note."""


SpanNote: TypeAlias = tuple[int, int, int, int, int, int, tuple[TraceId, ...]]
"""One ended span of an agent trace.

Its fields: its id and its parent's as numbers (0 for the trace's root); the sum of ``TOP_BIT``,
``AGENT_BIT``, ``MARKED_BIT`` and ``REMOTE_BIT``, as far as they apply; its end in Unix ns by its
host's clock, 0 if unreadable; a checksum of its Resource, equal for all spans of one process; ``kind_of`` its
service, scope and name, equal for spans made by the same line of code; other traces that it links to, without
duplicates.

A plain tuple, because one is created for every span of an agent: it takes a fifth of the time of a
``NamedTuple``, and the garbage collector does not track it.
"""


@record
class TraceNote:
    """One request's part of one trace."""

    trace_id: TraceId
    span_count: int
    """Spans, or log records in a log request; includes carriers and our own spans."""
    byte_count: int
    is_agent: bool = False
    """Whether a span that is not a carrier has an agent marker."""
    carrier_count: int = 0
    """Carriers and other spans of our own; they never open or reopen a trace."""
    spans: tuple[SpanNote, ...] = ()
    """All spans except carriers; filled for agent traces and known traces."""

    @property
    def is_only_carriers(self) -> bool:
        """Whether there is nothing to analyse."""
        return self.carrier_count == self.span_count


@record
class TraceArrival:
    """Spans (or log records) of one agent trace that are durable now."""

    seq: int
    """The journal row that holds them."""
    key: TraceKey
    received_ns: int
    byte_count: int
    notes: tuple[SpanNote, ...] = ()
    """The ended spans; empty for log records."""
    is_held: bool = False
    """Whether the row waits for a verdict (hold mode)."""


@record
class ScanResult:
    """Contents of a raw request, found without decoding it."""

    item_count: int
    """Valid spans, log records or data points: the unit of OTLP's ``partial_success``."""
    traces: tuple[TraceNote, ...] = ()
    """Traces with a marker of an agent or of our own, and known ones, in order of first appearance."""
    invalid: int = 0
    """Spans whose ids are invalid by OTLP; not in ``item_count``, and in no trace."""
    max_item_bytes: int = 0
    """Size of the largest span, log record or metric."""


def kind_of(service: bytes, scope: bytes, name: bytes) -> int:
    """Return a checksum that spans of one service, instrumentation scope and name share."""
    return zlib.crc32(b"\0".join((service, scope, name)))


def pack_notes(notes: Sequence[SpanNote]) -> bytes:
    """Return the number of notes, then each note as 34 bytes, and 16 more for each link."""
    has_links = any(map(_LINKS_OF, notes))
    entries = map(_pack, notes) if has_links else starmap(_LINKLESS.pack, notes)
    return _COUNT.pack(len(notes)) + b"".join(entries)


def _pack(note: SpanNote) -> bytes:
    *facts, links = note
    return _NOTE.pack(*facts, len(links)) + b"".join(map(bytes.fromhex, links))


def unpack_notes(packed: bytes) -> tuple[SpanNote, ...]:
    """Return the notes that ``pack_notes`` packed."""
    return tuple(_unpack(packed))


def _unpack(packed: bytes) -> Iterator[SpanNote]:
    (count,) = _COUNT.unpack_from(packed)
    at = _COUNT.size
    for _ in range(count):
        span_id, parent_id, bits, end_ns, source, kind, links = _NOTE.unpack_from(packed, at)
        at += _NOTE.size
        linked = tuple(TraceId(packed[begin : begin + 16].hex()) for begin in range(at, at + 16 * links, 16))
        at += 16 * links
        yield span_id, parent_id, bits, end_ns, source, kind, linked


_TRACE_STATE, _PARENT, _NAME, _KIND, _START, _END = 0x1A, 0x22, 0x2A, 0x30, 0x39, 0x41
"""Tags of ``Span``'s fields 3 to 8, in the order of most encoders."""
_SERVICE: Final = b"\x0a\x0cservice.name"
"""The encoded key of the resource attribute."""
_PARENT_TAG: Final = 0x2208
"""Tag and length of a parent's id."""
_LINKS: Final = 13
_LINK_TAG: Final = 0x6A
_LINK_HEAD: Final = re.compile(rb"j.{1,4}\n\x10|\x12\x08.{8}\n\x10", re.DOTALL)
"""A link's tag, length and trace id; or, as the Collector writes it, its span id before its trace id."""
_USUAL_LINK: Final = re2.compile(rb"j.{1,4}\n\x10", RE2_BYTES)
"""RE2 skips to a rare first byte at twenty times the speed of ``re``."""
_REMOTE_FLAGS: Final = re2.compile(
    rb"\x85\x01.[" + b"".join(re2.escape(bytes([low])) for low in range(3, 256, 4)) + b"]", RE2_BYTES
)
"""A span's flags, of which both bits of the second byte are set."""
FLAGS_TAG: Final = b"\x85\x01"


class Process(NamedTuple):
    """The Resource that spans of several groups share."""

    source: int
    """Checksum of the Resource."""
    service: bytes


class Origin(NamedTuple):
    """The Resource and scope that spans of one group share."""

    source: int
    """Checksum of the Resource."""
    names: int
    """Checksum of the service's and the scope's names; continued with a span's name, it is ``kind_of``."""


class SpanFacts(NamedTuple):
    """End time and name of a span."""

    end_ns: int
    name: bytes


def read_process(body: bytes, at: int, end: int) -> Process:
    """Return the process of a ``ResourceSpans`` message; read once for all its scopes."""
    resource = _first_message(body, at, end)
    return _recent_process(resource) if len(resource) <= _MOST_REMEMBERED else _process_of(resource)


def _process_of(resource: bytes) -> Process:
    return Process(zlib.crc32(resource), _service_of(resource))


_MOST_REMEMBERED: Final = 1 << 12
_recent_process: Final = lru_cache(maxsize=256)(_process_of)
"""A process sends the same Resource with each request; at most a MiB of them is remembered."""


def read_origin(body: bytes, process: Process, scope_at: int, scope_end: int) -> Origin:
    """Return the origin of the spans of the ``ScopeSpans`` between two offsets."""
    scope = _first_message(body, scope_at, scope_end)
    is_usual = len(process.service) + len(scope) <= _MOST_REMEMBERED
    return _recent_origin(process, scope) if is_usual else _origin_of(process, scope)


def _origin_of(process: Process, scope: bytes) -> Origin:
    name = _name_of(scope)
    return Origin(process.source, zlib.crc32(b"\0".join((process.service, name, b""))))


_recent_origin: Final = lru_cache(maxsize=256)(_origin_of)
"""The same for scopes."""


_HEAD: Final = struct.Struct(">H16xHQHQBB")
"""Tag and length of the trace id, span id, parent id and name, with the values of span and parent id."""
_TRACE_ID_TAG, _SPAN_ID_TAG = 0x0A10, 0x1208
"""Tags and lengths of the trace id and span id."""
_TIMES: Final = struct.Struct("<B8xBQ")
"""Tag of a span's start, whose value is skipped; tag and value of its end."""
_HEAD_BYTES: Final = _HEAD.size
_read_ids, _read_times = _HEAD.unpack_from, _TIMES.unpack_from
_SHORTEST_HEAD: Final = _HEAD.size + 2 + _TIMES.size
"""Bytes of a span whose head can be read at once: with a parent, a kind and times."""

SpanHead: TypeAlias = tuple[int, int, int, bytes]
"""Span id, parent id (0 for a root), end in Unix ns (0 if unreadable), name (empty if unreadable).

A tuple, not a class, for speed: one is created for every agent's span received.
"""


def read_usual(body: bytes, start: int, end: int) -> SpanHead | None:
    """Return the first fields of a span with valid ids; ``None`` if ``read_apart`` must read another order.

    In the field order of most SDKs they are read at once: ids, parent, short name, kind, times.
    """
    if end - start >= _SHORTEST_HEAD:
        to_trace, to_span, span_id, to_parent, parent_id, name_tag, length = _read_ids(body, start)
        at = start + _HEAD_BYTES
        if to_parent != _PARENT_TAG:  # a root: its name follows its ids
            parent_id, name_tag, length = 0, to_parent >> 8, to_parent & 0xFF
            at = start + SHORTEST_SPAN + 2
        behind = at + length
        is_usual = to_trace == _TRACE_ID_TAG and to_span == _SPAN_ID_TAG and name_tag == _NAME
        if is_usual and length <= 0x7F and behind + 2 + _TIMES.size <= end:
            start_tag, end_tag, end_ns = _read_times(body, behind + 2 if body[behind] == _KIND else behind)
            if start_tag == _START and end_tag == _END:
                return span_id, parent_id, end_ns, body[at:behind]
    return None


def read_apart(body: bytes, start: int, end: int) -> SpanHead:
    """Return the same fields as ``read_usual``, in any order; may read them one at a time."""
    span_id, parent_id = span_ids(body, start, end)[1], parent_id_of(body, start, end)
    facts = _read_facts(body, start, end)
    return int.from_bytes(span_id, "big"), int.from_bytes(parent_id, "big"), *facts


def _read_facts(body: bytes, start: int, end: int) -> SpanFacts:
    """Return the end time and name of a span; 0 and empty if unreadable."""
    try:
        found = None
        if has_usual_head(body, start, end):
            at = start + SHORTEST_SPAN
            found = _read_in_order(body, at, end)
        elif has_usual_tail(body, start, end):
            found = _read_from_tail(body, start, end - SHORTEST_SPAN)
        return found or _read_any_order(body, start, end)
    except (MalformedRequestError, IndexError):
        return SpanFacts(0, b"")


def has_usual_link(body: bytes) -> bool:
    """Return whether any span of a request in the usual field order may link to another trace.

    One search of the whole request, by the one byte that every such link begins with.
    """
    return _USUAL_LINK.search(body) is not None


def may_have_remote_parents(body: bytes) -> bool:
    """Return whether the flags of any span of a request may say that its parent is in another process."""
    return _REMOTE_FLAGS.search(body) is not None


def linked_traces(body: bytes, start: int, end: int, own: bytes) -> tuple[bytes, ...]:
    """Return the other traces that a span links to, without duplicates, up to ``MAX_NOTE_LINKS``."""
    try:
        found = {
            body[message.start : message.end]: None
            for link in messages(body, start, end, _LINKS)
            for message in messages(body, link.start, link.end, 1)
            if message.end - message.start == TRACE_ID_BYTES
        }
    except MalformedRequestError:
        return ()
    found.pop(own, None)
    return tuple(found)[:MAX_NOTE_LINKS]


def may_have_links(body: bytes, start: int, end: int) -> bool:
    """Return whether a trace id, or (from the Collector) a span id, follows a link's tag and length.

    A byte search, which rules most spans out quickly.
    """
    at = body.find(TRACE_ID_HEAD, start + 2, end - 18)
    if at < 0:
        return False
    first = max(start, at - 10)
    if first == start and body[start] != _LINK_TAG:
        first += 1  # a span id at the very start is the span's own
    return _LINK_HEAD.search(body, first, end - TRACE_ID_BYTES) is not None


def _read_from_tail(body: bytes, start: int, end: int) -> SpanFacts | None:
    """Read a span in the Collector's field order: end, start, kind, short name, flags, parent, ids."""
    if body.startswith(NO_PARENT, end - 2):
        end -= 2
    elif body.startswith(PARENT_HEAD, end - 10):
        end -= 10
    if body.startswith(FLAGS_TAG, end - 6):
        end -= 6
    first = max(start + 20, end - 0x7F - 2)
    at = body.rfind(_NAME, first, end)
    while at >= 0:
        kind_at = at - 2 if body[at - 2] == _KIND else at
        if (
            at + 2 + body[at + 1] == end
            and kind_at - 18 >= start
            and body[kind_at - 9] == _START
            and body[kind_at - 18] == _END
        ):
            return SpanFacts(int.from_bytes(body[kind_at - 17 : kind_at - 9], "little"), body[at + 2 : end])
        at = body.rfind(_NAME, first, at)
    return None


def _read_in_order(body: bytes, at: int, end: int) -> SpanFacts | None:
    """Read fields 3 to 8 if they are in the order of their numbers, each once; else ``None``."""
    name = b""
    before = 0
    while at < end and body[at] > before:
        before = tag = body[at]
        if tag == _END:
            return SpanFacts(int.from_bytes(body[at + 1 : at + 9], "little"), name)
        if tag == _START:
            at += 9
        elif tag == _KIND:
            at = read_varint(body, at + 1, end)[1]
        elif tag in {_TRACE_STATE, _PARENT, _NAME}:
            length, begin = read_varint(body, at + 1, end)
            at = begin + length
            if at > end:  # checked before slicing, which would copy the rest
                return None
            if tag == _NAME:
                name = body[begin:at]
        else:
            return None
    return None


def _read_any_order(body: bytes, start: int, end: int) -> SpanFacts:
    name, end_ns = b"", 0
    for found in some_fields(body, start, end):
        if found.number == 5 and found.wire_type == LENGTH_DELIMITED:
            name = body[found.start : found.end]
        elif found.number == 8 and found.end - found.start == 8:
            end_ns = int.from_bytes(body[found.start : found.end], "little")
    return SpanFacts(end_ns, name)


def _first_message(body: bytes, at: int, end: int) -> bytes:
    """Return field 1 of a group: its Resource, or its scope; the Collector writes it last."""
    try:
        found = next(messages(body, at, end, 1), None)
    except MalformedRequestError:
        return b""
    return body[found.start : found.end] if found else b""


def _service_of(resource: bytes) -> bytes:
    """Return the value of ``service.name``, as the bytes of its ``AnyValue``; empty if missing."""
    try:
        for attribute in messages(resource, 0, len(resource), 1):
            if _SERVICE in resource[attribute.start : attribute.end]:
                for value in messages(resource, attribute.start, attribute.end, 2):
                    text = next(messages(resource, value.start, value.end, 1), None)
                    return resource[text.start : text.end] if text else b""
    except MalformedRequestError:
        return b""
    return b""


def _name_of(scope: bytes) -> bytes:
    try:
        found = next(messages(scope, 0, len(scope), 1), None)
    except MalformedRequestError:
        return b""
    return scope[found.start : found.end] if found else b""
