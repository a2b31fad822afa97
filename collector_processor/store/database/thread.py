"""Runs a store on its own thread, and notes for the event loop whether the store takes work. Not pure.

SQLite allows one user at a time, and the calls are short. Every run makes a dozen calls here, so each thread
switch must be cheap: this uses one queue and one future per call; an executor makes two futures and chains
them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar

from collector_processor.core.disk import Condition, in_our_words, is_refusal, patiently

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

_Asked: TypeAlias = tuple[asyncio.AbstractEventLoop, asyncio.Future[Any], Callable[[], Any]]


class StoreThread:
    """Makes calls on a store, one at a time."""

    def __init__(
        self, pause: Callable[[float], Awaitable[None]] = asyncio.sleep, *, name: str = "runstore"
    ) -> None:
        self.pause: Final = pause
        """Sleeps for the given seconds, before a call that the disk refused is repeated."""
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
        return await patiently(work, self.pause)

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


def _answer(future: asyncio.Future[Any], answer: Any) -> None:
    if not future.cancelled():
        future.set_result(answer)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.cancelled():
        future.set_exception(error)
