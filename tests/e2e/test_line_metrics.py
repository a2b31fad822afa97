"""The service's own metrics, sent over OTLP to the metrics backend."""

from __future__ import annotations

from collections import defaultdict
from typing import Final
from urllib.request import ProxyHandler, build_opener

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from prometheus_client.parser import text_string_to_metric_families

from collector_processor.otlp import Signal
from collector_processor.rebuild.encode import encode
from tests.backends.supervise import wait_until
from tests.deploy.shifts import spans_of, work
from tests.e2e.backend import Backend, grpc_backend
from tests.e2e.line import Line, StartLine
from tests.e2e.traffic import send

EXPORTED: Final = {"OTEL_METRICS_EXPORTER": "otlp", "OTEL_METRIC_EXPORT_INTERVAL": "200"}


def sums(backend: Backend) -> dict[str, float]:
    """Return each sum of the newest request, added up over its labels."""
    if not (requests := backend.of(Signal.METRICS)):
        return {}
    newest = ExportMetricsServiceRequest.FromString(requests[-1].body)
    (scope,) = newest.resource_metrics[0].scope_metrics
    return {
        metric.name: sum(point.as_double for point in metric.sum.data_points)
        for metric in scope.metrics
        if metric.HasField("sum")
    }


def test_the_shown_metrics_are_also_sent_and_count_as_no_traffic(start_line: StartLine) -> None:
    with grpc_backend() as backend:
        line = start_line(forward_endpoint=backend.url, settle_s=0, **EXPORTED)
        run_id = work(line, "planner", "calculator", failing="calculator")
        assert line.verdict(run_id)["agent"] == "calculator"
        wait_until(
            lambda: sums(backend).get("blamespan.agent.failures") == 1, what="the failure in the backend"
        )
        assert sums(backend)["blamespan.agent.tasks"] == 2
        assert line.items("received", Signal.METRICS) == 0


def test_a_missing_endpoint_for_metrics_is_reported_and_the_service_serves(start_line: StartLine) -> None:
    line = start_line(**EXPORTED)
    assert len(line.said("own metrics are not sent: no endpoint for metrics is set")) == 1
    assert line.runs() == []


def test_own_metrics_are_sent_only_if_the_setting_says_so(start_line: StartLine) -> None:
    with grpc_backend() as backend:
        line = start_line(forward_endpoint=backend.url)
        run_id = work(line, "planner", failing="planner")
        line.verdict(run_id)
        backend.await_spans(run_id, 4)
        assert backend.of(Signal.METRICS) == []


def stands(line: Line, what: str) -> dict[tuple[str, str], float]:
    """Return the agents' counts minus the withdrawn ones, by service and agent, without zeros."""
    found: defaultdict[tuple[str, str], float] = defaultdict(float)
    with build_opener(ProxyHandler({})).open(f"{line.web}/metrics", timeout=300) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    for family in families:
        sign = {f"blamespan_agent_{what}": 1, f"blamespan_agent_{what}_withdrawn": -1}.get(family.name, 0)
        for sample in family.samples if sign else ():
            if not sample.name.endswith("_created"):
                found[sample.labels["service"], sample.labels["agent"]] += sign * sample.value
    return {labels: value for labels, value in found.items() if value}


@pytest.mark.parametrize("is_root_first", [True, False])
def test_runs_over_two_services_count_under_their_roots_whichever_comes_first(
    start_line: StartLine, *, is_root_first: bool
) -> None:
    line, ids = start_line(settle_s=0), []
    for _ in range(3):
        root, *rest = spans_of("planner", "calculator", failing="calculator", below="tools")
        for part in ([root], rest) if is_root_first else (rest, [root]):
            send(line, encode(part))
        ids.append(root.trace_id)
    for run_id in ids:
        line.verdict(run_id)
    wait_until(lambda: stands(line, "failures") == {("shop", "calculator"): 3}, what="three failures")
    assert stands(line, "tasks") == {("shop", "planner"): 3, ("shop", "calculator"): 3}
