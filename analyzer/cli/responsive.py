"""Keeps the event loop of a serving process responsive: garbage collection, thread switches. Not pure."""

from __future__ import annotations

import asyncio
import gc
import itertools
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from analyzer.telemetry.process_stats import resident_bytes

SWITCH_S: Final = 0.0005
"""Seconds that one thread may hold the interpreter while another waits. Python's default of 5 ms suits
compute-bound programs; here each page and request passes between threads several times, and would wait that
long each time while a run is analysed (``python -m benchmarks.pages``)."""

_NEVER: Final = 1 << 30
_FULL_MINUTES: Final = 10
"""Minutes between full garbage collections."""
_MOST_GROWN_BYTES: Final = 64 << 20
"""Memory may grow by this much, or by half, before one is due earlier."""


@asynccontextmanager
async def responsive() -> AsyncIterator[None]:
    """Let threads take short turns, and collect garbage rarely; enter it after all imports."""
    sys.setswitchinterval(SWITCH_S)
    collecting = asyncio.create_task(collect_garbage())
    try:
        yield
    finally:
        collecting.cancel()


async def collect_garbage(
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    memory: Callable[[], int | None] = resident_bytes,
) -> None:
    """Exclude all objects alive now from garbage collection; from then on collect old ones rarely.

    A full collection visits every object (0.1 s with 25,000 open traces) while nothing is acknowledged, and
    Python makes one whenever their number has grown by a quarter. Young objects are collected as usual. Full
    collections free little: some objects of each closed connection.

    Args:
        pause: sleeps for the given number of seconds.
        memory: returns the memory of this process in bytes.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*gc.get_threshold()[:2], _NEVER)
    before = memory() or 0
    for minutes in itertools.count(1):
        await pause(60.0)
        if minutes % _FULL_MINUTES == 0 or (memory() or 0) > before + max(before // 2, _MOST_GROWN_BYTES):
            gc.collect()
            before = memory() or 0
