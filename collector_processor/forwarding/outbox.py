"""Delivery of the outbox: carriers and evaluation logs are sent until the backend accepts them.

Delivery is at least once, with the same bytes each time, in order for each tenant. Each signal has a loop of
its own, and a tenant for which the backend asks to wait is skipped meanwhile, so a backend that takes no logs
(Jaeger) or throttles one tenant delays only that. A tenant's waiting entries are sent in one request:
concatenated export requests are one request (protobuf merges their lists), and the spans' bytes stay the
same.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from time import monotonic
from typing import Final, Protocol

from collector_processor.core.disk import StoreError, patiently
from collector_processor.core.records import OUTBOX_BATCH, Outgoing
from collector_processor.core.scores import Lane
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

logger = logging.getLogger(__name__)

FIRST_WAIT_S: Final = 0.5
LONGEST_WAIT_S: Final = 30.0
BATCH_DELAY_S: Final = 0.02
"""Seconds to wait for further entries: a request with ten entries costs no more than one."""
NO_SERVICE_S: Final = 300.0
"""Seconds for which verdicts of an unsupported signal are dropped before the next try."""
Read = Callable[[Signal | Lane, AbstractSet[Tenant]], Awaitable[list[Outgoing]]]
Forget = Callable[[list[int]], Awaitable[None]]


class Outlet(Protocol):
    """Takes the entries of one signal or sink; the delivery retries."""

    @property
    def max_bytes(self) -> int:
        """Most bytes of several entries sent as one body; 0 to send each alone."""
        ...

    async def send(self, body: bytes, tenant: Tenant) -> SendOutcome:
        """Send ``body`` once and return the outcome; raises no network error."""
        ...


@dataclass(frozen=True, slots=True)
class ExportOutlet:
    """Sends the entries of a signal as export requests."""

    signal: Signal
    exporter: Exporter

    @property
    def max_bytes(self) -> int:
        """As the exporter's."""
        return self.exporter.max_bytes

    async def send(self, body: bytes, tenant: Tenant) -> SendOutcome:
        """Send ``body`` once and return the outcome."""
        return await self.exporter.send(self.signal, body, tenant, ())


def _ignore(entry: Outgoing) -> None:
    """Do nothing; the default for ``delivered``."""


@dataclass(frozen=True, slots=True)
class _Pause:
    """Pause of a tenant after a retryable failure."""

    until: float
    longest_s: float
    """Longest wait of this pause; doubled for the next."""


class OutboxDelivery:
    """Sends the outbox entries of one signal or sink until cancelled."""

    def __init__(
        self,
        signal: Signal | Lane,
        *,
        read: Read,
        forget: Forget,
        outlet: Outlet | None,
        look_s: float | None = None,
        now: Callable[[], float] = monotonic,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        delivered: Callable[[Outgoing], None] = _ignore,
    ) -> None:
        """Create the loop of one signal or sink.

        Args:
            signal: what to send.
            read: returns undelivered entries of the signal, oldest first, leaving out the given tenants.
            forget: removes delivered entries.
            outlet: takes the entries; without one, they are removed unsent (the store keeps the verdicts).
            look_s: seconds after which entries are looked for without a ``wake``, for those of other
                processes.
            now: seconds, monotonic.
            pause: sleeps for the given seconds after the disk refused a read.
            delivered: called with each entry that the backend accepted.
        """
        self.signal: Final[Signal | Lane] = signal
        self._read: Final = read
        self._forget: Final = forget
        self._outlet: Final = outlet
        self._look_s: Final = look_s
        self._now: Final = now
        self._wait: Final = pause
        self._wake: Final = asyncio.Event()
        self._pauses: Final[dict[Tenant, _Pause]] = {}
        self._under_way: asyncio.Task[int] | None = None
        self._delivered: Final = delivered
        self._no_service_until: float | None = None
        self._logged: Setback | None = None
        self.sent: int = 0
        self.refused: int = 0
        self.unsupported: int = 0
        """Entries dropped because the backend has no service for their signal."""
        self.setbacks: Final[Counter[Setback]] = Counter()
        """Failed sends, including retries, by cause."""

    def wake(self) -> None:
        """Signal that there may be new entries."""
        self._wake.set()

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            self._wake.clear()
            while await self._send_shielded() >= OUTBOX_BATCH:
                pass  # after a smaller batch only paused entries are left; ``wake`` announces new ones
            await self._rest()
            await asyncio.sleep(BATCH_DELAY_S)

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
        waits = [max(0.0, pause.until - self._now()) for pause in self._pauses.values()]
        waits += [] if self._look_s is None else [self._look_s]
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
        entries = await patiently(lambda: self._read(self.signal, self._paused()), self._wait)
        most = self._outlet.max_bytes if self._outlet is not None else 0
        for batch in _batches(entries, most):
            if batch[0].tenant not in self._paused():
                await self._send(batch)
        return len(entries)

    async def _strike_out(self, entries: list[Outgoing]) -> None:
        """Remove delivered entries; if the disk refuses, they are sent again after a pause."""
        try:
            await self._forget([entry.id for entry in entries])
        except StoreError as error:
            logger.warning(
                "cannot remove a delivered verdict from the outbox: it is sent again",
                extra={"reason": str(error)},
            )
            self._pauses[entries[0].tenant] = _Pause(self._now() + LONGEST_WAIT_S, LONGEST_WAIT_S)

    def _paused(self) -> AbstractSet[Tenant]:
        now = self._now()
        return {tenant for tenant, pause in self._pauses.items() if pause.until > now}

    async def _send(self, batch: list[Outgoing]) -> None:
        """Send entries of one tenant as one request; remove the entries that are settled."""
        if self._outlet is None:
            await self._strike_out(batch)
            return
        if self._no_service_until is not None and self._now() < self._no_service_until:
            self.unsupported += len(batch)
            await self._strike_out(batch)
            return
        first, body = batch[0], b"".join(entry.body for entry in batch)
        outcome = await self._outlet.send(body, first.tenant)
        self._note(outcome)
        if isinstance(outcome, NoSuchService) and self.signal is Signal.TRACES:
            # A trace backend takes traces: this 404 must come from an ingress, for example during a rollout.
            outcome = TryLater(reason=outcome.reason)
        if isinstance(outcome, TryLater):
            self._pause(first.tenant, outcome)
            return
        self._pauses.pop(first.tenant, None)
        if isinstance(outcome, Rejected) and len(batch) > 1:  # perhaps only one entry is bad: send each alone
            for entry in batch:
                if first.tenant not in self._paused():
                    await self._send([entry])
            return
        self._count(outcome, batch)
        await self._strike_out(batch)

    def _note(self, outcome: SendOutcome) -> None:
        """Count a failed send by its cause, and log each cause once."""
        setback = setback_of(outcome)
        if setback is None:
            self._logged = self._no_service_until = None
            return
        self.setbacks[setback] += 1
        if setback is not self._logged and setback in {Setback.AWAY, Setback.ASKED_TO_WAIT, Setback.FAILING}:
            extra = {"signal": str(self.signal), "cause": setback.value, "outcome": str(outcome)}
            logger.warning("backend does not accept verdicts now: they are kept and retried", extra=extra)
            self._logged = setback

    def _pause(self, tenant: Tenant, outcome: TryLater) -> None:
        """Skip a tenant for the backend's retry delay, else exponentially longer."""
        before = self._pauses.get(tenant)
        longest_s = min(2 * before.longest_s, LONGEST_WAIT_S) if before else FIRST_WAIT_S
        own_s = longest_s * random.uniform(0.5, 1.0)  # noqa: S311 - jitter
        wait_s = own_s if outcome.requested_wait_s is None else outcome.requested_wait_s
        self._pauses[tenant] = _Pause(self._now() + wait_s, longest_s)

    def _count(self, outcome: SendOutcome, batch: list[Outgoing]) -> None:
        """Count sent and refused entries; a partial success does not say which entries it refused."""
        entries = len(batch)
        if isinstance(outcome, NoSuchService):
            self._has_no_service(outcome, entries)
            return
        refused = min(outcome.rejected, entries) if isinstance(outcome, Delivered) else entries
        self.sent += entries - refused
        if not refused:
            for entry in batch:
                self._delivered(entry)
        if refused and not self.refused:
            logger.warning(
                "backend refused a verdict", extra={"signal": str(self.signal), "outcome": str(outcome)}
            )
        self.refused += refused

    def _has_no_service(self, outcome: NoSuchService, entries: int) -> None:
        if self._no_service_until is None:
            logger.warning(
                "backend does not take this signal: its verdicts are shown only on our pages",
                extra={"signal": str(self.signal), "reason": outcome.reason},
            )
        self._no_service_until = self._now() + NO_SERVICE_S
        self.unsupported += entries


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
