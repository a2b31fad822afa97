"""gRPC's core refuses a call with another compression than gzip before our code runs.

The Collector may send zstd and snappy over gRPC; grpcio supports gzip and deflate only, and cannot be
extended. Deflate is switched off, as over HTTP. If a test here fails with a newer grpcio, other encodings
have become possible.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import h2.connection
import h2.events
import pytest

from collector_processor.otlp import Signal, grpc_path
from collector_processor.receivers import AdmissionRules, GrpcReceiver
from tests.contract.doors import LOOPBACK, MemorySink, listening

MESSAGE = b"\x01\x00\x00\x00\x03abc"
"""A gRPC frame that claims to be compressed."""


@dataclass(frozen=True, slots=True)
class Answer:
    headers: dict[str, str]
    """The first and the last frames."""


async def call(port: int, encoding: str, message: bytes) -> Answer:
    """Make one call over bare HTTP/2, as another implementation of gRPC would."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    wire = h2.connection.H2Connection()
    wire.initiate_connection()
    head = [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "localhost"),
        (":path", grpc_path(Signal.TRACES)),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        ("grpc-encoding", encoding),
    ]
    wire.send_headers(1, head)
    wire.send_data(1, message, end_stream=True)
    writer.write(wire.data_to_send())
    headers: dict[str, str] = {}
    with closing(writer):
        while True:
            for event in wire.receive_data(await reader.read(65_536)):
                if isinstance(event, h2.events.ResponseReceived | h2.events.TrailersReceived):
                    headers |= {name.decode(): value.decode() for name, value in event.headers or ()}
                if isinstance(event, h2.events.StreamEnded | h2.events.StreamReset):
                    return Answer(headers)
            writer.write(wire.data_to_send())


@contextmanager
def closing(writer: asyncio.StreamWriter) -> Iterator[None]:
    try:
        yield
    finally:
        writer.close()


@pytest.mark.parametrize("encoding", ["zstd", "snappy", "br"])
async def test_an_encoding_that_grpc_does_not_know_is_refused_before_our_code_runs(encoding: str) -> None:
    sink = MemorySink()
    async with listening(GrpcReceiver(sink, LOOPBACK, AdmissionRules())) as port:
        answer = await call(port, encoding, MESSAGE)
    assert sink.arrivals == []
    assert answer.headers["grpc-status"] == "13", "INTERNAL, which clients do not send again"
    assert "grpc-encoding" in answer.headers["grpc-message"], "docs/backends/collector.md explains it"


async def test_every_answer_names_the_encodings_that_are_taken() -> None:
    sink = MemorySink()
    async with listening(GrpcReceiver(sink, LOOPBACK, AdmissionRules())) as port:
        answer = await call(port, "identity", b"\x00" + MESSAGE[1:])
    assert [arrival.body for arrival in sink.arrivals] == [b"abc"]
    assert set(answer.headers["grpc-accept-encoding"].replace(" ", "").split(",")) == {"identity", "gzip"}


async def test_deflate_is_refused_as_not_implemented() -> None:
    sink = MemorySink()
    packed = zlib.compress(b"abc")
    message = b"\x01" + len(packed).to_bytes(4, "big") + packed
    async with listening(GrpcReceiver(sink, LOOPBACK, AdmissionRules())) as port:
        answer = await call(port, "deflate", message)
    assert sink.arrivals == []
    assert answer.headers["grpc-status"] == "12"
    assert "'deflate'" in answer.headers["grpc-message"]
