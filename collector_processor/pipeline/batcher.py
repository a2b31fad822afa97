"""Calls that come together are made together: one way to a thread, one commit, for many. A shell.

Nothing waits for company: what comes while a call is under way goes with the next. So calls
that come singly are as quick as alone, and the more there are the less each costs.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Together(Generic[Item, Answer]):
    """Makes calls for several items at once, one call after the other; lives on one event loop."""

    def __init__(self, call: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]], *, most: int) -> None:
        """Begin with none.

        Args:
            call: given one to ``most`` items, returns an answer to each, in order; what it
                raises is raised to all who asked.
            most: items of one call.
        """
        self._call: Final = call
        self._most: Final = most
        self._waiting: Final[deque[tuple[Item, asyncio.Future[Answer]]]] = deque()
        self._working: asyncio.Task[None] | None = None

    async def __call__(self, item: Item) -> Answer:
        """Return the answer to one item; one that nobody waits for any more is left out."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._working is None:
            self._working = asyncio.create_task(self._work())
        return await future

    async def _work(self) -> None:
        try:
            while batch := self._next():
                await self._make(batch)
        finally:  # before anything else happens: who comes after the last look begins anew
            self._working = None

    async def _make(self, batch: Sequence[tuple[Item, asyncio.Future[Answer]]]) -> None:
        futures = [future for _, future in batch]
        try:
            answers = await self._call([item for item, _ in batch])
        except asyncio.CancelledError:  # the loop ends
            for future in futures:
                future.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - it is raised where it was asked for
            for future in futures:
                if not future.done():
                    future.set_exception(error)
        else:
            for future, answer in zip(futures, answers, strict=True):
                if not future.done():
                    future.set_result(answer)

    def _next(self) -> list[tuple[Item, asyncio.Future[Answer]]]:
        batch: list[tuple[Item, asyncio.Future[Answer]]] = []
        while self._waiting and len(batch) < self._most:
            item, future = self._waiting.popleft()
            if not future.done():
                batch.append((item, future))
        return batch
