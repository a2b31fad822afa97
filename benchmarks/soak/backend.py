"""A backend with regular outages, which counts the spans that it accepts: ``python -m
benchmarks.soak.backend 60 5``.

Of every 60 seconds it answers ``UNAVAILABLE`` for the last 5. Prints its OTLP endpoint and the address of its
counts.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import grpc
import grpc.aio
import uvloop
from aiohttp import web

from collector_processor.otlp import Signal, grpc_path
from collector_processor.rebuild.decode import decode
from collector_processor.wire.scan import item_count
from semconv.attributes import SCOPE_ANALYZER

_OURS: Final = SCOPE_ANALYZER.encode()
_HOST: Final = "127.0.0.1"
_OPTIONS: Final = (("grpc.max_receive_message_length", -1), ("grpc.so_reuseport", 0))
_TIMEOUT_S: Final = 60

_Context: TypeAlias = grpc.aio.ServicerContext[bytes, bytes]
_Take: TypeAlias = Callable[[Signal, bytes, _Context], Awaitable[None]]
"""Accepts a request, or aborts its context."""


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
    with urllib.request.urlopen(address, timeout=_TIMEOUT_S) as answer:
        found: dict[str, Any] = json.loads(answer.read())
    return found


async def main(every_s: float, away_s: float) -> None:
    """Serve until standard input ends."""
    taken, began = Taken(), time.monotonic()

    async def take(signal: Signal, body: bytes, context: _Context) -> None:
        if (time.monotonic() - began) % every_s > every_s - away_s:
            taken.refusals += 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, "away")
        if signal is Signal.TRACES:
            taken.take(body)

    await _serve_and_report(take, taken.report)


async def _serve_and_report(take: _Take, report: Callable[[], Any]) -> None:
    """Print the OTLP endpoint and the address of the report as JSON; serve until standard input ends."""
    server = grpc.aio.server(options=_OPTIONS)
    for signal in Signal:
        server.add_generic_rpc_handlers((_handler(signal, take),))
    port = server.add_insecure_port(f"{_HOST}:0")
    await server.start()
    sys.stdout.write(f"http://{_HOST}:{port} http://{_HOST}:{await _serve_report(report)}/\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.stop(None)


def _handler(signal: Signal, take: _Take) -> grpc.GenericRpcHandler[bytes, bytes]:
    async def export(body: bytes, context: _Context) -> bytes:
        await take(signal, body, context)
        return b""

    service, method = grpc_path(signal).strip("/").split("/")
    handler = grpc.unary_unary_rpc_method_handler(export)
    return grpc.method_handlers_generic_handler(service, {method: handler})


async def _serve_report(report: Callable[[], Any]) -> int:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response(report())

    app = web.Application()
    app.router.add_get("/", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, _HOST, 0).start()
    port: int = runner.addresses[0][1]
    return port


if __name__ == "__main__":
    uvloop.run(main(float(sys.argv[1]), float(sys.argv[2])))
