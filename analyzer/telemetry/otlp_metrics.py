"""Periodic export of our own metrics over OTLP, with OpenTelemetry's names and units.

It turns the families that ``/metrics`` shows into the OpenTelemetry SDK's data points, for the
SDK's encoder: ``/metrics`` and OTLP use the same values, so they never disagree. The SDK's ``MeterProvider``
and its observable instruments cannot do this (measured with SDK 1.45):

- A provider keeps every set of attributes it has seen, 2,000 by default, and reports further ones as one
  overflow point: ``blamespan.issue.standing`` would lose all further issues. Higher limits cost 2 KB per
  series.
- No instrument can observe a histogram that is counted elsewhere; it would be counted twice.
- An observed sum's exemplar gets the sum as its value, and the time of the export.

Requests go through the exporter that forwards clients' metrics: it does not block, is not traced by
instrumentation in this process, renews its TLS files, and sends the hop header, so that an endpoint that
leads back to this process refuses them as a loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.metrics import Exemplar
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.samples import Sample

from analyzer.telemetry.metric import Kind
from analyzer.telemetry.metric_table import METRICS
from collector_processor.otlp import NO_TENANT, Delivered, Exporter, Signal
from collector_processor.settings import Settings

logger = logging.getLogger(__name__)

_CUMULATIVE: Final = AggregationTemporality.CUMULATIVE
_SCOPE: Final = InstrumentationScope("blamespan")
_BY_NAME: Final = {metric.name: metric for metric in METRICS}
_NS: Final = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Time at which values were read, and start time of the sums; nanoseconds of the wall clock."""

    start_ns: int
    now_ns: int


def as_request(families: Iterable[Family], instance_id: str, moment: Moment) -> bytes:
    """Return the export request for families of the table; families without series are left out."""
    metrics = [_metric(family, moment) for family in families if family.samples]
    resource = Resource({"service.name": "blamespan", "service.instance.id": instance_id})
    scope = ScopeMetrics(scope=_SCOPE, metrics=metrics, schema_url="")
    data = MetricsData([ResourceMetrics(resource=resource, scope_metrics=[scope], schema_url="")])
    return encode_metrics(data).SerializeToString()


def _metric(family: Family, moment: Moment) -> Metric:
    described = _BY_NAME[family.name]
    data: Sum | Gauge | Histogram
    match described.kind:
        case Kind.COUNTER:
            data = Sum(list(_numbers(family, moment)), _CUMULATIVE, is_monotonic=True)
        case Kind.GAUGE:
            data = Gauge(list(_numbers(family, moment)))
        case Kind.HISTOGRAM:
            data = Histogram([_buckets(family, moment)], _CUMULATIVE)
    return Metric(described.otel_name, described.meaning, described.unit, data)


def _numbers(family: Family, moment: Moment) -> Iterator[NumberDataPoint]:
    for sample in family.samples:
        yield NumberDataPoint(
            attributes=dict(sample.labels),
            start_time_unix_nano=moment.start_ns,
            time_unix_nano=moment.now_ns,
            value=sample.value,
            exemplars=_exemplars([sample]),
        )


def _buckets(family: Family, moment: Moment) -> HistogramDataPoint:
    """Return a histogram without labels; OTLP counts each bucket separately, Prometheus cumulatively."""
    buckets = [sample for sample in family.samples if sample.name.endswith("_bucket")]
    total = next(sample.value for sample in family.samples if sample.name.endswith("_sum"))
    counts = [round(sample.value) for sample in buckets]
    return HistogramDataPoint(
        attributes={},
        start_time_unix_nano=moment.start_ns,
        time_unix_nano=moment.now_ns,
        count=counts[-1],
        sum=total,
        bucket_counts=[counts[0], *(upper - lower for lower, upper in pairwise(counts))],
        explicit_bounds=[float(sample.labels["le"]) for sample in buckets[:-1]],
        min=None,  # type: ignore[arg-type] # optional in OTLP, and not known
        max=None,  # type: ignore[arg-type] # likewise
        exemplars=_exemplars(buckets),
    )


def _exemplars(samples: Iterable[Sample]) -> list[Exemplar]:
    return [
        Exemplar(
            filtered_attributes={},
            value=shown.value,
            time_unix_nano=round(float(shown.timestamp or 0) * _NS),
            span_id=int(shown.labels["span_id"], 16),
            trace_id=int(shown.labels["trace_id"], 16),
        )
        for sample in samples
        if (shown := sample.exemplar) is not None
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSender:
    """Sends the metrics of one process; the next export makes up for a failed one, as sums are cumulative."""

    read: Callable[[], Iterable[Family]]
    """Returns the metric families; must not block."""
    exporter: Exporter
    instance_id: str
    every_s: float
    wall_ns: Callable[[], int]

    async def run(self) -> None:
        """Send until cancelled."""
        start_ns = self.wall_ns()
        while True:
            await asyncio.sleep(self.every_s)
            await self.send(start_ns)

    async def send(self, start_ns: int) -> None:
        """Read the values here, on the event loop; encode them in a thread; send."""
        moment = Moment(start_ns=start_ns, now_ns=self.wall_ns())
        body = await asyncio.to_thread(as_request, list(self.read()), self.instance_id, moment)
        outcome = await self.exporter.send(Signal.METRICS, body, NO_TENANT, ())
        if not isinstance(outcome, Delivered):
            logger.warning("own metrics were not accepted", extra={"outcome": str(outcome)})


async def export_metrics(
    settings: Settings,
    read: Callable[[], Iterable[Family]],
    exporters: Mapping[Signal, Exporter],
    instance_id: str,
) -> None:
    """Send own metrics until cancelled, if the settings give an interval and an endpoint for metrics."""
    every_s, exporter = settings.export_metrics_ms / 1000, exporters.get(Signal.METRICS)
    if every_s and exporter is None:
        logger.warning("own metrics are not sent: no endpoint for metrics is set")
    elif exporter is not None and every_s:
        await MetricsSender(
            read=read, exporter=exporter, instance_id=instance_id, every_s=every_s, wall_ns=time.time_ns
        ).run()
