"""Spans of a file are kept as they are only if encoding and decoding them would give equal ones."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.inquiry.errors import UnreadableInput
from analyzer.recordings.recording import FileFormat, of_spans, read_as
from collector_processor.otlp import Signal
from collector_processor.rebuild.decode import decode
from collector_processor.rebuild.encode import encode
from semconv.model import Event, Link, Resource, Scope, Span, SpanId, TraceId

TRACE, SPAN = TraceId("ab" * 16), SpanId("cd" * 8)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
scalars = st.one_of(
    texts, st.booleans(), st.none(), st.integers(), st.floats(allow_nan=False), st.binary(max_size=3)
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple), st.dictionaries(texts, inner, max_size=3)
    ),
    max_leaves=5,
)
attributes = st.dictionaries(texts, values, max_size=4)
numbers = st.integers(0, 2**64 - 1)
trace_ids = st.sampled_from([TRACE, "AB" * 16, "ab" * 15])
span_ids = st.sampled_from([SPAN, "CD" * 8, "cd" * 7])
spans = st.builds(
    Span,
    trace_id=trace_ids,
    span_id=span_ids,
    parent_id=st.sampled_from([None, SPAN, "0" * 16, "ef" * 4]),
    name=texts,
    kind=st.integers(0, 9),
    start_ns=numbers,
    end_ns=numbers,
    status_message=texts,
    attributes=attributes,
    events=st.lists(st.builds(Event, name=texts, time_ns=numbers, attributes=attributes), max_size=2).map(
        tuple
    ),
    links=st.lists(
        st.builds(Link, trace_id=trace_ids, span_id=span_ids, attributes=attributes), max_size=2
    ).map(tuple),
    scope=st.builds(Scope, name=texts, attributes=attributes),
    resource=st.builds(Resource, attributes=attributes),
    flags=st.integers(0, 2**32 - 1),
)


@given(st.lists(spans, max_size=3))
def test_spans_are_what_a_backend_would_get(given: list[Span]) -> None:
    found = [
        one
        for request in of_spans(given).traces
        for one in (decode(request).spans if isinstance(request, bytes) else request)
    ]
    assert found == list(decode(encode(given)).spans)


def test_plain_spans_are_not_encoded() -> None:
    plain = (Span(trace_id=TRACE, span_id=SPAN, name="café", attributes={"a": ("b", 1), "c": 2.5}),)
    (request,) = of_spans(plain).traces
    assert request == plain


@pytest.mark.parametrize(
    "odd",
    [{"name": "half \ud83d"}, {"name": 3}, {"start_ns": 1.5}, {"end_ns": 2**64}, {"attributes": {1: ""}}],
    ids=ascii,
)
def test_a_value_that_otlp_cannot_hold_is_refused(odd: dict[str, Any]) -> None:
    reads = FileFormat(
        name="spans", source="", how="", example="", recognizes=bool,
        read=lambda _: [Span(trace_id=TRACE, span_id=SPAN, **odd)],
    )  # fmt: skip
    with pytest.raises(UnreadableInput, match="cannot be read as spans"):
        read_as(reads, [])


def test_senders_get_bytes() -> None:
    plain = [Span(trace_id=TRACE, span_id=SPAN)] * 2_500
    (body,) = of_spans(plain).bodies(Signal.TRACES)
    assert decode(body).spans == tuple(plain)
