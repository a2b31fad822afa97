"""Binary format of the journal's files: checksummed records, and the search for the next intact one.

Every file is a sequence of records: a head, then ``meta`` bytes, then ``body`` bytes, each with a CRC-32 of
its own. A damaged body or meta leaves the head intact, so the next record is known; behind a damaged head the
next intact one is searched for. So a flipped bit costs at most one row.

The first record of a file holds a random number (the salt) that starts the checksum of every other head. A
client cannot know it, so bytes in a span that look like a record are never taken for one.

Each row's head also holds the items of each signal in its segment up to that row. The totals of the last row,
less the items of the rows that are there, are the items that were lost.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import BinaryIO, Final, NamedTuple, TypeAlias
from zlib import crc32

import lz4.block

from collector_processor.journal.chunks import ROW_OVERHEAD_BYTES, CorruptBodyError, Entry, State
from collector_processor.otlp import Signal, Tenant
from collector_processor.wire.facts import TraceNote, pack_notes, unpack_notes
from semconv.model import TraceId

MAGIC: Final = b"BLML"
VERSION: Final = 2
"""Version of the format; version 1 was an SQLite file. Every version begins with the magic and this byte."""
SIGNALS: Final = tuple(Signal)
_HEAD: Final = struct.Struct("<4sBBBxIIIIIQQQQ")
_CRC: Final = struct.Struct("<I")
HEAD_BYTES: Final = _HEAD.size + _CRC.size
_META: Final = struct.Struct("<IqBIII")
_TRACE: Final = struct.Struct("<16sIIII")
_SIZE: Final = struct.Struct("<I")
DONE_ROW: Final = struct.Struct("<IBI")
"""A row that is done: position in its segment, index of its signal, items."""
POSITION: Final = struct.Struct("<I")
TRACE_ID_BYTES: Final = 16
_MOST: Final = 0xFFFF_FFFF
_WINDOW: Final = 1 << 20
"""Bytes read at a time in the search for a record."""

ItemTotals: TypeAlias = tuple[int, int, int]
"""Items of each signal, in the order of ``SIGNALS``."""
NOTHING: Final[ItemTotals] = (0, 0, 0)


class Kind(IntEnum):
    """Kind of a record."""

    FILE = 0
    """First record of each file; its body is the salt, its seq the segment's number."""
    ROW = 1
    """A row; the only other kind in the log. The following are in the file of marks."""
    ACKNOWLEDGED = 2
    """Totals of the rows that are durable; overwritten in place, in two slots by turns."""
    DONE = 3
    """Rows that were forwarded or permanently rejected."""
    RELEASED = 4
    """Held rows that may be forwarded unchanged."""
    FORGOTTEN = 5
    """Rows in which a trace is no longer kept for analysis: the trace id, then positions."""
    REWRITTEN = 6
    """New body of a held row, which may be forwarded."""
    COUNTED = 7
    """Totals of items that an earlier start counted as lost."""


class Head(NamedTuple):
    """Head of a record."""

    kind: int
    signal: int
    meta_bytes: int
    body_bytes: int
    meta_crc: int
    body_crc: int
    items: int
    seq: int
    totals: ItemTotals

    @property
    def size(self) -> int:
        """Bytes of the whole record."""
        return HEAD_BYTES + self.meta_bytes + self.body_bytes


class Row(NamedTuple):
    """What a row's meta says about it."""

    size: int
    """Bytes counted against the limits."""
    received_ns: int
    state: State
    """The state in which it was stored."""
    tenant: Tenant
    hops: tuple[str, ...]
    traces: tuple[TraceNote, ...]


def encode(
    kind: Kind,
    seq: int,
    salt: int,
    *,
    meta: bytes = b"",
    body: bytes = b"",
    signal: int = 0,
    items: int = 0,
    totals: ItemTotals = NOTHING,
) -> tuple[bytes, bytes, bytes, bytes]:
    """Return a record in parts, to be joined with others."""
    head = _HEAD.pack(
        MAGIC,
        VERSION,
        kind,
        signal,
        len(meta),
        len(body),
        crc32(meta),
        crc32(body),
        min(items, _MOST),
        seq,
        *totals,
    )
    return head, _CRC.pack(crc32(head, salt)), meta, body


def encode_row(
    entry: Entry, packed: bytes, seq: int, totals: ItemTotals, salt: int
) -> tuple[bytes, bytes, bytes, bytes]:
    """Return the record of a row, in parts; ``totals`` include it."""
    return encode(
        Kind.ROW,
        seq,
        salt,
        meta=_pack_row(entry),
        body=packed,
        signal=SIGNALS.index(entry.signal),
        items=entry.items,
        totals=totals,
    )


def encode_file(number: int, salt: int) -> bytes:
    """Return the first record of a segment's file."""
    return b"".join(encode(Kind.FILE, number, 0, body=_CRC.pack(salt)))


FILE_BYTES: Final = HEAD_BYTES + _CRC.size
"""Size of a file's first record."""


MARKS_BEGIN: Final = FILE_BYTES + 2 * HEAD_BYTES
"""Offset of the first mark behind the two slots of ``Kind.ACKNOWLEDGED``."""


def salt_of(first: bytes, number: int) -> int | None:
    """Return the salt from a file's first ``FILE_BYTES`` bytes; ``None`` if they are damaged."""
    head = decode_head(first[:HEAD_BYTES], 0)
    body = first[HEAD_BYTES:FILE_BYTES]
    if head is None or head.kind != Kind.FILE or head.seq != number or crc32(body) != head.body_crc:
        return None
    return int(_CRC.unpack(body)[0])


def is_other_version(first: bytes, *, is_certain: bool) -> bool:
    """Return whether a file's first bytes are of another version.

    Args:
        first: the file's first bytes.
        is_certain: ``False`` if a flipped bit in the version is to count too.
    """
    claims_other = first.startswith(MAGIC) and first[len(MAGIC) : HEAD_BYTES] and first[len(MAGIC)] != VERSION
    has_crc = (
        len(first) >= HEAD_BYTES and crc32(first[: _HEAD.size]) == _CRC.unpack_from(first, _HEAD.size)[0]
    )
    return bool(claims_other) and (has_crc or not is_certain)


def decode_head(content: bytes, salt: int) -> Head | None:
    """Return the head of a record; ``None`` if there is no intact one."""
    if len(content) < HEAD_BYTES or not content.startswith(MAGIC):
        return None
    if crc32(content[: _HEAD.size], salt) != _CRC.unpack_from(content, _HEAD.size)[0]:
        return None
    _, version, kind, signal, meta, body, meta_crc, body_crc, items, seq, *totals = _HEAD.unpack_from(content)
    if version != VERSION or signal >= len(SIGNALS):
        return None
    return Head(kind, signal, meta, body, meta_crc, body_crc, items, seq, (totals[0], totals[1], totals[2]))


def scan(file: BinaryIO, end: int, salt: int) -> Iterator[tuple[int, Head]]:
    """Yield the offset and head of each intact record of a file before ``end``, in order."""
    found: int | None = FILE_BYTES
    while found is not None:
        file.seek(found)
        head = decode_head(file.read(HEAD_BYTES), salt)
        if head is None or found + head.size > end:
            found = _next_record(file, found + 1, end, salt)
        else:
            yield found, head
            found += head.size
            if found >= end:
                return


def _next_record(file: BinaryIO, at: int, end: int, salt: int) -> int | None:
    """Return the offset of the next intact head; ``None`` if there is none."""
    while at + HEAD_BYTES <= end:
        file.seek(at)
        window = file.read(_WINDOW)
        place = window.find(MAGIC)
        while 0 <= place <= len(window) - HEAD_BYTES:
            if decode_head(window[place : place + HEAD_BYTES], salt) is not None:
                return at + place
            place = window.find(MAGIC, place + 1)
        if len(window) < _WINDOW:
            return None
        at += place if place >= 0 else len(window) - len(MAGIC) + 1
    return None


def _pack_row(entry: Entry) -> bytes:
    tenant, hops = entry.tenant.encode(), ",".join(entry.hops).encode()
    size, state = len(entry.body) + ROW_OVERHEAD_BYTES, entry.state
    first = _META.pack(size, entry.received_ns, state, len(tenant), len(hops), len(entry.traces))
    if not entry.traces:
        return first + tenant + hops
    parts = [first, tenant, hops]
    for note in entry.traces:
        notes = pack_notes(note.spans)
        trace_id = bytes.fromhex(note.trace_id)
        parts += (
            _TRACE.pack(trace_id, note.span_count, note.byte_count, note.carrier_count, len(notes)),
            notes,
        )
    return b"".join(parts)


def unpack_row(meta: bytes) -> Row:
    """Return the row that an intact meta describes."""
    size, received_ns, state, tenant_bytes, hops_bytes, traces = _META.unpack_from(meta)
    at = _META.size
    tenant, at = meta[at : at + tenant_bytes].decode(), at + tenant_bytes
    hops, at = meta[at : at + hops_bytes].decode(), at + hops_bytes
    notes: list[TraceNote] = []
    for _ in range(traces):
        trace_id, spans, byte_count, carriers, note_bytes = _TRACE.unpack_from(meta, at)
        at += _TRACE.size
        notes.append(
            TraceNote(
                trace_id=TraceId(trace_id.hex()),
                span_count=spans,
                byte_count=byte_count,
                is_agent=True,
                carrier_count=carriers,
                spans=unpack_notes(meta[at : at + note_bytes]),
            )
        )
        at += note_bytes
    split = tuple(hops.split(",")) if hops else ()
    return Row(size, received_ns, State(state), Tenant(tenant), split, tuple(notes))


def resized(meta: bytes, size: int) -> bytes:
    """Return a row's meta with another counted size."""
    return _SIZE.pack(size) + meta[_SIZE.size :]


def positions(seqs: Sequence[int]) -> bytes:
    """Pack the positions of rows in their segment."""
    return b"".join(POSITION.pack(seq & _MOST) for seq in seqs)


def pack_body(body: bytes) -> bytes:
    """Return the compressed bytes to store for ``body``."""
    packed: bytes = lz4.block.compress(body)
    return packed


def unpack_body(head: Head, packed: bytes) -> bytes:
    """Return the body that ``pack_body`` packed.

    Raises:
        CorruptBodyError: the bytes differ from those that were stored.
    """
    check(packed, head.body_bytes, head.body_crc)
    try:
        body: bytes = lz4.block.decompress(packed)
    except (lz4.block.LZ4BlockError, ValueError) as error:
        raise CorruptBodyError(str(error)) from error
    return body


def check(content: bytes, size: int, crc: int) -> None:
    """Check a part of a record.

    Raises:
        CorruptBodyError: its size or checksum is wrong.
    """
    if len(content) != size or crc32(content) != crc:
        raise CorruptBodyError("the checksum does not match")
