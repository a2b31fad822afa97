"""Giving memory back in a flood: glibc keeps what was freed, in as many pieces as it came in. A shell.

What is mapped by itself goes back when it is freed. That costs a good third more CPU time (large
requests over gRPC, docs/reliability.md), so it is asked for while requests are refused, and not otherwise.
"""

from __future__ import annotations

import asyncio
import ctypes
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

EVERY_S: Final = 0.25
"""Not more often than this: it goes through the whole heap."""
CALM_S: Final = 10.0
"""Without a refusal for so long, a flood is over."""
PRESSED_BYTES: Final = 64 << 10
"""What gRPC's core reads at once, and bodies in pieces."""
CALM_BYTES: Final = 32 << 20
"""The most that glibc allows, and where it arrives by itself when large pieces come and go."""
_M_MMAP_THRESHOLD: Final = -3


AfterRefusal: TypeAlias = Callable[[], None]
"""Told of a request that was refused because we are full; quick, on the event loop."""


def leave_memory() -> None:
    """Give nothing back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heap:
    """What can be asked of the C library."""

    trim: Callable[[], Any]
    """Give back what is free."""
    map_from: Callable[[int], Any]
    """Map pieces of so many bytes, and larger ones, by themselves."""


class Trimmer:
    """Has the C library give memory back, where it can (glibc). Lives on one event loop.

    One for all doors of a process: there is one heap, and the first door to be calm again would
    otherwise say so for those that are still flooded.
    """

    def __init__(self, heap: Heap | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._heap: Final = heap or glibc()
        self._clock: Final = clock
        self._next = clock()
        self._task: asyncio.Future[Any] | None = None
        self._calm_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        """Set while there is a flood."""

    def after_refusal(self) -> None:
        """Give back soon what the refused request took, beside the event loop."""
        now = self._clock()
        self._calm_at = now + CALM_S
        if self._timer is None:
            self._heap.map_from(PRESSED_BYTES)
            self._look_again(CALM_S)
        if now >= self._next and (self._task is None or self._task.done()):
            self._trim(now)

    def look(self) -> None:
        """See whether the flood is over; a timer asks."""
        now = self._clock()
        if now < self._calm_at:
            self._look_again(self._calm_at - now)
            return
        self._timer = None
        self._heap.map_from(CALM_BYTES)
        self._trim(now)

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look_again(self, in_s: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(in_s, self.look)

    def _trim(self, now: float) -> None:
        self._next = now + EVERY_S
        self._task = asyncio.get_running_loop().run_in_executor(None, self._heap.trim)


def glibc() -> Heap:
    """Return this process's heap; another C library's is left to itself."""
    library = ctypes.CDLL(None)
    trim, option = getattr(library, "malloc_trim", None), getattr(library, "mallopt", None)
    if trim is None or option is None:
        return Heap(trim=lambda: None, map_from=lambda _bytes: None)
    return Heap(trim=lambda: trim(0), map_from=lambda size: option(_M_MMAP_THRESHOLD, size))
