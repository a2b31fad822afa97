"""The service's own metrics, over OTLP to the backend for metrics."""

from __future__ import annotations

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from collector_processor.otlp import Signal
from tests.backends.supervise import wait_until
from tests.deploy.shifts import work
from tests.e2e.backend import Backend, grpc_backend
from tests.e2e.line import StartLine


def sums(backend: Backend) -> dict[str, float]:
    """Return each sum of the newest request, over all its labels."""
    if not (requests := backend.of(Signal.METRICS)):
        return {}
    newest = ExportMetricsServiceRequest.FromString(requests[-1].body)
    (scope,) = newest.resource_metrics[0].scope_metrics
    return {
        metric.name: sum(point.as_double for point in metric.sum.data_points)
        for metric in scope.metrics
        if metric.HasField("sum")
    }


def test_what_metrics_shows_is_sent_too_and_is_nobodys_traffic(start_line: StartLine) -> None:
    with grpc_backend() as backend:
        line = start_line(forward_endpoint=backend.url, metrics_interval=200, metrics_settle=0)
        run_id = work(line, "planner", "calculator", failing="calculator")
        assert line.verdict(run_id)["agent"] == "calculator"
        wait_until(
            lambda: sums(backend).get("blamespan.agent.failures") == 1, what="the failure in the backend"
        )
        assert sums(backend)["blamespan.agent.tasks"] == 2
        assert line.items("received", Signal.METRICS) == 0


def test_without_an_endpoint_for_metrics_it_is_said_and_the_service_serves(start_line: StartLine) -> None:
    line = start_line(metrics_interval=200)
    assert len(line.said("own metrics go nowhere: there is no endpoint for metrics")) == 1
    assert line.runs() == []


def test_nothing_is_sent_unless_it_is_asked_for(start_line: StartLine) -> None:
    with grpc_backend() as backend:
        line = start_line(forward_endpoint=backend.url)
        run_id = work(line, "planner", failing="planner")
        line.verdict(run_id)
        backend.await_spans(run_id, 4)
        assert backend.of(Signal.METRICS) == []
