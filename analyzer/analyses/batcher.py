"""Batched calls: items that arrive while a call is running are passed to the next call together.

An item never waits for further items, so single calls are as quick as without batching.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Batcher(Generic[Item, Answer]):
    """Groups items into calls, by default one call at a time; used on one event loop."""

    def __init__(
        self,
        call: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]],
        *,
        most: int,
        at_once: Callable[[], int] = lambda: 1,
        charged: Callable[[Item], float] | None = None,
    ) -> None:
        """Create an empty batcher.

        Args:
            call: returns an answer for each of 1 to ``most`` items, in order. If it raises, it is called
                again for each item alone, so that one bad item fails alone.
            most: maximum number of items in one call.
            at_once: returns how many calls may run at once; at least 1.
            charged: returns what was charged to an item's owner. Those with the least go first, in order of
                arrival; an item of an owner with more than 0 goes alone. If given, few items may wait.
        """
        self._call: Final = call
        self._most: Final = most
        self._at_once: Final = at_once
        self._charged: Final = charged
        self._waiting: Final[deque[tuple[Item, asyncio.Future[Answer]]]] = deque()
        self._working: Final[set[asyncio.Task[None]]] = set()

    async def __call__(self, item: Item) -> Answer:
        """Return the answer for one item; the item of a cancelled caller is skipped."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if len(self._working) < self._at_once():
            self._working.add(asyncio.create_task(self._work()))
        return await future

    async def _work(self) -> None:
        try:
            while batch := self._next():
                await self._make(batch)
        finally:  # without awaiting anything in between: an item that arrives now starts a new task
            task = asyncio.current_task()
            assert task is not None
            self._working.discard(task)

    async def _make(self, batch: Sequence[tuple[Item, asyncio.Future[Answer]]]) -> None:
        futures = [future for _, future in batch]
        try:
            answers = await self._call([item for item, _ in batch])
        except asyncio.CancelledError:  # the event loop is closing
            for future in futures:
                future.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - it is raised in the caller
            if len(batch) > 1:
                for one in batch:
                    await self._make([one])
            elif not futures[0].done():
                futures[0].set_exception(error)
        else:
            for future, answer in zip(futures, answers, strict=True):
                if not future.done():
                    future.set_result(answer)

    def _next(self) -> list[tuple[Item, asyncio.Future[Answer]]]:
        if len(self._working) > self._at_once():
            return []
        most = min(self._most, -(-len(self._waiting) // self._at_once()))
        if self._charged is not None and self._waiting:
            most = self._put_forward(self._charged, most)
        batch: list[tuple[Item, asyncio.Future[Answer]]] = []
        while self._waiting and len(batch) < most:
            item, future = self._waiting.popleft()
            if not future.done():
                batch.append((item, future))
        return batch

    def _put_forward(self, charged: Callable[[Item], float], most: int) -> int:
        """Sort what waits by charge; return how many of the first items may go together."""
        charges = [charged(item) for item, _ in self._waiting]
        order = sorted(range(len(charges)), key=charges.__getitem__)
        waiting = [self._waiting[place] for place in order]
        self._waiting.clear()
        self._waiting.extend(waiting)
        return max(1, min(most, charges.count(0)))
