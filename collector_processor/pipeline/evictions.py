"""Records traces whose spans were evicted by the retention quota before their analysis. Not pure.

In a flood, traces are evicted faster than single verdicts can be stored, so many are recorded in one
transaction.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Coroutine
from itertools import islice
from typing import Final

from collector_processor.otlp import TraceKey

_MAX_TOGETHER: Final = 500
"""Maximum number of evicted traces recorded in one transaction."""
_MAX_WAITING: Final = 100_000
"""Bound on evicted traces that wait for a full disk; those beyond get no verdict but are counted."""


class Evictions:
    """Evicted traces that are not recorded yet; used on one event loop."""

    def __init__(
        self,
        record: Callable[[Collection[TraceKey]], Awaitable[None]],
        start: Callable[[Coroutine[None, None, None]], None],
    ) -> None:
        """Create an empty queue.

        Args:
            record: stores the verdicts of evicted traces; never called concurrently.
            start: runs a coroutine in the background.
        """
        self._record: Final = record
        self._start: Final = start
        self._waiting: Final[OrderedDict[TraceKey, None]] = OrderedDict()
        self._is_recording = False
        self.count = 0
        """Number of traces evicted so far."""

    def add(self, keys: Collection[TraceKey]) -> None:
        """Schedule evicted traces to be recorded."""
        self.count += len(keys)
        self._waiting.update(dict.fromkeys(keys))
        while len(self._waiting) > _MAX_WAITING:
            self._waiting.popitem(last=False)
        if not self._is_recording:
            self._is_recording = True
            self._start(self._record_all())

    async def _record_all(self) -> None:
        try:
            while self._waiting:
                keys = tuple(islice(self._waiting, _MAX_TOGETHER))
                for key in keys:
                    del self._waiting[key]
                await self._record(keys)
        finally:
            self._is_recording = False
