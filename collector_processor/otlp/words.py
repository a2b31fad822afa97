"""The words receivers, journal and exporters share about an OTLP request.

A request is always the protobuf bytes of an ``Export…ServiceRequest``; nothing
here looks inside them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final, NewType, Protocol, TypeAlias
from urllib.parse import parse_qsl, urlencode

Tenant = NewType("Tenant", str)
"""The tenant headers of a request, URL-encoded and sorted; empty for none. Part of a trace's key."""

NO_TENANT: Final = Tenant("")
HOP_HEADER: Final = "x-blamespan-hop"
"""Carries the instance ids a request went through, comma separated, to refuse our own."""
TOKEN_HEADER: Final = "x-blamespan-token"  # noqa: S105 - a header name


class Signal(StrEnum):
    """The OTLP signals; the value is the HTTP path's last part (``/v1/<value>``)."""

    TRACES = "traces"
    LOGS = "logs"
    METRICS = "metrics"


def tenant_of(headers: Mapping[str, str], names: tuple[str, ...]) -> Tenant:
    """Return the tenant that ``headers`` (lower-case names) identify."""
    return Tenant(urlencode(sorted((name, headers[name]) for name in names if name in headers)))


def tenant_headers(tenant: Tenant) -> dict[str, str]:
    """Return the headers that go on with the tenant's spans."""
    return dict(parse_qsl(tenant, keep_blank_values=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One request at the door, decompressed, as protobuf."""

    signal: Signal
    body: bytes
    tenant: Tenant = NO_TENANT
    hops: tuple[str, ...] = ()
    """Instance ids of the blamespans it went through before us."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What was durably accepted, and what was not and why (OTLP ``partial_success``)."""

    rejected: int = 0
    message: str = ""


class CollectorError(Exception):
    """Base of what the collector processor raises on purpose."""


class MalformedRequestError(CollectorError):
    """The bytes are no such request: HTTP 400, gRPC ``INVALID_ARGUMENT``. Never retried."""


class RefusedError(CollectorError):
    """We cannot take it now: HTTP 429/503 with ``Retry-After``, ``RESOURCE_EXHAUSTED`` with ``RetryInfo``.

    Raised before anything was acknowledged; nothing of the request was kept.
    """

    is_loop: ClassVar[bool] = False
    """Whether it was refused because of a forwarding loop, not because the queue is full."""

    def __init__(self, reason: str, *, retry_after_s: float) -> None:
        super().__init__(reason)
        self.reason: Final = reason
        self.retry_after_s: Final = retry_after_s


class Sink(Protocol):
    """Where receivers put arrivals."""

    async def accept(self, arrival: Arrival) -> Receipt:
        """Return once the arrival is durable.

        Raises:
            MalformedRequestError: the body is not such a request.
            RefusedError: it cannot be taken now.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """The backend answered success; ``rejected`` of its items it will never take (partial success)."""

    rejected: int = 0
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TryLater:
    """A retryable failure; ``after_s`` is what the backend said of the time, if it said anything."""

    reason: str
    after_s: float | None = None
    is_away: bool = False
    """The backend did not answer: connection refused or broken, unknown host, or timeout."""

    @property
    def wish_s(self) -> float | None:
        """Seconds the backend asks us to wait; zero counts as absent, or we would retry without a pause."""
        return self.after_s or None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """A permanent refusal of this very request: bisect it."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NoSuchService:
    """The backend does not take this signal at all (``UNIMPLEMENTED``, 404)."""

    reason: str


SendOutcome: TypeAlias = Delivered | TryLater | Rejected | NoSuchService


class Cause(StrEnum):
    """Why we refused a request; refusals are counted by it."""

    FULL = "full"
    """Queue, disk or memory is full; the sender keeps the request and retries."""
    LOOP = "loop"
    """The request went through a forwarding loop."""
    MALFORMED = "malformed"
    UNAUTHORIZED = "unauthorized"
    """Missing or wrong token, or a Host header that does not name this machine."""
    TOO_LARGE = "too_large"
    UNSUPPORTED = "unsupported"
    """Unsupported path, method, content type or encoding."""
    SLOW = "slow"
    """The body did not arrive in time."""
    BROKEN = "broken"
    """An internal error of blamespan."""


class Setback(StrEnum):
    """Why a backend did not take a request; failed sends are counted by it."""

    AWAY = "away"
    """The backend did not answer."""
    ASKED_TO_WAIT = "asked_to_wait"
    """The backend asked us to retry after a stated time."""
    FAILING = "failing"
    """The backend answered with a retryable error, without a retry time."""
    REJECTED = "rejected"
    NO_SERVICE = "no_service"


def setback_of(outcome: SendOutcome) -> Setback | None:
    """Return why the backend did not take a request; ``None`` if it did."""
    match outcome:
        case Delivered():
            return None
        case Rejected():
            return Setback.REJECTED
        case NoSuchService():
            return Setback.NO_SERVICE
        case TryLater(is_away=True):
            return Setback.AWAY
        case TryLater(wish_s=None):
            return Setback.FAILING
        case TryLater():
            return Setback.ASKED_TO_WAIT


class Exporter(Protocol):
    """Sends one request to a backend, once; retrying is the forwarder's."""

    max_bytes: int
    """The largest request the backend takes, in bytes before compression."""

    async def send(self, signal: Signal, body: bytes, tenant: Tenant, hops: tuple[str, ...]) -> SendOutcome:
        """Send ``body`` and return what the backend said; raises nothing of the network's."""
        ...

    async def close(self) -> None:
        """Release connections."""
        ...
