"""Real servers on loopback with scripted answers, for the exporters' tests."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
from aiohttp import web

from collector_processor.otlp import EXPORT, SERVICES, Signal, grpc_path
from collector_processor.otlp.tls import ServerTls, TlsFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One request as received."""

    path: str
    body: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcAnswer:
    """OK with ``body``, or a failure with ``code``."""

    code: grpc.StatusCode = grpc.StatusCode.OK
    body: bytes = b""
    details: str = ""
    trailers: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpReply:
    """An HTTP answer."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Backend:
    """A running server: its address and the requests it received."""

    url: str
    seen: list[Seen] = field(default_factory=list)


@asynccontextmanager
async def grpc_backend(
    *answers: GrpcAnswer,
    tls: TlsFiles | None = None,
    signals: Iterable[Signal] = Signal,
    max_bytes: int = 4 << 20,
) -> AsyncIterator[Backend]:
    """A gRPC server that gives ``answers`` in order, then OK; it accepts only ``signals``."""
    backend = Backend("")
    script = deque(answers)
    server = grpc.aio.server(
        handlers=[_service(backend, script, signal) for signal in signals],
        options=[("grpc.max_receive_message_length", max_bytes)],
    )
    if tls is None:
        backend.url = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    else:
        pair = (tls.key.read_bytes(), tls.certificate.read_bytes())
        port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
        backend.url = f"https://localhost:{port}"
    await server.start()
    try:
        yield backend
    finally:
        await server.stop(None)


def _service(
    backend: Backend, script: deque[GrpcAnswer], signal: Signal
) -> grpc.GenericRpcHandler[bytes, bytes]:
    async def export(body: bytes, context: Any) -> bytes:
        headers = {key: str(value) for key, value in context.invocation_metadata()}
        backend.seen.append(Seen(path=grpc_path(signal), body=body, headers=headers))
        answer = script.popleft() if script else GrpcAnswer()
        if answer.code is not grpc.StatusCode.OK:
            await context.abort(answer.code, answer.details, answer.trailers)
        return answer.body

    handler: Any = export
    method = grpc.unary_unary_rpc_method_handler(handler)
    return grpc.method_handlers_generic_handler(SERVICES[signal], {EXPORT: method})


@asynccontextmanager
async def socket_backend(
    talk: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[Backend]:
    """A server that speaks no protocol: sends ``talk`` on each connection, then closes it."""
    connections: list[asyncio.Task[None]] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        current = asyncio.current_task()
        assert current is not None
        connections.append(current)
        try:
            await talk(reader, writer)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()
            with suppress(ConnectionError):
                await writer.wait_closed()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with server:
        yield Backend(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    for connection in connections:
        connection.cancel()
    await asyncio.gather(*connections, return_exceptions=True)


@asynccontextmanager
async def http_backend(
    *answers: HttpReply, tls: TlsFiles | None = None, max_bytes: int = 20 << 20
) -> AsyncIterator[Backend]:
    """An HTTP server that gives ``answers`` in order, then 200; 413 above ``max_bytes``."""
    backend = Backend("")
    script = deque(answers)

    async def handle(request: web.BaseRequest) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        backend.seen.append(Seen(path=request.path_qs, body=await request.content.read(), headers=headers))
        answer = script.popleft() if script else HttpReply()
        if len(backend.seen[-1].body) > max_bytes:
            answer = HttpReply(status=413)
        return web.Response(status=answer.status, body=answer.body, headers=answer.headers)

    server = web.Server(handle, auto_decompress=False, access_log=None)
    context: ssl.SSLContext | None = ServerTls(tls).context() if tls else None
    listener = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0, ssl=context)
    port = listener.sockets[0].getsockname()[1]
    backend.url = f"https://localhost:{port}" if tls else f"http://127.0.0.1:{port}"
    try:
        yield backend
    finally:
        listener.close()
        server.pre_shutdown()
        await server.shutdown(1)
