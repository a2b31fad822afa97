"""Lifetime of a service's parts: closed in reverse order of opening, with a common deadline.

Garbage is collected rarely, so that full collections do not stop the event loop of a server. Not pure.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from analyzer.telemetry.process_stats import resident_bytes

logger = logging.getLogger(__name__)


class Lifetime:
    """Exit stacks, background tasks and the shutdown deadline of a service."""

    def __init__(self, stack: AsyncExitStack) -> None:
        """Start the lifetime; ``stack`` is closed when the service ends."""
        self.stack: Final = stack
        self.watched: Final = AsyncExitStack()
        """Closed after draining: until then probes and pages still work."""
        self.failure: Final[asyncio.Future[None]] = asyncio.get_running_loop().create_future()
        """Raises the failure of a part of the service."""
        self._ends_at = time.monotonic()
        """Deadline of the shutdown; if the start fails there is nothing to wait for."""

    def begin_end(self, longest_s: float) -> None:
        """Set the shutdown's deadline in seconds from now; closing the stack does the rest."""
        self._ends_at = time.monotonic() + longest_s

    def drained(self, drain: Callable[[float], Awaitable[None]], *, share: float = 1.0) -> None:
        """Drain a part during shutdown, within its share of the remaining time."""

        async def drain_in_time() -> None:
            await drain(max(0.0, self._ends_at - time.monotonic()) * share)

        self.stack.push_async_callback(drain_in_time)

    def background(self, work: Coroutine[None, None, None]) -> None:
        """Run a part for as long as the service; its failure ends the service with that error."""
        self._run(work, self.stack)

    def until_drained(self, work: Coroutine[None, None, None]) -> None:
        """Run a part as ``background`` does, and on until the other parts are drained."""
        self._run(work, self.watched)

    def _run(self, work: Coroutine[None, None, None], stack: AsyncExitStack) -> None:
        task = asyncio.create_task(work)
        task.add_done_callback(self._ended)
        stack.push_async_callback(_cancel, task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None and not self.failure.done():
            error = task.exception()
            assert error is not None
            logger.critical("a part of the service failed", exc_info=error)
            self.failure.set_exception(error)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


_NEVER: Final = 1 << 30
_LEAST_GROWN_BYTES: Final = 512 << 20
"""Memory doubles and grows by at least this much before a full garbage collection is made."""


@asynccontextmanager
async def collecting_rarely() -> AsyncIterator[None]:
    """Collect garbage rarely; enter it after all imports, before serving.

    All objects alive now are excluded from garbage collection.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*gc.get_threshold()[:2], _NEVER)
    collecting = asyncio.create_task(collect_garbage())
    try:
        yield
    finally:
        collecting.cancel()


async def collect_garbage(
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    memory: Callable[[], int | None] = resident_bytes,
) -> None:
    """Collect all garbage whenever memory has doubled; Python itself collects only young objects meanwhile.

    A full collection visits every object (0.1 s with 25,000 open traces) while nothing is acknowledged, and
    Python would make one whenever their number has grown by a quarter. It frees little: one to three
    objects a second in ``python -m benchmarks.soak``.

    Args:
        pause: sleeps for the given number of seconds.
        memory: returns the memory of this process in bytes.
    """
    before = memory() or 0
    while True:
        await pause(60.0)
        if (memory() or 0) > before + max(before, _LEAST_GROWN_BYTES):
            gc.collect()
            before = memory() or 0
