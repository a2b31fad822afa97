"""Minimal proxy in Python: receives a request, forwards its bytes, answers. Nothing is stored.

``python -m benchmarks.ingest.passthrough grpc http://127.0.0.1:4317`` prints its endpoint. Its cost is
that of Python's gRPC and HTTP; anything beyond it is blamespan's own.
"""

from __future__ import annotations

import asyncio
import sys

import aiohttp
import grpc.aio
import uvloop
from aiohttp import web

HOST = "127.0.0.1"
PATH = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
_OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))


async def main(protocol: str, backend: str) -> None:
    """Serve until standard input ends."""
    serve = _serve_grpc if protocol == "grpc" else _serve_http
    keep = await serve(backend)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    del keep


async def _serve_grpc(backend: str) -> object:
    channel = grpc.aio.insecure_channel(backend.removeprefix("http://"), options=_OPTIONS)
    send = channel.unary_unary(PATH, None, None)

    async def export(body: bytes, _: object) -> bytes:
        answer: bytes = await send(body)
        return answer

    server = grpc.aio.server(options=(*_OPTIONS, ("grpc.so_reuseport", 0)))
    method = grpc.unary_unary_rpc_method_handler(export)
    service = PATH.split("/")[1]
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"Export": method}),))
    _announce(server.add_insecure_port(f"{HOST}:0"))
    await server.start()
    return server


async def _serve_http(backend: str) -> object:
    session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))

    async def take(request: web.Request) -> web.Response:
        headers = {"content-type": request.content_type}
        async with session.post(f"{backend}/v1/traces", data=await request.read(), headers=headers) as answer:
            return web.Response(body=await answer.read(), status=answer.status)

    app = web.Application(client_max_size=1 << 30)
    app.router.add_post("/v1/traces", take)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, HOST, 0).start()
    _announce(runner.addresses[0][1])
    return session


def _announce(port: int) -> None:
    sys.stdout.write(f"http://{HOST}:{port}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2]))
