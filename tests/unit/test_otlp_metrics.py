"""The metrics sent over OTLP equal those of /metrics; their page lists exactly those that exist."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.samples import Exemplar

from analyzer.analyses.pool import Outcome
from analyzer.issues.recurrence import IssueState
from analyzer.telemetry import metric_table as table
from analyzer.telemetry.metric import MOST_VALUES, Point
from analyzer.telemetry.metric_table import METRICS
from analyzer.telemetry.otlp_metrics import MetricsSender, Moment, as_request
from collector_processor.exporters import MemoryExporter
from collector_processor.otlp import Signal, TryLater
from tools.monitoring.alert_rules import rule_file
from tools.references.metrics_reference import PAGE, page

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


@pytest.mark.skipif(not PAGE.exists(), reason="the built wheel has no docs")
def test_the_page_equals_the_generated_one() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python -m tools.references.metrics_reference`"


def test_every_alert_is_on_the_page() -> None:
    alerts = [rule["alert"] for rule in rule_file()["groups"][0]["rules"]]
    assert [alert for alert in alerts if f"`{alert}`" not in page()] == []


def test_names_are_distinguished_from_opentelemetrys_names() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    assert len({metric.otel_name for metric in METRICS}) == len(METRICS)
    assert [name for metric in METRICS if not (name := metric.otel_name).startswith("blamespan.")] == []


def test_bounds_of_labels_from_packages_above_equal_the_code() -> None:
    assert (MOST_VALUES["outcome"], MOST_VALUES["state"]) == (len(Outcome), len(IssueState))
