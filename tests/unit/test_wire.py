from __future__ import annotations

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from collector_processor.otlp import MalformedRequestError
from collector_processor.wire.split import (
    append_attributes,
    drop_oversize,
    filter_items,
    halve,
    member_count,
    parse,
    split_by_size,
)
from tests.otlp_requests import (
    key_value,
    log_request,
    many_spans,
    metric_request,
    numbers_in,
    record,
    request,
    span,
    span_name,
    spans_in,
    trace_name,
)

ADDED = (
    b"\x4a" + bytes([len(key_value("k", "v").SerializeToString())]) + key_value("k", "v").SerializeToString()
)


def test_a_large_request_is_cut_between_spans_and_nothing_is_lost() -> None:
    body = many_spans(100)
    pieces = split_by_size(body, 1000)
    assert len(pieces) > 5
    assert max(map(len, pieces)) <= 1000
    assert numbers_in(*pieces) == numbers_in(body)


def test_a_request_that_fits_is_unchanged() -> None:
    body = many_spans(3)
    assert split_by_size(body, len(body)) == (body,)


def test_a_span_that_fits_into_no_piece_is_sent_alone() -> None:
    body = request(span(1), span(2, attributes={"text": "x" * 5000}), span(3))
    assert [numbers_in(piece) for piece in split_by_size(body, 1000)] == [[1], [2], [3]]


def test_each_piece_has_the_resource_and_scope_of_its_spans() -> None:
    body = request(span(1), span(2), scope="a", service="first") + request(
        span(3), scope="b", service="second"
    )
    for piece, service in zip(split_by_size(body, 120), ("first", "first", "second"), strict=True):
        (group,) = ExportTraceServiceRequest.FromString(piece).resource_spans
        assert group.resource.attributes[0].value.string_value == service


def test_halves_hold_half_of_the_items_each() -> None:
    halves = halve(many_spans(5))
    assert halves is not None
    assert [numbers_in(half) for half in halves] == [[1, 2], [3, 4, 5]]


@pytest.mark.parametrize("body", [b"", many_spans(1)], ids=["none", "one"])
def test_fewer_than_two_items_have_no_halves(body: bytes) -> None:
    assert halve(body) is None


def test_log_and_metric_requests_are_cut_the_same_way() -> None:
    logs = log_request(record(), record(), record())
    assert [member_count(piece) for piece in split_by_size(logs, 60)] == [1, 1, 1]
    halves = halve(metric_request([1, 2, 3]))
    assert halves is not None
    assert list(map(member_count, halves)) == [1, 2]


def test_filtering_nothing_gives_the_same_bytes_back() -> None:
    body = many_spans(3)
    assert filter_items(body, lambda _start, _end: True) == (body, 0)


def test_an_item_larger_than_the_backend_takes_goes_alone() -> None:
    body = request(span(1), span(2, attributes={"text": "x" * 5000}), span(3))
    kept, dropped = drop_oversize(body, 1000)
    assert dropped == 1
    assert numbers_in(kept) == [1, 3]
    assert all(len(piece) <= 1000 for piece in split_by_size(kept, 1000))


def test_attributes_are_added_to_one_span_and_nothing_else_changes() -> None:
    body = request(span(1), span(2), span(3)) + request(span(2, trace=9))
    changed = append_attributes(body, trace_name(1), span_name(2), ADDED)
    before, after = spans_in(body), spans_in(changed)
    assert [one.SerializeToString() for one in after[2:]] == [one.SerializeToString() for one in before[2:]]
    assert after[0] == before[0]
    assert list(after[1].attributes) == [*before[1].attributes, key_value("k", "v")]


def test_an_unknown_span_leaves_the_request_as_it_is() -> None:
    body = many_spans(2)
    assert append_attributes(body, trace_name(7), span_name(1), ADDED) is body


def test_only_attributes_can_be_added() -> None:
    with pytest.raises(MalformedRequestError, match=r"Span\.attributes"):
        append_attributes(many_spans(1), trace_name(1), span_name(1), b"\x2a\x01x")


def test_lengths_of_several_bytes_are_rewritten() -> None:
    long = b"\x4a\x87\x01\x0a\x01k\x12\x81\x01\x0a\x7f" + b"v" * 127
    body = request(span(1), span(2))
    after = spans_in(append_attributes(body, trace_name(1), span_name(1), long * 200))
    assert [len(one.attributes) for one in after] == [200, 0]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        pytest.param(many_spans(3)[:-1], "runs past", id="cut short"),
        pytest.param(b"\x0a", "cut short", id="no length"),
        pytest.param(b"\x08" + b"\xff" * 11, "varint", id="endless number"),
        pytest.param(b"\x0b\x0c", "wire type 3", id="group"),
        pytest.param(b"\x02\x00", "has number 0", id="field zero"),
        pytest.param(b"\x0d\x00\x00\x00\x00", "should be a message", id="wrong type"),
        pytest.param(b"\x0a\x02\x10\x01", "should be a message", id="wrong type inside"),
    ],
)
def test_broken_framing_is_refused_with_a_reason(body: bytes, words: str) -> None:
    with pytest.raises(MalformedRequestError, match=words):
        parse(body)


def test_an_unknown_field_of_the_request_is_kept() -> None:
    unknown = b"\x18\x01"
    assert list(parse(unknown).items()) == []
    halves = halve(unknown + many_spans(2))
    assert halves is not None
    assert halves[0].startswith(unknown)
