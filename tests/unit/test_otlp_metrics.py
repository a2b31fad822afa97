"""The metrics sent over OTLP equal those of /metrics, in OpenTelemetry's terms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.samples import Exemplar

from analyzer.telemetry import metric_table as table
from analyzer.telemetry.metric import Point
from analyzer.telemetry.otlp_metrics import MetricsSender, Moment, as_request
from collector_processor.exporters import MemoryExporter
from collector_processor.otlp import Signal, TryLater

MARK = Exemplar({"trace_id": "0a" * 16, "span_id": "0b" * 8}, 3.0, 1.5)
MOMENT = Moment(start_ns=1_000, now_ns=2_000)


def families() -> Iterator[Family]:
    lag = table.LAG.histogram((1.0, 5.0))
    for value in (0.5, 3.0, 4.0, 100.0):
        lag.observe(value, MARK.labels if value == 3.0 else None)
    yield table.FAILURES.family([Point(("shop", "calculator", "loop"), 3.0, MARK)])
    yield from lag.collect()
    yield table.BUDGET_SPENT.single(0.25)
    yield table.COST.family([])


def read(body: bytes) -> dict[str, Any]:
    (resource,) = ExportMetricsServiceRequest.FromString(body).resource_metrics
    (scope,) = resource.scope_metrics
    assert {pair.key: pair.value.string_value for pair in resource.resource.attributes} == {
        "service.name": "blamespan",
        "service.instance.id": "instance-1",
    }
    return {metric.name: metric for metric in scope.metrics}


@pytest.fixture
def metrics() -> dict[str, Any]:
    return read(as_request(families(), "instance-1", MOMENT))


def test_a_counter_is_a_sum_that_grows_with_its_labels_and_its_exemplar(metrics: dict[str, Any]) -> None:
    failures = metrics["blamespan.agent.failures"]
    (point,) = failures.sum.data_points
    assert (failures.unit, failures.sum.is_monotonic, failures.sum.aggregation_temporality) == (
        "{run}",
        True,
        2,
    )
    assert (point.as_double, point.start_time_unix_nano, point.time_unix_nano) == (3.0, 1_000, 2_000)
    labels = {pair.key: pair.value.string_value for pair in point.attributes}
    assert labels == {"service": "shop", "agent": "calculator", "mode": "loop"}
    (exemplar,) = point.exemplars
    assert {"trace_id": exemplar.trace_id.hex(), "span_id": exemplar.span_id.hex()} == MARK.labels
    assert (exemplar.as_double, exemplar.time_unix_nano) == (3.0, 1_500_000_000)


def test_a_histogram_has_each_buckets_own_count(metrics: dict[str, Any]) -> None:
    lag = metrics["blamespan.analysis.lag"]
    (point,) = lag.histogram.data_points
    assert lag.unit == "s"
    assert (list(point.explicit_bounds), list(point.bucket_counts)) == ([1.0, 5.0], [1, 2, 1])
    assert (point.count, point.sum) == (4, 107.5)
    assert not point.HasField("min")
    assert [one.span_id.hex() for one in point.exemplars] == [MARK.labels["span_id"]]


def test_money_has_its_unit_and_metrics_without_series_are_left_out(metrics: dict[str, Any]) -> None:
    assert metrics["blamespan.budget.spent"].unit == "USD"
    assert "blamespan.model.cost" not in metrics


async def test_a_refusal_of_own_metrics_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    exporter = MemoryExporter([TryLater(reason="full")])
    sender = MetricsSender(
        read=families, exporter=exporter, instance_id="instance-1", every_s=60, wall_ns=lambda: 2_000
    )
    await sender.send(1_000)
    await sender.send(1_000)
    assert [record.message for record in caplog.records] == ["own metrics were not accepted"]
    assert {sent.signal for sent in exporter.requests} == {Signal.METRICS}
    assert "blamespan.agent.failures" in read(exporter.delivered[-1].body)
