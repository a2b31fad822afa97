"""A backend that accepts everything and only counts: ``python -m benchmarks.ingest.null_backend grpc``.

Prints its OTLP endpoint and the address of its byte count. It runs beside the measured program, so it does as
little as possible.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import grpc.aio
import uvloop
from aiohttp import web

HOST = "127.0.0.1"
_OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.so_reuseport", 0))


@dataclass
class Count:
    """Counts so far."""

    bytes: int = 0


async def main(protocol: str) -> None:
    """Serve until standard input ends."""
    count = Count()
    async with AsyncExitStack() as stack:
        counter = await stack.enter_async_context(http_backend(count))
        port = await stack.enter_async_context(grpc_backend(count)) if protocol == "grpc" else counter
        _announce(port, counter)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


@asynccontextmanager
async def grpc_backend(count: Count) -> AsyncIterator[int]:
    """Accept spans over gRPC; return the port."""

    async def export(body: bytes, _: object) -> bytes:
        count.bytes += len(body)
        return b""

    server = grpc.aio.server(options=_OPTIONS)
    method = grpc.unary_unary_rpc_method_handler(export)
    service = "opentelemetry.proto.collector.trace.v1.TraceService"
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"Export": method}),))
    port = server.add_insecure_port(f"{HOST}:0")
    await server.start()
    try:
        yield port
    finally:
        await server.stop(None)


@asynccontextmanager
async def http_backend(count: Count) -> AsyncIterator[int]:
    """Accept spans over HTTP and serve the count; return the port."""

    async def take(request: web.Request) -> web.Response:
        body = await request.read()
        count.bytes += len(body)  # not ``+=`` around the wait: concurrent additions would be lost
        return web.Response(content_type="application/x-protobuf")

    async def tell(_: web.Request) -> web.Response:
        return web.Response(text=str(count.bytes))

    app = web.Application(client_max_size=1 << 30)
    app.router.add_post("/v1/traces", take)
    app.router.add_get("/count", tell)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, HOST, 0)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def _announce(port: int, counter: int) -> None:
    sys.stdout.write(f"http://{HOST}:{port} http://{HOST}:{counter}/count\n")
    sys.stdout.flush()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1]))
