"""Rare garbage collection, so that full ones do not stop the event loop of a server. Not pure."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from analyzer.telemetry.process_stats import resident_bytes

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
