"""A file's content: unpacked if it is gzip or zstd, in UTF-8, without the NUL bytes that crashes leave.

Bounded, because a file may be endless or a compression bomb.
"""

from __future__ import annotations

import codecs
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO, Final, Protocol

import zstandard

from analyzer.inquiry.errors import UnreadableInput

MAX_BYTES: Final = 1 << 30
"""Largest file, as it is and unpacked, in bytes."""
_PART: Final = 1 << 20
_PACKED_PART: Final = 1 << 10
"""Bytes given to an unpacker at once: they unpack to 32 MiB at most, by which the limit may be exceeded, and
unpackers copy what they leave over, of which a file of many gzip members or zstd frames has much."""
_LEAST_WINDOW: Final = 8 << 20
"""Window that every zstd frame may ask for, in bytes (RFC 9659)."""
_NULS: Final = re.compile(rb"\0*")
_NOT_IN_TEXT: Final = re.compile(rb"[\x01-\x08\x0b\x0e-\x1f]")
"""Control characters that neither JSON nor YAML has; protobuf requests have some in their first bytes."""

_HOLE: Final = re.compile(rb"[^\0\n]\0++[^\0\r\n]")


class TooLarge(UnreadableInput):
    """A file that is larger than the limit once unpacked."""


class _Unpacker(Protocol):
    """Unpacks one gzip member or zstd frame."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, part: bytes, /) -> bytes: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Packing:
    name: str
    start: re.Pattern[bytes]
    opened: Callable[[int], Callable[[], _Unpacker]]
    """Returns a maker of unpackers, given the limit in bytes."""


def _gzip(_: int) -> Callable[[], _Unpacker]:
    return lambda: zlib.decompressobj(wbits=31)


def _zstd(most_bytes: int) -> Callable[[], _Unpacker]:
    return zstandard.ZstdDecompressor(max_window_size=max(most_bytes, _LEAST_WINDOW)).decompressobj


_ZIP: Final = b"PK\x03\x04"
_TAR: Final = b"ustar"
_TAR_PLACE: Final = 257
"""Offset of a tar archive's mark, in bytes."""
_UNPACK: Final = "unpack it and give the files in it (of a chat export: conversations.json)"
_PACKINGS: Final = (
    _Packing(name="gzip", start=re.compile(rb"\x1f\x8b"), opened=_gzip),
    # pzstd begins with a frame to be skipped.
    _Packing(name="zstd", start=re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"), opened=_zstd),
)


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
    """Return a file's content, at most ``most_bytes`` long.

    Text in UTF-16 with a byte order mark, as Windows PowerShell writes it, becomes UTF-8, and text loses NUL
    bytes around its lines. Protobuf is returned unchanged.

    Raises:
        UnreadableInput: it is corrupt, packed twice or an archive; or NUL bytes are all that it holds, or
            within a line of text.
        TooLarge: it is larger than the limit once unpacked.
    """
    if data.startswith(_ZIP):
        raise UnreadableInput(f"a zip archive: {_UNPACK}")
    packing = _packing(data)
    plain = data if packing is None else _unpacked(data, packing, most_bytes)
    if packing and (inner := _packing(plain)):
        raise UnreadableInput(f"packed twice: unpack it once; there is {inner.name} in the {packing.name}")
    if plain.startswith(_TAR, _TAR_PLACE):
        raise UnreadableInput(f"a tar archive: {_UNPACK}")
    return _without_padding(_in_utf8(plain, most_bytes))


def _packing(data: bytes) -> _Packing | None:
    return next((packing for packing in _PACKINGS if packing.start.match(data)), None)


def _unpacked(data: bytes, packing: _Packing, most_bytes: int) -> bytes:
    plain, at, opened = bytearray(), 0, packing.opened(most_bytes)
    while at < len(data):  # appended files have several members
        unpacker = opened()
        while not unpacker.eof:
            part = data[at : at + _PACKED_PART]
            try:
                plain += unpacker.decompress(part)
            except (zlib.error, zstandard.ZstdError) as error:
                raise UnreadableInput(f"broken {packing.name}: {error}") from error
            if len(plain) > most_bytes:
                raise _too_large(most_bytes)
            if not part:
                raise UnreadableInput(f"broken {packing.name}: the end is missing")
            at += len(part) - len(unpacker.unused_data)
        padding = _NULS.match(data, at)
        at = padding.end() if padding else at
    return bytes(plain)


def _in_utf8(plain: bytes, most_bytes: int) -> bytes:
    if not plain.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return plain
    try:
        # Incremental: a file that was cut within a character keeps all others.
        text = codecs.getincrementaldecoder("utf-16")().decode(plain)
    except UnicodeDecodeError as error:
        raise UnreadableInput(f"broken UTF-16 at byte {error.start}: {error.reason}") from error
    encoded = text.encode()
    if len(encoded) > most_bytes:
        raise _too_large(most_bytes)
    return encoded


def _without_padding(plain: bytes) -> bytes:
    """Remove the NUL bytes around lines of text, which crashes and log files moved while written leave."""
    if b"\0" not in plain:
        return plain
    text = plain.strip(b"\0")
    if not text:
        raise UnreadableInput("holds only NUL bytes: its content was never written, as after a crash")
    if _NOT_IN_TEXT.search(text):
        return plain
    if hole := _HOLE.search(text):
        line = text.count(b"\n", 0, hole.start()) + 1
        raise UnreadableInput(f"line {line}: NUL bytes in it, where text was never written, as after a crash")
    return text.translate(None, b"\0")


def _too_large(most_bytes: int) -> TooLarge:
    return TooLarge(f"unpacks to more than {most_bytes >> 20} MiB")
