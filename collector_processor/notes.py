"""What the fast lane tells the slow lane about spans: facts, never spans.

Pure records, with the packed form in which the journal keeps them, so that a
restart need not read every body again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from collector_processor.otlp import Signal, Tenant
from semconv.model import SpanId, TraceId
from semconv.record import record

TOP_BIT, AGENT_BIT, MARKED_BIT, REMOTE_BIT = 1, 2, 4, 8
"""What a note says, as the packed form says it."""
_NOTE: Final = struct.Struct(">8s8sB")
_NO_PARENT: Final = bytes(8)


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


def pack_notes(notes: Iterable[SpanNote]) -> bytes:
    """Return the notes as 17 bytes each."""
    return b"".join(
        _NOTE.pack(
            bytes.fromhex(note.span_id),
            bytes.fromhex(note.parent_id) if note.parent_id else _NO_PARENT,
            TOP_BIT * note.is_top_kind
            | AGENT_BIT * note.is_agent_kind
            | MARKED_BIT * note.is_marked
            | REMOTE_BIT * note.parent_is_remote,
        )
        for note in notes
    )


def unpack_notes(packed: bytes) -> tuple[SpanNote, ...]:
    """Return what ``pack_notes`` packed."""
    return tuple(make_note(*entry) for entry in _NOTE.iter_unpack(packed))


def make_note(span_id: bytes, parent_id: bytes, bits: int) -> SpanNote:
    """Return a note from raw ids (no parent: empty or zeros) and the packed form's bits."""
    return SpanNote(
        span_id=SpanId(span_id.hex()),
        parent_id=SpanId(parent_id.hex()) if parent_id.strip(b"\0") else None,
        is_top_kind=bool(bits & TOP_BIT),
        is_agent_kind=bool(bits & AGENT_BIT),
        is_marked=bool(bits & MARKED_BIT),
        parent_is_remote=bool(bits & REMOTE_BIT),
    )
