"""Whose gRPC message is read, and whose must wait: nothing of a message tells how large it will be.

gRPC's core keeps what it reads, and bounds one message, not all of them. Until its
message is asked for, a call costs no more than a stream's window. So only so many are
read at once. Most are there already, and are read in no time; one that is not, since it
is large or its sender slow, moves to one of few places for such, or is refused and
may come again. Thus half-open calls hold up nobody for long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, TypeVar

from collector_processor.otlp import RefusedError

T = TypeVar("T")

_COME_BACK_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingRules:
    """How many messages are read at once, of all clients together."""

    quick: int = 32
    """That have just begun."""
    quick_s: float = 0.25
    """How long one may take before it counts as slow."""
    slow: int = 12
    slow_s: float = 30.0
    """How long a slow one may take."""
    waiting: int = 4096
    """Calls whose message is not asked for yet; each may cost a stream's window (32 KiB)."""


class _Place(Enum):
    QUICK = auto()
    SLOW = auto()
    NONE = auto()


@dataclass(slots=True)
class _Visit:
    """One message being read."""

    reader: asyncio.Task[object]
    place: _Place = _Place.QUICK
    refusal: str = ""
    timer: asyncio.TimerHandle | None = None


class ReadingRoom:
    """Lives on one event loop."""

    def __init__(self, rules: ReadingRules) -> None:
        self._rules: Final = rules
        self._quick: Final = asyncio.Semaphore(rules.quick)
        self._waiting = 0
        self._slow = 0

    async def read(self, receive: Callable[[], Awaitable[T]]) -> T:
        """Return what ``receive`` returns, once it is this message's turn.

        Raises:
            RefusedError: too many wait, or are slow, or this one is too slow.
        """
        await self._turn()
        reader = asyncio.current_task()
        assert reader is not None
        visit = _Visit(reader=reader)
        self._set_timer(visit, self._rules.quick_s)
        try:
            return await receive()
        except asyncio.CancelledError:
            if not visit.refusal:
                raise
            reader.uncancel()
            raise RefusedError(visit.refusal, retry_after_s=_COME_BACK_S) from None
        finally:
            self._leave(visit)

    async def _turn(self) -> None:
        if self._waiting >= self._rules.waiting:
            raise RefusedError(f"{self._waiting} requests wait already", retry_after_s=_COME_BACK_S)
        self._waiting += 1
        try:
            await self._quick.acquire()
        finally:
            self._waiting -= 1

    def _set_timer(self, visit: _Visit, wait_s: float) -> None:
        visit.timer = asyncio.get_running_loop().call_later(wait_s, self._overstayed, visit)

    def _overstayed(self, visit: _Visit) -> None:
        if visit.place is _Place.SLOW:
            self._refuse(visit, f"the request did not come within {self._rules.slow_s:g} s")
        elif self._slow >= self._rules.slow:
            self._refuse(visit, f"{self._slow} large or slow requests are being read already")
        else:
            self._leave(visit)
            visit.place = _Place.SLOW
            self._slow += 1
            self._set_timer(visit, self._rules.slow_s)

    def _refuse(self, visit: _Visit, reason: str) -> None:
        visit.refusal = reason
        visit.reader.cancel()

    def _leave(self, visit: _Visit) -> None:
        if visit.timer is not None:
            visit.timer.cancel()
        if visit.place is _Place.QUICK:
            self._quick.release()
        elif visit.place is _Place.SLOW:
            self._slow -= 1
        visit.place = _Place.NONE
