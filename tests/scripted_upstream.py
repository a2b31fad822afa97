"""A provider for tests of the gateway with scripted answers to every POST; keeps the requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from tests.web_application import served


@dataclass(slots=True)
class Upstream:
    """The scripted answers, and the requests."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})
    chunks: Sequence[bytes] = (b"{}",)
    may_go_on: asyncio.Semaphore | None = None
    """Acquired before each chunk except the first."""
    is_cut: bool = False
    """Whether the connection breaks after the last chunk."""
    hangs: bool = False
    closes: bool = False
    """Whether the connection closes before any answer."""
    pause_s: float = 0.0
    """Seconds before each chunk but the first."""
    url: str = ""
    paths: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    seen_headers: list[dict[str, str]] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.paths.append(request.raw_path)
        self.bodies.append(await request.read())
        self.seen_headers.append(dict(request.headers))
        if self.hangs:
            await asyncio.sleep(3600)
        if self.closes:
            assert request.transport is not None
            request.transport.abort()
        response = web.StreamResponse(status=self.status, headers=self.headers)
        await response.prepare(request)
        for place, chunk in enumerate(self.chunks):
            if place and self.may_go_on is not None:
                await self.may_go_on.acquire()
            if place and self.pause_s:
                await asyncio.sleep(self.pause_s)
            await response.write(chunk)
        if self.is_cut:
            assert request.transport is not None
            request.transport.abort()
        else:
            await response.write_eof()
        return response


@asynccontextmanager
async def upstream(answers: Upstream) -> AsyncIterator[Upstream]:
    """Run it on a free port until the block ends."""
    app = web.Application(client_max_size=1 << 30)
    app.router.add_post("/{tail:.*}", answers.answer)
    async with served(app, access_log=None, handler_cancellation=True) as answers.url:
        yield answers
