"""Reclaims disk space of the journal: deletes and compacts segments, copies back WALs.

A segment is deleted once none of its rows is needed. A segment with few needed rows (a throttled tenant's, a
few agent traces) is compacted first, and the WAL of a segment that stays is copied to its file. Failures are
logged once and retried.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Final

from collector_processor.core.disk import is_refusal
from collector_processor.journal.dispatch import Detach, Dispatch, Flush, WrittenBack
from collector_processor.journal.keeper import JournalKeeper, Reads
from collector_processor.journal.segment_accounts import SegmentAccounts
from collector_processor.journal.segments import SegmentFile
from collector_processor.otlp import CollectorError
from semconv.model import TraceId

logger = logging.getLogger(__name__)

_DELAY_S: Final = 0.2
"""Seconds between a change and the next search for segments to delete or compact."""
_REFUSALS: Final = (sqlite3.Error, OSError, CollectorError)
"""Raised if the disk refuses, a file cannot be opened, or a row is not an OTLP request."""


class Reclaimer:
    """Decides on the event loop; the keeper's thread does the work."""

    def __init__(
        self, segments: SegmentAccounts, dispatch: Dispatch, reads: Reads, keeper: JournalKeeper
    ) -> None:
        """Create it inside the running loop."""
        self._loop: Final = asyncio.get_running_loop()
        self._segments: Final = segments
        self._dispatch: Final = dispatch
        self._reads: Final = reads
        self._keeper: Final = keeper
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: Final[set[asyncio.Task[None]]] = set()
        self._is_refused = False
        """Whether the last task failed; consecutive failures are logged once."""
        self._is_closed = False

    def soon(self) -> None:
        """Call ``tidy`` after a short delay."""
        if self._timer is None and not self._is_closed:
            self._timer = self._loop.call_later(_DELAY_S, self.tidy)

    def retired(self, number: int) -> None:
        """Record that a segment accepts no more rows."""
        self._segments.retired(number, self._loop.time())
        self.soon()

    def tidy(self) -> None:
        """Start deleting unneeded segments; then compact, or copy back the WAL of, at most one."""
        self._timer = None
        for number in self._segments.take_deletable():
            self._dispatch.now(Detach(segment=number, done=partial(self._detached, number)))
        now = self._loop.time()
        compactable = self._segments.take_compactable(now)
        if compactable is not None:
            self._start(self._compact(*compactable))
        elif not self._write_back_one(self._segments.take_unwritten(now)) and self._segments.may_tidy_later:
            self.soon()

    def make_room(self) -> None:
        """Start copying back a WAL: on a full disk its pages take space twice."""
        self._write_back_one(self._segments.take_retired(self._loop.time()))

    def _write_back_one(self, number: int | None) -> bool:
        if number is not None:
            self._start(self._write_back(number))
        return number is not None

    def _start(self, chore: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(chore)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _detached(self, number: int, writers: SegmentFile | None) -> None:
        self._start(self._delete(number, writers))

    async def _delete(self, number: int, writers: SegmentFile | None) -> None:
        try:
            await self._reads.run(partial(self._keeper.delete, number, writers))
        except _REFUSALS as error:
            self._warn("deleted", error)
            self._segments.deletion_failed(number)
            return
        self._is_refused = False
        self._segments.deleted(number)
        self._reads.deleted(number)

    async def _compact(self, number: int, retained: Mapping[int, frozenset[TraceId]]) -> None:
        written = self._dispatch.completion()
        self._dispatch.now(Flush(segment=number, done=partial(written.set_result, None)))
        await written
        try:
            stored = await self._reads.run(partial(self._keeper.compact, number, retained))
        except _REFUSALS as error:  # the WAL stays for now, and so do the bytes owed
            self._refused(number, "compacted", error, give_up=self._segments.compaction_failed)
        else:
            self._is_refused = False
            self._segments.compacted(number, stored)
            self._dispatch.soon(WrittenBack(segment=number))
        self.soon()

    async def _write_back(self, number: int) -> None:
        try:
            await self._reads.run(partial(self._keeper.write_back, number))
        except _REFUSALS as error:  # the WAL and its bytes still owed stay
            self._refused(number, "written back", error, give_up=self._segments.written_back)
        else:
            self._is_refused = False
            self._dispatch.soon(WrittenBack(segment=number))
            self._segments.written_back(number)
        self.soon()

    def _refused(self, number: int, done: str, error: Exception, give_up: Callable[[int], None]) -> None:
        """Postpone the task, or give up if retrying cannot help."""
        self._warn(done, error)
        if is_refusal(error):
            self._segments.postpone(number, self._loop.time())
        else:
            give_up(number)

    def _warn(self, done: str, error: Exception) -> None:
        if not self._is_refused:
            logger.warning("journal segment cannot be %s", done, extra={"reason": str(error)})
        self._is_refused = True

    def close(self) -> None:
        """Stop starting tasks."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    async def finish(self) -> None:
        """Wait for the running tasks."""
        while self._tasks:
            await asyncio.gather(*self._tasks)
