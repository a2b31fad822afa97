"""Server-sent events: tell open pages that the list of runs has changed. Not pure.

The store is polled once a second for all listeners, and not at all if there are none. The
event says only that something changed: each page then requests its own rows, with its
own filter and tenant.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web

from collector_processor.core.disk import StoreError

logger = logging.getLogger(__name__)

EVENTS: Final = "/events"
EVERY_S: Final = 1.0
_PING_S: Final = 20.0
MOST_LISTENERS: Final = 256
_FULL: Final = "too many pages are open\n"
_HEADERS: Final = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # a buffering proxy would delay events
}


@dataclass(slots=True, kw_only=True)
class Changes:
    """Polls the store and notifies the open pages."""

    newest: Callable[[], Awaitable[tuple[int, int]]]
    """Returns a version that changes whenever a verdict is added or deleted."""
    every_s: float = EVERY_S
    _listeners: set[asyncio.Event] = field(default_factory=set)
    _watch: asyncio.Task[None] | None = None
    _is_closed: bool = False

    async def listen(self, request: web.Request) -> web.StreamResponse:
        """Answer with a stream that lasts until the browser or the service closes it."""
        if self._is_closed or len(self._listeners) >= MOST_LISTENERS:
            raise web.HTTPServiceUnavailable(text=_FULL, headers={"Retry-After": "60"})
        response = web.StreamResponse(headers=_HEADERS)
        changed = asyncio.Event()
        self._listeners.add(changed)
        try:
            before = await self._version(None)  # before the page is told that it is live
            if self._watch is None or self._watch.done():
                self._watch = asyncio.create_task(self._look(before))
            await response.prepare(request)
            await response.write(b"retry: 5000\n\n")
            await self._tell(changed, response.write)
        except ConnectionError:
            logger.debug("a listening page disconnected")
        finally:
            self._listeners.discard(changed)
        return response

    async def close(self, _app: web.Application | None = None) -> None:
        """Close all streams."""
        self._is_closed = True
        for changed in self._listeners:
            changed.set()
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)

    async def _tell(self, changed: asyncio.Event, write: Callable[[bytes], Awaitable[None]]) -> None:
        while not self._is_closed:
            try:
                async with asyncio.timeout(_PING_S):
                    await changed.wait()
                message = b"event: runs\ndata: changed\n\n"
            except TimeoutError:
                message = b": still here\n\n"
            changed.clear()
            if not self._is_closed:
                await write(message)

    async def _look(self, before: tuple[int, int] | None) -> None:
        while self._listeners:
            await asyncio.sleep(self.every_s)
            now = await self._version(before)
            if before is not None and now != before:
                for changed in self._listeners:
                    changed.set()
            before = now

    async def _version(self, before: tuple[int, int] | None) -> tuple[int, int] | None:
        try:
            return await self.newest()
        except StoreError:  # changes are noticed once it is back
            return before
