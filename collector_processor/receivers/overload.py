"""Protection against overload: limits over all clients together, and return of freed memory.

A limit on each request does not bound a thousand of them. A request that does not fit is refused before it
is buffered, and may be retried.

gRPC's core buffers what it reads, bounds each message but not their sum, and does not know a message's size
in advance. Until its message is read, a call costs no more than a stream's window, so only a limited number
are read at once. Most messages have already arrived and are read quickly. A large or slow one moves to one of
the few slow slots, or is refused and may be retried; so half-open calls do not delay others for long.

glibc would keep freed memory, in fragments. Blocks that it maps one by one are returned when they are freed.
That costs about a third more CPU time (large requests over gRPC, docs/reliability.md), so it is switched on
only while requests are refused, or many calls wait to be read.
"""

from __future__ import annotations

import asyncio
import ctypes
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, TypeAlias, TypeVar

from collector_processor.otlp import RefusedError

DEFAULT_BUFFER_BYTES: Final = 256 << 20
"""Budget for buffered bodies: a dozen of the largest requests."""
_LEAST_SHARE_BYTES: Final = 20 << 20
"""Smallest share of one client: one request of the largest size."""
_RETRY_AFTER_S: Final = 1.0
T = TypeVar("T")


class BufferBudget:
    """Budget in bytes for request bodies in memory; one client may use half of it."""

    def __init__(self, limit: int) -> None:
        self.limit: Final = limit
        self.share: Final = max(limit // 2, min(limit, _LEAST_SHARE_BYTES))
        self.used = 0
        self.clients: Final[Counter[str]] = Counter()
        """Bytes in use, by client."""

    @contextmanager
    def lease(self, client: str = "") -> Iterator[Lease]:
        """Yield a lease of 0 bytes, released when the block ends.

        Args:
            client: address of the client; empty if unknown; such clients have no share of their own.
        """
        lease = Lease(self, client)
        try:
            yield lease
        finally:
            lease.hold(0)


class Lease:
    """One request's part of a budget."""

    def __init__(self, budget: BufferBudget, client: str) -> None:
        self._budget: Final = budget
        self._client: Final = client
        self.held = 0

    def hold(self, size: int) -> None:
        """Change the lease to ``size`` bytes.

        Raises:
            RefusedError: the budget, or the client's share of it, would be exceeded.
        """
        more, budget, client = size - self.held, self._budget, self._client
        if more > 0 and budget.used + more > budget.limit:
            reason = f"{budget.limit} bytes of requests are being received already: retry"
            raise RefusedError(reason, retry_after_s=_RETRY_AFTER_S)
        if more > 0 and client and budget.clients[client] + more > budget.share:
            reason = f"{budget.share} bytes of this client's requests are being received already: retry"
            raise RefusedError(reason, retry_after_s=_RETRY_AFTER_S)
        budget.used += more
        budget.clients[client] += more
        if not budget.clients[client]:
            del budget.clients[client]
        self.held = size


WhenFull: TypeAlias = Callable[[], None]
"""Called on the event loop for a request that is refused, or waits among many, because we are full; must be
quick."""


def keep_memory() -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimits:
    """Limits on gRPC messages read at once, over all clients."""

    quick: int = 32
    """Messages read for less than ``quick_s``."""
    quick_s: float = 0.25
    """Seconds after which a message counts as slow."""
    slow: int
    slow_s: float = 30.0
    """Seconds for which a slow message may be read."""
    waiting: int = 4096
    """Calls that wait to be read; each may cost a stream's window (32 KiB)."""
    many_waiting: int = 128
    """Waiting calls from which we count as full: their windows alone fill the heap before one is refused."""


class _Place(Enum):
    QUICK = auto()
    SLOW = auto()
    NONE = auto()


@dataclass(slots=True)
class _Read:
    """One message being read."""

    reader: asyncio.Task[object]
    place: _Place = _Place.QUICK
    refusal: str = ""
    timer: asyncio.TimerHandle | None = None


class MessageReads:
    """Admits reads of gRPC messages within the limits; used on one event loop."""

    def __init__(self, rules: ReadLimits, when_full: WhenFull = keep_memory) -> None:
        """Create it with nothing to read; ``when_full`` is called for calls that wait among many."""
        self._rules: Final = rules
        self._when_full: Final = when_full
        self._quick: Final = asyncio.Semaphore(rules.quick)
        self._waiting = 0
        self._slow = 0

    async def read(self, receive: Callable[[], Awaitable[T]]) -> T:
        """Wait for a free slot, then return what ``receive`` returns.

        Raises:
            RefusedError: too many messages wait or are slow, or this one is too slow.
        """
        await self._turn()
        reader = asyncio.current_task()
        assert reader is not None
        read = _Read(reader=reader)
        self._set_timer(read, self._rules.quick_s)
        try:
            return await receive()
        except asyncio.CancelledError:
            if not read.refusal:
                raise
            reader.uncancel()
            raise RefusedError(read.refusal, retry_after_s=_RETRY_AFTER_S) from None
        finally:
            self._leave(read)

    async def _turn(self) -> None:
        if self._waiting >= self._rules.waiting:
            raise RefusedError(
                f"{self._waiting} requests are waiting already: retry", retry_after_s=_RETRY_AFTER_S
            )
        self._waiting += 1
        self._look()
        try:
            await self._quick.acquire()
        finally:
            self._look()
            self._waiting -= 1

    def _look(self) -> None:
        if self._waiting >= self._rules.many_waiting:
            self._when_full()

    def _set_timer(self, read: _Read, wait_s: float) -> None:
        read.timer = asyncio.get_running_loop().call_later(wait_s, self._timed_out, read)

    def _timed_out(self, read: _Read) -> None:
        if read.place is _Place.SLOW:
            self._refuse(read, f"the request did not arrive within {self._rules.slow_s:g} s")
        elif self._slow >= self._rules.slow:
            self._refuse(read, f"{self._slow} large or slow requests are being read already: retry")
        else:
            self._leave(read)
            read.place = _Place.SLOW
            self._slow += 1
            self._set_timer(read, self._rules.slow_s)

    def _refuse(self, read: _Read, reason: str) -> None:
        read.refusal = reason
        read.reader.cancel()

    def _leave(self, read: _Read) -> None:
        if read.timer is not None:
            read.timer.cancel()
        if read.place is _Place.QUICK:
            self._quick.release()
        elif read.place is _Place.SLOW:
            self._slow -= 1
        read.place = _Place.NONE


EVERY_S: Final = 0.25
"""Seconds between trims, at least: each walks the whole heap."""
CALM_S: Final = 10.0
"""Seconds without a refused or crowded call after which the overload counts as over."""
PRESSED_BYTES: Final = 64 << 10
"""Mapping threshold under overload: the size of gRPC core's reads, and of pieces of bodies."""
CALM_BYTES: Final = 32 << 20
"""Mapping threshold otherwise: glibc's maximum, which glibc reaches itself once large blocks are freed."""
_M_MMAP_THRESHOLD: Final = -3


@dataclass(frozen=True, slots=True, kw_only=True)
class Heap:
    """Memory functions of the C library, on this process's heap."""

    trim: Callable[[], Any]
    """Returns free memory to the operating system."""
    map_from: Callable[[int], Any]
    """Sets the size in bytes from which blocks are mapped individually."""


class Trimmer:
    """Makes glibc return memory while we are full; used on one event loop.

    All receivers of a process share one: there is one heap, and otherwise the first receiver to recover would
    switch trimming off for the others.
    """

    def __init__(self, heap: Heap | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._heap: Final = heap or glibc()
        self._clock: Final = clock
        self._next = clock()
        self._task: asyncio.Future[Any] | None = None
        self._calm_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        """Set while there is overload."""

    def when_full(self) -> None:
        """Schedule the return of memory that was freed, in a thread."""
        now = self._clock()
        self._calm_at = now + CALM_S
        if self._timer is None:
            self._heap.map_from(PRESSED_BYTES)
            self._look_again(CALM_S)
        if now >= self._next and (self._task is None or self._task.done()):
            self._trim(now)

    def look(self) -> None:
        """Check whether the overload is over; called by a timer."""
        now = self._clock()
        if now < self._calm_at:
            self._look_again(self._calm_at - now)
            return
        self._timer = None
        self._heap.map_from(CALM_BYTES)
        self._trim(now)

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _look_again(self, in_s: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(in_s, self.look)

    def _trim(self, now: float) -> None:
        self._next = now + EVERY_S
        self._task = asyncio.get_running_loop().run_in_executor(None, self._heap.trim)


def glibc() -> Heap:
    """Return this process's heap; does nothing with a C library other than glibc."""
    library = ctypes.CDLL(None)
    trim, option = getattr(library, "malloc_trim", None), getattr(library, "mallopt", None)
    if trim is None or option is None:
        return Heap(trim=lambda: None, map_from=lambda _bytes: None)
    return Heap(trim=lambda: trim(0), map_from=lambda size: option(_M_MMAP_THRESHOLD, size))
