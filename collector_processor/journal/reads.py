"""What runs on the keeper's thread, and which rows are done though a read may say otherwise. A shell.

That a row was forwarded is known at once here, and soon on the disk; a read that began before sees it as it
was. So such a row is remembered until the disk knows of it and no read is under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from collector_processor.journal.chunks import segment_of

T = TypeVar("T")


class Reads:
    """Lives on one event loop; has a thread of its own."""

    def __init__(self) -> None:
        """Begin with none."""
        self._loop: Final = asyncio.get_running_loop()
        self._thread: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal-keeper")
        self._under_way = 0
        self._done: set[int] = set()
        self._written: set[int] = set()
        """Rows of ``_done`` that the disk knows by now, while a read may have seen it before."""

    async def run(self, work: Callable[[], T]) -> T:
        """Run ``work`` on the keeper's thread."""
        self._under_way += 1
        try:
            return await self._loop.run_in_executor(self._thread, work)
        finally:
            self._under_way -= 1
            self.written(())

    @property
    def done(self) -> AbstractSet[int]:
        """Rows that are done, though the disk may not say so yet."""
        return self._done

    def finish(self, seq: int) -> None:
        """Note that a row is done."""
        self._done.add(seq)

    def written(self, seqs: Iterable[int]) -> None:
        """Stop remembering rows that the disk knows to be done, once no read is under way."""
        self._written.update(seqs)
        if not self._under_way:
            self._done -= self._written
            self._written.clear()

    def deleted(self, number: int) -> None:
        """Stop remembering rows of a segment that is gone."""
        self._done = {seq for seq in self._done if segment_of(seq) != number}

    def close(self) -> None:
        """End the thread; nothing is to be under way."""
        self._thread.shutdown()
