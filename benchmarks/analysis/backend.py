"""A backend that accepts everything and records when each trace's first carrier arrived.

``python -m benchmarks.analysis.backend`` prints its OTLP endpoint and the address of its results. Times are
from the machine's monotonic clock, which all processes share.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

import uvloop
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from benchmarks.resources.counting_backend import Context, read_report, serve_and_report
from collector_processor.otlp import Signal
from semconv.attributes import SCOPE_ANALYZER

_OURS: Final = SCOPE_ANALYZER.encode()


class Arrivals:
    """Arrival times of each trace's first carrier, in seconds."""

    def __init__(self) -> None:
        self.first: dict[str, float] = {}

    def take(self, body: bytes) -> None:
        """Record the carriers in a request."""
        now = time.monotonic()
        if _OURS not in body:
            return
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                for span in scope.spans if scope.scope.name == SCOPE_ANALYZER else ():
                    self.first.setdefault(span.trace_id.hex(), now)


def read_arrivals(address: str) -> Mapping[str, float]:
    """Return the results of the backend at this address."""
    found: Mapping[str, float] = read_report(address)
    return found


async def main() -> None:
    """Serve until standard input ends."""
    arrivals = Arrivals()

    async def take(signal: Signal, body: bytes, _: Context) -> None:
        if signal is Signal.TRACES:
            arrivals.take(body)

    await serve_and_report(take, lambda: arrivals.first)


if __name__ == "__main__":
    uvloop.run(main())
