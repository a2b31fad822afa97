"""Queue of the slow lane: arrivals not looked up yet. Pure.

Acknowledgements do not wait for the slow lane, so its backlog of arrivals must be bounded: when it is full,
the oldest are removed and treated as arrivals of new traces.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from itertools import count
from typing import Final

from collector_processor.core.fair import FairQueue
from collector_processor.otlp import Tenant, TraceKey
from collector_processor.wire.facts import TraceArrival

ARRIVAL_BYTES: Final = 352
"""Memory of an arrival without its notes; measured, and rounded up."""
NOTE_BYTES: Final = 256
"""Memory of a span's note; measured, and rounded up."""


class Inbox:
    """Queue of arrivals: in order within a tenant, round-robin between tenants."""

    def __init__(self, max_bytes: int) -> None:
        """Create an empty inbox.

        Args:
            max_bytes: bound on estimated memory; the newest arrival is kept regardless of its size.
        """
        self._max_bytes: Final = max_bytes
        self._arrivals: Final[FairQueue[Tenant, int, TraceArrival]] = FairQueue()
        self._numbers: Final = count()
        self._waiting = 0
        self._keys: Final[defaultdict[TraceKey, int]] = defaultdict(int)
        """Number of arrivals of each trace that has any."""
        self.bytes = 0
        """Memory of the arrivals, in bytes."""

    def __len__(self) -> int:
        """Return the number of waiting arrivals."""
        return self._waiting

    @property
    def tenants(self) -> Collection[Tenant]:
        """Live view of the tenants that have waiting arrivals."""
        return self._arrivals.owners

    def put(self, arrival: TraceArrival) -> tuple[TraceArrival, ...]:
        """Add an arrival; return those that no longer fit: the oldest, from each tenant in turn."""
        gone: list[TraceArrival] = []
        size = _size(arrival)
        while self._waiting and self.bytes + size > self._max_bytes:
            gone += self.take(1)
        key = arrival.key
        self._arrivals.put(key.tenant, next(self._numbers), arrival)
        self._waiting += 1
        self._keys[key] += 1
        self.bytes += size
        return tuple(gone)

    def __contains__(self, key: TraceKey) -> bool:
        """Return whether an arrival of this trace waits."""
        return key in self._keys

    def take(self, most: int) -> tuple[TraceArrival, ...]:
        """Remove and return at most ``most`` arrivals."""
        return tuple(self._next() for _ in range(min(most, self._waiting)))

    def _next(self) -> TraceArrival:
        taken = self._arrivals.take()
        assert taken is not None
        self._waiting -= 1
        arrival = taken[2]
        waiting = self._keys.pop(arrival.key) - 1
        if waiting:
            self._keys[arrival.key] = waiting
        self.bytes -= _size(arrival)
        return arrival


def _size(arrival: TraceArrival) -> int:
    return ARRIVAL_BYTES + NOTE_BYTES * len(arrival.notes)
