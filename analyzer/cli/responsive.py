"""Keeps the event loop of a serving process responsive: garbage collection, thread switches. Not pure."""

from __future__ import annotations

import asyncio
import gc
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
_LEAST_GROWN_BYTES: Final = 512 << 20
"""Memory doubles and grows by at least this much before a full garbage collection is made."""


@asynccontextmanager
async def responsive() -> AsyncIterator[None]:
    """Let threads take short turns, and collect garbage rarely; enter it after all imports, before serving.

    All objects alive now are excluded from garbage collection.
    """
    sys.setswitchinterval(SWITCH_S)
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
    objects a second in ``python -m tests.bench.soak``.

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
