"""A null backend over OTLP/gRPC that reports over HTTP what it received; used behind the service."""

from __future__ import annotations

import asyncio
import json
import sys
import urllib.request
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

import grpc.aio
from aiohttp import web

from collector_processor.otlp import Signal, grpc_path

HOST: Final = "127.0.0.1"
_OPTIONS: Final = (("grpc.max_receive_message_length", -1), ("grpc.so_reuseport", 0))
_TIMEOUT_S: Final = 60

Context: TypeAlias = grpc.aio.ServicerContext[bytes, bytes]
Take: TypeAlias = Callable[[Signal, bytes, Context], Awaitable[None]]
"""Accepts a request, or aborts its context."""


async def serve_and_report(take: Take, report: Callable[[], Any]) -> None:
    """Print the OTLP endpoint and the address of the report as JSON; serve until standard input ends."""
    server = grpc.aio.server(options=_OPTIONS)
    for signal in Signal:
        server.add_generic_rpc_handlers((_handler(signal, take),))
    port = server.add_insecure_port(f"{HOST}:0")
    await server.start()
    sys.stdout.write(f"http://{HOST}:{port} http://{HOST}:{await _serve_report(report)}/\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.stop(None)


def read_report(address: str) -> Any:
    """Return the report of the backend at this address."""
    with urllib.request.urlopen(address, timeout=_TIMEOUT_S) as answer:
        return json.loads(answer.read())


def _handler(signal: Signal, take: Take) -> grpc.GenericRpcHandler[bytes, bytes]:
    async def export(body: bytes, context: Context) -> bytes:
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
    await web.TCPSite(runner, HOST, 0).start()
    port: int = runner.addresses[0][1]
    return port
