"""Arrivals of the slow lane: from the inbox into the assembler, with each trace's number of earlier analyses.

Arrivals are taken in batches, so that one query to the store serves hundreds of traces. Timers go on between
batches: a tenant that sends without pause delays no other tenant's traces.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Final

from collector_processor.assembly.assembler import Assembler
from collector_processor.core.disk import StoreError
from collector_processor.otlp import Tenant, TraceKey
from collector_processor.pipeline.holds import Holds
from collector_processor.pipeline.load import MAX_ANALYSES
from collector_processor.pipeline.queues import Inbox
from collector_processor.wire.facts import TraceArrival

logger = logging.getLogger(__name__)

_BATCH: Final = 500
"""Arrivals looked up with one query to the store."""
_AT_ONCE: Final = 64
"""Arrivals handled before other tasks get the event loop: some milliseconds."""
_NOTES_AT_ONCE: Final = 1_000
"""The same for notes of spans."""


class Arrivals:
    """Moves arrivals from the inbox into the assembler; used on one event loop."""

    def __init__(
        self,
        inbox: Inbox,
        assembler: Assembler,
        holds: Holds,
        *,
        analyses_of: Callable[[Iterable[TraceKey]], Awaitable[Mapping[TraceKey, tuple[int, int]]]],
        is_examined: Callable[[TraceKey], bool],
        owns: Callable[[TraceKey], bool],
        monotonic: Callable[[], float],
    ) -> None:
        self._inbox: Final = inbox
        self._assembler: Final = assembler
        self._holds: Final = holds
        self._analyses_of: Final = analyses_of
        self._is_examined: Final = is_examined
        self._owns: Final = owns
        self._monotonic: Final = monotonic
        self.absorbing: frozenset[TraceKey] = frozenset()
        """Traces being looked up: no longer in the inbox, and not yet in the assembler."""

    async def absorb(self, release: Callable[[Container[Tenant]], Awaitable[None]] | None = None) -> None:
        """Process arrivals.

        Args:
            release: called between batches with the tenants that have further arrivals; releases the due
                traces of all others.
        """
        for at in range(0, len(self._inbox), _BATCH):  # not those that arrive meanwhile: timers are due
            if at and release:
                await release(self._inbox.tenants)
            batch = self._inbox.take(_BATCH)
            self.absorbing = frozenset([arrival.key for arrival in batch])
            await self._take_up(batch, await self._analyses(self.absorbing))
            self.absorbing = frozenset()

    async def _take_up(self, batch: Sequence[TraceArrival], before: Mapping[TraceKey, int]) -> None:
        """Add the spans of arrivals to their traces; those of traces analysed too often are only let go."""
        for number, arrival in enumerate(batch, start=1):
            key = arrival.key
            analyses = before.get(key, 0)  # does not matter if the trace is open
            if analyses < MAX_ANALYSES or self._assembler.is_open(key):
                for _ in self.open_or_add(arrival, analyses):
                    await asyncio.sleep(0)
            elif arrival.is_held:
                await self._holds.release(key)
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)

    def open_or_add(self, arrival: TraceArrival, analyses: int) -> Iterator[None]:
        """Add the spans of an arrival to its trace; yields after each thousand.

        If another process has the trace's spans now (Kafka), they are dropped: the root arrives there, so the
        trace would stay open here.
        """
        key, now, notes = arrival.key, self._monotonic(), arrival.notes
        if not self._owns(key):
            return
        if arrival.is_held:
            self._holds.hold(key, now)
        byte_count = arrival.byte_count
        for at in range(0, max(1, len(notes)), _NOTES_AT_ONCE):
            self._assembler.receive(
                key,
                notes[at : at + _NOTES_AT_ONCE],
                byte_count,
                now,
                analyses=analyses,
                received_ns=arrival.received_ns,
            )
            byte_count = 0
            if at + _NOTES_AT_ONCE < len(notes):
                yield

    async def _analyses(self, keys: Iterable[TraceKey]) -> Mapping[TraceKey, int]:
        """Return each trace's number of analyses; one that is running or postponed counts as the first."""
        closed = {key: self._is_examined(key) for key in keys if not self._assembler.is_open(key)}
        if not closed:
            return {}
        try:
            known = await self._analyses_of(closed)
        except StoreError as error:  # timers do not wait for the disk, and an examination checks it again
            logger.warning("earlier analyses cannot be looked up", extra={"reason": str(error)})
            return closed
        return {key: max(known[key][0], was_complete) for key, was_complete in closed.items()}
