"""OTLP/JSON in other spellings, untrusted JSON, and JSON as it is written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from collector_processor.otlp import MalformedRequestError, Signal
from collector_processor.otlp.otlp_json import to_json, to_protobuf
from collector_processor.wire.scan import scan_traces
from semconv.json_text import read_json, written_in_turns
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


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(value=JSON, ascii_only=st.booleans())
def test_what_can_be_written_is_read_as_it_was(value: object, ascii_only: bool) -> None:
    assert read_json(json.dumps(value, ensure_ascii=ascii_only)) == value


@given(text=st.text(st.characters(categories=("Cs", "Lu"), include_characters="\\")))
def test_whatever_is_read_can_be_written_as_utf8(text: str) -> None:
    assert isinstance(read_json(json.dumps({text: [text]})), dict)
    json.dumps(read_json(json.dumps({text: [text]})), ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("written", "read"),
    [
        pytest.param(r'"\ud83d\ude00"', "😀", id="a pair"),
        pytest.param(r'"\ud83d"', "\ufffd", id="a first half"),
        pytest.param(r'"\uDE00"', "\ufffd", id="a second half"),
        pytest.param(r'"\ud83dx\ude00"', "\ufffdx\ufffd", id="halves apart"),
        pytest.param(r'"\ud83d\ud83d\ude00"', "\ufffd😀", id="a half before a pair"),
    ],
)
def test_half_a_pair_is_the_replacement_character(written: str, read: str) -> None:
    assert read_json(written) == read


@pytest.mark.parametrize(
    "text", ["", "{", "[" * 200_000, '{"a":' * 200_000, "9" * 5000, '"\ud83d'], ids=lambda text: text[:8]
)
def test_what_cannot_be_read_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each kind says its own words
        read_json(text)


@given(value=JSON, levels=st.integers(0, 4))
def test_json_written_in_turns_is_the_json_written_at_once(value: object, levels: int) -> None:
    at_once = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    assert "".join(written_in_turns(value, levels)) == at_once


def test_each_value_at_the_given_level_is_a_piece_of_its_own() -> None:
    pieces = list(written_in_turns({"spans": [{"name": "a"}, {"name": "b"}]}, 2))
    assert [piece for piece in pieces if "name" in piece] == ['{"name":"a"}', '{"name":"b"}']


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


def test_input_that_is_not_a_request_is_refused() -> None:
    with pytest.raises(MalformedRequestError):
        to_json(Signal.TRACES, b"\xff\xff")
