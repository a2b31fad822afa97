"""HTTP server of the receiver, the pages and the analyzer half: listening, limits, log. Not pure.

A protocol error of a client is logged in one line, without the bytes it sent.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Iterable
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from collector_processor.otlp import Address, CollectorError
from collector_processor.otlp.tls import ServerTls, TlsFiles, reason_of

logger = logging.getLogger(__name__)

DEFAULT_CONNECTIONS: Final = 4_096
_BACKLOG: Final = 100
_BUSY: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
)
_IDLE_S: Final = 75.0
_GRACE_S: Final = 5.0
"""Seconds for responses in progress at shutdown: slow clients must not use up the time for the journal."""
_PREFACE: Final = "PRI/Upgrade"
"""Part of aiohttp's message about HTTP/2's first line, ``PRI * HTTP/2.0``."""
_GRPC_MEND: Final = (
    "gRPC goes to BLAMESPAN_OTLP_GRPC_LISTEN (port 4317 by default);"
    " or let the sender speak HTTP: OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"
)


class ListenError(CollectorError):
    """The address cannot be listened on; the message names it."""

    def __init__(self, address: Address, why: str) -> None:
        super().__init__(f"cannot listen on {address}: {why}")
        self.address = address


def limit_connections(server: web.Server, most: int) -> Callable[[], asyncio.BaseProtocol]:
    """Return a protocol factory for ``server`` that answers connections beyond ``most`` with 503."""

    def connect() -> asyncio.BaseProtocol:
        return _RefuseConnection() if len(server.connections) >= most else server()

    return connect


class _RefuseConnection(asyncio.Protocol):
    """Answers 503 with ``Retry-After`` and closes the connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            transport.write(_BUSY)
        transport.close()


def bind(address: Address) -> list[socket.socket]:
    """Return sockets that listen at an address, for a server in another process.

    Connections wait in their backlog until a process accepts them.

    Raises:
        ListenError: the address is in use or not this machine's.
    """
    bound: list[socket.socket] = []
    port = address.port
    try:
        found = socket.getaddrinfo(address.host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, place in dict.fromkeys(found):
            one = socket.socket(family, kind, protocol)
            bound.append(one)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.bind((place[0], port, *place[2:]))
            one.listen(_BACKLOG)
            port = int(one.getsockname()[1])
    except OSError as error:
        for one in bound:
            one.close()
        raise ListenError(address, reason_of(error)) from error
    return bound


async def listening(
    server: web.Server,
    address: Address,
    tls: TlsFiles | None,
    clients: ssl.VerifyMode,
    *,
    most: int = DEFAULT_CONNECTIONS,
    backlog: int = _BACKLOG,
) -> asyncio.Server:
    """Listen at an address.

    Args:
        server: answers the connections.
        address: the address.
        tls: the server's certificate; without it the connection is not encrypted.
        clients: whether clients need a certificate, if ``tls`` names authorities for them.
        most: connections at once; further ones are answered with 503.
        backlog: connections that the system accepts ahead of us.

    Raises:
        ListenError: the address is in use or not this machine's, or a TLS file cannot be read.
    """
    try:
        context = None if tls is None else ServerTls(tls, clients).context()
        return await asyncio.get_running_loop().create_server(
            limit_connections(server, most), address.host, address.port, ssl=context, backlog=backlog
        )
    except (OSError, ValueError) as error:
        raise ListenError(address, reason_of(error)) from error


class HttpServer:
    """Serves an application at one address, with or without TLS."""

    def __init__(
        self,
        app: web.Application,
        listen: Address,
        tls: TlsFiles | None,
        *,
        grace_s: float = _GRACE_S,
    ) -> None:
        """Create the server; it does not listen yet. Responses in progress get ``grace_s`` when it stops."""
        self._listen: Final = listen
        self._tls: Final = tls
        self._runner: Final = web.AppRunner(
            app,
            access_log=None,
            logger=ProtocolLogger(f"{__name__}.protocol"),
            keepalive_timeout=_IDLE_S,
            shutdown_timeout=grace_s,
        )
        self._listeners: Final[list[asyncio.Server]] = []

    async def start(self) -> int:
        """Listen, and return the bound port.

        Raises:
            ListenError: the address is in use or not this machine's, or a TLS file cannot be read.
        """
        await self._runner.setup()
        assert self._runner.server is not None
        # Clients without a certificate get a readable error, and probes an answer.
        listener = await listening(self._runner.server, self._listen, self._tls, ssl.CERT_OPTIONAL)
        self._listeners.append(listener)
        return int(listener.sockets[0].getsockname()[1])

    async def start_on(self, sockets: Iterable[socket.socket]) -> None:
        """Accept the connections of sockets that listen already.

        Raises:
            ListenError: a TLS file cannot be read.
        """
        await self._runner.setup()
        assert self._runner.server is not None
        connect = limit_connections(self._runner.server, DEFAULT_CONNECTIONS)
        try:
            context = None if self._tls is None else ServerTls(self._tls, ssl.CERT_OPTIONAL).context()
            for one in sockets:
                serve = asyncio.get_running_loop().create_server
                self._listeners.append(await serve(connect, sock=one, ssl=context))
        except (OSError, ValueError) as error:
            raise ListenError(self._listen, reason_of(error)) from error

    def close(self) -> None:
        """Accept no more connections."""
        for listener in self._listeners:
            listener.close()

    async def stop(self) -> None:
        """Stop listening, and end responses in progress."""
        self.close()
        await self._runner.cleanup()


class ProtocolLogger(logging.Logger):
    """Logger for aiohttp that omits the bytes of bad requests; our own errors keep their traceback."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._logged_grpc = False

    def exception(self, msg: object, *args: object, exc_info: Any = True, **_: Any) -> None:
        """Log why a connection ended."""
        if isinstance(exc_info, Exception) and not isinstance(exc_info, HttpProcessingError):
            logger.error(str(msg), *args, exc_info=exc_info)
            return
        if _PREFACE in str(exc_info) and not self._logged_grpc:  # once: such a sender keeps retrying
            self._logged_grpc = True
            logger.warning("gRPC was sent to an HTTP port", extra={"mend": _GRPC_MEND})
            return
        kind = type(exc_info).__name__ if isinstance(exc_info, BaseException) else "unknown"
        logger.info("connection ended by a protocol error", extra={"error": kind})
