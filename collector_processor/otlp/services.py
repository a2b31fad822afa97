"""The names of the OTLP services, and what their requests look like on the way.

Source: opentelemetry-proto, ``collector/*/v1``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from collector_processor.otlp import Signal

EXPORT: Final = "Export"
"""The one method that each service has."""

SERVICES: Final[Mapping[Signal, str]] = {
    Signal.TRACES: "opentelemetry.proto.collector.trace.v1.TraceService",
    Signal.LOGS: "opentelemetry.proto.collector.logs.v1.LogsService",
    Signal.METRICS: "opentelemetry.proto.collector.metrics.v1.MetricsService",
}

FRAME_BYTES: Final = 1 << 20
"""HTTP/2 frames that we take and send: gRPC's own 16 KiB cut a request of 512 spans into 44."""


def grpc_path(signal: Signal) -> str:
    """Return the path a client calls to export ``signal``."""
    return f"/{SERVICES[signal]}/{EXPORT}"


def http_path(signal: Signal) -> str:
    """Return the path a client posts ``signal`` to."""
    return f"/v1/{signal.value}"
