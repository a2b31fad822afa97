from __future__ import annotations

import json

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from collector_processor.otlp import MalformedRequestError, Signal
from collector_processor.otlp.otlp_json import to_json, to_protobuf


def test_ids_are_hex_bytes_are_base64_and_large_integers_are_strings() -> None:
    request = ExportTraceServiceRequest()
    span = (
        request.resource_spans.add().scope_spans.add().spans.add(trace_id=b"\x01" * 16, span_id=b"\x02" * 8)
    )
    span.parent_span_id = b"\x03" * 8
    span.start_time_unix_nano = 2**63
    span.links.add(trace_id=b"\x04" * 16, span_id=b"\x05" * 8)
    span.attributes.add(key="traceId").value.bytes_value = b"\x06"
    span.status.code = 2  # type: ignore[assignment]
    (got,) = json.loads(to_json(Signal.TRACES, request.SerializeToString()))["resourceSpans"][0][
        "scopeSpans"
    ][0]["spans"]
    assert got == {
        "traceId": "01" * 16,
        "spanId": "02" * 8,
        "parentSpanId": "03" * 8,
        "startTimeUnixNano": str(2**63),
        "links": [{"traceId": "04" * 16, "spanId": "05" * 8}],
        "attributes": [{"key": "traceId", "value": {"bytesValue": "Bg=="}}],
        "status": {"code": 2},
    }


def test_logs_and_exemplars_have_hex_ids_too() -> None:
    logs = ExportLogsServiceRequest()
    logs.resource_logs.add().scope_logs.add().log_records.add(trace_id=b"\x07" * 16, span_id=b"\x08" * 8)
    metrics = ExportMetricsServiceRequest()
    metric = metrics.resource_metrics.add().scope_metrics.add().metrics.add(name="calls")
    metric.gauge.data_points.add(as_int=3).exemplars.add(span_id=b"\x09" * 8)
    assert b'"traceId":"' + b"07" * 16 in to_json(Signal.LOGS, logs.SerializeToString())
    assert b'"spanId":"' + b"09" * 8 in to_json(Signal.METRICS, metrics.SerializeToString())


def test_the_receiver_reads_back_what_was_written() -> None:
    request = ExportTraceServiceRequest()
    span = (
        request.resource_spans.add().scope_spans.add().spans.add(trace_id=b"\x01" * 16, span_id=b"\x02" * 8)
    )
    span.links.add(trace_id=b"\x04" * 16, span_id=b"\x05" * 8)
    value = span.attributes.add(key="mixed").value.array_value
    value.values.add().string_value = "naïve \U0001f600"
    value.values.add().int_value = -(2**63)
    value.values.add().double_value = float("inf")
    value.values.add().bytes_value = b"\xff\x00"
    body = request.SerializeToString()
    assert to_protobuf(Signal.TRACES, to_json(Signal.TRACES, body)) == body


def test_an_empty_request_is_an_empty_object() -> None:
    assert to_json(Signal.LOGS, b"") == b"{}"


def test_what_is_no_request_is_said() -> None:
    with pytest.raises(MalformedRequestError):
        to_json(Signal.TRACES, b"\xff\xff")
