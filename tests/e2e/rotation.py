"""Imitates a Kubernetes Service on loopback: each connection goes to the next of several servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class RoundRobin:
    """Passes bytes on; if a server is unreachable, the connection is closed."""

    targets: Sequence[str]
    """``host:port`` of each."""
    url: str = ""
    taken: list[str] = field(default_factory=list)
    """The server of each connection, in order."""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection."""
        target = self.targets[len(self.taken) % len(self.targets)]
        self.taken.append(target)
        host, _, port = target.rpartition(":")
        try:
            upstream = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.close()
            return
        async with asyncio.TaskGroup() as both:
            both.create_task(_pass(reader, upstream[1]))
            both.create_task(_pass(upstream[0], writer))


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def round_robin(*targets: str) -> AsyncIterator[RoundRobin]:
    """Listen on a free loopback port until the block ends."""
    rotation = RoundRobin(targets=targets)
    server = await asyncio.start_server(rotation.handle, "127.0.0.1", 0)
    rotation.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield rotation
    finally:
        server.close()
