from __future__ import annotations

import json
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from collector_processor.otlp import MalformedRequestError, Signal
from collector_processor.otlp.otlp_json import to_protobuf
from collector_processor.wire.scan import scan_traces
from collector_processor.wire.split import drop_invalid
from tests.otlp_requests import numbers_in, spans_in

CAPTURES = Path(__file__).parents[3] / "shared" / "captures"
TRACE = "5B8EFFF798038103D269B633813FC60C"
SPAN = "eee19b7ec3c1b174"
FULL: dict[str, Any] = {
    "traceId": TRACE,
    "spanId": SPAN,
    "parentSpanId": "EEE19B7EC3C1B173",
    "traceState": "a=b",
    "flags": 257,
    "name": "I'm a server span ☃",
    "startTimeUnixNano": "1544712660000000000",
    "endTimeUnixNano": 1544712661000000001,
    "kind": 2,
    "attributes": [
        {"key": "text", "value": {"stringValue": "v"}},
        {"key": "int", "value": {"intValue": "-9007199254740993"}},
        {"key": "small", "value": {"intValue": 3}},
        {"key": "float", "value": {"doubleValue": 0.5}},
        {"key": "flag", "value": {"boolValue": False}},
        {"key": "raw", "value": {"bytesValue": b64encode(b"\x00\xff").decode()}},
        {"key": "list", "value": {"arrayValue": {"values": [{"stringValue": "a"}, {}]}}},
        {"key": "map", "value": {"kvlistValue": {"values": [{"key": "traceId", "value": {"intValue": 1}}]}}},
    ],
    "droppedAttributesCount": 1,
    "events": [{"timeUnixNano": "1", "name": "e", "attributes": [], "droppedAttributesCount": 2}],
    "droppedEventsCount": 3,
    "links": [{"traceId": TRACE.lower(), "spanId": SPAN, "attributes": [], "flags": 1}],
    "droppedLinksCount": 4,
    "status": {"code": 2, "message": "broke"},
}


def traces(*spans: dict[str, Any]) -> bytes:
    scope = {"scope": {"name": "s", "version": "1"}, "schemaUrl": "inner", "spans": spans}
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]}
    group = {"resource": resource, "schemaUrl": "outer", "scopeSpans": [scope]}
    return json.dumps({"resourceSpans": [group]}).encode()


def only_span(document: bytes) -> Span:
    (found,) = spans_in(to_protobuf(Signal.TRACES, document))
    return found


def test_nothing_of_a_span_is_lost() -> None:
    found = only_span(traces(FULL))
    assert found.trace_id.hex() == TRACE.lower()
    assert found.span_id.hex() == SPAN
    assert found.parent_span_id.hex() == "eee19b7ec3c1b173"
    assert (found.trace_state, found.flags, found.name, found.kind) == ("a=b", 257, "I'm a server span ☃", 2)
    times = (found.start_time_unix_nano, found.end_time_unix_nano)
    assert times == (1544712660000000000, 1544712661000000001)
    values = {attribute.key: attribute.value for attribute in found.attributes}
    assert values["int"].int_value == -9007199254740993
    assert values["small"].int_value == 3
    assert values["float"].double_value == 0.5
    assert values["flag"].HasField("bool_value")
    assert values["raw"].bytes_value == b"\x00\xff"
    assert [value.string_value for value in values["list"].array_value.values] == ["a", ""]
    assert values["map"].kvlist_value.values[0].key == "traceId"
    assert (found.events[0].time_unix_nano, found.events[0].dropped_attributes_count) == (1, 2)
    assert (found.links[0].trace_id.hex(), found.links[0].span_id.hex()) == (TRACE.lower(), SPAN)
    counts = (found.dropped_attributes_count, found.dropped_events_count, found.dropped_links_count)
    assert counts == (1, 3, 4)
    assert (found.status.code, found.status.message) == (Status.STATUS_CODE_ERROR, "broke")


def test_resource_scope_and_schemas_stay() -> None:
    message = ExportTraceServiceRequest.FromString(to_protobuf(Signal.TRACES, traces(FULL)))
    (group,) = message.resource_spans
    assert group.resource.attributes[0].value.string_value == "shop"
    assert (group.schema_url, group.scope_spans[0].schema_url) == ("outer", "inner")
    assert group.scope_spans[0].scope.version == "1"


def test_enum_names_and_snake_case_are_tolerated() -> None:
    span = {
        "trace_id": TRACE,
        "span_id": SPAN,
        "parent_span_id": SPAN,
        "kind": "SPAN_KIND_CLIENT",
        "status": {"code": "STATUS_CODE_OK"},
        "links": [{"trace_id": TRACE, "span_id": SPAN}],
    }
    document = {"resource_spans": [{"scope_spans": [{"spans": [span]}]}]}
    found = only_span(json.dumps(document).encode())
    assert (found.kind, found.status.code) == (Span.SPAN_KIND_CLIENT, Status.STATUS_CODE_OK)
    assert found.parent_span_id == found.links[0].span_id == bytes.fromhex(SPAN)


def test_unknown_fields_are_passed_over() -> None:
    assert only_span(traces(FULL | {"futureField": {"a": [1]}})) == only_span(traces(FULL))


def log_record(written: dict[str, Any]) -> LogRecord:
    body = json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": [written]}]}]}).encode()
    message = ExportLogsServiceRequest.FromString(to_protobuf(Signal.LOGS, body))
    (record,) = message.resource_logs[0].scope_logs[0].log_records
    return record


def test_ids_of_log_records_and_exemplars_are_hex_too() -> None:
    ids = {"traceId": TRACE, "spanId": SPAN}
    record = log_record(ids | {"eventName": "e", "body": {"intValue": 1}})
    assert (record.trace_id.hex(), record.span_id.hex(), record.event_name) == (TRACE.lower(), SPAN, "e")
    metric = {"name": "m", "sum": {"dataPoints": [{"asInt": "4", "exemplars": [ids]}], "isMonotonic": True}}
    metrics = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]}
    body = to_protobuf(Signal.METRICS, json.dumps(metrics).encode())
    found = ExportMetricsServiceRequest.FromString(body).resource_metrics[0].scope_metrics[0].metrics[0]
    assert found.sum.data_points[0].exemplars[0].trace_id.hex() == TRACE.lower()
    assert (found.sum.data_points[0].as_int, found.sum.is_monotonic) == (4, True)


@pytest.mark.parametrize(
    "bad",
    [
        {"traceId": "not hex"},
        {"spanId": 7},
        {"links": [{"traceId": "xyz", "spanId": SPAN}]},
        {"traceId": TRACE[:10]},
        {"spanId": ""},
    ],
    ids=json.dumps,
)
def test_a_span_with_a_bad_id_is_rejected_alone(bad: dict[str, Any]) -> None:
    first, third = ({**FULL, "spanId": f"{number:016x}"} for number in (1, 3))
    body = to_protobuf(Signal.TRACES, traces(first, FULL | bad, third))
    assert scan_traces(body).invalid == 1
    assert numbers_in(drop_invalid(body)[0]) == [1, 3]


def in_base64(hexadecimal: str) -> str:
    return b64encode(bytes.fromhex(hexadecimal)).decode()


def with_base64_ids(span: dict[str, Any]) -> dict[str, Any]:
    """The span as protobuf's own JSON writer writes it."""
    ids = {name: in_base64(span[name]) for name in ("traceId", "spanId", "parentSpanId") if name in span}
    return span | ids | {"links": [with_base64_ids(link) for link in span.get("links", ())]}


def test_ids_may_be_base64_as_protobuf_writes_them() -> None:
    assert only_span(traces(with_base64_ids(FULL))) == only_span(traces(FULL))
    root = {**FULL, "parentSpanId": ""}
    assert only_span(traces(with_base64_ids(root))) == only_span(traces(root))


def test_base64_ids_of_logs_are_read_too() -> None:
    written = {"traceId": in_base64(TRACE), "spanId": in_base64(SPAN), "body": {"stringValue": "b"}}
    record = log_record(written)
    assert (record.trace_id.hex(), record.span_id.hex()) == (TRACE.lower(), SPAN)


def test_an_id_of_only_hex_digits_is_base64_if_the_others_are() -> None:
    """The padding tells: ``abcdefabcde=`` is eight bytes, although it begins like hex."""
    strange = with_base64_ids(FULL) | {"spanId": "abcdefabcdc="}
    assert only_span(traces(strange)).span_id == b64decode("abcdefabcdc=")


@pytest.mark.parametrize(
    "bad",
    [
        {"spanId": in_base64(SPAN[:14])},
        {"spanId": in_base64(TRACE)},
        {"traceId": in_base64(SPAN)},
        {"traceId": TRACE},
        {"spanId": SPAN},
        {"spanId": in_base64(SPAN).rstrip("=")},
    ],
    ids=json.dumps,
)
def test_a_span_whose_ids_are_unlike_the_others_is_rejected_alone(bad: dict[str, Any]) -> None:
    good = [with_base64_ids({**FULL, "spanId": f"{number:016x}"}) for number in (1, 3)]
    body = to_protobuf(Signal.TRACES, traces(good[0], with_base64_ids(FULL) | bad, good[1]))
    assert scan_traces(body).invalid == 1
    assert numbers_in(drop_invalid(body)[0]) == [1, 3]


def test_a_hex_request_takes_no_base64_id() -> None:
    good = {**FULL, "spanId": f"{1:016x}"}
    body = to_protobuf(Signal.TRACES, traces({**FULL, "spanId": "?"}, good, with_base64_ids(FULL)))
    assert numbers_in(drop_invalid(body)[0]) == [1]


def test_half_a_surrogate_pair_does_not_lose_the_request() -> None:
    for name in (b"\\ud800", b"\xed\xa0\x80"):
        assert only_span(traces(FULL | {"name": "NAME"}).replace(b"NAME", name)).name.strip("\ufffd") == ""
    assert only_span(traces(FULL | {"name": "😀"})).name == "😀"


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"[]", b"null", b'"text"', b"\xff\xfe\xfd", b'{"resourceSpans": 1}'),
        b'{"resourceSpans": [null]}',
        *(
            b'{"resourceSpans": [{"scopeSpans": [{"spans": [%s]}]}]}' % span
            for span in (
                *(b'{"kind": 1e999}', b'"text"', b'{"name": 1}', b'{"attributes": {"a": 1}}'),
                *(b'{"startTimeUnixNano": "soon"}', b'{"startTimeUnixNano": NaN}'),
            )
        ),
        b'{"a": ' + b"9" * 5000 + b"}",
        b"[" * 100_000,
        b'{"resourceSpans":' * 20_000,
        b'{"resourceSpans":[{"resource":{"attributes":[{"value":'
        + b'{"arrayValue":{"values":[' * 150
        + b"]}}" * 150
        + b"}]}}]}",
    ],
    ids=lambda body: repr(body[:40]),
)
def test_an_invalid_request_is_refused_in_words(body: bytes) -> None:
    with pytest.raises(MalformedRequestError) as told:
        to_protobuf(Signal.TRACES, body)
    assert 10 < len(str(told.value)) < 300


def test_an_empty_object_is_an_empty_request() -> None:
    for signal in Signal:
        assert to_protobuf(signal, b"{}") == b""


@pytest.mark.skipif(not CAPTURES.is_dir(), reason="the recorded runs are not beside this checkout")
def test_recorded_runs_keep_every_value() -> None:
    for path in CAPTURES.glob("*.json"):
        if path.name == "INDEX.json":
            continue
        is_log = path.name.endswith(".logs.json")
        signal = Signal.LOGS if is_log else Signal.TRACES
        kind: type[Message] = ExportLogsServiceRequest if is_log else ExportTraceServiceRequest
        message = kind.FromString(to_protobuf(signal, path.read_bytes()))
        assert str(message).count("string_value") == path.read_text().count('"stringValue"'), path.name
        assert str(message).count("int_value") == path.read_text().count('"intValue"'), path.name
