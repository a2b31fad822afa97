"""The run store on a thread of its own: SQLite wants one at a time, and what runs there is short. A shell."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

from collector_processor.stores import StoreError

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

STORE_RETRY_S: Final = 2.0
"""How long what is to be written waits before it is tried again where the disk refuses."""


class StoreThread:
    """Where calls on the run store are made, one after the other."""

    def __init__(self, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._pause: Final = pause
        self._thread: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="runstore")

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run one call.

        Raises:
            StoreError: it writes, and the disk refuses.
        """
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: call(*args, **kwargs))

    async def insist(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call that writes, again and again while the disk refuses."""
        while True:
            try:
                return await self.run(call, *args, **kwargs)
            except StoreError as error:
                logger.warning("slow lane waits for the store", extra={"reason": str(error)})
            await self._pause(STORE_RETRY_S)

    def close(self) -> None:
        """End the thread; the store itself is its owner's."""
        self._thread.shutdown()
