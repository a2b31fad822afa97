"""The service's own metrics on their way to a backend that takes metrics."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping

from prometheus_client.metrics_core import Metric as Family

from analyzer.otlp_metrics import MetricsSender
from analyzer.serving.lifetime import Lifetime
from collector_processor.otlp import Exporter, Signal
from collector_processor.settings import Settings

logger = logging.getLogger(__name__)


def send_metrics(
    settings: Settings,
    lifetime: Lifetime,
    read: Callable[[], Iterable[Family]],
    exporters: Mapping[Signal, Exporter],
    instance_id: str,
) -> None:
    """Start sending them, where they are wanted and there is somewhere to send them."""
    every_s, exporter = settings.metrics_interval / 1000, exporters.get(Signal.METRICS)
    if not every_s:
        return
    if exporter is None:
        logger.warning("own metrics go nowhere: there is no endpoint for metrics")
        return
    sender = MetricsSender(
        read=read,
        exporter=exporter,
        instance_id=instance_id,
        every_s=every_s,
        wall_ns=time.time_ns,
    )
    lifetime.background(sender.run())
