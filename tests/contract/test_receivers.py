"""Contract of receivers: both transports accept, refuse and answer alike."""

from __future__ import annotations

import asyncio
import gzip
import logging
import time
from dataclasses import replace
from typing import Any, Final

import aiohttp
import grpc
import grpc.aio
import pytest
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as GrpcLogs
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcMetrics
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpans
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as HttpLogs
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpMetrics
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpans
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from collector_processor.core.headers import WRONG_TOKEN_S
from collector_processor.core.http_server import ListenError
from collector_processor.otlp import (
    Address,
    Cause,
    MalformedRequestError,
    Receipt,
    RefusedError,
    Signal,
    Tenant,
    grpc_path,
)
from collector_processor.otlp.answers import RETRY_INFO_KEY, STATUS_DETAILS_KEY, read_retry_delay
from collector_processor.receivers import AdmissionRules, GrpcReceiver, HttpReceiver
from collector_processor.receivers.intake import LoopError
from tests.contract.doors import LOOPBACK, Door, GrpcClient, HttpClient, MemorySink, listening

GRPC: Final = Door(
    make=GrpcReceiver,
    client=GrpcClient(),
    gzip_client=GrpcClient(compression=grpc.Compression.Gzip),
    invalid=3,
    unauthorized=16,
    too_large=8,
    refused=8,
    broken=13,
)
HTTP: Final = Door(
    make=HttpReceiver,
    client=HttpClient(),
    gzip_client=HttpClient(compress=gzip.compress),
    invalid=400,
    unauthorized=401,
    too_large=413,
    refused=503,
    broken=500,
)

BODY: Final = b"\x0a\x03raw"
"""Receivers do not parse a protobuf request: any bytes must arrive unchanged."""


@pytest.fixture(params=[pytest.param(GRPC, id="grpc"), pytest.param(HTTP, id="http")])
def door(request: pytest.FixtureRequest) -> Door:
    chosen: Door = request.param
    return chosen


@pytest.mark.parametrize("signal", Signal)
async def test_hands_each_signal_to_the_sink_byte_for_byte(door: Door, signal: Signal) -> None:
    sink = MemorySink()
    async with listening(door.make(sink, LOOPBACK, AdmissionRules())) as port:
        answer = await door.client.post(port, signal, BODY)
    assert answer.ok
    assert answer.receipt == Receipt()
    (arrival,) = sink.arrivals
    assert (arrival.signal, arrival.body, arrival.tenant, arrival.hops) == (signal, BODY, Tenant(""), ())


async def test_takes_gzip(door: Door) -> None:
    sink = MemorySink()
    body = BODY * 1000
    async with listening(door.make(sink, LOOPBACK, AdmissionRules())) as port:
        answer = await door.gzip_client.post(port, Signal.TRACES, body)
    assert answer.ok
    assert sink.arrivals[0].body == body


async def test_an_empty_request_is_a_success_that_keeps_nothing(door: Door) -> None:
    sink = MemorySink()
    async with listening(door.make(sink, LOOPBACK, AdmissionRules())) as port:
        answer = await door.client.post(port, Signal.LOGS, b"")
    assert answer.ok
    assert sink.arrivals == []


async def test_tenant_and_hops_come_with_the_request(door: Door) -> None:
    sink = MemorySink()
    headers = {"x-scope-orgid": "team a", "x-blamespan-hop": "one, two,", "x-other": "not asked for"}
    async with listening(door.make(sink, LOOPBACK, AdmissionRules())) as port:
        await door.client.post(port, Signal.TRACES, BODY, headers)
    (arrival,) = sink.arrivals
    assert arrival.tenant == "x-scope-orgid=team+a"
    assert arrival.hops == ("one", "two")


@pytest.mark.parametrize(
    ("signal", "message"),
    [(Signal.TRACES, "2 spans too large"), (Signal.LOGS, ""), (Signal.METRICS, "points")],
)
async def test_says_what_was_not_taken_as_partial_success(door: Door, signal: Signal, message: str) -> None:
    receipt = Receipt(rejected=2, message=message)
    async with listening(door.make(MemorySink(receipt), LOOPBACK, AdmissionRules())) as port:
        answer = await door.client.post(port, signal, BODY)
    assert answer.ok
    assert answer.receipt == receipt


async def test_a_malformed_request_is_the_clients_fault_and_not_to_be_retried(door: Door) -> None:
    sink = MemorySink(MalformedRequestError("field 7 is cut short"))
    async with listening(door.make(sink, LOOPBACK, AdmissionRules())) as port:
        answer = await door.client.post(port, Signal.TRACES, b"\x0a\xff")
    assert (answer.status, answer.message, answer.retry_after_s) == (
        door.invalid,
        "field 7 is cut short",
        None,
    )


async def test_a_refusal_says_when_to_retry(door: Door) -> None:
    sink = MemorySink(RefusedError("the journal is full", retry_after_s=3))
    async with listening(door.make(sink, LOOPBACK, AdmissionRules())) as port:
        answer = await door.client.post(port, Signal.TRACES, BODY)
    assert (answer.status, answer.message, answer.retry_after_s) == (door.refused, "the journal is full", 3.0)


@pytest.mark.parametrize(
    ("answer", "token", "cause"),
    [
        pytest.param(RefusedError("full", retry_after_s=3), None, Cause.FULL, id="full"),
        pytest.param(LoopError("a ring", retry_after_s=60), None, Cause.LOOP, id="loop"),
        pytest.param(MalformedRequestError("no"), None, Cause.MALFORMED, id="malformed"),
        pytest.param(ValueError("ours"), None, Cause.BROKEN, id="broken"),
        pytest.param(Receipt(), "secret", Cause.UNAUTHORIZED, id="no token"),
    ],
)
async def test_every_refusal_is_reported_once_with_its_cause(
    door: Door, answer: Receipt | Exception, token: str | None, cause: Cause
) -> None:
    refused: list[Cause] = []
    rules = AdmissionRules(token=token, refused=refused.append)
    async with listening(door.make(MemorySink(answer), LOOPBACK, rules)) as port:
        assert not (await door.client.post(port, Signal.TRACES, BODY)).ok
        await door.client.post(port, Signal.TRACES, BODY, {"x-blamespan-token": token or ""})
    assert refused == [cause], "and a request that is taken is none"


async def test_grpc_says_when_to_come_back_in_both_places_clients_look() -> None:
    """The specification requires the status; the Python SDK reads only the bare message."""
    sink = MemorySink(RefusedError("full", retry_after_s=1.5))
    async with (
        listening(GrpcReceiver(sink, LOOPBACK, AdmissionRules())) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        call: Any = channel.unary_unary
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call(grpc_path(Signal.TRACES))(BODY)
    pairs: Any = raised.value.trailing_metadata()
    trailers = dict(pairs)
    assert [read_retry_delay({key: trailers[key]}) for key in (STATUS_DETAILS_KEY, RETRY_INFO_KEY)] == [
        1.5,
        1.5,
    ]


async def test_our_own_fault_is_logged_and_its_text_kept_from_the_client(
    door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    sink = MemorySink(ZeroDivisionError("secret"))
    async with listening(door.make(sink, LOOPBACK, AdmissionRules())) as port:
        answer = await door.client.post(port, Signal.TRACES, BODY)
        after = await door.client.post(port, Signal.TRACES, BODY)
    assert answer.status == door.broken
    assert "secret" not in answer.message
    assert [record.levelno for record in caplog.records if record.exc_info] == [logging.ERROR]
    assert after.ok


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({}, id="missing"),
        pytest.param({"authorization": "Bearer nearly"}, id="wrong"),
        pytest.param({"authorization": "Bearer open sesame, too"}, id="more than it"),
        pytest.param({"authorization": "Bearer wrong, Bearer open sesame"}, id="behind a wrong one"),
        pytest.param({"x-scope-orgid": "open sesame"}, id="as a tenant"),
        pytest.param({"authorization": "Basic open sesame"}, id="another scheme"),
        pytest.param({"x-blamespan-token": "Bearer open sesame"}, id="bearer in our own header"),
        pytest.param({"authorization": ""}, id="empty"),
    ],
)
async def test_requests_without_the_token_are_refused(door: Door, headers: dict[str, str]) -> None:
    sink = MemorySink()
    async with listening(door.make(sink, LOOPBACK, AdmissionRules(token="open sesame"))) as port:
        answer = await door.client.post(port, Signal.TRACES, BODY, headers)
    assert answer.status == door.unauthorized
    assert "sesame" not in answer.message
    assert sink.arrivals == []


async def test_a_wrong_token_is_refused_after_a_while(door: Door) -> None:
    async with listening(door.make(MemorySink(), LOOPBACK, AdmissionRules(token="open sesame"))) as port:
        began = time.monotonic()
        await door.client.post(port, Signal.TRACES, BODY, {"x-blamespan-token": "sesame"})
        assert time.monotonic() - began >= WRONG_TOKEN_S


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"authorization": "Bearer open sesame"}, id="bearer"),
        pytest.param({"authorization": "bearer open sesame"}, id="schemes know no case"),
        pytest.param({"x-blamespan-token": "open sesame"}, id="our own header"),
        pytest.param(
            {"authorization": "Bearer another's", "x-blamespan-token": "open sesame"}, id="beside another's"
        ),
    ],
)
async def test_the_token_opens_by_either_header(door: Door, headers: dict[str, str]) -> None:
    async with listening(door.make(MemorySink(), LOOPBACK, AdmissionRules(token="open sesame"))) as port:
        answer = await door.client.post(port, Signal.TRACES, BODY, headers)
    assert answer.ok


async def test_a_request_at_the_limit_is_taken_and_one_above_is_not(door: Door) -> None:
    sink = MemorySink()
    async with listening(door.make(sink, LOOPBACK, AdmissionRules(max_bytes=1000))) as port:
        fits = await door.client.post(port, Signal.TRACES, bytes(1000))
        above = await door.client.post(port, Signal.TRACES, bytes(1001))
    assert fits.ok
    assert (above.status, above.retry_after_s) == (door.too_large, None)
    assert len(sink.arrivals) == 1


async def test_50_mb_are_refused_and_the_service_lives(door: Door) -> None:
    sink = MemorySink()
    async with listening(door.make(sink, LOOPBACK, AdmissionRules())) as port:
        refused = await door.client.post(port, Signal.TRACES, bytes(50 << 20))
        after = await door.client.post(port, Signal.TRACES, BODY)
    assert refused.status == door.too_large
    assert after.ok


async def test_a_compressed_body_counts_as_what_it_becomes(door: Door) -> None:
    sink = MemorySink()
    async with listening(door.make(sink, LOOPBACK, AdmissionRules(max_bytes=1000))) as port:
        answer = await door.gzip_client.post(port, Signal.TRACES, bytes(100_000))
    assert answer.status == door.too_large
    assert sink.arrivals == []


async def test_a_tenant_that_could_not_go_on_as_a_header_is_malformed() -> None:
    # gRPC's client refuses to send one, so only HTTP can bring it.
    sink = MemorySink()
    async with listening(HttpReceiver(sink, LOOPBACK, AdmissionRules())) as port:
        answer = await HTTP.client.post(port, Signal.TRACES, BODY, {"x-scope-orgid": "Zoë"})
    assert answer.status == 400
    assert sink.arrivals == []


async def test_a_port_in_use_is_reported_and_not_shared(door: Door) -> None:
    async with listening(door.make(MemorySink(), LOOPBACK, AdmissionRules())) as port:
        second = door.make(MemorySink(), Address(host="127.0.0.1", port=port), AdmissionRules())
        with pytest.raises(ListenError, match=f"cannot listen on 127.0.0.1:{port}"):
            await second.start()
        await second.stop(grace_s=0)


async def test_a_receiver_starts_again_after_it_was_stopped(door: Door) -> None:
    receiver = door.make(MemorySink(), LOOPBACK, AdmissionRules())
    for _ in range(2):
        async with listening(receiver) as port:
            assert (await door.client.post(port, Signal.TRACES, BODY)).ok


class SlowSink(MemorySink):
    """Holds each request until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.holding = asyncio.Event()
        self.let_go = asyncio.Event()

    async def accept(self, arrival: Any) -> Receipt:
        self.holding.set()
        await self.let_go.wait()
        return await super().accept(arrival)


async def test_stopping_lets_a_request_under_way_end(door: Door) -> None:
    sink = SlowSink()
    receiver = door.make(sink, LOOPBACK, AdmissionRules())
    port = await receiver.start()
    async with asyncio.TaskGroup() as group:
        request = group.create_task(door.client.post(port, Signal.TRACES, BODY))
        await sink.holding.wait()
        stopping = group.create_task(receiver.stop(grace_s=10))
        group.create_task(_set_soon(sink.let_go))
    assert request.result().ok
    assert stopping.done()


async def _set_soon(event: asyncio.Event) -> None:
    for _ in range(3):  # the stop has begun by then
        await asyncio.sleep(0)
    event.set()


async def test_stopping_does_not_wait_longer_than_its_grace(door: Door) -> None:
    sink = SlowSink()
    receiver = door.make(sink, LOOPBACK, AdmissionRules())
    port = await receiver.start()
    request = asyncio.ensure_future(_outcome(door, port))
    await sink.holding.wait()
    async with asyncio.timeout(60):
        await receiver.stop(grace_s=0.05)
    assert await request == "cut off"
    assert sink.arrivals == []


async def _outcome(door: Door, port: int) -> str:
    try:
        answer = await door.client.post(port, Signal.TRACES, BODY)
    except aiohttp.ClientError:
        return "cut off"
    return "taken" if answer.ok else "cut off"


def _sdk_spans(door: Door, port: int, **options: Any) -> Any:
    if door is GRPC:
        return GrpcSpans(endpoint=f"http://127.0.0.1:{port}", **options)
    return HttpSpans(endpoint=f"http://127.0.0.1:{port}/v1/traces", **options)


def _export_a_span(exporter: Any) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with provider.get_tracer("test").start_as_current_span("chat writer"):
        pass
    provider.shutdown()


async def test_the_sdks_spans_arrive(door: Door) -> None:
    sink = MemorySink()
    async with listening(door.make(sink, LOOPBACK, AdmissionRules(token="t"))) as port:
        exporter = _sdk_spans(door, port, headers={"authorization": "Bearer t"})
        await asyncio.to_thread(_export_a_span, exporter)
    (arrival,) = sink.arrivals
    request = ExportTraceServiceRequest.FromString(arrival.body)
    assert [span.name for span in request.resource_spans[0].scope_spans[0].spans] == ["chat writer"]


def _export_a_log(exporter: Any) -> None:
    provider = LoggerProvider(shutdown_on_exit=False)
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    provider.get_logger("test").emit(body="said")
    provider.shutdown()


async def test_the_sdks_logs_arrive(door: Door) -> None:
    sink = MemorySink()
    async with listening(door.make(sink, LOOPBACK, AdmissionRules())) as port:
        exporter = (
            GrpcLogs(endpoint=f"http://127.0.0.1:{port}")
            if door is GRPC
            else HttpLogs(endpoint=f"http://127.0.0.1:{port}/v1/logs")
        )
        await asyncio.to_thread(_export_a_log, exporter)
    (arrival,) = sink.arrivals
    assert arrival.signal is Signal.LOGS
    request = ExportLogsServiceRequest.FromString(arrival.body)
    assert request.resource_logs[0].scope_logs[0].log_records[0].body.string_value == "said"


def _export_a_metric(exporter: Any) -> None:
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=float("inf"))
    provider = MeterProvider([reader], shutdown_on_exit=False)
    provider.get_meter("test").create_counter("calls").add(3)
    provider.force_flush()
    provider.shutdown()


async def test_the_sdks_metrics_arrive(door: Door) -> None:
    sink = MemorySink()
    async with listening(door.make(sink, LOOPBACK, AdmissionRules())) as port:
        exporter = (
            GrpcMetrics(endpoint=f"http://127.0.0.1:{port}")
            if door is GRPC
            else HttpMetrics(endpoint=f"http://127.0.0.1:{port}/v1/metrics")
        )
        await asyncio.to_thread(_export_a_metric, exporter)
    assert sink.arrivals
    assert {arrival.signal for arrival in sink.arrivals} == {Signal.METRICS}
    request = ExportMetricsServiceRequest.FromString(sink.arrivals[0].body)
    assert request.resource_metrics[0].scope_metrics[0].metrics[0].name == "calls"


async def test_the_sdk_comes_back_after_a_refusal_and_loses_nothing(door: Door) -> None:
    sink = MemorySink(RefusedError("full", retry_after_s=0.01))
    async with listening(door.make(sink, LOOPBACK, AdmissionRules())) as port:
        await asyncio.to_thread(_export_a_span, _sdk_spans(door, port))
    first, second = sink.arrivals
    assert first == second


async def test_the_sdk_does_not_come_back_with_a_malformed_request(
    door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    sink = MemorySink(MalformedRequestError("no"))
    with caplog.at_level(logging.CRITICAL):
        async with listening(door.make(sink, LOOPBACK, AdmissionRules())) as port:
            await asyncio.to_thread(_export_a_span, _sdk_spans(door, port))
    assert len(sink.arrivals) == 1


def test_rules_never_show_the_token() -> None:
    assert "sesame" not in repr(replace(AdmissionRules(), token="sesame"))
