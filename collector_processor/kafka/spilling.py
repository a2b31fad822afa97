"""Spilling: parts of long-open traces go to the shared store, so that Kafka's committed offset can advance.

Without it, a trace of an hour would keep its partition's offset where it began, and the next owner would read
an hour of records again. A part is written once it has held the offset back for a minute. Only then may the
offset pass it, so each part of an open trace is in Kafka, from the committed offset on, or in the store,
below it. The next owner takes the parts below the offset from the store; those above, it deletes from the
store and reads from Kafka. Parts of a trace with a verdict are deleted; those that a killed process left
behind expire.

While the store is unreachable, nothing is spilled, and the commit waits.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from collector_processor.core.disk import STORE_RETRY_S, StoreError
from collector_processor.core.records import SpilledPart
from collector_processor.journal import Journal
from collector_processor.kafka.progress import Part, Progress, Range
from collector_processor.kafka.record_form import Place
from collector_processor.otlp import Signal, TraceKey
from collector_processor.store.small_tables import SpilledPartRows

logger = logging.getLogger(__name__)

MOST_BYTES: Final = 256 << 20
"""Compressed bytes that one process may have in the store; beyond that, the commit waits for open traces."""
_CHECKED_AT_ONCE: Final = 10_000
"""Parts a second, of each partition, that are looked at for closed traces while nothing can be spilled."""
_AT_ONCE: Final = 64
"""Bound on parts written or read at once; fewer if they are large."""
_LARGE_BYTES: Final = 64 << 10
"""Compressed bytes of a part that is unpacked in a thread; they may be megabytes of text."""
_NS: Final = 1_000_000_000
_FASTEST: Final = 1


@dataclass(slots=True, kw_only=True)
class SpillCounts:
    """Counts of parts since the start of the process."""

    spilled: int = 0
    """Written to the store."""
    recalled: int = 0
    """Taken from the store after an assignment."""
    damaged: int = 0
    """Not readable in the store: the verdict is made without them."""


class Spilling:
    """Parts of this process's open traces in the shared store; used on one event loop."""

    def __init__(
        self,
        rows: SpilledPartRows,
        in_db: Callable[..., Awaitable[Any]],
        journal: Journal,
        signals: Mapping[str, Signal],
        *,
        after_s: float,
        monotonic: Callable[[], float],
        wall_ns: Callable[[], int],
        most_bytes: int = MOST_BYTES,
    ) -> None:
        """Create it.

        Args:
            rows: the table.
            in_db: makes one call on the store's thread.
            journal: has the rows of open traces.
            signals: each topic's signal.
            after_s: seconds for which a part may hold the offset back.
            monotonic: returns seconds.
            wall_ns: returns Unix ns.
            most_bytes: bound on the bytes in the store.
        """
        self._rows: Final = rows
        self._in_db: Final = in_db
        self._journal: Final = journal
        self._signals: Final = signals
        self._after_s: Final = after_s
        self._monotonic: Final = monotonic
        self._wall_ns: Final = wall_ns
        self._most_bytes: Final = most_bytes
        self._bytes: Final[dict[TraceKey, int]] = {}
        self.bytes = 0
        """Compressed bytes of this process's open traces in the store."""
        self._is_away = False
        self.counts: Final = SpillCounts()

    async def turn(self, places: Mapping[Place, Progress], is_open: Callable[[TraceKey], bool]) -> None:
        """Delete parts that are no longer needed and write those that are due, if the store is reachable.

        Args:
            places: the assigned partitions; changes while this waits.
            is_open: whether a trace has no verdict yet.
        """
        try:
            await self._forget_closed(is_open)
            for place, progress in tuple(places.items()):
                while (parts := self._due(progress, is_open)) and places.get(place) is progress:
                    await self._spill(place, parts, places)
            self._is_away = False
        except StoreError as error:
            if not self._is_away:
                logger.warning("open traces cannot be spilled", extra={"reason": str(error)})
            self._is_away = True

    async def recall(
        self, place: Place, below: int, pause: Callable[[float], Awaitable[None]]
    ) -> AsyncIterator[Sequence[SpilledPart]]:
        """Yield a partition's parts below its committed offset, in pages; at first, delete those above.

        Each record of a trace comes once, even if a process that was suspended wrote it too. Waits while the
        store is unreachable.
        """
        # If this call is late, a successor may own the partition; it spills nothing in its first ``after_s``.
        # Half of that allows for clocks that differ.
        until_ns = self._wall_ns() + int(self._after_s * _NS / 2)
        await self._patiently(pause, self._rows.drop, *place, below, until_ns)
        upto: dict[TraceKey, int] = {}

        def is_new(part: SpilledPart) -> bool:
            before = upto.get(part.key, -1)
            upto[part.key] = max(before, part.last)
            return part.last > before

        page: Sequence[SpilledPart] = ()
        while page := await self._patiently(
            pause, self._rows.of, *place, below, page[-1] if page else None, _AT_ONCE
        ):
            yield list(filter(is_new, page))

    async def _patiently(
        self, pause: Callable[[float], Awaitable[None]], call: Callable[..., Any], *args: Any
    ) -> Any:
        while True:
            try:
                return await self._in_db(call, *args)
            except StoreError as error:
                logger.warning("waiting for the spilled parts of open traces", extra={"reason": str(error)})
                await pause(STORE_RETRY_S)

    def recalled(self, part: SpilledPart) -> None:
        """Record that a part of one of our open traces is in the store."""
        self._bytes[part.key] = self._bytes.get(part.key, 0) + len(part.packed)
        self.bytes += len(part.packed)

    def lost(self, keys: set[TraceKey]) -> None:
        """Leave the parts of traces to the next owner of their partitions."""
        for key in keys:
            self.bytes -= self._bytes.pop(key, 0)

    async def _forget_closed(self, is_open: Callable[[TraceKey], bool]) -> None:
        closed = [key for key in self._bytes if not is_open(key)]
        if closed:
            await self._in_db(self._rows.forget, closed)
            self.lost(set(closed))

    def _due(self, progress: Progress, is_open: Callable[[TraceKey], bool]) -> list[Part]:
        if self.bytes >= self._most_bytes:
            progress.forget_closed(is_open, _CHECKED_AT_ONCE)
            return []
        return progress.due(self._monotonic() - self._after_s, is_open, _AT_ONCE)

    async def _spill(self, place: Place, parts: Sequence[Part], places: Mapping[Place, Progress]) -> None:
        """Write parts; once they are durable, the committed offset may pass them."""
        progress, signal = places[place], self._signals[place.topic]
        bodies = await self._journal.read_rows(signal, [(part.seq, part.key.trace_id) for part in parts])
        together: dict[tuple[TraceKey, Range], list[Part]] = {}
        for part in parts:  # a large request has several rows
            together.setdefault((part.key, part.range), []).append(part)
        found: list[tuple[TraceKey, Range, bytes]] = []
        released: list[Part] = []
        for (key, range_), some in together.items():
            rows = [bodies.get((part.seq, key.trace_id)) for part in some]
            whole = [body for body in rows if body is not None]
            if len(whole) < len(some):
                progress.keep(some)
                continue
            found.append((key, range_, b"".join(whole)))
            released += some
        written = await asyncio.to_thread(_packed, place, found)
        await self._in_db(self._rows.keep, written, self._wall_ns())
        self.counts.spilled += len(written)
        if places.get(place) is progress:  # else they are the next owner's
            progress.release(released)
            for spilled_part in written:
                self.recalled(spilled_part)


def _packed(place: Place, found: Iterable[tuple[TraceKey, Range, bytes]]) -> Sequence[SpilledPart]:
    """Return parts in the form in which they are kept; megabytes take too long for the event loop."""
    return [
        SpilledPart(**place._asdict(), **range_._asdict(), key=key, packed=pack(body))
        for key, range_, body in found
    ]


def pack(body: bytes) -> bytes:
    """Return a request in the form in which it is kept: compressed, with a checksum."""
    return zlib.compress(body, _FASTEST)


def unpack(packed: bytes) -> bytes:
    """Return a kept request.

    Raises:
        ValueError: it is damaged.
    """
    try:
        return zlib.decompress(packed)
    except zlib.error as error:
        raise ValueError(f"expected a whole part: {error}") from error


def is_large(part: SpilledPart) -> bool:
    """Return whether unpacking a part takes too long for the event loop."""
    return len(part.packed) > _LARGE_BYTES


def by_trace(parts: Iterable[SpilledPart]) -> Collection[Sequence[SpilledPart]]:
    """Return the parts of each trace, in their order."""
    found: dict[TraceKey, list[SpilledPart]] = {}
    for part in parts:
        found.setdefault(part.key, []).append(part)
    return found.values()
