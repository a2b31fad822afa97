"""Notes on spans that the fast lane passes to the slow lane, and their packed form. Pure.

The assembler uses them to decide whether more spans of the trace are coming. The journal stores the packed
form, so that a restart need not read every body again. ``span_facts`` reads them from raw bytes.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from itertools import starmap
from operator import itemgetter
from typing import Final, TypeAlias

from collector_processor.otlp import Signal, TraceKey
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
"""One ended span of an agent trace; see ``span_note`` for its fields, in this order.

A plain tuple, because one is created for every span of an agent: it takes a fifth of the time of a
``NamedTuple``, and the garbage collector does not track it.
"""


def span_note(
    span_id: int,
    parent_id: int = 0,
    bits: int = 0,
    *,
    end_ns: int = 0,
    source: int = 0,
    kind: int = 0,
    links: tuple[TraceId, ...] = (),
) -> SpanNote:
    """Return the note of an ended span.

    Args:
        span_id: its id as a number.
        parent_id: its parent's id; 0 for the trace's root.
        bits: sum of ``TOP_BIT``, ``AGENT_BIT``, ``MARKED_BIT`` and ``REMOTE_BIT``, as far as they apply.
        end_ns: its end in Unix ns, by its host's clock; 0 if unreadable.
        source: checksum of its Resource; equal for all spans of one process.
        kind: ``kind_of`` its service, scope and name; equal for spans made by the same line of code.
        links: other traces that it links to, without duplicates.
    """
    return span_id, parent_id, bits, end_ns, source, kind, links


@record
class TraceNote:
    """One request's part of one trace."""

    trace_id: TraceId
    span_count: int
    """Spans, or log records in a log request; includes carriers and our own spans."""
    byte_count: int
    is_agent: bool = False
    """Whether a span that is not a carrier has an agent marker."""
    root_ended: bool = False
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
    signal: Signal
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
