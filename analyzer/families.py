"""Tallies → the families that prometheus_client writes, in either of its formats."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isinf

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.samples import Exemplar as ShownExemplar

from analyzer.metric_table import Metric
from analyzer.tallies import Bucket, Exemplar, Histogram, Point


def counter(metric: Metric, points: Iterable[Point]) -> CounterMetricFamily:
    """Return a counter's family."""
    family = CounterMetricFamily(metric.name, metric.meaning, labels=metric.labels)
    for point in points:
        family.add_metric(point.labels, point.value, exemplar=_shown(point.exemplar))
    return family


def gauge(metric: Metric, values: Iterable[tuple[Sequence[str], float]]) -> GaugeMetricFamily:
    """Return a gauge's family, from labels and values."""
    family = GaugeMetricFamily(metric.name, metric.meaning, labels=metric.labels)
    for labels, value in values:
        family.add_metric(labels, value)
    return family


def sums(metric: Metric, values: Iterable[tuple[Sequence[str], float]]) -> CounterMetricFamily:
    """Return the family of a counter that others keep, from labels and values."""
    return counter(metric, (Point(labels=tuple(labels), value=value) for labels, value in values))


def histogram(metric: Metric, kept: Histogram) -> HistogramMetricFamily:
    """Return a histogram's family."""
    family = HistogramMetricFamily(metric.name, metric.meaning)
    family.add_metric([], [_bucket(bucket) for bucket in kept.buckets()], kept.total)
    return family


def _bucket(bucket: Bucket) -> tuple[str, float] | tuple[str, float, ShownExemplar]:
    shown = _shown(bucket.exemplar)
    bound = "+Inf" if isinf(bucket.bound) else str(bucket.bound)
    return (bound, bucket.count) if shown is None else (bound, bucket.count, shown)


def _shown(exemplar: Exemplar | None) -> ShownExemplar | None:
    if exemplar is None:
        return None
    ids = {"trace_id": exemplar.trace_id, "span_id": exemplar.span_id}
    return ShownExemplar(ids, exemplar.value, exemplar.at_s)
