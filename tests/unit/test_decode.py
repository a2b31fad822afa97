"""OTLP protobuf to records and back; damage affects only the damaged spans."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage

from collector_processor.otlp import MalformedRequestError
from collector_processor.rebuild.decode import decode, decode_logs
from collector_processor.rebuild.encode import encode, encode_attributes, encode_logs
from collector_processor.wire.salvage import MAX_NESTING, TOO_DEEP, most_copied
from semconv.model import Event, Link, LogRecord, Span, SpanId, SpanStatus, TraceId
from tests.factories import TRACE, span, span_id


def request(*spans: SpanMessage) -> ExportTraceServiceRequest:
    made = ExportTraceServiceRequest()
    made.resource_spans.add().scope_spans.add().spans.extend(spans)
    return made


def raw_span(**fields: Any) -> SpanMessage:
    return SpanMessage(**{"trace_id": b"\1" * 16, "span_id": b"\2" * 8, **fields})


def nested(levels: int) -> AnyValue:
    value = AnyValue(string_value="core")
    for _ in range(levels):
        outer = AnyValue()
        outer.array_value.values.append(value)
        value = outer
    return value


def with_attribute(value: AnyValue) -> SpanMessage:
    made = raw_span(name="holder")
    made.attributes.add(key="deep").value.CopyFrom(value)
    return made


def depth_of(value: object) -> int:
    depth = 0
    while isinstance(value, tuple):
        value, depth = value[0], depth + 1
    return depth


def test_everything_of_a_span_comes_back() -> None:
    whole = Span(
        trace_id=TRACE,
        span_id=span_id(1),
        parent_id=span_id(2),
        name="näme",
        kind=3,
        start_ns=2**63,
        end_ns=2**64 - 1,
        status=SpanStatus.ERROR,
        status_message="boom",
        attributes={
            "a": "b",
            "n": -5,
            "f": 0.5,
            "yes": True,
            "raw": b"\0\xff",
            "none": None,
            "l": (1, ("x",)),
            "m": {"k": ()},
        },
        events=(Event(name="e", time_ns=7, attributes={"x": 1}),),
        links=(Link(trace_id=TRACE, span_id=span_id(9), attributes={"l": False}),),
        trace_state="a=b",
        flags=0x301,
        dropped_attributes=4,
    )
    assert decode(encode([whole])).spans == (whole,)


def test_neighbours_share_their_resource_and_scope() -> None:
    one, two = decode(encode([span(1), span(2)])).spans
    assert one.resource is two.resource
    assert one.scope is two.scope


def test_spans_with_ids_of_a_wrong_length_are_counted() -> None:
    body = request(raw_span(), raw_span(span_id=b"short"), raw_span(trace_id=b"")).SerializeToString()
    decoded = decode(body)
    assert (len(decoded.spans), decoded.rejected) == (1, 2)


def test_a_parent_id_of_zeros_means_no_parent() -> None:
    (root,) = decode(request(raw_span(parent_span_id=b"\0" * 8)).SerializeToString()).spans
    assert root.parent_id is None


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"\x0a\xff\xff\xff\xff\x0f", id="cut short"),
        pytest.param(b"not protobuf at all", id="prose"),
        pytest.param(b"\x0a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", id="endless number"),
    ],
)
def test_bytes_that_are_no_request_are_malformed(body: bytes) -> None:
    with pytest.raises(MalformedRequestError):
        decode(body)
    with pytest.raises(MalformedRequestError):
        decode_logs(body)


def test_an_empty_request_has_no_spans() -> None:
    assert decode(b"").spans == ()


def test_text_that_is_not_utf8_is_kept_with_replacement_marks() -> None:
    body = request(raw_span(name="ABCDEFGH"), raw_span(span_id=b"\3" * 8, name="fine")).SerializeToString()
    decoded = decode(body.replace(b"ABCDEFGH", b"AB\xff\xfeEFGH"))
    assert [each.name for each in decoded.spans] == ["AB��EFGH", "fine"]
    assert decoded.rejected == 0


def test_one_unreadable_span_does_not_cost_its_neighbours() -> None:
    body = request(raw_span(name="WXYZ"), raw_span(span_id=b"\3" * 8, name="fine")).SerializeToString()
    broken = body.replace(b"\x2a\x04WXYZ", b"\x2f\x04WXYZ")  # wire type 7 does not exist
    decoded = decode(broken)
    assert [each.name for each in decoded.spans] == ["fine"]
    assert decoded.rejected == 1


def test_a_span_of_tiny_bad_words_is_left_out_after_a_bound() -> None:
    """Each of them is copied by hand, which takes a microsecond: megabytes of them took seconds."""
    words = _field(5, _field(1, _field(1, b"\xff")) * (most_copied(0) * 5))
    ids = _field(1, b"\1" * 16)
    bad = ids + _field(2, b"\2" * 8) + _field(9, _field(1, b"words") + _field(2, words))
    good = ids + _field(2, b"\3" * 8) + _field(5, b"fine")
    decoded = decode(_field(1, _field(2, _field(2, bad) + _field(2, good))))
    assert [each.name for each in decoded.spans] == ["fine"]
    assert decoded.rejected == 1


def test_many_words_beside_a_bad_text_are_kept() -> None:
    words = _field(5, _field(1, _field(1, b"x")) * (most_copied(0) * 5))
    span = _field(1, b"\1" * 16) + _field(2, b"\2" * 8) + _field(5, b"\xff")
    span += _field(9, _field(1, b"words") + _field(2, words))
    (holder,) = decode(_field(1, _field(2, _field(2, span)))).spans
    found = holder.attributes["words"]
    assert isinstance(found, tuple)
    assert len(found) == most_copied(0) * 5


@pytest.mark.parametrize("levels", [MAX_NESTING + 1, 40, 1000])
def test_a_deeply_nested_attribute_ends_in_a_placeholder(levels: int) -> None:
    """Beyond about 45 levels protobuf refuses the whole request; it must be read nevertheless."""
    value = AnyValue(string_value="core").SerializeToString()
    for _ in range(levels):  # built by hand: protobuf would not serialise it either
        value = _field(5, _field(1, value))
    pair = _field(1, b"deep") + _field(2, value)
    body = _field(1, _field(2, _field(2, raw_span(name="holder").SerializeToString() + _field(9, pair))))
    (holder,) = decode(body).spans
    assert holder.name == "holder"
    assert depth_of(holder.attributes["deep"]) == MAX_NESTING
    assert TOO_DEEP in repr(holder.attributes["deep"])


def test_nesting_up_to_the_limit_is_kept() -> None:
    (holder,) = decode(request(with_attribute(nested(MAX_NESTING))).SerializeToString()).spans
    assert depth_of(holder.attributes["deep"]) == MAX_NESTING
    assert "core" in repr(holder.attributes["deep"])


def _field(number: int, content: bytes) -> bytes:
    length, size = len(content), b""
    while length > 0x7F:
        size += bytes((length & 0x7F | 0x80,))
        length >>= 7
    return bytes((number << 3 | 2,)) + size + bytes((length,)) + content


def test_attribute_bytes_add_to_a_raw_span() -> None:
    added = encode_attributes({"blamespan.step.index": 3, "x": ("a", "b")})
    message = SpanMessage.FromString(with_attribute(nested(0)).SerializeToString() + added)
    (grown,) = decode(request(message).SerializeToString()).spans
    assert grown.attributes == {"deep": "core", "blamespan.step.index": 3, "x": ("a", "b")}
    assert grown.name == "holder"


def test_a_log_record_comes_back() -> None:
    record = LogRecord(
        trace_id=TRACE,
        span_id=span_id(1),
        event=Event(name="gen_ai.evaluation.result", time_ns=5, attributes={"a": 1}, body={"text": "hello"}),
    )
    loose = LogRecord(trace_id=None, span_id=None, event=Event(name="", time_ns=6, body="plain"))
    assert decode_logs(encode_logs([record, loose])) == (record, loose)


def test_an_old_event_name_is_found_among_the_attributes() -> None:
    record = LogRecord(
        trace_id=None, span_id=None, event=Event(name="", attributes={"event.name": "old.style"})
    )
    (read,) = decode_logs(encode_logs([record]))
    assert read.event.name == "old.style"


def test_ids_are_lower_case_hex() -> None:
    (made,) = decode(request(raw_span(trace_id=b"\xab" * 16)).SerializeToString()).spans
    assert made.trace_id == TraceId("ab" * 16)
    assert made.span_id == SpanId("02" * 8)
