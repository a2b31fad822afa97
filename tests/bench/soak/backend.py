"""A backend that is away now and then, and counts what it took: ``python -m tests.bench.soak.backend 60 5``.

Of every 60 seconds it answers ``UNAVAILABLE`` for the last 5. Prints its OTLP endpoint and where it tells its
counts.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import urllib.request
from dataclasses import dataclass, field
from typing import Any, Final

import grpc.aio
import uvloop
from aiohttp import web

from collector_processor.decode import decode
from collector_processor.otlp import Signal
from collector_processor.otlp.services import grpc_path
from collector_processor.survey import item_count
from semconv.attributes import SCOPE_ANALYZER

HOST: Final = "127.0.0.1"
_OPTIONS: Final = (("grpc.max_receive_message_length", -1), ("grpc.so_reuseport", 0))
_OURS: Final = SCOPE_ANALYZER.encode()


@dataclass(slots=True)
class Taken:
    """What it took, and how often it was away."""

    spans: int = 0
    """Without carriers."""
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

    def told(self) -> dict[str, Any]:
        """Return the counts for JSON."""
        return {"spans": self.spans, "refusals": self.refusals, "judged": sorted(self.judged)}


def read_taken(told: str) -> dict[str, Any]:
    """Return what the backend at this address took."""
    with urllib.request.urlopen(told, timeout=60) as answer:
        found: dict[str, Any] = json.loads(answer.read())
        return found


async def main(every_s: float, away_s: float) -> None:
    """Serve until standard input ends."""
    taken, began = Taken(), time.monotonic()

    def is_away() -> bool:
        return (time.monotonic() - began) % every_s > every_s - away_s

    server = grpc.aio.server(options=_OPTIONS)
    for signal in Signal:
        server.add_generic_rpc_handlers((_handler(signal, taken, is_away),))
    port = server.add_insecure_port(f"{HOST}:0")
    await server.start()
    sys.stdout.write(f"http://{HOST}:{port} http://{HOST}:{await _tell(taken)}/\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.stop(None)


def _handler(signal: Signal, taken: Taken, is_away: Any) -> grpc.GenericRpcHandler[bytes, bytes]:
    async def export(body: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        if is_away():
            taken.refusals += 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, "away")
        if signal is Signal.TRACES:
            taken.take(body)
        return b""

    service, method = grpc_path(signal).strip("/").split("/")
    handler = grpc.unary_unary_rpc_method_handler(export)
    return grpc.method_handlers_generic_handler(service, {method: handler})


async def _tell(taken: Taken) -> int:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response(taken.told())

    app = web.Application()
    app.router.add_get("/", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, HOST, 0).start()
    port: int = runner.addresses[0][1]
    return port


if __name__ == "__main__":
    uvloop.run(main(float(sys.argv[1]), float(sys.argv[2])))
