"""Giving memory back now and then: what a burst took and freed, the C library keeps otherwise. A shell.

Without it memory stays where the largest burst so far left it (a backlog sent on after the backend was away),
and every larger one looks like a leak. A flood that is refused has its own ways (``receivers/trimming.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

_EVERY_S: Final = 60.0
"""It takes some milliseconds, on another thread; what needs memory meanwhile waits for it."""


async def give_back(trim: Callable[[], Any], every_s: float = _EVERY_S) -> None:
    """Give back what is free, now and then, until cancelled.

    Args:
        trim: gives back what is free; blocks.
        every_s: how often.
    """
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(every_s)
        await loop.run_in_executor(None, trim)
