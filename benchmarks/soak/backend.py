"""A backend with regular outages, which counts the spans that it accepts: ``python -m
benchmarks.soak.backend 60 5``.

Of every 60 seconds it answers ``UNAVAILABLE`` for the last 5. Prints its OTLP endpoint and the address of its
counts.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
import uvloop

from benchmarks.resources.counting_backend import Context, read_report, serve_and_report
from collector_processor.otlp import Signal
from collector_processor.rebuild.decode import decode
from collector_processor.wire.scan import item_count
from semconv.attributes import SCOPE_ANALYZER

_OURS: Final = SCOPE_ANALYZER.encode()


@dataclass(slots=True)
class Taken:
    """Counts of accepted spans and refused requests."""

    spans: int = 0
    """Spans, without carriers."""
    refusals: int = 0
    judged: set[str] = field(default_factory=set)
    """Ids of the traces that have a carrier."""

    def take(self, body: bytes) -> None:
        """Count the spans of a request."""
        if _OURS not in body:
            self.spans += item_count(Signal.TRACES, body)
            return
        for span in decode(body).spans:
            if span.scope.name == SCOPE_ANALYZER:
                self.judged.add(span.trace_id)
            else:
                self.spans += 1

    def report(self) -> dict[str, Any]:
        """Return the counts for JSON."""
        return {"spans": self.spans, "refusals": self.refusals, "judged": sorted(self.judged)}


def read_taken(address: str) -> dict[str, Any]:
    """Return the counts of the backend at this address."""
    found: dict[str, Any] = read_report(address)
    return found


async def main(every_s: float, away_s: float) -> None:
    """Serve until standard input ends."""
    taken, began = Taken(), time.monotonic()

    async def take(signal: Signal, body: bytes, context: Context) -> None:
        if (time.monotonic() - began) % every_s > every_s - away_s:
            taken.refusals += 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, "away")
        if signal is Signal.TRACES:
            taken.take(body)

    await serve_and_report(take, taken.report)


if __name__ == "__main__":
    uvloop.run(main(float(sys.argv[1]), float(sys.argv[2])))
