"""Reclaims disk space of the journal: deletes and thins segments.

A segment is deleted once none of its rows is needed. A segment with few needed rows (a throttled tenant's, a
few agent traces) is thinned first: the keeper writes its log anew with these rows. Failures are logged once
and retried.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial
from typing import Final

from collector_processor.journal.dispatch import Detach, Dispatch, Flush
from collector_processor.journal.keeper import JournalKeeper, Reads
from collector_processor.journal.segment_accounts import SegmentAccount, SegmentAccounts

logger = logging.getLogger(__name__)

_DELAY_S: Final = 0.2
"""Seconds between a change and the next search for segments to delete or thin."""
_RETRY_S: Final = 5.0
"""Seconds before a segment is thinned again if the disk refused."""


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
        """Start deleting unneeded segments; then thin at most one."""
        self._timer = None
        for number in self._segments.take_deletable():
            self._dispatch.now(Detach(segment=number, done=partial(self._detached, number)))
        segment = self._segments.take_thinnable(self._loop.time())
        if segment is not None:
            self._start(self._thin(segment))
        elif self._segments.may_tidy_later:
            self.soon()

    def _start(self, chore: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(chore)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _detached(self, number: int) -> None:
        self._start(self._delete(self._segments.at(number)))

    async def _delete(self, segment: SegmentAccount) -> None:
        try:
            await self._reads.run(partial(self._keeper.delete, segment.number, segment.version))
        except OSError as error:
            self._refused(segment, "deleted", error)
            return
        self._is_refused = False
        self._segments.deleted(segment.number)

    async def _thin(self, segment: SegmentAccount) -> None:
        number, version = segment.number, segment.version
        written: asyncio.Future[None] = self._dispatch.completion()
        is_flushed = False

        def flushed(answer: bool) -> None:  # noqa: FBT001 - a callback
            nonlocal is_flushed
            is_flushed = answer
            if not written.done():
                written.set_result(None)

        # Rows that are left out were done by now. Their marks must be durable, or they would count as lost.
        kept = segment.to_keep()
        self._dispatch.now(Flush(segment=number, done=flushed))
        await written
        if not is_flushed:
            self._refused(segment, "thinned", OSError("its marks cannot be written"))
            return
        try:
            offsets = await self._reads.run(partial(self._keeper.thin, number, version, kept))
        except OSError as error:
            self._refused(segment, "thinned", error)
        else:
            self._is_refused = False
            self._segments.thinned(number, kept, offsets)
            await self._reads.run(partial(self._keeper.drop_log, number, version))
        self.soon()

    def _refused(self, segment: SegmentAccount, what: str, error: OSError) -> None:
        if not self._is_refused:
            logger.warning("journal segment cannot be %s", what, extra={"reason": str(error)})
        self._is_refused = True
        self._segments.give_back(segment.number, self._loop.time() + _RETRY_S)
        self.soon()

    def close(self) -> None:
        """Stop starting tasks."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    async def finish(self) -> None:
        """Wait for the running tasks."""
        while self._tasks:
            await asyncio.gather(*self._tasks)
