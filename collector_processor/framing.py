"""How messages lie in raw bytes: fields, lengths, numbers. Pure, and on the hot path.

Protobuf's framing alone, as far as OTLP uses it: nothing here knows what a field means.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from collector_processor.otlp import MalformedRequestError

GROUP_TAG: Final = 0x0A
"""Field 1, length-delimited: a resource group in a request."""
LENGTH_DELIMITED: Final = 2
_MAX_VARINT_BYTES: Final = 10


class Field(NamedTuple):
    """One field of a message: where it begins, and where its value lies."""

    number: int
    wire_type: int
    at: int
    start: int
    end: int


def read_varint(body: bytes, at: int, end: int) -> tuple[int, int]:
    """Return the number at ``at`` and the offset after it.

    Raises:
        MalformedRequestError: it runs past ``end`` or over ten bytes.
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
    raise MalformedRequestError("a number in the request is cut short or longer than ten bytes")


def write_varint(value: int) -> bytes:
    """Return ``value`` as a protobuf varint."""
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


def fields(body: bytes, at: int, end: int) -> Iterator[Field]:
    """Iterate over the fields of the message in ``body[at:end]``.

    Raises:
        MalformedRequestError: a field runs past ``end``, or is no field of proto3.
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
            raise MalformedRequestError(f"wire type {wire_type} at byte {at} is not used by OTLP")
        if not 8 <= tag < 1 << 32:  # field numbers are 1 to 2^29 - 1
            raise MalformedRequestError(f"field number {tag >> 3} at byte {at} is not allowed")
        if stop > end:
            raise past_the_end(at)
        yield Field(tag >> 3, wire_type, at, start, stop)
        at = stop


def past_the_end(at: int) -> MalformedRequestError:
    """Return what is raised of a field whose length is more than there is."""
    return MalformedRequestError(f"the field at byte {at} runs past the end of its message")


def require_message(found: Field) -> None:
    """Refuse a field that should be a message and is none.

    Raises:
        MalformedRequestError: as it says.
    """
    if found.wire_type != LENGTH_DELIMITED:
        raise MalformedRequestError(f"the field at byte {found.at} should be a message")


def messages(body: bytes, at: int, end: int, number: int) -> Iterator[Field]:
    """Iterate over those fields of the message in ``body[at:end]`` that have this number and hold a message.

    Raises:
        MalformedRequestError: as ``fields``.
    """
    for found in fields(body, at, end):
        if found.number == number and found.wire_type == LENGTH_DELIMITED:
            yield found
