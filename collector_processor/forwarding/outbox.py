"""Delivery of the outbox: carriers, evaluation logs and scores are sent until the backend accepts them.

Delivery is at least once, with the same bytes each time, in order for each tenant. Each signal has a loop of
its own, and a tenant for which the backend asks to wait is skipped meanwhile, so a backend that takes no logs
(Jaeger) or throttles one tenant delays only that. A tenant's waiting entries are sent in one request:
concatenated export requests are one request (protobuf merges their lists), and the spans' bytes stay the
same. ``sender`` sends them, and bisects between entries; before a retry they are read again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from collector_processor.core.disk import StoreError, patiently
from collector_processor.core.fair import Pace
from collector_processor.core.records import OUTBOX_BATCH, Outgoing
from collector_processor.core.scores import Lane
from collector_processor.forwarding.sender import Part, Sender, Sending
from collector_processor.otlp import Signal, Tenant

logger = logging.getLogger(__name__)

BATCH_DELAY_S: Final = 0.02
"""Seconds to wait for further entries: a request with ten entries costs no more than one."""
_APART_S: Final = 0.2
"""Seconds between the starts of two batches, for the same reason."""
Read = Callable[[Signal | Lane, AbstractSet[Tenant]], Awaitable[list[Outgoing]]]
Forget = Callable[[list[int]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _Entries:
    """Entries of one tenant."""

    entries: list[Outgoing]

    @property
    def body(self) -> bytes:
        """The entries as one request."""
        return b"".join(entry.body for entry in self.entries)

    @property
    def items(self) -> int:
        """Number of entries."""
        return len(self.entries)

    def halves(self) -> tuple[_Entries, _Entries] | None:
        """Return half of the entries each."""
        half = len(self.entries) // 2
        return (_Entries(self.entries[:half]), _Entries(self.entries[half:])) if half else None


class OutboxDelivery:
    """Sends the outbox entries of one signal or sink until cancelled."""

    def __init__(
        self,
        signal: Signal | Lane,
        *,
        read: Read,
        forget: Forget,
        sender: Sender | None,
        look_s: float | None,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        delivered: Callable[[Outgoing], None],
    ) -> None:
        """Create the loop of one signal or sink.

        Args:
            signal: what to send.
            read: returns undelivered entries of the signal, oldest first, leaving out the given tenants.
            forget: removes delivered entries.
            sender: sends the entries; without one, they are removed unsent (the store keeps the verdicts).
            look_s: seconds after which entries are looked for without a ``wake``, for those of other
                processes.
            pause: sleeps for the given seconds while the disk refuses.
            delivered: called with each entry that the backend accepted.
        """
        self.signal: Final[Signal | Lane] = signal
        self._read: Final = read
        self._forget: Final = forget
        self._sender: Final = sender
        self._look_s: Final = look_s
        self._wait: Final = pause
        self._wake: Final = asyncio.Event()
        self._waits_s: list[float] = []
        """Waits of the tenants that the last batch left out or did not finish."""
        self._under_way: asyncio.Task[int] | None = None
        self._delivered: Final = delivered
        self.sent: int = 0
        self.refused: int = 0
        self.unsupported: int = 0
        """Entries dropped because the backend has no service for their signal."""

    def wake(self) -> None:
        """Signal that there may be new entries."""
        self._wake.set()

    async def run(self) -> None:
        """Send until cancelled."""
        pace = Pace(_APART_S)
        while True:
            pace.begin()
            self._wake.clear()
            while await self._send_shielded() >= OUTBOX_BATCH:
                pass  # after a smaller batch only paused entries are left; ``wake`` announces new ones
            await self._rest()
            await pace.wait(BATCH_DELAY_S)

    async def drain(self, deadline_s: float) -> None:
        """Send until nothing is left or the deadline, in seconds; the next start sends the rest."""
        try:
            async with asyncio.timeout(deadline_s):
                if self._under_way is not None and not self._under_way.done():
                    await self._under_way
                while await self.send_some():
                    pass
        except TimeoutError:
            if await self._has_more():
                extra = {"signal": str(self.signal)}
                logger.warning(
                    "stopped before every verdict was delivered: the rest is sent after the next start",
                    extra=extra,
                )

    async def _has_more(self) -> bool:
        """Return whether entries are left; true if the disk refuses the read."""
        try:
            return bool(await self._read(self.signal, frozenset()))
        except StoreError:
            return True

    async def _rest(self) -> None:
        """Wait for new entries or the end of a pause."""
        waits = [*self._waits_s, *(() if self._look_s is None else (self._look_s,))]
        try:
            async with asyncio.timeout(min(waits, default=None)):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _send_shielded(self) -> int:
        """Send a batch, shielded from cancellation: if it were sent again, it would arrive twice."""
        self._under_way = asyncio.create_task(self._send_batch())
        return await asyncio.shield(self._under_way)

    async def send_some(self) -> bool:
        """Send one batch; return whether there were entries."""
        return await self._send_batch() > 0

    async def _send_batch(self) -> int:
        """Send the entries that the store returns in one read; return their number."""
        paused = {} if self._sender is None else self._sender.paused
        self._waits_s = [*paused.values()]
        entries = await patiently(lambda: self._read(self.signal, paused.keys()), self._wait)
        for batch in _batches(entries, self._sender.max_bytes if self._sender else 0):
            await self._send(batch)
        return len(entries)

    async def _send(self, batch: list[Outgoing]) -> None:
        """Send entries of one tenant until the backend asks to wait; remove those that are settled."""
        settled, tenant = batch, batch[0].tenant
        if self._sender is not None:
            parts = deque[Part]([_Entries(batch)])
            sending = Sending(parts=parts, tenant=tenant)
            wait_s = self._sender.paused.get(tenant, 0.0)
            while parts and not wait_s:
                wait_s = await self._sender.attempt(sending)
            self._waits_s += [wait_s] if parts else []
            settled = batch[: len(batch) - sum(part.items for part in parts)]
            self._count(sending, settled)
        if settled:
            # Not read again while the disk refuses: they would be sent twice.
            await patiently(lambda: self._forget([entry.id for entry in settled]), self._wait)

    def _count(self, sending: Sending, settled: list[Outgoing]) -> None:
        """Count settled entries; a partial success does not say which entries it refused."""
        self.unsupported += sending.unsupported
        refused = min(sending.rejected, len(settled) - sending.unsupported)
        if refused and not self.refused:
            extra = {"signal": str(self.signal), "reason": sending.reason}
            logger.warning("backend refused a verdict", extra=extra)
        self.refused += refused
        self.sent += len(settled) - sending.unsupported - refused
        if not refused and not sending.unsupported:
            for entry in settled:
                self._delivered(entry)


def _batches(entries: Iterable[Outgoing], most_bytes: int) -> Iterator[list[Outgoing]]:
    """Yield the entries of each request: those of one tenant, in order, up to ``most_bytes``."""
    by_tenant: dict[Tenant, list[Outgoing]] = {}
    for entry in entries:
        by_tenant.setdefault(entry.tenant, []).append(entry)
    for waiting in by_tenant.values():
        batch, size = [waiting[0]], len(waiting[0].body)
        for entry in waiting[1:]:
            size += len(entry.body)
            if size > most_bytes:
                yield batch
                batch, size = [], len(entry.body)
            batch.append(entry)
        yield batch
