"""A gRPC call with millions of headers, as raw HTTP/2 frames (RFC 9113, RFC 7541): no client sends it."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Final

from collector_processor.otlp import Signal, grpc_path

_HEADERS, _SETTINGS, _CONTINUATION = 1, 4, 9
_END_HEADERS: Final = 4
_FRAME_BYTES: Final = 16_384
_FIRST_OF_TABLE: Final = b"\xbe"
"""The newest header of the dynamic table, in one byte."""
_WAIT_S: Final = 60.0


def indexed(count: int) -> bytes:
    """Return a block of headers that repeats one header of a byte each."""
    return _call() + _written("x", "y", kind=0x40) + _FIRST_OF_TABLE * count


def literal(size: int, name: str = "x") -> bytes:
    """Return a block of headers of ``size`` bytes that writes one header out again and again."""
    one = _written(name, "y")
    return _call() + one * (size // len(one))


def flood(address: str, block: bytes) -> bytes:
    """Send a block of headers as one call, and return what the server answers until it has refused it."""
    host, _, port = address.rpartition(":")
    parts = [block[at : at + _FRAME_BYTES] for at in range(0, len(block), _FRAME_BYTES)]
    frames = [_frame(_SETTINGS, 0, 0, b"")]
    for place, part in enumerate(parts):
        is_last = place == len(parts) - 1
        frames.append(_frame(_CONTINUATION if place else _HEADERS, _END_HEADERS * is_last, 1, part))
    answer = b""
    # A server may hang up while we still send.
    with socket.create_connection((host, int(port)), timeout=_WAIT_S) as client, suppress(OSError):
        client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"".join(frames))
        while b"grpc-status" not in answer and (piece := client.recv(65_536)):
            answer += piece
    return answer


def _call() -> bytes:
    told = {":method": "POST", ":scheme": "http", ":path": grpc_path(Signal.TRACES), ":authority": "here"}
    told |= {"content-type": "application/grpc", "te": "trailers"}
    return b"".join(_written(name, value) for name, value in told.items())


def _written(name: str, value: str, kind: int = 0) -> bytes:
    """Write a header literally (RFC 7541 6.2); ``kind`` 0x40 adds it to the table."""
    return b"".join((bytes((kind,)), *(bytes((len(text),)) + text.encode() for text in (name, value))))


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload
