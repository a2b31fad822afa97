"""How much may be under way at once, of all clients together: bytes of bodies, and connections.

A limit for each request does not bound a thousand of them. What does not fit is
refused before it is held, and may come again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from aiohttp import web

from collector_processor.otlp import RefusedError

DEFAULT_ROOM_BYTES: Final = 256 << 20
"""A dozen of the largest requests."""
DEFAULT_CONNECTIONS: Final = 4_096
_COME_BACK_S: Final = 1.0
_BUSY: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
)


class Room:
    """Bytes that may be held at once."""

    def __init__(self, limit: int = DEFAULT_ROOM_BYTES) -> None:
        self.limit: Final = limit
        self.used = 0

    @contextmanager
    def lease(self) -> Iterator[Lease]:
        """Give a lease that begins with nothing and ends with the block."""
        lease = Lease(self)
        try:
            yield lease
        finally:
            lease.hold(0)


class Lease:
    """One request's part of a room."""

    def __init__(self, room: Room) -> None:
        self._room: Final = room
        self.held = 0

    def hold(self, size: int) -> None:
        """Hold ``size`` bytes from now on, more or fewer than before.

        Raises:
            RefusedError: there is no room for more.
        """
        more = size - self.held
        if more > 0 and self._room.used + more > self._room.limit:
            reason = f"{self._room.limit} bytes of requests are being taken already"
            raise RefusedError(reason, retry_after_s=_COME_BACK_S)
        self._room.used += more
        self.held = size


def with_room(server: web.Server, most: int) -> Callable[[], asyncio.BaseProtocol]:
    """Return what makes a protocol for each connection; those beyond ``most`` are told to come again."""

    def connect() -> asyncio.BaseProtocol:
        return _Busy() if len(server.connections) >= most else server()

    return connect


class _Busy(asyncio.Protocol):
    """Says that we are busy, and hangs up."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            transport.write(_BUSY)
        transport.close()
