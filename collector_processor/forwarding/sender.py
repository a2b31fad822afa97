"""Sender of requests to one endpoint: for journal rows and for the outbox alike.

Each attempt sends the first part of a request. A part that is permanently refused is bisected until the bad
one is alone, and only that counts as rejected. After a retryable failure, the caller makes the next attempt
after the backend's retry delay, else exponentially later; this wait is kept for each tenant, so a throttled
tenant delays only itself. If the backend has no service for the signal, a tenant's parts are dropped and
counted for a while: a backend may also answer so to a tenant that it does not know. Accepted parts are not
sent again.
"""

from __future__ import annotations

import logging
import random
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Final, Protocol

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
LONGEST_REQUESTED_S: Final = 3_600.0
"""Seconds up to which a backend's ``Retry-After`` is obeyed: a larger one is a mistake, such as a date in
seconds, and would hold a tenant's requests until a restart."""
NO_SERVICE_S: Final = 300.0
"""Seconds for which a tenant's parts are dropped, before a retry, if the backend does not take the signal."""
FUTILE_SENDS: Final = 48
"""Refusals while bisecting a request, without a success, after which the rest is rejected."""
_SETBACK_MESSAGES: Final[Mapping[Setback, str]] = {
    Setback.AWAY: "backend away",
    Setback.ASKED_TO_WAIT: "backend asked to wait",
    Setback.FAILING: "backend returns errors: requests are kept and retried",
    Setback.NO_SERVICE: "backend has no such service at the moment: requests are kept and retried",
}


class Part(Protocol):
    """A part of a request, sent as one body."""

    @property
    def body(self) -> bytes:
        """The bytes to send."""
        ...

    @property
    def items(self) -> int:
        """Number of items, as the caller counts them."""
        ...

    def halves(self) -> tuple[Part, Part] | None:
        """Return two parts with half of the items each; ``None`` if it has fewer than two."""
        ...


@dataclass(slots=True, kw_only=True)
class Sending:
    """A request on its way: the parts that are not settled, and the outcomes of the others."""

    parts: deque[Part]
    """In their order; an attempt settles, bisects or keeps the first."""
    tenant: Tenant
    hops: tuple[str, ...] = ()
    accepted: int = 0
    """Successful sends."""
    refused: int = 0
    """Sends that were permanently refused."""
    rejected: int = 0
    """Items rejected."""
    unsupported: int = 0
    """Items dropped because the backend has no service for their signal."""
    reason: str = ""


@dataclass(slots=True)
class _Pause:
    """Wait of a tenant after retryable failures; forgotten when the backend accepts."""

    failures: int = 0
    """Failures since the last success; concurrent ones count as one."""
    until: float = float("-inf")
    logged: Setback | None = None
    """The cause logged last."""


class Sender:
    """Sends to one endpoint; used on one event loop."""

    def __init__(
        self,
        signal: Signal | Lane,
        send: Callable[[bytes, Tenant, tuple[str, ...]], Awaitable[SendOutcome]],
        max_bytes: int,
        *,
        now: Callable[[], float] = monotonic,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        """Create it.

        Args:
            signal: what is sent.
            send: sends a body of a tenant once, with the hops it took; raises no network error.
            max_bytes: size limit of a body; 0 if several outbox entries cannot be one body.
            now: seconds, monotonic.
            uniform: returns a random number between two, to spread retries.
        """
        self.signal: Final = signal
        self.max_bytes: Final = max_bytes
        self._now: Final = now
        self._uniform: Final = uniform
        self.setbacks: Final[Counter[Setback]] = Counter()
        """Failed sends, including retries, by cause."""
        self._send: Final = send
        self._pauses: Final[dict[Tenant, _Pause]] = {}
        self._no_service_until: Final[dict[Tenant, float]] = {}
        self._has_accepted = False

    @property
    def paused(self) -> Mapping[Tenant, float]:
        """Tenants that wait, with the seconds left."""
        now = self._now()
        return {tenant: pause.until - now for tenant, pause in self._pauses.items() if pause.until > now}

    async def attempt(self, sending: Sending) -> float:
        """Send the first part once; return the seconds to wait before the next attempt, usually 0."""
        if self._now() < self._no_service_until.get(sending.tenant, float("-inf")):
            sending.unsupported += sum(part.items for part in sending.parts)
            sending.parts.clear()
            return 0.0
        part = sending.parts.popleft()
        outcome = await self._send(part.body, sending.tenant, sending.hops)
        setback = setback_of(outcome)
        if setback is not None:
            self.setbacks[setback] += 1
        match outcome:
            case Delivered(rejected=rejected, message=message):
                sending.accepted += 1
                sending.rejected += rejected
                sending.reason = message if rejected else sending.reason
                self._recover(sending.tenant)
            case Rejected(reason=reason):
                sending.refused += 1
                sending.reason = reason
                _bisect(part, sending)
            case NoSuchService(reason=reason) if self.signal is not Signal.TRACES and not self._has_accepted:
                sending.parts.appendleft(part)
                self._drop(sending.tenant, reason)
            case TryLater() | NoSuchService():
                # Every backend takes traces, and what it took before: a 404 must come from an ingress, for
                # example during a rollout.
                sending.parts.appendleft(part)
                return self._pause(sending.tenant, outcome)
        return 0.0

    def _drop(self, tenant: Tenant, reason: str) -> None:
        if not self._no_service_until:
            logger.warning(
                "backend does not take this signal: its items are dropped",
                extra={"signal": str(self.signal), "reason": reason},
            )
        self._no_service_until[tenant] = self._now() + NO_SERVICE_S

    def _recover(self, tenant: Tenant) -> None:
        """Record a success, and log it after a setback."""
        self._has_accepted = True
        self._no_service_until.clear()
        if self._pauses.pop(tenant, None) is not None:
            logger.info("backend accepts requests again", extra={"signal": str(self.signal)})

    def _pause(self, tenant: Tenant, outcome: TryLater | NoSuchService) -> float:
        """Return the seconds of a tenant's wait, and log its cause, once until the cause changes."""
        pause, now = self._pauses.setdefault(tenant, _Pause()), self._now()
        requested_s = _bounded(outcome.requested_wait_s) if isinstance(outcome, TryLater) else None
        setback = setback_of(outcome)
        if setback is not None and setback is not pause.logged:
            pause.logged = setback
            extra: dict[str, object] = {"signal": str(self.signal), "reason": outcome.reason}
            if requested_s is not None:
                extra["wait_s"] = requested_s
            logger.warning(_SETBACK_MESSAGES[setback], extra=extra)
        ceiling = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** min(pause.failures, 16))
        wait_s = self._uniform(ceiling / 2, ceiling) if requested_s is None else requested_s
        pause.failures += now >= pause.until  # requests in flight fail together
        pause.until = max(pause.until, now + wait_s)
        return wait_s


def _bounded(requested_s: float | None) -> float | None:
    return None if requested_s is None else min(requested_s, LONGEST_REQUESTED_S)


def exporting(signal: Signal, exporter: Exporter) -> Sender:
    """Return the sender of a signal to an exporter's backend."""
    return Sender(signal, partial(exporter.send, signal), exporter.max_bytes)


def _bisect(part: Part, sending: Sending) -> None:
    """Put both halves of a refused part in front, or count its only item as rejected."""
    halves = part.halves()
    if halves is None:
        sending.rejected += part.items
    elif not sending.accepted and sending.refused >= FUTILE_SENDS:
        # Not a single bad item: the backend refuses everything (for example, wrong credentials).
        sending.rejected += part.items + sum(other.items for other in sending.parts)
        sending.parts.clear()
    else:
        sending.parts.extendleft(reversed(halves))
