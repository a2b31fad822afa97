"""What the slow lane was told of and has not looked up yet: oldest first, and only so many bytes. Pure.

Acknowledgements do not wait for the slow lane, so what it cannot look up in time must go
somewhere: the oldest come out again, to be taken up as if nothing were known of their traces.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from collector_processor.assembler import TraceKey
from collector_processor.notes import TraceArrival

ARRIVAL_BYTES: Final = 320
"""An arrival in memory, without notes; measured, and rounded up."""
NOTE_BYTES: Final = 256
"""A span's note in memory; measured, and rounded up."""


class Inbox:
    """Arrivals in the order in which they came."""

    def __init__(self, max_bytes: int) -> None:
        """Begin with none.

        Args:
            max_bytes: of memory, as far as it can be told; the newest arrival is kept however large it is.
        """
        self._max_bytes: Final = max_bytes
        self._arrivals: Final[deque[TraceArrival]] = deque()
        self.bytes = 0
        """What they take."""

    def __len__(self) -> int:
        """Arrivals that wait."""
        return len(self._arrivals)

    def put(self, arrival: TraceArrival) -> tuple[TraceArrival, ...]:
        """Add one, and return those for which there is no room any more, the oldest first."""
        self._arrivals.append(arrival)
        self.bytes += _size(arrival)
        gone: list[TraceArrival] = []
        while self.bytes > self._max_bytes and len(self._arrivals) > 1:
            gone.append(self._next())
        return tuple(gone)

    def take(self, most: int) -> tuple[TraceArrival, ...]:
        """Remove and return the oldest, at most so many."""
        return tuple(self._next() for _ in range(min(most, len(self._arrivals))))

    def _next(self) -> TraceArrival:
        arrival = self._arrivals.popleft()
        self.bytes -= _size(arrival)
        return arrival


def key_of(arrival: TraceArrival) -> TraceKey:
    """Return whose arrival it is."""
    return TraceKey(arrival.tenant, arrival.trace_id)


def _size(arrival: TraceArrival) -> int:
    return ARRIVAL_BYTES + NOTE_BYTES * len(arrival.notes)
