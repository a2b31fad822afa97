"""Giving memory back after a flood: glibc keeps what was freed, in as many pieces as there were requests."""

from __future__ import annotations

import asyncio
import ctypes
import time
from collections.abc import Callable
from typing import Any, Final

EVERY_S: Final = 0.25
"""Not more often than this: it goes through the whole heap."""


class Trimmer:
    """Asks the C library to give back what is free, where the library can (glibc)."""

    def __init__(
        self, trim: Callable[[], Any] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._trim: Final = trim or _glibc_trim()
        self._clock: Final = clock
        self._next = clock()
        self._task: asyncio.Future[Any] | None = None

    def after_refusal(self) -> None:
        """Give back soon what the refused request took, beside the event loop."""
        now = self._clock()
        if now < self._next or (self._task is not None and not self._task.done()):
            return
        self._next = now + EVERY_S
        self._task = asyncio.get_running_loop().run_in_executor(None, self._trim)


def _glibc_trim() -> Callable[[], Any]:
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return (lambda: trim(0)) if trim is not None else (lambda: None)
