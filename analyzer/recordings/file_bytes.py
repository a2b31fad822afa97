"""A file's bytes, unpacked if they are gzip; bounded, because a file may be endless or a gzip bomb."""

from __future__ import annotations

import zlib
from typing import BinaryIO, Final

from analyzer.inquiry.errors import UnreadableInput

MAX_BYTES: Final = 1 << 30
"""Largest file, as it is and unpacked, in bytes."""
_PART: Final = 1 << 20
_FIRST_PART: Final = 1 << 10
"""Bytes first given to a gzip member: zlib copies those it leaves over, and a file may have many members."""
_GZIP: Final = b"\x1f\x8b"


def read_bounded(file: BinaryIO, most_bytes: int = MAX_BYTES) -> bytes:
    """Read a file, which may be endless, up to a limit in bytes.

    Raises:
        UnreadableInput: it is larger than the limit.
        OSError: it cannot be read.
    """
    parts, left = [], most_bytes
    while part := file.read(_PART):
        left -= len(part)
        if left < 0:
            raise UnreadableInput(f"larger than {most_bytes >> 20} MiB")
        parts.append(part)
    return b"".join(parts)


def unpack(data: bytes, most_bytes: int = MAX_BYTES) -> bytes:
    """Decompress a gzip file, up to a limit in bytes; return other files unchanged.

    Raises:
        UnreadableInput: the file is corrupt, or unpacks to more than the limit.
    """
    if not data.startswith(_GZIP):
        return data
    plain, at = bytearray(), 0
    while at < len(data):  # appended files have several gzip members
        unpacker, size = zlib.decompressobj(wbits=31), _FIRST_PART
        while not unpacker.eof:
            part = data[at : at + size]
            try:
                plain += unpacker.decompress(part, most_bytes + 1 - len(plain))
            except zlib.error as error:
                raise UnreadableInput(f"broken gzip: {error}") from error
            if len(plain) > most_bytes:
                raise UnreadableInput(f"unpacks to more than {most_bytes >> 20} MiB")
            if not part:
                raise UnreadableInput("broken gzip: the end is missing")
            at += len(part) - len(unpacker.unused_data)
            size = min(2 * size, _PART)
    return bytes(plain)
