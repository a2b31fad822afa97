"""What the slow lane remembers of traces: arrivals to look up, hold deadlines, and others of their run.

Acknowledgements do not wait for the slow lane, so its backlog of arrivals must be bounded: when it is full,
the oldest are removed and treated as arrivals of new traces.

In hold mode a trace is held from its first span until its verdict is written onto it, at most ``hold_max``.
Afterwards its spans are forwarded at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import count, islice
from typing import Final

from collector_processor.assembly.assembler import Released
from collector_processor.core.fair import FairQueue
from collector_processor.otlp import Tenant, TraceKey
from collector_processor.wire.facts import TraceArrival
from semconv.model import Completion

logger = logging.getLogger(__name__)

_MAX_RELEASED: Final = 100_000
"""Recently released traces (bounded). Forgetting one only means that it may be held again."""
_RELEASED_AT_ONCE: Final = 128
"""Traces released before other tasks get the event loop: some milliseconds."""


class Holds:
    """Hold deadlines of one process; used on one event loop."""

    def __init__(self, hold_max_s: float | None, release: Callable[[TraceKey], Awaitable[None]]) -> None:
        """Create it without deadlines.

        Args:
            hold_max_s: seconds a trace may be held; ``None`` to hold nothing (late mode).
            release: forwards the trace's held rows unchanged.
        """
        self._hold_max_s: Final = hold_max_s
        self._release: Final = release
        self._deadlines: Final[dict[TraceKey, float]] = {}
        self._timers: Final[list[tuple[float, TraceKey]]] = []
        self._claimed: Final[set[TraceKey]] = set()
        """Traces whose verdict is being committed; they have no deadline."""
        self._released: Final[OrderedDict[TraceKey, None]] = OrderedDict()
        self._releases: Final[set[asyncio.Future[None]]] = set()
        """Releases in progress."""

    @property
    def is_off(self) -> bool:
        """Whether hold mode is off."""
        return self._hold_max_s is None

    @property
    def next_deadline(self) -> float | None:
        """Earliest time at which a trace may have to be released."""
        return self._timers[0][0] if self._timers else None

    @property
    def claimed(self) -> tuple[TraceKey, ...]:
        """Traces whose verdict is being committed."""
        return tuple(self._claimed)

    def holds(self, key: TraceKey) -> bool:
        """Return whether new spans of this trace must wait for a verdict."""
        return not self.is_off and key not in self._released

    def hold(self, key: TraceKey, now: float) -> None:
        """Start the deadline of a trace that has held spans, unless it is already running."""
        if self._hold_max_s is not None and key not in self._deadlines:
            self._deadlines[key] = now + self._hold_max_s
            heappush(self._timers, (self._deadlines[key], key))

    def claim(self, key: TraceKey) -> bool:
        """Stop the deadline of a trace that has a verdict; return ``False`` if it was released before."""
        if self._deadlines.pop(key, None) is not None:
            self._claimed.add(key)
        return key in self._claimed

    async def release_overdue(self, now: float) -> None:
        """Release the traces whose deadline has passed."""
        overdue: list[TraceKey] = []
        while self._timers and self._timers[0][0] <= now:
            deadline, key = heappop(self._timers)
            if self._deadlines.get(key) == deadline:
                overdue.append(key)
        if overdue:  # one log line: a request may hold thousands of traces
            context = {"traces": len(overdue), "trace_id": overdue[0].trace_id}
            logger.warning("held traces released without a verdict", extra=context)
        await self.release_all(overdue)

    async def release_all(self, keys: Iterable[TraceKey]) -> None:
        """Release many traces together, so that they share commits of the journal."""
        waiting = iter(tuple(keys))
        while some := tuple(islice(waiting, _RELEASED_AT_ONCE)):
            await asyncio.gather(*map(self.release, some))

    async def release(self, key: TraceKey) -> None:
        """Release a trace: its held spans are forwarded now, later ones at once."""
        if self.is_off:
            return
        self._released[key] = None
        while len(self._released) > _MAX_RELEASED:
            self._released.popitem(last=False)
        self._deadlines.pop(key, None)
        self._claimed.discard(key)
        release = asyncio.ensure_future(self._release(key))
        self._releases.add(release)
        release.add_done_callback(self._releases.discard)
        await asyncio.shield(release)

    async def release_everything(self) -> None:
        """Release all held traces, and wait for releases still in progress."""
        await self.release_all(self._deadlines)
        await asyncio.gather(*self._releases)


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


class Waits:
    """Complete traces that wait until another trace of their run is examined."""

    def __init__(self) -> None:
        self._awaited: Final[dict[TraceKey, frozenset[TraceKey]]] = {}
        """The traces that each waits for."""
        self._waiters: Final[defaultdict[TraceKey, set[TraceKey]]] = defaultdict(set)
        """Waiting traces, by the traces that they wait for."""
        self._resumed: Final[dict[TraceKey, None]] = {}
        """Traces that need not wait any more, in order, until they are taken."""

    def __contains__(self, key: TraceKey) -> bool:
        """Return whether the trace waits."""
        return key in self._awaited

    def __len__(self) -> int:
        """Return the number of traces that wait."""
        return len(self._awaited)

    def wait(self, key: TraceKey, awaited: frozenset[TraceKey]) -> None:
        """Let a trace wait for any of these."""
        self.stop(key)
        self._awaited[key] = awaited
        for one in awaited:
            self._waiters[one].add(key)

    def stop(self, key: TraceKey) -> None:
        """Let a trace wait no longer; no effect if it does not wait."""
        for one in self._awaited.pop(key, ()):
            self._waiters[one].discard(key)
            if not self._waiters[one]:
                del self._waiters[one]

    def settle(self, settled: Iterable[TraceKey]) -> bool:
        """Resume the traces that wait for these; return whether there are any."""
        found = [key for one in settled for key in self._waiters.get(one, ())]
        self._resumed.update(dict.fromkeys(found))
        return bool(found)

    def take_resumed(self) -> Iterator[TraceKey]:
        """Remove and yield the resumed traces, except those whose wait has already ended."""
        for key in tuple(self._resumed):
            del self._resumed[key]
            if key in self._awaited:
                self.stop(key)
                yield key


class ExaminationOrder:
    """Traces under examination, in the order in which their examinations began.

    Final and provisional examinations are kept apart: none waits for one of the other kind.
    """

    def __init__(self) -> None:
        self._numbers: Final = count()
        self._final: Final[dict[TraceKey, int]] = {}
        self._provisional: Final[dict[TraceKey, int]] = {}
        self._behind: Final[defaultdict[TraceKey, list[TraceKey]]] = defaultdict(list)
        """Traces whose provisional verdict waits for another's, by that trace."""

    def begin(self, released: Released) -> None:
        """Add the traces of an examination behind all others."""
        keys = (released.key, *released.along)
        self._of(released).update(dict.fromkeys(keys, next(self._numbers)))

    def end(self, released: Released) -> Sequence[TraceKey]:
        """Remove the traces of an examination, if they are there; return those that followed it."""
        for key in (released.key, *released.along):
            self._of(released).pop(key, None)
        return self._behind.pop(released.key, ())

    def follow(self, leader: TraceKey, key: TraceKey) -> None:
        """Let the provisional verdict of a trace wait for that of another under examination."""
        self._behind[leader].append(key)

    def is_ahead(self, released: Released, other: TraceKey) -> bool:
        """Return whether the other trace's examination began before that of ``released``."""
        begun = self._of(released)
        return other in begun and begun[other] < begun[released.key]

    def _of(self, released: Released) -> dict[TraceKey, int]:
        return self._provisional if released.completion is Completion.IDLE_OPEN else self._final
