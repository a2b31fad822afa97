"""A store on a thread of its own: SQLite wants one at a time, and what runs there is short. A shell.

Every run passes here a dozen times, so that the way over and back must cost little: one queue
and one future a call, where an executor makes two futures and chains them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar

from collector_processor.stores import StoreError, is_refusal

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

STORE_RETRY_S: Final = 2.0
"""How long what is to be written waits before it is tried again where the disk refuses."""

_Asked: TypeAlias = tuple[asyncio.AbstractEventLoop, asyncio.Future[Any], Callable[[], Any]]


class StoreThread:
    """Where calls on a store are made, one after the other."""

    def __init__(
        self, pause: Callable[[float], Awaitable[None]] = asyncio.sleep, *, name: str = "runstore"
    ) -> None:
        self._pause: Final = pause
        self._asked: Final[SimpleQueue[_Asked | None]] = SimpleQueue()
        self._thread: Final = Thread(target=self._work, name=name, daemon=True)
        self._is_closed = False
        self._thread.start()

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run one call; one that nobody waits for any more when its turn comes is left out.

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
        """Run a call again and again while the disk refuses."""
        return await self.patiently(lambda: self.run(call, *args, **kwargs))

    async def patiently(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do something else that needs the disk, in the same way."""
        return await patiently(work, self._pause)

    def close(self) -> None:
        """End the thread when all is done that was asked for; the store itself is its owner's."""
        if not self._is_closed:
            self._is_closed = True
            self._asked.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (asked := self._asked.get()) is not None:
            loop, future, call = asked
            if future.cancelled():
                continue
            try:
                answer = partial(_answer, future, call())
            except BaseException as error:  # noqa: BLE001 - it is raised where it was asked for
                answer = partial(_fail, future, _in_our_words(error))
            try:
                loop.call_soon_threadsafe(answer)
            except RuntimeError:  # the loop has ended, and with it whoever waited
                logger.debug("nobody waits for the store any more")
            del asked, future, call, answer  # what was read is not kept until the next call


async def patiently(work: Callable[[], Awaitable[T]], pause: Callable[[float], Awaitable[None]]) -> T:
    """Do something that needs the disk, again and again while that refuses.

    Args:
        work: done from its beginning each time.
        pause: waits so many seconds.
    """
    while True:
        try:
            return await work()
        except Exception as error:
            if not is_refusal(error):
                raise
            logger.warning("waiting for the disk", extra={"reason": str(error)})
        await pause(STORE_RETRY_S)


def _in_our_words(error: BaseException) -> BaseException:
    """Return what is raised for it: callers know of disks that refuse, and not of SQLite."""
    if isinstance(error, StoreError) or not is_refusal(error):
        return error
    refused = StoreError(f"the store cannot be used: {error}")
    refused.__cause__ = error
    return refused


def _answer(future: asyncio.Future[Any], answer: Any) -> None:
    if not future.cancelled():
        future.set_result(answer)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.cancelled():
        future.set_exception(error)
