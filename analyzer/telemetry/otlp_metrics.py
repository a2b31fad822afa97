"""The service's own metrics over OTLP: what ``/metrics`` shows, with OpenTelemetry's names and units.

One reading for both, so that they never disagree. Sent through the exporter
that forwards other people's metrics, with its credentials and its hop header:
where that leads back to us, the request is refused as a loop and not counted in
circles.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
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

from analyzer.metric_table import METRICS, Kind
from analyzer.metric_table import Metric as Described
from collector_processor.otlp import NO_TENANT, Delivered, Exporter, Signal

logger = logging.getLogger(__name__)

_CUMULATIVE: Final = AggregationTemporality.CUMULATIVE
_SCOPE: Final = InstrumentationScope("blamespan")
_BY_NAME: Final = {metric.name: metric for metric in METRICS}
_NS: Final = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """When values were read, and since when sums have grown; nanoseconds of the wall clock."""

    start_ns: int
    now_ns: int


def as_request(families: Iterable[Family], instance_id: str, moment: Moment) -> bytes:
    """Return the export request that says what these families say."""
    metrics = [metric for family in families if (metric := _metric(family, moment)) is not None]
    resource = Resource({"service.name": "blamespan", "service.instance.id": instance_id})
    scope = ScopeMetrics(scope=_SCOPE, metrics=metrics, schema_url="")
    data = MetricsData([ResourceMetrics(resource=resource, scope_metrics=[scope], schema_url="")])
    return encode_metrics(data).SerializeToString()


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSender:
    """Sends the metrics of one process, again and again; what cannot be sent is passed over."""

    read: Callable[[], Iterable[Family]]
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
        """Send once; the next time brings all that this one would have."""
        moment = Moment(start_ns=start_ns, now_ns=self.wall_ns())
        body = as_request(self.read(), self.instance_id, moment)
        outcome = await self.exporter.send(Signal.METRICS, body, NO_TENANT, ())
        if not isinstance(outcome, Delivered):
            logger.warning("own metrics were not taken", extra={"outcome": str(outcome)})


def _metric(family: Family, moment: Moment) -> Metric | None:
    described = _BY_NAME[family.name]
    if not family.samples:  # OTLP has no metric without points
        return None
    return Metric(
        name=described.otel_name,
        description=described.meaning,
        unit=described.unit,
        data=_data(described, family, moment),
    )


def _data(described: Described, family: Family, moment: Moment) -> Sum | Gauge | Histogram:
    match described.kind:
        case Kind.COUNTER:
            return Sum(list(_numbers(family, moment)), _CUMULATIVE, is_monotonic=True)
        case Kind.GAUGE:
            return Gauge(list(_numbers(family, moment)))
        case Kind.HISTOGRAM:
            return Histogram([_buckets(family, moment)], _CUMULATIVE)


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
    """Return a histogram without labels; OTLP's counts are each bucket's own, Prometheus's add up."""
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
