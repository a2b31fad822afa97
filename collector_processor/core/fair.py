"""Work and memory shared fairly: queues, tables, slots, batches.

Pure, except ``Turns``, ``Pace`` and ``Batcher``.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Container, Hashable, Sequence
from contextlib import asynccontextmanager
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Final, Generic, TypeVar

_LEAST_REBUILT: Final = 64
"""Entries of a heap besides four for each owner, before the outdated ones are dropped."""

Owner = TypeVar("Owner", bound=Hashable)
Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")
Answer = TypeVar("Answer")


class FairQueue(Generic[Owner, Key, Item]):
    """Items by key: each owner's in order of arrival, and owners served in turn."""

    def __init__(self) -> None:
        self._owners: Final[OrderedDict[Owner, OrderedDict[Key, Item]]] = OrderedDict()

    def put(self, owner: Owner, key: Key, item: Item) -> None:
        """Add an item behind all others of its owner."""
        items = self._owners.get(owner)
        if items is None:
            items = self._owners[owner] = OrderedDict()
        items[key] = item

    def take(self, skip: Container[Owner] = ()) -> tuple[Owner, Key, Item] | None:
        """Remove and return the first item of the owner whose turn it is; ``None`` if there is none."""
        for owner in self._owners:
            if owner not in skip:
                break
        else:
            return None
        self._owners.move_to_end(owner)
        items = self._owners[owner]
        key, item = items.popitem(last=False)
        if not items:
            del self._owners[owner]
        return owner, key, item

    def discard(self, owner: Owner, key: Key) -> Item | None:
        """Remove and return an item; ``None`` if it is not there."""
        items = self._owners.get(owner)
        item = items.pop(key, None) if items is not None else None
        if items is not None and not items:
            del self._owners[owner]
        return item

    @property
    def owners(self) -> Collection[Owner]:
        """Owners that have items, in the order in which they are served."""
        return self._owners

    def clear(self) -> None:
        """Remove all items."""
        self._owners.clear()


class FairTable(Generic[Owner, Key, Item]):
    """A bounded number of items by owner and key: an owner with more than its share gives up its oldest.

    If there are more owners than places, those whose last put is longest ago give way.
    """

    def __init__(self, most: int) -> None:
        """Create an empty table for at most this many items."""
        self._most: Final = most
        self._owners: Final[dict[Owner, OrderedDict[Key, Item]]] = {}
        self._count = 0
        self._puts = 0
        self._last_put: Final[dict[Owner, int]] = {}
        self._putters: Final[dict[int, Owner]] = {}
        """The owners by their last put."""
        self._crowds: Final[list[tuple[int, int]]] = []
        """Heap of owners as (minus their number of items, their last put); entries may be outdated."""

    def __len__(self) -> int:
        """Return the number of items."""
        return self._count

    def get(self, owner: Owner, key: Key) -> Item | None:
        """Return an item; ``None`` if it is not there."""
        items = self._owners.get(owner)
        return None if items is None else items.get(key)

    def put(self, owner: Owner, key: Key, item: Item) -> tuple[Owner, Key] | None:
        """Add or replace an item as the newest of its owner; return the one that was removed for it."""
        items = self._owners.setdefault(owner, OrderedDict())
        self._count += key not in items
        items[key] = item
        items.move_to_end(key)
        self._puts += 1
        self._putters.pop(self._last_put.get(owner, 0), None)
        self._last_put[owner] = self._puts
        self._putters[self._puts] = owner
        self._note_size(owner)
        if self._count <= self._most:
            return None
        is_crowd = len(items) > 1 and len(items) * len(self._owners) > self._most
        crowd = owner if is_crowd else self._crowd()
        gone = crowd, next(iter(self._owners[crowd]))
        self.pop(*gone)
        return gone

    def pop(self, owner: Owner, key: Key) -> Item | None:
        """Remove and return an item; ``None`` if it is not there."""
        items = self._owners.get(owner)
        if items is None or key not in items:
            return None
        item = items.pop(key)
        self._count -= 1
        if items:
            self._note_size(owner)
        else:
            del self._owners[owner], self._putters[self._last_put.pop(owner)]
        return item

    def _crowd(self) -> Owner:
        """Return the owner with the most items; of several, the one whose last put is longest ago."""
        while True:
            less, put = self._crowds[0]
            owner = self._putters.get(put)
            if owner is not None and len(self._owners[owner]) == -less:
                return owner
            heappop(self._crowds)

    def _note_size(self, owner: Owner) -> None:
        heappush(self._crowds, self._entry(owner))
        if len(self._crowds) > 4 * len(self._owners) + _LEAST_REBUILT:
            self._crowds[:] = map(self._entry, self._owners)
            heapify(self._crowds)

    def _entry(self, owner: Owner) -> tuple[int, int]:
        return -len(self._owners[owner]), self._last_put[owner]


class Places(Generic[Owner]):
    """Slots for concurrent work, shared between its owners.

    As soon as there are two owners, an owner with half of the slots gets none of the last quarter: those stay
    free for the others, even if its own work takes long.
    """

    def __init__(self, count: int) -> None:
        """Create this many free slots."""
        self._count: Final = count
        self._held: Final[Counter[Owner]] = Counter()
        self._known: Final[set[Owner]] = set()

    def take_from(self, queue: FairQueue[Owner, Key, Item]) -> Item | None:
        """Take the next item in turn and a slot for it; ``None`` if there is no item or no slot."""
        if len(self._known) < 2:
            self._known.update(islice(queue.owners, 2))
        free = self._count - self._held.total()
        skip = self._greedy() if free <= self._count // 4 else frozenset[Owner]()
        taken = queue.take(skip) if free else None
        if taken is None:
            return None
        owner, _, item = taken
        self._held[owner] += 1
        return item

    def leave(self, owner: Owner) -> None:
        """Return a slot."""
        self._held[owner] -= 1
        if not self._held[owner]:
            del self._held[owner]

    def _greedy(self) -> frozenset[Owner]:
        if len(self._known) < 2:
            return frozenset()
        return frozenset(owner for owner, held in self._held.items() if held >= self._count // 2)


class Turns:
    """Slots for costly work: a few in all, one for each client, given to waiting clients in turn."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._working: Final[set[str]] = set()
        self._waiting: Final[FairQueue[str, asyncio.Future[None], str]] = FairQueue()

    @asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[None]:
        """Wait for a slot, and hold it until the block ends."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.put(client, future, client)
        self._admit()
        try:
            await future
            yield
        finally:
            if self._waiting.discard(client, future) is None:  # else cancelled before it got a slot
                self._working.discard(client)
                self._free += 1
                self._admit()

    def _admit(self) -> None:
        while self._free and (taken := self._waiting.take(self._working)) is not None:
            client, future, _ = taken
            self._free -= 1
            self._working.add(client)
            if not future.done():
                future.set_result(None)


class Pace:
    """Spaces out one kind of work, so that what arrives between two starts is done together.

    A full batch need not wait: its owner calls ``hurry``. Used on one event loop.
    """

    def __init__(self, apart_s: float) -> None:
        """Create it; the first start is never early.

        Args:
            apart_s: seconds between two starts.
        """
        self._apart_s: Final = apart_s
        self._next_s = 0.0
        """Time of the event loop before which a start is early."""
        self._timer: asyncio.TimerHandle | None = None
        self._calls: list[Callable[[], None]] = []

    @property
    def early_s(self) -> float:
        """Seconds until the next start; 0 if it may be now."""
        return max(0.0, self._next_s - asyncio.get_running_loop().time())

    @property
    def is_timed(self) -> bool:
        """Whether a call is scheduled."""
        return self._timer is not None

    def begin(self) -> None:
        """Record a start."""
        self._next_s = asyncio.get_running_loop().time() + self._apart_s

    def then(self, call: Callable[[], None], least_s: float = 0.0) -> None:
        """Schedule a call for the next start, in ``least_s`` or more seconds; ``hurry`` makes it at once."""
        self._calls.append(call)
        if self._timer is None:
            wait_s = max(self.early_s, least_s)
            self._timer = asyncio.get_running_loop().call_later(wait_s, self.hurry)

    def hurry(self) -> None:
        """End all waits; the next start is no longer early.

        The event loop's clock has a resolution of a millisecond, so a timer's callback may look early.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._next_s = 0.0
            calls, self._calls = self._calls, []
            for call in calls:
                call()

    async def wait(self, least_s: float = 0.0) -> None:
        """Wait as ``then`` does."""
        if least_s or self.early_s:
            over = asyncio.Event()
            self.then(over.set, least_s)
            await over.wait()


class Batcher(Generic[Item, Answer]):
    """Groups items into calls, by default one call at a time; used on one event loop.

    Items that arrive while a call is running are passed to the next call together. Otherwise an item waits
    for further items only if the last call began a moment ago: single calls are as quick as without batching.
    """

    def __init__(
        self,
        call: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]],
        *,
        most: int,
        at_once: Callable[[], int] = lambda: 1,
        apart_s: float = 0.0,
        charged: Callable[[Item], float] | None = None,
    ) -> None:
        """Create an empty batcher.

        Args:
            call: returns an answer for each of 1 to ``most`` items, in order. If it raises, it is called
                again for each item alone, so that one bad item fails alone.
            most: maximum number of items in one call.
            at_once: returns how many calls may run at once; at least 1.
            apart_s: seconds between the starts of two calls, unless ``most`` items wait.
            charged: returns what was charged to an item's owner. Those with the least go first, in order of
                arrival; an item of an owner with more than 0 goes alone. If given, few items may wait.
        """
        self._call: Final = call
        self._most: Final = most
        self._at_once: Final = at_once
        self._pace: Final = Pace(apart_s)
        self._charged: Final = charged
        self._waiting: Final[deque[tuple[Item, asyncio.Future[Answer]]]] = deque()
        self._working: Final[set[asyncio.Task[None]]] = set()

    async def __call__(self, item: Item) -> Answer:
        """Return the answer for one item; the item of a cancelled caller is skipped."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if len(self._working) < self._at_once():
            self._working.add(asyncio.create_task(self._work()))
        elif len(self._waiting) >= self._most:
            self._pace.hurry()
        return await future

    async def _work(self) -> None:
        try:
            while self._waiting:
                if len(self._waiting) < self._most:
                    await self._pace.wait()
                self._pace.begin()
                batch = self._next()
                if not batch:
                    break
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
