"""What only the HTTP receiver has: paths, media types, encodings, and clients that do not speak HTTP."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import pytest
import zstandard
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from collector_processor.otlp import Receipt, RefusedError, Signal
from collector_processor.receivers import AdmissionRules, HttpReceiver, HttpTimeouts
from tests.contract.doors import LOOPBACK, MemorySink, listening

PROTOBUF: Final = {"Content-Type": "application/x-protobuf"}
JSON: Final = {"Content-Type": "application/json"}
BODY: Final = b"\x0a\x03raw" * 50
TRACE_JSON: Final = b"""{"resourceSpans": [{"scopeSpans": [{"spans": [{
  "traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174", "name": "chat"}]}]}]}"""


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes


class Service:
    """One running receiver, its sink, and requests to it."""

    def __init__(self, sink: MemorySink, port: int) -> None:
        self.sink = sink
        self.port = port

    async def send(
        self, path: str, body: Any, headers: Mapping[str, str] | None = None, method: str = "POST"
    ) -> Reply:
        url = f"http://127.0.0.1:{self.port}{path}"
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, url, data=body, headers=headers) as response,
        ):
            return Reply(response.status, dict(response.headers), await response.read())

    async def speak(self, raw: bytes) -> bytes:
        """Send bytes that need not be HTTP, and return the whole answer."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(raw)
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        return answer


@asynccontextmanager
async def serving(
    *answers: Receipt | BaseException, timeouts: HttpTimeouts | None = None
) -> AsyncIterator[Service]:
    sink = MemorySink(*answers)
    async with listening(HttpReceiver(sink, LOOPBACK, AdmissionRules(), timeouts=timeouts)) as port:
        yield Service(sink, port)


@pytest.mark.parametrize(
    ("encoding", "compressed"),
    [
        pytest.param("gzip", gzip.compress(BODY), id="gzip"),
        pytest.param("GZIP", gzip.compress(BODY), id="names know no case"),
        pytest.param("gzip", gzip.compress(BODY[:9]) + gzip.compress(BODY[9:]), id="gzip in two members"),
        pytest.param("zstd", zstandard.compress(BODY), id="zstd"),
        pytest.param(
            "zstd", zstandard.ZstdCompressor(write_content_size=False).compress(BODY), id="zstd, sizeless"
        ),
        pytest.param("identity", BODY, id="identity"),
    ],
)
async def test_takes_every_encoding_it_names(encoding: str, compressed: bytes) -> None:
    async with serving() as service:
        reply = await service.send("/v1/traces", compressed, {**PROTOBUF, "Content-Encoding": encoding})
    assert (reply.status, reply.body) == (200, b"")
    assert service.sink.arrivals[0].body == BODY


@pytest.mark.parametrize("encoding", ["br", "deflate", "zlib", "snappy", "lz4", "gzip, gzip", "gzip;q=1"])
async def test_another_encoding_is_refused_in_words(encoding: str) -> None:
    async with serving() as service:
        reply = await service.send("/v1/traces", BODY, {**JSON, "Content-Encoding": encoding})
    assert reply.status == 415
    assert "expected one of gzip, identity, x-gzip, zstd" in json.loads(reply.body)["message"]
    assert reply.headers["Accept-Encoding"] == "gzip, identity, x-gzip, zstd"
    assert service.sink.arrivals == []


async def test_json_arrives_as_protobuf() -> None:
    async with serving() as service:
        headers = {"Content-Type": "application/json; charset=UTF-8", "Content-Encoding": "gzip"}
        reply = await service.send("/v1/traces", gzip.compress(TRACE_JSON), headers)
    assert (reply.status, reply.body, reply.headers["Content-Type"]) == (200, b"{}", "application/json")
    request = ExportTraceServiceRequest.FromString(service.sink.arrivals[0].body)
    (span,) = request.resource_spans[0].scope_spans[0].spans
    assert (span.name, span.trace_id.hex()) == ("chat", "5b8efff798038103d269b633813fc60c")


async def test_a_failure_said_by_name_is_forwarded_and_one_of_an_unknown_name_is_refused() -> None:
    spoken = TRACE_JSON.replace(b'"name"', b'"status": {"code": "ERROR"}, "name"')
    async with serving() as service:
        reply = await service.send("/v1/traces", spoken, JSON)
        refused = await service.send("/v1/traces", spoken.replace(b"ERROR", b"FAILED"), JSON)
    request = ExportTraceServiceRequest.FromString(service.sink.arrivals[0].body)
    assert (reply.status, request.resource_spans[0].scope_spans[0].spans[0].status.code) == (200, 2)
    assert (refused.status, len(service.sink.arrivals)) == (400, 1)
    place = "resourceSpans[0].scopeSpans[0].spans[0].status.code"
    assert json.loads(refused.body)["message"].startswith(f"{place}: expected a number or a name")


async def test_spans_of_instrumentation_libraries_are_kept() -> None:
    async with serving() as service:
        old = TRACE_JSON.replace(b"scopeSpans", b"instrumentationLibrarySpans")
        reply = await service.send("/v1/traces", old, JSON)
        await service.send("/v1/traces", TRACE_JSON, JSON)
    assert reply.status == 200
    assert service.sink.arrivals[0].body == service.sink.arrivals[1].body


async def test_json_that_holds_nothing_of_its_path_is_not_accepted_as_empty() -> None:
    async with serving() as service:
        reply = await service.send("/v1/logs", TRACE_JSON, JSON)
    assert (reply.status, service.sink.arrivals) == (400, [])
    assert json.loads(reply.body)["message"] == "expected resourceLogs, found 'resourceSpans'"


async def test_json_answers_say_partial_success_in_json() -> None:
    async with serving(Receipt(rejected=2, message="too large")) as service:
        reply = await service.send("/v1/traces", TRACE_JSON, JSON)
    assert json.loads(reply.body) == {"partialSuccess": {"rejectedSpans": "2", "errorMessage": "too large"}}


async def test_json_answers_say_refusals_in_json() -> None:
    async with serving(RefusedError("full", retry_after_s=1.2)) as service:
        reply = await service.send("/v1/traces", TRACE_JSON, JSON)
    assert (reply.status, reply.headers["Retry-After"]) == (503, "2")
    status = json.loads(reply.body)
    assert (status["code"], status["message"]) == (8, "full")
    assert status["details"] == [
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "1.200s"}
    ]


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        pytest.param(JSON, b'{"resourceSpans": [', id="json cut short"),
        pytest.param(JSON, b"\xff\xfe", id="not UTF-8"),
        pytest.param(JSON, BODY, id="protobuf"),
        pytest.param(JSON, b"[1, 2, 3]", id="json of another shape"),
        pytest.param(JSON, b"[" * 100_000, id="nested without end"),
        pytest.param({**PROTOBUF, "Content-Encoding": "gzip"}, b"no gzip", id="not gzip"),
        pytest.param({**PROTOBUF, "Content-Encoding": "gzip"}, gzip.compress(BODY)[:-4], id="gzip cut short"),
        pytest.param(
            {**PROTOBUF, "Content-Encoding": "zstd"}, zstandard.compress(BODY)[:-4], id="zstd cut short"
        ),
    ],
)
async def test_what_cannot_be_read_is_malformed(headers: dict[str, str], body: bytes) -> None:
    async with serving() as service:
        reply = await service.send("/v1/traces", body, headers)
    assert reply.status == 400
    assert reply.headers["Content-Type"] == headers["Content-Type"]
    assert service.sink.arrivals == []


@pytest.mark.parametrize(
    "content_type",
    ["", "text/plain", "application/json; charset=utf-16", "application/octet-stream", "application/grpc"],
)
async def test_another_content_type_is_refused_in_words(content_type: str) -> None:
    async with serving() as service:
        reply = await service.send("/v1/traces", BODY, {"Content-Type": content_type})
    assert reply.status == 415
    assert "expected one of application/x-protobuf, application/json" in json.loads(reply.body)["message"]


async def test_another_path_is_not_found() -> None:
    async with serving() as service:
        reply = await service.send("/v1/profiles", BODY, PROTOBUF)
    assert reply.status == 404
    assert b"/v1/traces" in reply.body


async def test_another_method_is_not_allowed() -> None:
    async with serving() as service:
        reply = await service.send("/v1/traces", None, method="GET")
    assert (reply.status, reply.headers["Allow"]) == (405, "POST")


async def test_a_body_in_chunks_of_unknown_length_is_taken() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield BODY

    async with serving() as service:
        reply = await service.send("/v1/metrics", pieces(), PROTOBUF)
    assert reply.status == 200
    assert (service.sink.arrivals[0].signal, service.sink.arrivals[0].body) == (Signal.METRICS, BODY * 3)


async def test_chunks_without_end_are_cut_at_the_limit() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(30):
            yield bytes(1 << 20)

    async with serving() as service:
        reply = await service.send("/v1/metrics", pieces(), PROTOBUF)
    assert reply.status == 413


def _head(length: int, *more: bytes) -> bytes:
    lines = (b"POST /v1/traces HTTP/1.1", b"Host: x", b"Content-Type: application/x-protobuf")
    return b"\r\n".join((*lines, b"Content-Length: %d" % length, *more, b"", b""))


async def test_a_client_that_expects_100_continue_gets_it() -> None:
    """Curl asks before each body above 1 MiB, and waits a second for an answer."""
    async with serving() as service:
        reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
        writer.write(_head(3, b"Expect: 100-continue", b"Connection: close"))
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"\x0a\x01x")
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
    assert answer.startswith(b"HTTP/1.1 200")
    assert service.sink.arrivals[0].body == b"\x0a\x01x"


async def test_a_client_that_asks_first_need_not_send_what_is_too_large() -> None:
    async with serving(timeouts=HttpTimeouts(lingering_s=0.05)) as service:
        answer = await service.speak(_head(50 << 20, b"Expect: 100-continue", b"Connection: close"))
    assert answer.startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 secret\r\n\r\n", id="TLS at a plain port"
        ),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", id="HTTP/2"),
        pytest.param(b"POST /v1/traces HTTP/1.1\r\nContent-Length: secret\r\n\r\n", id="length that is none"),
        pytest.param(
            b"POST /v1/traces HTTP/1.1\r\n" + b"x: secret\r\n" * 1000 + b"\r\n", id="headers without end"
        ),
        pytest.param(b"POST http://[::secret HTTP/1.1\r\n\r\n", id="address that is none"),
    ],
)
async def test_garbage_gets_a_400_and_is_never_logged(raw: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as service:
        answer = await service.speak(raw)
        after = await service.send("/v1/traces", BODY, PROTOBUF)
    assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.0 400"))
    assert after.status == 200
    assert "secret" not in caplog.text


async def test_stopping_does_not_wait_for_connections_that_ask_nothing() -> None:
    receiver = HttpReceiver(MemorySink(), LOOPBACK, AdmissionRules())
    service = Service(MemorySink(), await receiver.start())
    async with aiohttp.ClientSession() as session:
        await session.post(f"http://127.0.0.1:{service.port}/v1/traces", data=BODY, headers=PROTOBUF)
        async with asyncio.timeout(60):
            await receiver.stop(grace_s=300)


async def test_a_client_that_leaves_within_its_body_disturbs_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as service:
        _, writer = await asyncio.open_connection("127.0.0.1", service.port)
        writer.write(_head(10) + b"12345")
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        after = await service.send("/v1/traces", BODY, PROTOBUF)
    assert after.status == 200
    assert [arrival.body for arrival in service.sink.arrivals] == [BODY]
    assert not [record for record in caplog.records if record.exc_info]
