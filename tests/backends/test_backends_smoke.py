"""Spans of an agent's SDK pass a real Collector into a real Jaeger and can be queried there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import NonRecordingSpan, SpanContext, Tracer, format_span_id

from tests.backends.fixtures import CollectorFactory
from tests.backends.jaeger_query import JaegerSpan, JaegerTrace, canonical, tags_of
from tests.backends.processes import Forwarding, Protocol, RunningJaeger
from tests.backends.supervise import free_ports, wait_until


@contextmanager
def agent(service: str, endpoint: str) -> Iterator[Tracer]:
    """A tracer as in an agent's process; its spans are sent when the block ends."""
    provider = TracerProvider(resource=Resource.create({"service.name": service}), shutdown_on_exit=False)
    exporter = OTLPSpanExporter(endpoint=endpoint, insecure=True)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    try:
        yield provider.get_tracer("smoke")
    finally:
        assert provider.force_flush()
        provider.shutdown()


def run_of_three_spans(tracer: Tracer) -> SpanContext:
    """A planner that calls a calculator, which calls a tool; returns the calculator's context."""
    with (
        tracer.start_as_current_span("planner"),
        tracer.start_as_current_span("calculator") as calculator,
    ):
        with tracer.start_as_current_span("tool", attributes={"rows": 7, "deep": True}):
            pass
        return calculator.get_span_context()


def trace_of(jaeger: RunningJaeger, trace_id: int, *, spans: int) -> JaegerTrace:
    def complete() -> JaegerTrace | None:
        found = jaeger.query.trace(f"{trace_id:032x}")
        return found if found is not None and len(found["spans"]) >= spans else None

    return wait_until(complete, what=f"{spans} spans of a trace in Jaeger")


def by_name(found: JaegerTrace) -> dict[str, JaegerSpan]:
    return {span["operationName"]: span for span in found["spans"]}


def parents(found: JaegerTrace) -> dict[str, list[tuple[str, str]]]:
    """Return each span's references, by name, as ``(type, name)``."""
    names = {span["spanID"]: span["operationName"] for span in found["spans"]}
    return {
        span["operationName"]: [(ref["refType"], names[ref["spanID"]]) for ref in span["references"]]
        for span in found["spans"]
    }


def endpoint_of(jaeger: RunningJaeger, protocol: Protocol) -> str:
    return jaeger.otlp_grpc_endpoint if protocol == "grpc" else jaeger.otlp_http_endpoint


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_a_run_arrives_whole_and_its_parents_are_child_of(
    jaeger: RunningJaeger, collector_factory: CollectorFactory, protocol: Protocol
) -> None:
    service = f"smoke-{uuid4().hex}"
    collector = collector_factory(Forwarding(endpoint=endpoint_of(jaeger, protocol), protocol=protocol))
    with agent(service, collector.otlp_grpc_endpoint) as tracer:
        calculator = run_of_three_spans(tracer)

    found = trace_of(jaeger, calculator.trace_id, spans=3)

    assert parents(found) == {
        "planner": [],
        "calculator": [("CHILD_OF", "planner")],
        "tool": [("CHILD_OF", "calculator")],
    }
    assert by_name(found)["calculator"]["spanID"] == format_span_id(calculator.span_id)
    assert {process["serviceName"] for process in found["processes"].values()} == {service}
    assert service in jaeger.query.services()
    assert [span["warnings"] for span in found["spans"]] == [None, None, None]


def test_a_trace_is_found_by_service_and_tags_and_by_no_other(
    jaeger: RunningJaeger, collector_factory: CollectorFactory
) -> None:
    service = f"smoke-{uuid4().hex}"
    collector = collector_factory(Forwarding(endpoint=jaeger.otlp_grpc_endpoint))
    with agent(service, collector.otlp_grpc_endpoint) as tracer:
        calculator = run_of_three_spans(tracer)
    found = trace_of(jaeger, calculator.trace_id, spans=3)

    hits = jaeger.query.find_traces(service, tags={"rows": "7", "deep": "true"})
    assert [canonical(hit) for hit in hits] == [canonical(found)]
    assert jaeger.query.find_traces(service, tags={"rows": "8"}) == []
    assert jaeger.query.find_traces("smoke-of-nobody", tags={"rows": "7"}) == []
    assert tags_of(by_name(found)["tool"])["rows"] == 7
    assert jaeger.query.trace("f" * 32) is None


def test_a_child_exported_later_joins_the_trace_under_its_parent(
    jaeger: RunningJaeger, collector_factory: CollectorFactory
) -> None:
    service = f"smoke-{uuid4().hex}"
    collector = collector_factory(Forwarding(endpoint=jaeger.otlp_grpc_endpoint))
    with agent(service, collector.otlp_grpc_endpoint) as tracer:
        calculator = run_of_three_spans(tracer)
    before = trace_of(jaeger, calculator.trace_id, spans=3)
    start_ns = by_name(before)["calculator"]["startTime"] * 1000 + 999

    with agent(service, collector.otlp_grpc_endpoint) as tracer:
        parent = trace.set_span_in_context(NonRecordingSpan(calculator))
        late = tracer.start_span("late", context=parent, start_time=start_ns)
        late.end(start_ns + 1000)
    after = trace_of(jaeger, calculator.trace_id, spans=4)

    assert parents(after) == parents(before) | {"late": [("CHILD_OF", "calculator")]}
    assert by_name(after)["late"]["duration"] == 1
    assert after["warnings"] is None
    assert [span["warnings"] for span in after["spans"]] == [None] * 4
    kept = {span_id: span for span_id, span in canonical(after).items() if span_id in canonical(before)}
    assert kept == canonical(before)


def test_a_collector_queue_on_disk_outlives_kill_9(
    jaeger: RunningJaeger, collector_factory: CollectorFactory, tmp_path: Path
) -> None:
    nowhere = f"http://127.0.0.1:{free_ports(1)[0]}"
    queue = tmp_path / "queue"
    first = collector_factory(Forwarding(endpoint=nowhere, queue_folder=queue))
    with agent(f"smoke-{uuid4().hex}", first.otlp_grpc_endpoint) as tracer:
        calculator = run_of_three_spans(tracer)
    wait_until(lambda: "Exporting failed" in first.server.tail(), what="the first failed try")
    first.server.kill()
    assert jaeger.query.trace(f"{calculator.trace_id:032x}") is None

    collector_factory(Forwarding(endpoint=jaeger.otlp_grpc_endpoint, queue_folder=queue))

    assert len(trace_of(jaeger, calculator.trace_id, spans=3)["spans"]) == 3
