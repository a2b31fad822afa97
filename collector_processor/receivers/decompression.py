"""Decompression of request bodies with a bound on the output, against decompression bombs.

Never holds more than ``limit`` + 1 bytes of output, whatever size the input
claims. Supports gzip (required by OTLP) and everything the Collector's exporter can
send: zstd, deflate and zlib (the same), lz4 (frames), and snappy (raw or framed: Collector
versions use the same name for both).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from typing import Final

import cramjam
import lz4.frame
import zstandard

from collector_processor.otlp import MalformedRequestError
from collector_processor.otlp.answers import RpcCode
from collector_processor.receivers.admission import Refusal, TurnedAwayError, too_large

IDENTITY: Final = "identity"

_GZIP_WINDOW: Final = 31  # zlib's 15 bits of window and 16 for "with a gzip header"
_ZLIB_WINDOW: Final = 15
_RAW_WINDOW: Final = -15
# A gzip body may have several members. Each costs a copy of the rest, so thousands
# of empty ones would be a bomb too; encoders write one.
_MAX_MEMBERS: Final = 16
_SNAPPY_FRAMED: Final = b"\xff\x06\x00\x00sNaPpY"
"""Start of a framed stream; a raw stream cannot start so, as that would mean a length over 2^32."""
_MAX_CHUNKS: Final = 1 << 14
"""Bound on chunks, 64 KiB each in most streams: walking through them costs time even if they are empty."""
_SNAPPY_COMPRESSED: Final = 0
_SNAPPY_PLAIN: Final = 1
_SNAPPY_CHECKSUM: Final = 4


def decompress(body: bytes, encoding: str, limit: int) -> bytes:
    """Return ``body`` decompressed; an empty body is empty in any encoding.

    Raises:
        TurnedAwayError: the output would be larger, or the encoding is not supported.
        MalformedRequestError: the body does not match its encoding, or is cut short.
    """
    name = encoding.strip().lower() or IDENTITY
    decoder = _DECODERS.get(name)
    if decoder is None:
        raise _unsupported(name)
    return decoder(body, limit) if body else body


def _unsupported(name: str) -> TurnedAwayError:
    known = ", ".join(sorted(_DECODERS))
    return TurnedAwayError(
        Refusal(
            code=RpcCode.INVALID_ARGUMENT,
            http_status=415,
            reason=f"Content-Encoding {name[:40]!r}: expected one of {known}",
            http_headers={"Accept-Encoding": known},
        )
    )


def _identity(body: bytes, limit: int) -> bytes:
    if len(body) > limit:
        raise too_large(limit)
    return body


def _gzip(body: bytes, limit: int) -> bytes:
    pieces: list[bytes] = []
    rest, size = body, 0
    for _ in range(_MAX_MEMBERS):
        stream = zlib.decompressobj(_GZIP_WINDOW)
        piece = _inflate(stream, rest, limit - size)
        pieces.append(piece)
        size += len(piece)
        rest = stream.unused_data
        if not rest:
            return b"".join(pieces)
    raise MalformedRequestError(f"expected at most {_MAX_MEMBERS} gzip members")


def _deflate(body: bytes, limit: int) -> bytes:
    # RFC 9110 says deflate means zlib's format; some clients send it bare.
    is_zlib = body[0] & 0x0F == 8 and int.from_bytes(body[:2], "big") % 31 == 0
    stream = zlib.decompressobj(_ZLIB_WINDOW if is_zlib else _RAW_WINDOW)
    inflated = _inflate(stream, body, limit)
    if stream.unused_data:
        raise MalformedRequestError("expected nothing after the deflate stream")
    return inflated


def _inflate(stream: zlib._Decompress, body: bytes, limit: int) -> bytes:
    """Return the output of one stream; reads up to one byte over ``limit`` to detect an excess."""
    try:
        inflated = stream.decompress(body, limit + 1)
    except zlib.error as error:
        raise MalformedRequestError(f"the compressed body cannot be read: {error}") from error
    if len(inflated) > limit:
        raise too_large(limit)
    if not stream.eof:
        raise MalformedRequestError("the compressed body is cut short")
    return inflated


def _zstd(body: bytes, limit: int) -> bytes:
    # The window is allocated before the first byte of output. RFC 9659 allows 8 MiB;
    # a single-segment frame has a window of its whole size.
    decompressor = zstandard.ZstdDecompressor(max_window_size=max(limit, 8 << 20))
    try:
        promised = zstandard.frame_content_size(body)
        if promised > limit:
            raise too_large(limit)
        if promised == 0 and _zstd_exceeds(decompressor, body, 0):  # the library stops there
            raise MalformedRequestError("expected nothing after the empty zstd frame")
        return decompressor.decompress(body, max_output_size=limit, allow_extra_data=False)
    except zstandard.ZstdError as error:
        # The library has the same error for "cut short" and "more than max_output_size".
        if _zstd_exceeds(decompressor, body, limit):
            raise too_large(limit) from error
        raise MalformedRequestError(f"the compressed body cannot be read: {error}") from error


def _zstd_exceeds(decompressor: zstandard.ZstdDecompressor, body: bytes, limit: int) -> bool:
    size = 0
    try:
        with decompressor.stream_reader(BytesIO(body), read_across_frames=True) as reader:
            while size <= limit and (piece := reader.read(1 << 16)):
                size += len(piece)
    except zstandard.ZstdError:
        return False
    return size > limit


def _lz4(body: bytes, limit: int) -> bytes:
    pieces: list[bytes] = []
    rest, size = body, 0
    for _ in range(_MAX_MEMBERS):
        stream = lz4.frame.LZ4FrameDecompressor()
        try:
            piece = stream.decompress(rest, max_length=limit - size + 1)
        except (RuntimeError, ValueError) as error:
            raise MalformedRequestError(f"the compressed body cannot be read: {error}") from error
        size += len(piece)
        if size > limit:
            raise too_large(limit)
        if not stream.eof:
            raise MalformedRequestError("the compressed body is cut short")
        pieces.append(piece)
        rest = stream.unused_data or b""
        if not rest:
            return b"".join(pieces)
    raise MalformedRequestError(f"expected at most {_MAX_MEMBERS} lz4 frames")


def _snappy(body: bytes, limit: int) -> bytes:
    return _framed_snappy(body, limit) if body.startswith(_SNAPPY_FRAMED) else _bare_snappy(body, limit)


def _bare_snappy(body: bytes, limit: int) -> bytes:
    try:
        if cramjam.snappy.decompress_raw_len(body) > limit:  # the stream states its size and cannot exceed it
            raise too_large(limit)
        return bytes(cramjam.snappy.decompress_raw(body))
    except cramjam.DecompressionError as error:
        raise MalformedRequestError(f"the compressed body cannot be read: {error}") from error


def _framed_snappy(body: bytes, limit: int) -> bytes:
    """Check the sizes stated by the chunks before unpacking; the library verifies sizes and checksums."""
    if sum(_chunk_sizes(body)) > limit:
        raise too_large(limit)
    try:
        return bytes(cramjam.snappy.decompress(body))
    except cramjam.DecompressionError as error:
        raise MalformedRequestError(f"the compressed body cannot be read: {error}") from error


def _chunk_sizes(body: bytes) -> Iterator[int]:
    """Yield the uncompressed size of each chunk (google/snappy, framing_format.txt)."""
    at = 0
    for _ in range(_MAX_CHUNKS):
        if at == len(body):
            return
        kind, size = body[at], int.from_bytes(body[at + 1 : at + 4], "little")
        data = body[at + 4 : at + 4 + size]
        if len(data) < size or at + 4 > len(body):
            raise MalformedRequestError("the compressed body is cut short")
        if kind == _SNAPPY_PLAIN:
            yield size - _SNAPPY_CHECKSUM
        elif kind == _SNAPPY_COMPRESSED:
            yield _promised(data)
        at += 4 + size
    raise MalformedRequestError(f"expected at most {_MAX_CHUNKS} chunks")


def _promised(chunk: bytes) -> int:
    try:
        return int(cramjam.snappy.decompress_raw_len(chunk[_SNAPPY_CHECKSUM:]))
    except cramjam.DecompressionError as error:
        raise MalformedRequestError(f"the compressed body cannot be read: {error}") from error


_DECODERS: Final[Mapping[str, Callable[[bytes, int], bytes]]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,  # RFC 9110 8.4.1.3: the same
    "zstd": _zstd,
    "deflate": _deflate,
    "zlib": _deflate,  # the Collector's name for it
    "lz4": _lz4,
    "snappy": _snappy,
    "x-snappy-framed": _snappy,
    IDENTITY: _identity,
}
