"""Promises that both queues keep: the embedded journal, and Kafka with the store in PostgreSQL.

``start`` begins a successor of the process before it. On the journal it has the same data directory; on Kafka
it has an empty one, since no state is moved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import grpc
import pytest

from collector_processor.otlp import Signal
from collector_processor.rebuild.encode import encode
from semconv.model import TraceId
from tests.backends.supervise import free_ports
from tests.e2e.backend import Backend, grpc_backend
from tests.e2e.kafka_group import TENANT, processors
from tests.e2e.line import StartLine, starting
from tests.e2e.test_postgresql import run
from tests.e2e.traffic import CARRIERS, send
from tests.otlp_requests import log_request, metric_request, record, request, span, trace_name

SPANS: Final = 3
"""Spans of a run."""
RUNS: Final = 12
OPEN: Final = 600_000
"""Milliseconds for which a run stays open."""
PARTS: Final = 40


@pytest.fixture(params=["journal", "kafka"])
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StartLine]:
    if request.param == "journal":
        with starting(tmp_path) as begin:
            yield begin
        return
    kafka, server = map(request.getfixturevalue, ("kafka", "server"))
    with processors(tmp_path, kafka, server) as begin:
        yield begin


def name(number: int) -> str:
    return trace_name(0xB1A3E5 + number)


def times_each(backend: Backend, trace_id: str) -> Counter[str]:
    """Return how often each span of a trace came."""
    return Counter(one.id for one in backend.spans(trace_id))


def test_each_span_arrives_once_with_its_tenant_and_each_run_is_judged(start: StartLine) -> None:
    tenants = {name(number): ("red", "blue")[number % 2] for number in range(RUNS)}
    with grpc_backend() as backend:
        line = start(forward_endpoint=backend.url)
        for trace_id, tenant in tenants.items():
            send(line, encode(run(trace_id)), headers={TENANT: tenant})
        for trace_id, tenant in tenants.items():
            assert line.verdict(trace_id)["agent"] == "planner"
            backend.await_spans(TraceId(trace_id), SPANS + CARRIERS)
            assert set(times_each(backend, trace_id).values()) == {1}
            mark = bytes.fromhex(trace_id)
            own = [one for one in backend.of(Signal.TRACES) if mark in one.body]
            assert {one.headers[TENANT] for one in own} == {tenant}
        line.await_balance(received=RUNS * SPANS, acknowledged=RUNS * SPANS, forwarded=RUNS * SPANS)


def test_spans_of_a_trace_arrive_in_the_order_in_which_they_were_sent(start: StartLine) -> None:
    with grpc_backend() as backend:
        line = start(forward_endpoint=backend.url)
        for number in range(1, PARTS + 1):
            send(line, request(span(number, trace=7)))
        came = backend.await_spans(trace_name(7), PARTS)
    assert [int(one.id, 16) for one in came] == list(range(1, PARTS + 1))


def test_logs_and_metrics_arrive(start: StartLine) -> None:
    with grpc_backend() as backend:
        line = start(forward_endpoint=backend.url)
        send(line, log_request(record(trace=3, text="said once")), signal=Signal.LOGS)
        send(line, metric_request([2]), signal=Signal.METRICS)
        assert [one.body.string_value for one in backend.await_records()] == ["said once"]
        backend.await_requests(Signal.METRICS, 1)
        line.await_items("forwarded", 1, Signal.LOGS)
        line.await_items("forwarded", 2, Signal.METRICS)


def test_what_was_acknowledged_before_a_kill_is_forwarded_by_the_successor(start: StartLine) -> None:
    nowhere = f"http://127.0.0.1:{free_ports(1)[0]}"
    ids = [name(number) for number in range(RUNS)]
    first = start(forward_endpoint=nowhere, root_grace=OPEN)
    for trace_id in ids:
        send(first, encode(run(trace_id)))
    first.server.kill()
    with grpc_backend() as backend:
        successor = start(forward_endpoint=backend.url)
        for trace_id in ids:
            assert successor.verdict(trace_id)["agent"] == "planner"
            backend.await_spans(TraceId(trace_id), SPANS + CARRIERS)
            assert set(times_each(backend, trace_id).values()) == {1}


def test_a_run_that_was_open_at_a_kill_is_judged_whole(start: StartLine) -> None:
    with grpc_backend() as backend:
        first = start(forward_endpoint=backend.url, root_grace=OPEN)
        send(first, encode(run(name(1))[:2]))
        backend.await_spans(TraceId(name(1)), 2)
        first.server.kill()
        successor = start(forward_endpoint=backend.url)
        send(successor, encode(run(name(1))[2:]))
        verdict = successor.verdict(name(1))
        assert (verdict["agent"], verdict["version"]) == ("planner", 1)
        backend.await_spans(TraceId(name(1)), SPANS + CARRIERS)
        assert times_each(backend, name(1)).keys() >= {f"{number:016x}" for number in (1, 2, 3)}


def test_a_malformed_request_is_refused_and_its_neighbours_pass(start: StartLine) -> None:
    with grpc_backend() as backend:
        line = start(forward_endpoint=backend.url)
        send(line, request(span(1, trace=1)))
        with pytest.raises(grpc.RpcError) as refused:
            send(line, b"\x0a\xff\xff\xff\xff\x0f")
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        send(line, request(span(2, trace=2)))
        for number in (1, 2):
            backend.await_spans(trace_name(number), 1)
        line.await_balance(received=2, acknowledged=2, forwarded=2)
