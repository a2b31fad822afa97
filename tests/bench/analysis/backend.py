"""A backend that takes everything and keeps when each trace's first carrier came.

``python -m tests.bench.analysis.backend`` prints its OTLP endpoint and where it tells what it knows. Times
are of the machine's monotonic clock, which all processes share.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import urllib.request
from collections.abc import Mapping
from typing import Final

import grpc.aio
import uvloop
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from collector_processor.otlp import Signal
from collector_processor.otlp.services import grpc_path
from semconv.attributes import SCOPE_ANALYZER

HOST: Final = "127.0.0.1"
_OPTIONS: Final = (("grpc.max_receive_message_length", -1), ("grpc.so_reuseport", 0))
_OURS: Final = SCOPE_ANALYZER.encode()


class Arrivals:
    """When each trace's first carrier came, in seconds."""

    def __init__(self) -> None:
        self.first: dict[str, float] = {}

    def take(self, body: bytes) -> None:
        """Note the carriers in a request."""
        now = time.monotonic()
        if _OURS not in body:
            return
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                for span in scope.spans if scope.scope.name == SCOPE_ANALYZER else ():
                    self.first.setdefault(span.trace_id.hex(), now)


def read_arrivals(told: str) -> Mapping[str, float]:
    """Return what the backend at this address knows."""
    with urllib.request.urlopen(told, timeout=30) as answer:
        found: Mapping[str, float] = json.loads(answer.read())
        return found


async def main() -> None:
    """Serve until standard input ends."""
    arrivals = Arrivals()
    server = grpc.aio.server(options=_OPTIONS)
    for signal in Signal:
        server.add_generic_rpc_handlers((_handler(signal, arrivals),))
    port = server.add_insecure_port(f"{HOST}:0")
    await server.start()
    told = await _tell(arrivals)
    sys.stdout.write(f"http://{HOST}:{port} http://{HOST}:{told}/\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.stop(None)


def _handler(signal: Signal, arrivals: Arrivals) -> grpc.GenericRpcHandler[bytes, bytes]:
    async def export(body: bytes, _: object) -> bytes:
        if signal is Signal.TRACES:
            arrivals.take(body)
        return b""

    service, method = grpc_path(signal).strip("/").split("/")
    handler = grpc.unary_unary_rpc_method_handler(export)
    return grpc.method_handlers_generic_handler(service, {method: handler})


async def _tell(arrivals: Arrivals) -> int:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response(arrivals.first)

    app = web.Application()
    app.router.add_get("/", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, HOST, 0).start()
    port: int = runner.addresses[0][1]
    return port


if __name__ == "__main__":
    uvloop.run(main())
