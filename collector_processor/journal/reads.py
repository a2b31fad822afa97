"""What runs on the keeper's thread, and which rows are done though a read may say otherwise. A shell.

That a row was forwarded is known at once here, and soon on the disk; a read that began before sees it as it
was. So such a row is remembered until the disk knows of it and all reads that began before have ended; not
until there is none at all, for where many read there always is one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from typing import Final, TypeVar

from collector_processor.journal.chunks import segment_of

T = TypeVar("T")


class Reads:
    """Lives on one event loop; has a thread of its own."""

    def __init__(self) -> None:
        """Begin with none."""
        self._loop: Final = asyncio.get_running_loop()
        self._thread: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal-keeper")
        self._moments: Final = count()
        self._under_way: Final[dict[int, None]] = {}
        """When each read began, in order."""
        self._done: set[int] = set()
        self._written: Final[deque[tuple[int, tuple[int, ...]]]] = deque()
        """Since when the disk knows of rows of ``_done``, while a read may have seen it before."""

    async def run(self, work: Callable[[], T]) -> T:
        """Run ``work`` on the keeper's thread."""
        with self.reading():
            return await self._loop.run_in_executor(self._thread, work)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Remember what is done from here on until it ends: for who compares what was read with ``done``."""
        began = next(self._moments)
        self._under_way[began] = None
        try:
            yield
        finally:
            del self._under_way[began]
            self._forget()

    @property
    def done(self) -> AbstractSet[int]:
        """Rows that are done, though the disk may not say so yet."""
        return self._done

    def finish(self, seq: int) -> None:
        """Note that a row is done."""
        self._done.add(seq)

    def written(self, seqs: Iterable[int]) -> None:
        """Stop remembering rows that the disk knows to be done, once no read from before is under way."""
        self._written.append((next(self._moments), tuple(seqs)))
        self._forget()

    def _forget(self) -> None:
        oldest = next(iter(self._under_way), None)
        while self._written and (oldest is None or self._written[0][0] < oldest):
            self._done.difference_update(self._written.popleft()[1])

    def deleted(self, number: int) -> None:
        """Stop remembering rows of a segment that is gone."""
        self._done = {seq for seq in self._done if segment_of(seq) != number}

    def close(self) -> None:
        """End the thread; nothing is to be under way."""
        self._thread.shutdown()
