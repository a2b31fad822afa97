"""Unpacking of HTTP request bodies: bounded decompression and conversion from JSON, without delaying others.

Against decompression bombs, never holds more than ``limit`` + 1 bytes of output, whatever size the input
claims. Takes gzip (the only compression that OTLP requires, and the Collector's default), zstd, and bodies
without compression.

Small bodies are unpacked on the event loop, because a thread switch would take longer. Larger ones are
unpacked in a thread, and JSON with very many values in a process of its own (see ``otlp.json_child``). A few
of these run at once, one for each client; threads do not wait for processes, which may take half a minute.
"""

from __future__ import annotations

import asyncio
import sys
import zlib
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Final

import zstandard

from collector_processor.core.fair import Turns
from collector_processor.otlp import CollectorError, MalformedRequestError, Signal
from collector_processor.otlp.answers import RpcCode
from collector_processor.otlp.json_child import MALFORMED, MEMORY_BYTES, TOO_MUCH
from collector_processor.otlp.otlp_json import to_protobuf
from collector_processor.receivers.admission import Refusal, TurnedAwayError, too_large

IDENTITY: Final = "identity"

_GZIP_WINDOW: Final = 31  # zlib's 15 bits of window and 16 for "with a gzip header"
# A gzip body may have several members. Each costs a copy of the rest, so thousands
# of empty ones would be a bomb too; encoders write one.
_MAX_MEMBERS: Final = 16


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
    """Return the output of all members; reads up to one byte over ``limit`` to detect an excess."""
    pieces: list[bytes] = []
    rest, left = body, limit
    for _ in range(_MAX_MEMBERS):
        stream = zlib.decompressobj(_GZIP_WINDOW)
        try:
            piece = stream.decompress(rest, left + 1)
        except zlib.error as error:
            raise MalformedRequestError(f"the compressed body cannot be read: {error}") from error
        if len(piece) > left:
            raise too_large(limit)
        if not stream.eof:
            raise MalformedRequestError("the compressed body is cut short")
        pieces.append(piece)
        left -= len(piece)
        rest = stream.unused_data
        if not rest:
            return b"".join(pieces)
    raise MalformedRequestError(f"expected at most {_MAX_MEMBERS} gzip members")


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


_DECODERS: Final[Mapping[str, Callable[[bytes, int], bytes]]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,  # RFC 9110 8.4.1.3: the same
    "zstd": _zstd,
    IDENTITY: _identity,
}


_INLINE_BYTES: Final = 64 << 10
"""Compressed bodies beyond this size are never unpacked on the event loop."""
_INLINE_OUTPUT_BYTES: Final = 256 << 10
"""The same bound for decompressed bodies: a few kilobytes may become 20 MiB."""
_INLINE_JSON_BYTES: Final = 4 << 10
"""The same bound for JSON, which takes up to 4 ms a kilobyte."""
_MOST_VALUES: Final = 100_000
"""JSON with more values would hold the interpreter's lock for more than 30 ms; it gets its own process."""
_MOST_BYTES: Final = 2 << 20
"""The same for JSON of more bytes: at that size, ordinary requests have as many values."""
_AT_ONCE: Final = 2
"""Concurrent conversions; each may take several times its size in memory."""
_CHILD_S: Final = 30.0
"""Time limit of a process that converts JSON, in seconds."""
_TOO_LARGE: Final = 413


class Unpacking:
    """Unpacks bodies; used on one event loop."""

    def __init__(self, max_bytes: int) -> None:
        """Create it; bodies may be unpacked to ``max_bytes`` at most."""
        self._max_bytes: Final = max_bytes
        self._turns: Final = Turns(_AT_ONCE)
        self._processes: Final = Turns(_AT_ONCE)

    async def decompress(self, body: bytes, encoding: str, client: str) -> bytes:
        """Return the decompressed body.

        Raises:
            CollectorError: as ``decompression.decompress``.
        """
        if len(body) <= _INLINE_BYTES:
            try:
                return decompress(body, encoding, min(self._max_bytes, _INLINE_OUTPUT_BYTES))
            except TurnedAwayError as error:
                if error.refusal.http_status != _TOO_LARGE:
                    raise
        return await self._on_thread(client, lambda: decompress(body, encoding, self._max_bytes))

    async def convert(self, signal: Signal, body: bytes, client: str) -> bytes:
        """Return a JSON body as protobuf.

        Raises:
            CollectorError: it is not such a request, or takes too long to read.
        """
        if len(body) <= _INLINE_JSON_BYTES:
            return to_protobuf(signal, body)
        if len(body) <= _MOST_BYTES and body.count(b",") + body.count(b"[") <= _MOST_VALUES:
            return await self._on_thread(client, lambda: to_protobuf(signal, body))
        async with self._processes.turn(client):
            return await _convert_in_process(signal, body)

    async def _on_thread(self, client: str, work: Callable[[], bytes]) -> bytes:
        async with self._turns.turn(client):
            return await asyncio.get_running_loop().run_in_executor(None, work)


async def _convert_in_process(signal: Signal, body: bytes) -> bytes:
    process = await asyncio.create_subprocess_exec(
        # Isolated, with an empty environment: the process needs no key and no setting.
        *(sys.executable, "-I", "-m", "collector_processor.otlp.json_child", signal.value),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={},
    )
    try:
        async with asyncio.timeout(_CHILD_S):
            converted, said = await process.communicate(body)
    except TimeoutError:
        raise _too_slow() from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode == MALFORMED:
        raise MalformedRequestError(said.decode("utf-8", "replace"))
    if process.returncode == TOO_MUCH:
        raise MalformedRequestError(f"the JSON takes more than {MEMORY_BYTES >> 20} MiB of memory to read")
    if process.returncode:
        raise CollectorError(f"the conversion of a JSON request ended with status {process.returncode}")
    return converted


def _too_slow() -> TurnedAwayError:
    reason = f"the JSON takes more than {_CHILD_S:g} s to read: send smaller requests, or protobuf"
    return TurnedAwayError(Refusal(code=RpcCode.DEADLINE_EXCEEDED, http_status=408, reason=reason))
