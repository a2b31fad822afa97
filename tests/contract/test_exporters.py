"""Contract of exporters: the bytes they send, and how they interpret each answer."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from email.utils import formatdate
from functools import partial
from pathlib import Path
from typing import Any, Final

import aiohttp
import grpc
import grpc.aio
import pytest
from opentelemetry import context
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from collector_processor.exporters import (
    GrpcExporter,
    HttpExporter,
    JsonExporter,
    open_exporter,
    open_exporters,
)
from collector_processor.otlp import (
    NO_TENANT,
    Delivered,
    Exporter,
    NoSuchService,
    Receipt,
    RefusedError,
    Rejected,
    SendOutcome,
    Setback,
    Signal,
    Tenant,
    TryLater,
    grpc_path,
    http_path,
    setback_of,
)
from collector_processor.otlp.answers import (
    RETRY_INFO_KEY,
    STATUS_DETAILS_KEY,
    MediaType,
    RpcCode,
    failure,
    retry_info,
    success,
)
from collector_processor.otlp.destination import Compression, Destination, DestinationError, Protocol
from collector_processor.receivers import AdmissionRules, GrpcReceiver, HttpReceiver, TlsFiles
from tests.backends.supervise import free_ports
from tests.contract.backends import Backend, GrpcAnswer, HttpReply, grpc_backend, http_backend, socket_backend
from tests.contract.doors import LOOPBACK, MemorySink, listening

BODY: Final = b"\x0a\x03raw" * 100
INSTANCE: Final = "here"
NOW: Final = 1_800_000_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Transport:
    """One kind of exporter with a real server for it."""

    protocol: Protocol
    backend: Callable[..., AbstractAsyncContextManager[Backend]]
    ok: Callable[[bytes], Any]
    path: Callable[[Signal], str]


GRPC: Final = Transport(
    protocol=Protocol.GRPC, backend=grpc_backend, ok=lambda body: GrpcAnswer(body=body), path=grpc_path
)
HTTP: Final = Transport(
    protocol=Protocol.HTTP_PROTOBUF,
    backend=http_backend,
    ok=lambda body: HttpReply(body=body, headers={"Content-Type": "application/x-protobuf"}),
    path=http_path,
)


@pytest.fixture(params=[pytest.param(GRPC, id="grpc"), pytest.param(HTTP, id="http")])
def transport(request: pytest.FixtureRequest) -> Transport:
    chosen: Transport = request.param
    return chosen


@asynccontextmanager
async def exporting(endpoint: str, protocol: Protocol, **changed: Any) -> AsyncIterator[Exporter]:
    destination = Destination(endpoint=endpoint, protocol=protocol, **changed)
    exporter = open_exporter(destination, INSTANCE)
    try:
        yield exporter
    finally:
        await exporter.close()


async def send(exporter: Exporter, signal: Signal = Signal.TRACES, body: bytes = BODY) -> SendOutcome:
    return await exporter.send(signal, body, NO_TENANT, ())


@pytest.mark.parametrize("signal", Signal)
async def test_sends_each_signal_to_its_service_byte_for_byte(transport: Transport, signal: Signal) -> None:
    async with transport.backend() as backend, exporting(backend.url, transport.protocol) as exporter:
        assert await send(exporter, signal) == Delivered()
    (seen,) = backend.seen
    assert (seen.path, seen.body) == (transport.path(signal), BODY)


async def test_a_request_of_15_mb_leaves_whole(transport: Transport) -> None:
    body = bytes(15 << 20)
    async with (
        transport.backend(max_bytes=20 << 20) as backend,
        exporting(backend.url, transport.protocol) as exporter,
    ):
        assert await send(exporter, body=body) == Delivered()
    assert [len(seen.body) for seen in backend.seen] == [len(body)]


async def test_headers_tenant_and_hops_go_on(transport: Transport) -> None:
    async with (
        transport.backend() as backend,
        exporting(
            backend.url, transport.protocol, headers={"Authorization": "Basic s3cret", "x-scope-orgid": "all"}
        ) as exporter,
    ):
        await exporter.send(Signal.TRACES, BODY, Tenant("x-scope-orgid=team+a"), ("one", "two"))
        await send(exporter)
    first, second = (seen.headers for seen in backend.seen)
    assert first["authorization"] == "Basic s3cret"
    assert (first["x-scope-orgid"], second["x-scope-orgid"]) == ("team a", "all")
    assert (first["x-blamespan-hop"], second["x-blamespan-hop"]) == ("one,two,here", "here")


@pytest.mark.parametrize("signal", Signal)
async def test_partial_success_is_delivery_with_a_count(transport: Transport, signal: Signal) -> None:
    answer = transport.ok(success(signal, Receipt(rejected=3, message="too old")))
    async with transport.backend(answer) as backend, exporting(backend.url, transport.protocol) as exporter:
        assert await send(exporter, signal) == Delivered(rejected=3, message="too old")


async def test_an_unreadable_success_is_still_a_success(transport: Transport) -> None:
    answer = transport.ok(b"\xff\xff")
    async with transport.backend(answer) as backend, exporting(backend.url, transport.protocol) as exporter:
        outcome = await send(exporter)
    assert isinstance(outcome, Delivered)
    assert "not an OTLP response" in outcome.message


DETAILS: Final = ((STATUS_DETAILS_KEY, failure(RpcCode.RESOURCE_EXHAUSTED, "x", retry_after_s=1.5)),)
UNTIMED: Final = ((STATUS_DETAILS_KEY, failure(RpcCode.RESOURCE_EXHAUSTED, "x")),)
BARE: Final = ((RETRY_INFO_KEY, retry_info(0.25)),)
BROKEN: Final = ((STATUS_DETAILS_KEY, b"\xff"),)


async def test_an_unreachable_backend_differs_from_one_that_asks_to_wait(transport: Transport) -> None:
    (port,) = free_ports(1)
    async with exporting(f"http://127.0.0.1:{port}", transport.protocol) as exporter:
        outcome = await send(exporter)
    assert outcome == TryLater(reason=f"connection refused to 127.0.0.1:{port}", is_away=True)
    assert setback_of(outcome) is Setback.AWAY


async def test_an_unknown_host_name_is_reported(transport: Transport) -> None:
    async with exporting("http://no-such-host.invalid:4317", transport.protocol) as exporter:
        outcome = await send(exporter)
    assert outcome == TryLater(
        reason="cannot resolve the host name of no-such-host.invalid:4317", is_away=True
    )


@pytest.mark.parametrize(
    ("code", "trailers", "expected"),
    [
        ("CANCELLED", (), TryLater(reason="CANCELLED: said")),
        ("DEADLINE_EXCEEDED", (), TryLater(reason="DEADLINE_EXCEEDED: said")),
        ("ABORTED", (), TryLater(reason="ABORTED: said")),
        ("OUT_OF_RANGE", (), TryLater(reason="OUT_OF_RANGE: said")),
        ("UNAVAILABLE", (), TryLater(reason="UNAVAILABLE: said")),
        ("UNAVAILABLE", DETAILS, TryLater(reason="UNAVAILABLE: said", after_s=1.5)),
        ("DATA_LOSS", (), TryLater(reason="DATA_LOSS: said")),
        ("RESOURCE_EXHAUSTED", DETAILS, TryLater(reason="RESOURCE_EXHAUSTED: said", after_s=1.5)),
        ("RESOURCE_EXHAUSTED", BARE, TryLater(reason="RESOURCE_EXHAUSTED: said", after_s=0.25)),
        ("RESOURCE_EXHAUSTED", (), Rejected(reason="RESOURCE_EXHAUSTED: said")),
        ("RESOURCE_EXHAUSTED", UNTIMED, Rejected(reason="RESOURCE_EXHAUSTED: said")),
        ("RESOURCE_EXHAUSTED", BROKEN, Rejected(reason="RESOURCE_EXHAUSTED: said")),
        ("UNIMPLEMENTED", (), NoSuchService(reason="UNIMPLEMENTED: said")),
        ("INVALID_ARGUMENT", (), Rejected(reason="INVALID_ARGUMENT: said")),
        ("NOT_FOUND", (), Rejected(reason="NOT_FOUND: said")),
        ("ALREADY_EXISTS", (), Rejected(reason="ALREADY_EXISTS: said")),
        ("PERMISSION_DENIED", (), Rejected(reason="PERMISSION_DENIED: said")),
        ("UNAUTHENTICATED", (), Rejected(reason="UNAUTHENTICATED: said")),
        ("FAILED_PRECONDITION", (), Rejected(reason="FAILED_PRECONDITION: said")),
        ("UNKNOWN", (), Rejected(reason="UNKNOWN: said")),
        ("INTERNAL", (), Rejected(reason="INTERNAL: said")),
    ],
)
async def test_what_each_grpc_code_means(
    code: str, trailers: tuple[tuple[str, bytes], ...], expected: SendOutcome
) -> None:
    answer = GrpcAnswer(code=grpc.StatusCode[code], details="said", trailers=trailers)
    async with grpc_backend(answer) as backend, exporting(backend.url, Protocol.GRPC) as exporter:
        assert await send(exporter) == expected
        assert await send(exporter) == Delivered()
    assert len(backend.seen) == 2


async def test_a_message_larger_than_the_backend_takes_is_rejected_to_be_split(transport: Transport) -> None:
    async with (
        transport.backend(max_bytes=100) as backend,
        exporting(backend.url, transport.protocol) as exporter,
    ):
        outcome = await send(exporter)
    assert isinstance(outcome, Rejected)
    assert "larger than max" in outcome.reason or outcome.reason == "HTTP 413"


def _said(media: MediaType) -> HttpReply:
    body = failure(RpcCode.INVALID_ARGUMENT, "no span id", media=media)
    return HttpReply(status=400, body=body, headers={"Content-Type": media.value})


def _waiting(retry_after: str, status: int = 503) -> HttpReply:
    return HttpReply(status=status, headers={"Retry-After": retry_after})


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (HttpReply(status=202), Delivered()),
        (HttpReply(status=429), TryLater(reason="HTTP 429")),
        (HttpReply(status=502), TryLater(reason="HTTP 502")),
        (HttpReply(status=503), TryLater(reason="HTTP 503")),
        (HttpReply(status=504), TryLater(reason="HTTP 504")),
        (_waiting("7", 429), TryLater(reason="HTTP 429", after_s=7.0)),
        (_waiting(formatdate(NOW + 90, usegmt=True)), TryLater(reason="HTTP 503", after_s=90.0)),
        (_waiting(formatdate(NOW - 90, usegmt=True)), TryLater(reason="HTTP 503", after_s=0.0)),
        (_waiting("soon"), TryLater(reason="HTTP 503")),
        (_waiting("-1"), TryLater(reason="HTTP 503")),
        (_waiting("7", 500), Rejected(reason="HTTP 500")),
        (HttpReply(status=301, headers={"Location": "/elsewhere"}), Rejected(reason="HTTP 301")),
        (_said(MediaType.PROTOBUF), Rejected(reason="HTTP 400: no span id")),
        (_said(MediaType.JSON), Rejected(reason="HTTP 400: no span id")),
        (HttpReply(status=400, body=b"<html>"), Rejected(reason="HTTP 400")),
        (HttpReply(status=401), Rejected(reason="HTTP 401")),
        (HttpReply(status=403), Rejected(reason="HTTP 403")),
        (HttpReply(status=404), NoSuchService(reason="HTTP 404")),
        (HttpReply(status=408), Rejected(reason="HTTP 408")),
        (HttpReply(status=413), Rejected(reason="HTTP 413")),
        (HttpReply(status=415), Rejected(reason="HTTP 415")),
        (HttpReply(status=501), Rejected(reason="HTTP 501")),
    ],
)
async def test_what_each_http_status_means(answer: HttpReply, expected: SendOutcome) -> None:
    async with http_backend(answer) as backend:
        exporter = HttpExporter(
            Destination(endpoint=backend.url, protocol=Protocol.HTTP_PROTOBUF), INSTANCE, clock=lambda: NOW
        )
        assert await send(exporter) == expected
        assert await send(exporter) == Delivered()
        await exporter.close()
    assert len(backend.seen) == 2


async def test_an_endless_answer_is_read_only_up_to_a_bound() -> None:
    async def never_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(BODY)
        writer.write(b"HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"4000\r\n" + bytes(0x4000) + b"\r\n")
            await writer.drain()

    async with (
        socket_backend(never_end) as backend,
        exporting(backend.url, Protocol.HTTP_PROTOBUF) as exporter,
    ):
        assert await send(exporter) == TryLater(reason="HTTP 503")


async def test_a_backend_that_keeps_silent_is_tried_later(transport: Transport) -> None:
    async def keep_silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with (
        socket_backend(keep_silent) as backend,
        exporting(backend.url, transport.protocol, timeout_s=0.05) as exporter,
    ):
        assert isinstance(await send(exporter), TryLater)


async def test_a_backend_that_hangs_up_is_tried_later(transport: Transport) -> None:
    async def hang_up(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read(1)

    async with (
        socket_backend(hang_up) as backend,
        exporting(backend.url, transport.protocol, timeout_s=5) as exporter,
    ):
        assert isinstance(await send(exporter), TryLater)


async def test_a_cancelled_send_ends(transport: Transport) -> None:
    async with transport.backend() as backend, exporting(backend.url, transport.protocol) as exporter:
        sending = asyncio.ensure_future(send(exporter))
        await asyncio.sleep(0)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending


async def test_compresses_if_configured(transport: Transport) -> None:
    async with (
        transport.backend() as backend,
        exporting(backend.url, transport.protocol, compression=Compression.GZIP) as exporter,
    ):
        await send(exporter)
        await send(exporter, body=bytes(200_000))
    if transport is HTTP:  # gRPC undoes it before the server sees the body
        assert [seen.headers["content-encoding"] for seen in backend.seen] == ["gzip", "gzip"]
        assert [gzip.decompress(seen.body) for seen in backend.seen] == [BODY, bytes(200_000)]
    else:
        assert [seen.body for seen in backend.seen] == [BODY, bytes(200_000)]


async def test_a_signals_own_url_is_used_unchanged_and_a_general_one_gets_the_signals_path() -> None:
    async with http_backend() as backend:
        for path, exact in [("/otlp/", False), ("/otlp", False), ("/in?key=1", True), ("", True)]:
            async with exporting(
                backend.url + path, Protocol.HTTP_PROTOBUF, is_exact=exact, max_bytes=9
            ) as exporter:
                await send(exporter, Signal.LOGS)
    assert [seen.path for seen in backend.seen] == ["/otlp/v1/logs", "/otlp/v1/logs", "/in?key=1", "/"]


async def test_trusts_the_given_authority_and_no_other(transport: Transport, tls: TlsFiles) -> None:
    async with transport.backend(tls=tls) as backend:
        async with exporting(backend.url, transport.protocol, certificate=tls.certificate) as exporter:
            assert await send(exporter) == Delivered()
        async with exporting(backend.url, transport.protocol) as exporter:
            assert isinstance(await send(exporter), TryLater)


@pytest.mark.parametrize("endpoint", ["localhost:4317", "ftp://x", "http://", "", "http://[::1"])
async def test_an_endpoint_that_is_not_a_url_is_refused(transport: Transport, endpoint: str) -> None:
    with pytest.raises(DestinationError, match=r"expected|Invalid"):
        open_exporter(Destination(endpoint=endpoint, protocol=transport.protocol), INSTANCE)


async def test_an_unreadable_certificate_is_refused(transport: Transport, tmp_path: Path) -> None:
    missing = tmp_path / "none.pem"
    destination = Destination(endpoint="https://x", protocol=transport.protocol, certificate=missing)
    with pytest.raises(DestinationError, match=r"none\.pem: No such file"):
        open_exporter(destination, INSTANCE)


def test_a_destination_never_shows_its_headers() -> None:
    shown = repr(Destination(endpoint="http://x", headers={"authorization": "s3cret"}))
    assert "s3cret" not in shown


class InterceptingInstrumentation(grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[type-arg]
    """Asks on each call whether to trace it, as instrumentation libraries do."""

    def __init__(self, asked: list[object]) -> None:
        self.asked = asked

    async def intercept_unary_unary(self, proceed: Any, details: Any, request: Any) -> Any:
        self.asked.append(context.get_value(_SUPPRESS_INSTRUMENTATION_KEY))
        return await proceed(details, request)


async def test_our_grpc_traffic_is_not_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    interceptors: Any = [InterceptingInstrumentation(asked)]
    plain = partial(grpc.aio.insecure_channel, interceptors=interceptors)
    monkeypatch.setattr(grpc.aio, "insecure_channel", plain)
    async with grpc_backend() as backend, exporting(backend.url, Protocol.GRPC) as exporter:
        assert await send(exporter) == Delivered()
    assert asked == [True]
    assert context.get_value(_SUPPRESS_INSTRUMENTATION_KEY) is None


async def test_our_http_traffic_is_not_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    post = aiohttp.ClientSession.post

    def instrumented(self: aiohttp.ClientSession, *args: Any, **kwargs: Any) -> Any:
        asked.append(context.get_value(_SUPPRESS_INSTRUMENTATION_KEY))
        return post(self, *args, **kwargs)

    monkeypatch.setattr(aiohttp.ClientSession, "post", instrumented)
    async with http_backend() as backend, exporting(backend.url, Protocol.HTTP_PROTOBUF) as exporter:
        assert await send(exporter) == Delivered()
    assert asked == [True]
    assert context.get_value(_SUPPRESS_INSTRUMENTATION_KEY) is None


async def test_json_is_sent_as_the_sdks_write_it_and_json_answers_are_read() -> None:
    request = ExportTraceServiceRequest()
    request.resource_spans.add().scope_spans.add().spans.add(
        trace_id=b"\xab" * 16, span_id=b"\xcd" * 8, kind=3
    )
    partial_success = success(Signal.TRACES, Receipt(rejected=1, message="old"), MediaType.JSON)
    answer = HttpReply(body=partial_success, headers={"Content-Type": "application/json"})
    async with http_backend(answer) as backend:
        exporter = JsonExporter(Destination(endpoint=backend.url, protocol=Protocol.HTTP_PROTOBUF), INSTANCE)
        assert await send(exporter, body=request.SerializeToString()) == Delivered(rejected=1, message="old")
        assert isinstance(await send(exporter, body=b"\xff"), Rejected)
        await exporter.close()
    (seen,) = backend.seen
    assert (seen.path, seen.headers["content-type"]) == ("/v1/traces", "application/json")
    span = {"traceId": "ab" * 16, "spanId": "cd" * 8, "kind": 3}
    assert json.loads(seen.body) == {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}


@pytest.mark.parametrize(
    ("receiver", "make"),
    [
        pytest.param(GrpcReceiver, GrpcExporter, id="grpc"),
        pytest.param(HttpReceiver, HttpExporter, id="http/protobuf"),
        pytest.param(HttpReceiver, JsonExporter, id="http/json"),
    ],
)
async def test_one_blamespan_behind_another_understands_it(
    receiver: type[GrpcReceiver | HttpReceiver], make: type[GrpcExporter | HttpExporter | JsonExporter]
) -> None:
    request = ExportTraceServiceRequest()
    request.resource_spans.add().scope_spans.add().spans.add(trace_id=b"\xab" * 16, name="chat")
    body = request.SerializeToString()
    sink = MemorySink(Receipt(rejected=1, message="old"), RefusedError("full", retry_after_s=2))
    async with listening(receiver(sink, LOOPBACK, AdmissionRules(token="t"))) as port:
        headers = {"authorization": "Bearer t"}
        exporter = make(Destination(endpoint=f"http://127.0.0.1:{port}", headers=headers), INSTANCE)
        outcomes = [
            await exporter.send(Signal.TRACES, body, Tenant("x-scope-orgid=a"), ("up",)) for _ in "12"
        ]
        await exporter.close()
    assert outcomes[0] == Delivered(rejected=1, message="old")
    assert isinstance(outcomes[1], TryLater)
    assert outcomes[1].after_s == 2
    arrival = sink.arrivals[0]
    assert (arrival.body, arrival.tenant, arrival.hops) == (body, "x-scope-orgid=a", ("up", INSTANCE))


async def test_signals_have_their_own_exporters_and_share_equal_ones() -> None:
    async with http_backend() as one, grpc_backend() as two:
        general = Destination(endpoint=one.url, protocol=Protocol.HTTP_PROTOBUF, max_bytes=2000)
        traces = Destination(endpoint=two.url, protocol=Protocol.GRPC, max_bytes=1000)
        router = open_exporters(
            {Signal.TRACES: traces, Signal.LOGS: general, Signal.METRICS: general}, INSTANCE
        )
        outcomes = [await send(router, signal) for signal in Signal]
        await router.close()
    assert outcomes == [Delivered()] * 3
    assert router.routes[Signal.LOGS] is router.routes[Signal.METRICS]
    assert router.max_bytes == 1000
    assert [seen.path for seen in one.seen] == ["/v1/logs", "/v1/metrics"]
    assert [seen.path for seen in two.seen] == [grpc_path(Signal.TRACES)]


async def test_a_signal_without_an_endpoint_has_no_such_service() -> None:
    router = open_exporters({}, INSTANCE)
    assert await send(router, Signal.METRICS) == NoSuchService(reason="no endpoint is set for metrics")
    await router.close()
