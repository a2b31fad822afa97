"""What the fast lane tells the slow lane about spans: facts, never spans.

Pure records, with the packed form in which the journal keeps them, so that a
restart need not read every body again.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from collector_processor.otlp import Signal, Tenant
from semconv.model import SpanId, TraceId
from semconv.record import record

TOP_BIT, AGENT_BIT, MARKED_BIT, REMOTE_BIT = 1, 2, 4, 8
"""What a note says, as the packed form says it."""
MAX_NOTE_LINKS: Final = 32
"""Most links of one span kept in a note; further links are ignored."""
_FIRST: Final = struct.Struct(">8s8sB")
"""The packed form up to version 0.3: ids and flag bits only."""
_NOTE: Final = struct.Struct(">8s8sBQIIB")
_COUNT: Final = struct.Struct(">I")
_NO_PARENT: Final = bytes(8)
_MAX_NS: Final = 2**64 - 1


class TraceKey(NamedTuple):
    """What a trace is known by; the same trace id of two tenants is two traces."""

    tenant: Tenant
    trace_id: TraceId


@record
class SpanNote:
    """One ended span of an agent trace."""

    span_id: SpanId
    parent_id: SpanId | None = None
    """``None`` for the trace's root."""
    is_top_kind: bool = False
    """It encloses a whole run (``invoke_workflow`` and its like)."""
    is_agent_kind: bool = False
    """It encloses one agent's work (``invoke_agent`` and its like)."""
    is_marked: bool = False
    """It or its scope carries an agent marker."""
    parent_is_remote: bool = False
    """The span says that its parent is in another process (OTLP flags)."""
    end_ns: int = 0
    """End time in Unix ns, by its host's clock; 0 if unreadable."""
    source: int = 0
    """Checksum of its Resource; equal for all spans of one process."""
    kind: int = 0
    """``kind_of`` its service, scope and name; equal for spans made by the same line of code."""
    links: tuple[TraceId, ...] = ()
    """Other traces that it links to, without duplicates."""


@record
class TraceNote:
    """What one request holds of one trace."""

    trace_id: TraceId
    span_count: int
    """Log records, in a log request. Carriers and spans of our own count too."""
    byte_count: int
    is_agent: bool = False
    """An agent marker was seen on a span that is no carrier."""
    root_ended: bool = False
    carrier_count: int = 0
    """Carriers and other spans of our own: they never open or reopen a trace."""
    spans: tuple[SpanNote, ...] = ()
    """All spans but carriers; filled for agent traces, and for others on demand."""

    @property
    def is_only_carriers(self) -> bool:
        """Whether there is nothing here to analyse."""
        return self.carrier_count == self.span_count


@record
class TraceArrival:
    """Spans (or log records) of one agent trace that are durable now."""

    seq: int
    """The journal row that holds them."""
    signal: Signal
    tenant: Tenant
    trace_id: TraceId
    received_ns: int
    byte_count: int
    notes: tuple[SpanNote, ...] = ()
    """The ended spans; empty for log records."""
    is_held: bool = False
    """The row waits for a verdict (hold mode)."""


def kind_of(service: bytes, scope: bytes, name: bytes) -> int:
    """Return a checksum that spans of one service, instrumentation scope and name share."""
    return zlib.crc32(b"\0".join((service, scope, name)))


def pack_notes(notes: Iterable[SpanNote]) -> bytes:
    """Return the notes as 34 bytes each, and 16 more for each link.

    The first version's length is a multiple of 17 bytes; zero padding makes sure that this form's is not.
    """
    entries = [_pack(note) for note in notes]
    packed = _COUNT.pack(len(entries)) + b"".join(entries)
    return packed + bytes((1 - len(packed)) % _FIRST.size)


def _pack(note: SpanNote) -> bytes:
    head = _NOTE.pack(
        bytes.fromhex(note.span_id),
        bytes.fromhex(note.parent_id) if note.parent_id else _NO_PARENT,
        TOP_BIT * note.is_top_kind
        | AGENT_BIT * note.is_agent_kind
        | MARKED_BIT * note.is_marked
        | REMOTE_BIT * note.parent_is_remote,
        min(note.end_ns, _MAX_NS),
        note.source,
        note.kind,
        len(note.links),
    )
    return head + b"".join(map(bytes.fromhex, note.links))


def unpack_notes(packed: bytes) -> tuple[SpanNote, ...]:
    """Return what ``pack_notes`` packed, in this version or the first."""
    if len(packed) % _FIRST.size == 0:
        return tuple(make_note(*entry) for entry in _FIRST.iter_unpack(packed))
    return tuple(_unpack(packed))


def _unpack(packed: bytes) -> Iterator[SpanNote]:
    (count,) = _COUNT.unpack_from(packed)
    at = _COUNT.size
    for _ in range(count):
        span_id, parent_id, bits, end_ns, source, kind, links = _NOTE.unpack_from(packed, at)
        at += _NOTE.size
        linked = tuple(packed[begin : begin + 16] for begin in range(at, at + 16 * links, 16))
        at += 16 * links
        yield make_note(span_id, parent_id, bits, end_ns=end_ns, source=source, kind=kind, links=linked)


def make_note(
    span_id: bytes,
    parent_id: bytes,
    bits: int,
    *,
    end_ns: int = 0,
    source: int = 0,
    kind: int = 0,
    links: Iterable[bytes] = (),
) -> SpanNote:
    """Return a note from raw ids (no parent: empty or zeros) and the packed form's bits."""
    return SpanNote(
        span_id=SpanId(span_id.hex()),
        parent_id=SpanId(parent_id.hex()) if parent_id.strip(b"\0") else None,
        is_top_kind=bool(bits & TOP_BIT),
        is_agent_kind=bool(bits & AGENT_BIT),
        is_marked=bool(bits & MARKED_BIT),
        parent_is_remote=bool(bits & REMOTE_BIT),
        end_ns=end_ns,
        source=source,
        kind=kind,
        links=tuple(TraceId(link.hex()) for link in links),
    )
