"""Runs a store on its own thread, and notes for the event loop whether the store takes work. Not pure.

SQLite allows one user at a time, and the calls are short. Every run makes a dozen calls here, so each thread
switch must be cheap: this uses one queue and one future per call; an executor makes two futures and chains
them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from enum import StrEnum
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar

from collector_processor.store.database.connection import in_our_words, is_refusal

REFUSING_S: Final = 30.0
"""Seconds for which a refusal counts: refused work is tried again every few seconds."""
SILENT_S: Final = 10.0
"""Seconds without an answer after which a store counts as hung; a statement normally takes milliseconds."""


class Fault(StrEnum):
    """Fault of a store."""

    REFUSES = "refuses"
    """Full, read-only, damaged, or its server is unreachable."""
    HANGS = "does not answer"


class Condition:
    """Notes of one store's calls; each is a single assignment, so that two threads may share it."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Create the notes of a store without a fault."""
        self._monotonic: Final = monotonic
        self._asked_at: float | None = None
        self._refused_at: float | None = None

    def asked(self) -> None:
        """Note that a call begins."""
        self._asked_at = self._monotonic()

    def answered(self) -> None:
        """Note that a call has ended."""
        self._asked_at = None

    def refused(self) -> None:
        """Note that the store refused the call."""
        self._refused_at = self._monotonic()

    @property
    def fault(self) -> Fault | None:
        """The current fault; ``None`` if none is known."""
        now, asked_at, refused_at = self._monotonic(), self._asked_at, self._refused_at
        if asked_at is not None and now - asked_at > SILENT_S:
            return Fault.HANGS
        if refused_at is not None and now - refused_at < REFUSING_S:
            return Fault.REFUSES
        return None


logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

STORE_RETRY_S: Final = 2.0
"""Seconds between attempts to write while the disk refuses."""

_Asked: TypeAlias = tuple[asyncio.AbstractEventLoop, asyncio.Future[Any], Callable[[], Any]]


class StoreThread:
    """Makes calls on a store, one at a time."""

    def __init__(
        self, pause: Callable[[float], Awaitable[None]] = asyncio.sleep, *, name: str = "runstore"
    ) -> None:
        self._pause: Final = pause
        self._asked: Final[SimpleQueue[_Asked | None]] = SimpleQueue()
        self._thread: Final = Thread(target=self._work, name=name, daemon=True)
        self._is_closed = False
        self.condition: Final = Condition()
        """Whether the store takes these calls."""
        self._thread.start()

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run one call; skip it if its caller has stopped waiting.

        Raises:
            StoreError: the disk refuses.
        """
        if self._is_closed:
            raise RuntimeError("the store's thread has ended")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._asked.put((loop, future, partial(call, *args, **kwargs)))
        return await future

    async def insist(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call; repeat it while the disk refuses."""
        return await self.patiently(lambda: self.run(call, *args, **kwargs))

    async def patiently(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run other work that needs the disk; repeat it while the disk refuses."""
        return await patiently(work, self._pause)

    def close(self) -> None:
        """End the thread after all requested calls; the owner closes the store."""
        if not self._is_closed:
            self._is_closed = True
            self._asked.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (asked := self._asked.get()) is not None:
            loop, future, call = asked
            if future.cancelled():
                continue
            told: BaseException | None = None
            self.condition.asked()
            try:
                answer = partial(_answer, future, call())
            except BaseException as error:  # noqa: BLE001 - it is raised in the caller
                told = in_our_words(error)
                if is_refusal(told):
                    self.condition.refused()
                answer = partial(_fail, future, told)
            self.condition.answered()
            try:
                loop.call_soon_threadsafe(answer)
            except RuntimeError:  # the loop has ended, and with it the caller
                logger.debug("the caller of the store has ended")
            del asked, future, call, answer, told  # drop references before waiting for the next call


async def patiently(work: Callable[[], Awaitable[T]], pause: Callable[[float], Awaitable[None]]) -> T:
    """Run work that needs the disk; repeat it while the disk refuses.

    Args:
        work: restarted from its beginning each time.
        pause: sleeps for the given seconds.
    """
    while True:
        try:
            return await work()
        except Exception as error:
            if not is_refusal(error):
                raise
            logger.warning("waiting for the disk", extra={"reason": str(error)})
        await pause(STORE_RETRY_S)


def _answer(future: asyncio.Future[Any], answer: Any) -> None:
    if not future.cancelled():
        future.set_result(answer)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.cancelled():
        future.set_exception(error)
