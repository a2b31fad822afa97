"""What OTLP/JSON in another spelling than protobuf's is read as, and how it is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from collector_processor.otlp import MalformedRequestError, Signal
from collector_processor.otlp.otlp_json import to_protobuf
from collector_processor.wire.scan import scan_traces
from tests.otlp_requests import spans_in

SPAN = {"traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174", "name": "work"}


def traces(*spans: dict[str, Any]) -> bytes:
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode()


def logs(*records: dict[str, Any]) -> bytes:
    return json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}).encode()


def metrics(**sums: Any) -> bytes:
    return json.dumps({"resourceMetrics": [{"scopeMetrics": [{"metrics": [sums]}]}]}).encode()


@pytest.mark.parametrize("code", [2, 2.0, "2", "ERROR", "error", "StatusCode.ERROR", "STATUS_CODE_ERROR"])
def test_a_failed_span_stays_failed_in_every_spelling(code: object) -> None:
    (span,) = spans_in(to_protobuf(Signal.TRACES, traces(SPAN | {"status": {"code": code}})))
    assert span.status.code == 2


@pytest.mark.parametrize(
    "kind", [3, "3", "CLIENT", "Client", "SpanKind.CLIENT", "SpanKindClient", "SPAN_KIND_CLIENT"]
)
def test_a_kind_is_read_in_every_spelling(kind: object) -> None:
    (span,) = spans_in(to_protobuf(Signal.TRACES, traces(SPAN | {"kind": kind})))
    assert span.kind == 3


def test_severities_and_temporalities_are_read_by_name() -> None:
    body = to_protobuf(Signal.LOGS, logs({"severityNumber": "Warn2"}))
    (record,) = ExportLogsServiceRequest.FromString(body).resource_logs[0].scope_logs[0].log_records
    assert record.severity_number == 14
    for field in ("sum", "histogram", "exponentialHistogram"):
        body = to_protobuf(Signal.METRICS, metrics(**{field: {"aggregationTemporality": "delta"}}))
        message = ExportMetricsServiceRequest.FromString(body)
        (metric,) = message.resource_metrics[0].scope_metrics[0].metrics
        assert "AGGREGATION_TEMPORALITY_DELTA" in str(metric)


def test_no_value_means_unset() -> None:
    unset = spans_in(to_protobuf(Signal.TRACES, traces(SPAN)))[0]
    for odd in ({"kind": ""}, {"kind": None}, {"status": None}):
        assert spans_in(to_protobuf(Signal.TRACES, traces(SPAN | odd))) == [unset]


@pytest.mark.parametrize(
    ("signal", "body", "message"),
    [
        (
            Signal.TRACES,
            traces(SPAN, SPAN | {"status": {"code": "FAILED"}}),
            "resourceSpans[0].scopeSpans[0].spans[1].status.code: expected a number or a name such as",
        ),
        (
            Signal.TRACES,
            traces(SPAN | {"status": "ERROR"}),
            "scopeSpans[0].spans[0].status: expected an object, such as {\"code\": 2}, not 'ERROR'",
        ),
        (
            Signal.TRACES,
            traces(SPAN | {"kind": "x" * 10**6}),
            f"spans[0].kind: expected a number or a name such as SPAN_KIND_CLIENT, not '{'x' * 40}…'",
        ),
        (Signal.TRACES, traces(SPAN | {"kind": True}), "not True"),
        (Signal.TRACES, traces(SPAN | {"kind": 2.5}), "not 2.5"),
        (Signal.TRACES, traces(SPAN | {"kind": [2]}), "not list"),
        (Signal.TRACES, traces(SPAN | {"kind": "9" * 10}), "expected OTLP/JSON traces"),
        (Signal.TRACES, b'{"resourceSpans": ["text"]}', "expected objects in resourceSpans, not 'text'"),
        (Signal.TRACES, b'{"resourceLogs": []}', "expected resourceSpans, found 'resourceLogs'"),
        (Signal.LOGS, b'{"data": [], "total": 0}', "expected resourceLogs, found 'data', 'total'"),
        (
            Signal.LOGS,
            logs({}, {"severityNumber": "LOUD"}),
            "logRecords[1].severityNumber: expected a number or a name such as SEVERITY_",
        ),
        (Signal.LOGS, logs({"traceId": "xyz"}), "logRecords[0].traceId: expected hex"),
        (
            Signal.METRICS,
            metrics(name="m", sum={"aggregationTemporality": "SOME"}),
            "resourceMetrics[0].scopeMetrics[0].metrics[0].sum.aggregationTemporality: expected",
        ),
        (
            Signal.METRICS,
            metrics(name="m", gauge={"dataPoints": [{"exemplars": [{"spanId": 7}]}]}),
            "metrics[0].gauge.dataPoints[0].exemplars[0].spanId: expected hex, such as",
        ),
    ],
    ids=lambda value: value[-50:] if isinstance(value, str) else "",
)
def test_an_odd_value_is_refused_with_its_place(signal: Signal, body: bytes, message: str) -> None:
    with pytest.raises(MalformedRequestError) as told:
        to_protobuf(signal, body)
    assert message in str(told.value)
    assert len(str(told.value)) < 300


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("d269b633813fc60c", "0" * 16 + "d269b633813fc60c"),
        ("0xd269b633813fc60c", "0" * 16 + "d269b633813fc60c"),
        ("5b8efff7-9803-8103-d269-b633813fc60c", SPAN["traceId"]),
        ("0X5B8EFFF798038103D269B633813FC60C", SPAN["traceId"]),
    ],
)
def test_short_and_dashed_trace_ids_are_read(text: str, expected: str) -> None:
    (span,) = spans_in(to_protobuf(Signal.TRACES, traces(SPAN | {"traceId": text})))
    assert span.trace_id.hex() == expected


@pytest.mark.parametrize(
    "odd",
    [
        {"spanId": "5b8efff7-9803-8103-d269-b633813fc60c"},
        {"spanId": "9b7ec3c1b174"},
        {"traceId": "0" * 16},
        {"traceId": "0x"},
        {"traceId": "d269b633813fc6"},
        {"traceId": "--" * 16},
    ],
    ids=json.dumps,
)
def test_an_id_of_another_length_is_not_guessed(odd: dict[str, Any]) -> None:
    scan = scan_traces(to_protobuf(Signal.TRACES, traces(SPAN | odd, SPAN)))
    assert (scan.invalid, scan.item_count) == (1, 1)


def library(*spans: dict[str, Any]) -> dict[str, Any]:
    return {"instrumentationLibrary": {"name": "shop", "version": "1"}, "spans": spans}


@pytest.mark.parametrize("name", ["instrumentationLibrarySpans", "instrumentation_library_spans"])
def test_instrumentation_libraries_are_scopes(name: str) -> None:
    body = json.dumps({"resourceSpans": [{name: [library(SPAN), library(SPAN)], "scopeSpans": []}]}).encode()
    (group,) = ExportTraceServiceRequest.FromString(to_protobuf(Signal.TRACES, body)).resource_spans
    assert [(one.scope.name, one.scope.version, len(one.spans)) for one in group.scope_spans] == [
        ("shop", "1", 1)
    ] * 2


def test_a_sender_of_both_forms_sends_its_spans_once() -> None:
    both = {"instrumentationLibrarySpans": [library(SPAN)], "scopeSpans": [{"spans": [SPAN]}]}
    assert len(spans_in(to_protobuf(Signal.TRACES, json.dumps({"resourceSpans": [both]}).encode()))) == 1


def test_an_instrumentation_library_that_is_text_is_refused() -> None:
    body = b'{"resourceSpans": [{"instrumentationLibrarySpans": ["text"]}]}'
    with pytest.raises(MalformedRequestError, match="expected objects in scopeSpans"):
        to_protobuf(Signal.TRACES, body)
