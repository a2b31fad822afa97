"""Records are what the Collector's exporter writes: a request a trace, its id as the key."""

from __future__ import annotations

import pytest

from collector_processor.kafka.record_form import headers_of, origin_of, pieces
from collector_processor.otlp import HOP_HEADER, MalformedRequestError, Signal, Tenant
from collector_processor.wire.scan import scan_request
from tests.otlp_requests import request, span, trace_name

WHOLE = 1 << 20


def test_each_trace_is_a_record_and_no_span_is_left_out() -> None:
    body = request(*(span(number, trace=1 + number % 3) for number in range(9)))
    records = list(pieces(Signal.TRACES, body, WHOLE))
    assert [key for key, _ in records] == [trace_name(number) for number in (1, 2, 3)]
    assert [scan_request(Signal.TRACES, value, ()).item_count for _, value in records] == [3, 3, 3]


def test_a_large_trace_is_split_between_spans() -> None:
    body = request(*(span(number, trace=1, attributes={"text": "x" * 400}) for number in range(50)))
    records = list(pieces(Signal.TRACES, body, 4_000))
    assert len(records) > 5
    assert {key for key, _ in records} == {trace_name(1)}
    assert max(len(value) for _, value in records) <= 4_000
    assert sum(scan_request(Signal.TRACES, value, ()).item_count for _, value in records) == 50


def test_metrics_have_no_key() -> None:
    assert list(pieces(Signal.METRICS, b"", WHOLE)) == [(None, b"")]


def test_unreadable_bytes_are_refused() -> None:
    with pytest.raises(MalformedRequestError):
        list(pieces(Signal.TRACES, b"\xff", WHOLE))


def test_tenant_and_hops_travel_as_headers() -> None:
    tenant = Tenant("x-scope-orgid=red+%26+blue")
    headers = headers_of(tenant, ("far", "near"))
    assert dict(headers) == {"x-scope-orgid": b"red & blue", HOP_HEADER: b"far,near"}
    assert origin_of(headers, ("x-scope-orgid",)) == (tenant, ("far", "near"))
    assert origin_of([("X-Scope-OrgId", b"a"), ("other", None)], ("x-scope-orgid",)) == (
        "x-scope-orgid=a",
        (),
    )
