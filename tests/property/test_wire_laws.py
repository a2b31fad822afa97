"""Laws of splitting and joining raw requests, compared with the real protobuf classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from collector_processor.otlp import MalformedRequestError, Signal
from collector_processor.wire.facts import AGENT_BIT, MARKED_BIT, TOP_BIT, SpanNote
from collector_processor.wire.protobuf import write_varint
from collector_processor.wire.scan import item_count, scan_request, scan_traces
from collector_processor.wire.split import (
    append_attributes,
    drop_invalid,
    drop_oversize,
    exclude,
    extract,
    halve,
    split_by_size,
)
from semconv.model import TraceId
from tests.otlp_requests import as_the_collector_writes, key_value, request, span, span_name, trace_name

UNKNOWN = b"\xf8\x3f\x2a"
"""A field that OTLP does not have (number 1023, a varint)."""

MARKED = {"http.method": "GET", "gen_ai.operation.name": "chat"}
UNMARKED = {"http.method": "GET"}
READS_LIKE_ONE = {"sql": "gen_ai.x"}

texts = st.text(max_size=12)
attributes = st.lists(
    st.builds(
        key_value,
        st.sampled_from(["gen_ai.operation.name", "http.method", "a", "blamespan.carrier", "long" * 40]),
        st.one_of(st.booleans(), st.integers(-5, 5), texts, st.just("invoke_agent"), st.just("x" * 300)),
    ),
    max_size=3,
)
spans = st.builds(
    Span,
    trace_id=st.integers(0, 4).map(lambda n: n.to_bytes(16)),
    span_id=st.integers(1, 6).map(lambda n: n.to_bytes(8)),
    parent_span_id=st.sampled_from([b"", (1).to_bytes(8), (9).to_bytes(8)]),
    trace_state=st.sampled_from(["", "vendor=1"]),
    name=texts,
    attributes=attributes,
    flags=st.sampled_from([0, 1, 0x301]),
)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    message = ExportTraceServiceRequest()
    for _ in range(draw(st.integers(0, 3))):
        group = message.resource_spans.add(schema_url=draw(texts))
        group.resource.attributes.extend(draw(attributes))
        for _ in range(draw(st.integers(0, 3))):
            scope = group.scope_spans.add(schema_url=draw(texts))
            scope.scope.name = draw(st.sampled_from(["", "shop", "blamespan", "openinference.x"]))
            scope.spans.extend(draw(st.lists(spans, max_size=4)))
    body = message.SerializeToString()
    if draw(st.booleans()) and message.resource_spans:  # unknown fields on every level
        inner = message.resource_spans[0].SerializeToString() + UNKNOWN
        rest = ExportTraceServiceRequest(resource_spans=message.resource_spans[1:]).SerializeToString()
        body = b"\x0a" + write_varint(len(inner)) + inner + rest + UNKNOWN
    return body


def spans_of(*bodies: bytes) -> list[tuple[bytes, bytes, bytes]]:
    """Return every span's bytes with the rest of its resource group and of its scope group."""
    found: list[tuple[bytes, bytes, bytes]] = []
    for body in bodies:
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            scopes = list(group.scope_spans)
            group.ClearField("scope_spans")
            for scope in scopes:
                raw = [span.SerializeToString() for span in scope.spans]
                scope.ClearField("spans")
                found += [(group.SerializeToString(), scope.SerializeToString(), one) for one in raw]
    return found


@given(requests(), st.integers(1, 400))
def test_pieces_together_are_the_request(body: bytes, limit: int) -> None:
    pieces = split_by_size(body, limit)
    assert spans_of(*pieces) == spans_of(body)
    assert pieces[0].startswith(UNKNOWN) or len(pieces) == 1 or not body.endswith(UNKNOWN)
    for piece in pieces:
        assert len(piece) <= limit or item_count(Signal.TRACES, piece) == 1 or len(spans_of(body)) == 0


@given(requests())
def test_halves_together_are_the_request(body: bytes) -> None:
    halves = halve(body)
    count = len(spans_of(body))
    if halves is None:
        assert count < 2
    else:
        assert spans_of(*halves) == spans_of(body)
        assert abs(len(spans_of(halves[0])) - len(spans_of(halves[1]))) <= 1


@given(requests(), st.sets(st.integers(0, 4)))
def test_every_span_is_in_the_extract_or_in_the_rest(body: bytes, wanted: set[int]) -> None:
    names = tuple(trace_name(n) for n in wanted)
    taken, left = extract(Signal.TRACES, body, names), exclude(Signal.TRACES, body, names)
    assert Counter(spans_of(taken)) + Counter(spans_of(left)) == Counter(spans_of(body))
    assert {int.from_bytes(Span.FromString(raw).trace_id) for *_, raw in spans_of(taken)} <= wanted
    assert not {int.from_bytes(Span.FromString(raw).trace_id) for *_, raw in spans_of(left)} & wanted


@given(requests(), st.integers(0, 4), st.integers(1, 6), attributes)
def test_added_attributes_are_the_only_change(
    body: bytes, trace: int, number: int, added: list[KeyValue]
) -> None:
    raw = Span(attributes=added).SerializeToString()
    changed = append_attributes(body, trace_name(trace), span_name(number), raw)
    before, after = spans_of(body), spans_of(changed)
    differing = [(one, other) for one, other in zip(before, after, strict=True) if one != other]
    ids = (trace.to_bytes(16), number.to_bytes(8))
    is_there = any((one.trace_id, one.span_id) == ids for one in (Span.FromString(raw) for *_, raw in before))
    assert len(differing) == (1 if is_there and added else 0)
    for (*around, old), (*around_after, new) in differing:
        assert around == around_after
        expected = Span.FromString(old)
        expected.MergeFrom(Span(attributes=added))
        assert Span.FromString(new) == expected
    assert len(changed) - len(body) <= (len(raw) + 12 if differing else 0)


@given(requests())
def test_the_survey_agrees_with_protobuf(body: bytes) -> None:
    all_spans = [Span.FromString(raw) for *_, raw in spans_of(body)]
    valid = [span for span in all_spans if span.trace_id.strip(b"\0")]
    found = scan_traces(body, {TraceId(span.trace_id.hex()) for span in valid})
    assert found.item_count == len(valid)
    assert found.invalid == len(all_spans) - len(valid)
    counts = Counter(TraceId(span.trace_id.hex()) for span in valid)
    assert {note.trace_id: note.span_count for note in found.traces} == counts
    for note in found.traces:
        mine = [span for span in valid if span.trace_id.hex() == note.trace_id]
        assert note.byte_count == sum(len(span.SerializeToString()) for span in mine)
        if note.spans:
            noted = {(span_id, parent_id) for span_id, parent_id, *_ in note.spans}
            assert noted <= {(int.from_bytes(s.span_id), int.from_bytes(s.parent_span_id)) for s in mine}


@given(requests())
def test_the_collectors_order_of_fields_is_read_like_the_usual_one(body: bytes) -> None:
    known = {TraceId(Span.FromString(raw).trace_id.hex()) for *_, raw in spans_of(body)}
    usual, falling = scan_traces(body, known), scan_traces(as_the_collector_writes(body), known)
    assert (falling.item_count, falling.invalid) == (usual.item_count, usual.invalid)
    for found, expected in zip(falling.traces, usual.traces, strict=True):
        assert (found.trace_id, found.span_count) == (expected.trace_id, expected.span_count)
        assert found.is_agent >= expected.is_agent  # there a marker is found on a long attribute too
        if expected.is_agent:
            assert [kinds(note) for note in found.spans] == [kinds(note) for note in expected.spans]
            assert found.carrier_count == expected.carrier_count


@given(st.lists(st.sampled_from([MARKED, UNMARKED, READS_LIKE_ONE]), max_size=40), st.booleans())
def test_a_span_is_marked_whatever_its_neighbours_are(
    made: list[Mapping[str, str]], is_collectors: bool
) -> None:
    body = request(*(span(n, trace=n % 3 + 1, attributes=attributes) for n, attributes in enumerate(made, 1)))
    body = as_the_collector_writes(body) if is_collectors else body
    found = {
        span_id: bool(bits & MARKED_BIT)
        for trace in scan_traces(body, {trace_name(n) for n in (1, 2, 3)}).traces
        for span_id, _, bits, *_ in trace.spans
    }
    assert found == {n: attributes is MARKED for n, attributes in enumerate(made, 1)}


def kinds(note: SpanNote) -> tuple[int, int, int]:
    span_id, parent_id, bits, *_ = note
    return span_id, parent_id, bits & (TOP_BIT | AGENT_BIT)


@given(requests(), st.integers(1, 400))
def test_dropped_spans_are_counted(body: bytes, limit: int) -> None:
    kept, dropped = drop_oversize(body, limit)
    assert len(spans_of(kept)) + dropped == len(spans_of(body))
    kept, dropped = drop_invalid(body)
    assert len(spans_of(kept)) + dropped == len(spans_of(body))
    assert scan_traces(kept).invalid == 0


@given(st.one_of(st.binary(max_size=200), requests()), st.data())
def test_hostile_bytes_are_read_or_malformed(body: bytes, data: st.DataObject) -> None:
    hostile = bytearray(body)
    for _ in range(data.draw(st.integers(0, 4)) if body else 0):
        hostile[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    raw = bytes(hostile)
    for signal in Signal:
        with suppress(MalformedRequestError):
            found = scan_request(signal, raw)
            assert item_count(signal, raw) == found.item_count + found.invalid
            split_by_size(raw, 64)
            halve(raw)
            extract(Signal.LOGS, raw, (trace_name(1),))
            append_attributes(raw, trace_name(1), span_name(1), b"\x4a\x00")
