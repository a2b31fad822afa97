"""The outbox's way out: carriers and evaluation logs to the backend, until it has them.

At least once, the same bytes each time, a tenant's in order. Each signal has its
own loop, and a tenant whom the backend asks to wait is passed over meanwhile: a
backend that takes no logs (Jaeger), or throttles one tenant, holds up only that.
What waits of one tenant goes in one request: export requests behind one another
are one (protobuf joins their lists), and their spans' bytes stay what they are.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from time import monotonic
from typing import Final

from collector_processor.otlp import (
    Delivered,
    Exporter,
    NoSuchService,
    Rejected,
    SendOutcome,
    Setback,
    Signal,
    Tenant,
    TryLater,
    setback_of,
)
from collector_processor.runstore import OUTBOX_BATCH
from collector_processor.store_thread import patiently
from collector_processor.stored import Outgoing
from collector_processor.stores import StoreError

logger = logging.getLogger(__name__)

FIRST_WAIT_S: Final = 0.5
LONGEST_WAIT_S: Final = 30.0
COMPANY_S: Final = 0.02
"""How long an entry waits for others to go with it: a request costs as much for one as for ten."""
NO_SERVICE_S: Final = 300.0
"""Seconds for which verdicts of an unsupported signal are dropped before the next try."""
Read = Callable[[Signal, AbstractSet[Tenant]], Awaitable[list[Outgoing]]]
Forget = Callable[[list[int]], Awaitable[None]]


def _tell_nobody(entry: Outgoing) -> None:
    """Default for ``landed``: do nothing."""


@dataclass(frozen=True, slots=True)
class _Pause:
    """A tenant whom the backend asked to wait."""

    until: float
    longest_s: float
    """What the pause may have lasted; the next lasts twice as long."""


class OutboxDelivery:
    """Sends one signal's outbox entries until cancelled."""

    def __init__(
        self,
        signal: Signal,
        *,
        read: Read,
        forget: Forget,
        exporters: Mapping[Signal, Exporter],
        now: Callable[[], float] = monotonic,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        landed: Callable[[Outgoing], None] = _tell_nobody,
    ) -> None:
        """Make the loop of one signal.

        Args:
            signal: what it sends.
            read: returns undelivered entries of the signal but those of some tenants, oldest first.
            forget: strikes delivered entries out.
            exporters: where each signal goes; one that is missing goes nowhere, its
                entries are struck out (the store keeps the verdicts).
            now: seconds.
            pause: waits so many seconds where the disk refuses to be read.
            landed: called with each entry that the backend accepted.
        """
        self.signal: Final = signal
        self._read: Final = read
        self._forget: Final = forget
        self._exporter: Final = exporters.get(signal)
        self._now: Final = now
        self._wait: Final = pause
        self._wake: Final = asyncio.Event()
        self._pauses: Final[dict[Tenant, _Pause]] = {}
        self._under_way: asyncio.Task[int] | None = None
        self._landed: Final = landed
        self._no_service_until: float | None = None
        self._told: Setback | None = None
        self.sent: int = 0
        self.refused: int = 0
        self.unsupported: int = 0
        """Entries dropped because the backend has no service for their signal."""
        self.setbacks: Final[Counter[Setback]] = Counter()
        """Failed sends, counting every try, by cause."""

    def wake(self) -> None:
        """Say that there may be something to send."""
        self._wake.set()

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            self._wake.clear()
            while await self._send_undisturbed() >= OUTBOX_BATCH:
                pass  # of fewer, none is left but what is paused: what comes meanwhile wakes us
            await self._rest()
            await asyncio.sleep(COMPANY_S)

    async def drain(self, deadline_s: float) -> None:
        """Send what there is until the deadline; what is left, or paused, is sent after the next start."""
        try:
            async with asyncio.timeout(deadline_s):
                if self._under_way is not None and not self._under_way.done():
                    await self._under_way
                while await self.send_some():
                    pass
        except TimeoutError:
            if await self._has_more():
                told = {"signal": self.signal.value}
                logger.warning("stopped before every verdict was delivered", extra=told)

    async def _has_more(self) -> bool:
        """Whether anything is left, as far as the disk says."""
        try:
            return bool(await self._read(self.signal, frozenset()))
        except StoreError:
            return True

    async def _rest(self) -> None:
        """Wait for something to send, or for the end of a pause."""
        ends = [pause.until for pause in self._pauses.values()]
        try:
            async with asyncio.timeout(max(0.0, min(ends) - self._now()) if ends else None):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _send_undisturbed(self) -> int:
        """Send a batch that goes on where ``run`` is cancelled: begun anew, it would be sent twice."""
        self._under_way = asyncio.create_task(self._send_batch())
        return await asyncio.shield(self._under_way)

    async def send_some(self) -> bool:
        """Send one batch; return whether there was any."""
        return await self._send_batch() > 0

    async def _send_batch(self) -> int:
        """Send what the store gives at once; return how many entries these were."""
        entries = await patiently(lambda: self._read(self.signal, self._paused()), self._wait)
        most = self._exporter.max_bytes if self._exporter is not None else 0
        for parcel in _parcels(entries, most):
            if parcel[0].tenant not in self._paused():
                await self._send(parcel)
        return len(entries)

    async def _strike_out(self, entries: list[Outgoing]) -> None:
        """Forget what is delivered; where the disk refuses that, it goes once more after a pause."""
        try:
            await self._forget([entry.id for entry in entries])
        except StoreError as error:
            logger.warning("delivered verdict cannot be struck out", extra={"reason": str(error)})
            self._pauses[entries[0].tenant] = _Pause(self._now() + LONGEST_WAIT_S, LONGEST_WAIT_S)

    def _paused(self) -> AbstractSet[Tenant]:
        now = self._now()
        return {tenant for tenant, pause in self._pauses.items() if pause.until > now}

    async def _send(self, parcel: list[Outgoing]) -> None:
        """Send entries of one tenant as one request, and strike out what that is the end of."""
        if self._exporter is None:
            await self._strike_out(parcel)
            return
        if self._no_service_until is not None and self._now() < self._no_service_until:
            self.unsupported += len(parcel)
            await self._strike_out(parcel)
            return
        first, body = parcel[0], b"".join(entry.body for entry in parcel)
        outcome = await self._exporter.send(first.signal, body, first.tenant, ())
        self._note(outcome)
        if isinstance(outcome, NoSuchService) and self.signal is Signal.TRACES:
            # A trace backend takes traces: this 404 comes from an ingress, for example during a rollout.
            outcome = TryLater(reason=outcome.reason)
        if isinstance(outcome, TryLater):
            self._pause(first.tenant, outcome)
            return
        self._pauses.pop(first.tenant, None)
        if isinstance(outcome, Rejected) and len(parcel) > 1:  # perhaps for one of them: each for itself
            for entry in parcel:
                if first.tenant not in self._paused():
                    await self._send([entry])
            return
        self._count(outcome, parcel)
        await self._strike_out(parcel)

    def _note(self, outcome: SendOutcome) -> None:
        """Count a failed send by its cause, and log each cause once."""
        setback = setback_of(outcome)
        if setback is None:
            self._told = self._no_service_until = None
            return
        self.setbacks[setback] += 1
        if setback is not self._told and setback in {Setback.AWAY, Setback.ASKED_TO_WAIT, Setback.FAILING}:
            told = {"signal": self.signal.value, "cause": setback.value, "outcome": str(outcome)}
            logger.warning("verdicts wait for the backend", extra=told)
            self._told = setback

    def _pause(self, tenant: Tenant, outcome: TryLater) -> None:
        """Pass a tenant over as long as the backend wishes, else ever longer."""
        before = self._pauses.get(tenant)
        longest_s = min(2 * before.longest_s, LONGEST_WAIT_S) if before else FIRST_WAIT_S
        own_s = longest_s * random.uniform(0.5, 1.0)  # noqa: S311 - jitter
        wait_s = own_s if outcome.wish_s is None else outcome.wish_s
        self._pauses[tenant] = _Pause(self._now() + wait_s, longest_s)

    def _count(self, outcome: SendOutcome, parcel: list[Outgoing]) -> None:
        """Count entries; which of them lost an item to a partial success, OTLP does not say."""
        entries = len(parcel)
        if isinstance(outcome, NoSuchService):
            self._has_no_service(outcome, entries)
            return
        refused = min(outcome.rejected, entries) if isinstance(outcome, Delivered) else entries
        self.sent += entries - refused
        if not refused:
            for entry in parcel:
                self._landed(entry)
        if refused and not self.refused:
            logger.warning(
                "backend refused a verdict", extra={"signal": self.signal.value, "outcome": str(outcome)}
            )
        self.refused += refused

    def _has_no_service(self, outcome: NoSuchService, entries: int) -> None:
        if self._no_service_until is None:
            logger.warning(
                "backend does not take the signal of verdicts",
                extra={"signal": self.signal.value, "reason": outcome.reason},
            )
        self._no_service_until = self._now() + NO_SERVICE_S
        self.unsupported += entries


def _parcels(entries: Iterable[Outgoing], most_bytes: int) -> Iterator[list[Outgoing]]:
    """Yield what goes in one request each: a tenant's entries, in order, as many as the backend takes."""
    by_tenant: dict[Tenant, list[Outgoing]] = {}
    for entry in entries:
        by_tenant.setdefault(entry.tenant, []).append(entry)
    for waiting in by_tenant.values():
        parcel, size = [waiting[0]], len(waiting[0].body)
        for entry in waiting[1:]:
            size += len(entry.body)
            if size > most_bytes:
                yield parcel
                parcel, size = [], len(entry.body)
            parcel.append(entry)
        yield parcel
