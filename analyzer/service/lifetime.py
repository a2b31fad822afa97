"""How long the parts of a service live: what is opened last ends first, and all of it by a deadline."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Final

logger = logging.getLogger(__name__)


class Lifetime:
    """Everything that lives as long as the service."""

    def __init__(self, stack: AsyncExitStack) -> None:
        """Begin.

        Args:
            stack: its end is the service's.
        """
        self.stack: Final = stack
        self.watched: Final = AsyncExitStack()
        """Ends when all is drained: till then probes hear that we are not ready, people how far we are."""
        self.failure: Final[asyncio.Future[None]] = asyncio.get_running_loop().create_future()
        """Raises what ended a part of the service."""
        self._ends_at = time.monotonic()
        """When a shutdown must be through; where starting fails there is nothing to wait for."""

    def begin_end(self, longest_s: float) -> None:
        """Say how long the way down may take; the stack does the rest."""
        self._ends_at = time.monotonic() + longest_s

    def drained(self, drain: Callable[[float], Awaitable[None]], *, share: float = 1.0) -> None:
        """Have a part drained on the way down, in its share of what is left of the time for all."""

        async def drain_in_time() -> None:
            await drain(max(0.0, self._ends_at - time.monotonic()) * share)

        self.stack.push_async_callback(drain_in_time)

    def background(self, work: Coroutine[None, None, None]) -> None:
        """Run a part for as long as the service; if it fails, the service ends and says why."""
        task = asyncio.create_task(work)
        task.add_done_callback(self._ended)
        self.stack.push_async_callback(_cancel, task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None and not self.failure.done():
            error = task.exception()
            assert error is not None
            logger.critical("a part of the service failed", exc_info=error)
            self.failure.set_exception(error)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
