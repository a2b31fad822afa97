from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from collector_processor.otlp import Receipt, Signal
from collector_processor.otlp.answers import (
    RETRY_INFO_KEY,
    STATUS_DETAILS_KEY,
    MediaType,
    RpcCode,
    failure,
    read_reason,
    read_retry_delay,
    read_success,
    retry_info,
    success,
)

receipts = st.builds(Receipt, rejected=st.integers(0, 2**63 - 1), message=st.text())


@given(receipt=receipts, signal=st.sampled_from(Signal), media=st.sampled_from(MediaType))
def test_an_exporter_reads_what_a_receiver_wrote(receipt: Receipt, signal: Signal, media: MediaType) -> None:
    assert read_success(signal, success(signal, receipt, media), media) == receipt


@given(signal=st.sampled_from(Signal), media=st.sampled_from(MediaType), noise=st.binary())
def test_whatever_a_backend_says_after_success_no_error_comes_of_it(
    signal: Signal, media: MediaType, noise: bytes
) -> None:
    assert read_success(signal, noise, media).rejected >= 0
    assert isinstance(read_reason(noise, media), str)


@given(noise=st.binary(), key=st.sampled_from([RETRY_INFO_KEY, STATUS_DETAILS_KEY]))
def test_whatever_trailers_hold_no_error_comes_of_it(noise: bytes, key: str) -> None:
    delay = read_retry_delay({key: noise})
    assert delay is None or delay >= 0


@given(seconds=st.floats(0, 1e6))
def test_a_wish_to_wait_survives_to_the_millisecond(seconds: float) -> None:
    details = {STATUS_DETAILS_KEY: failure(RpcCode.RESOURCE_EXHAUSTED, "full", retry_after_s=seconds)}
    assert read_retry_delay(details) == pytest.approx(seconds, abs=0.001)
    assert read_retry_delay({RETRY_INFO_KEY: retry_info(seconds)}) == pytest.approx(seconds, abs=0.001)


def test_a_status_without_retry_info_asks_nothing() -> None:
    assert read_retry_delay({STATUS_DETAILS_KEY: failure(RpcCode.RESOURCE_EXHAUSTED, "full")}) is None
    assert read_retry_delay({}) is None


def test_a_negative_count_from_a_backend_is_none() -> None:
    response = ExportTraceServiceResponse()
    response.partial_success.rejected_spans = -5
    assert read_success(Signal.TRACES, response.SerializeToString()) == Receipt()


def test_json_nested_without_end_is_unreadable_and_no_more() -> None:
    assert "not an OTLP response" in read_success(Signal.LOGS, b"[" * 50_000, MediaType.JSON).message


def test_a_status_in_json_reads_as_google_writes_it() -> None:
    text = failure(RpcCode.RESOURCE_EXHAUSTED, "full", retry_after_s=30, media=MediaType.JSON)
    assert json.loads(text) == {
        "code": 8,
        "message": "full",
        "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "30s"}],
    }
    assert read_reason(text, MediaType.JSON) == "full"
