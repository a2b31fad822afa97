"""Types that receivers, journal and exporters share, and the names and paths of the OTLP services.

A request is always the protobuf bytes of an ``Export…ServiceRequest``; nothing here reads them.
Source of the names: opentelemetry-proto, ``collector/*/v1``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final, NamedTuple, NewType, Protocol, TypeAlias
from urllib.parse import parse_qsl, urlencode

from semconv.model import TraceId
from semconv.record import record

Tenant = NewType("Tenant", str)
"""The tenant headers of a request, URL-encoded and sorted; empty if there are none. Part of a trace's key."""
NO_TENANT: Final = Tenant("")
HOP_HEADER: Final = "x-blamespan-hop"
"""Header with the ids of the instances that a request went through, comma separated, to detect loops."""
TOKEN_HEADER: Final = "x-blamespan-token"  # noqa: S105 - a header name

MOST_EVENTS: Final = 16_384
"""Events read of one span; SDKs keep 128 by default, and an event may take two bytes."""
MOST_LINKS: Final = 1_024
"""Links read of one span; a run has at most 256 traces."""


class TraceKey(NamedTuple):
    """Identity of a trace; the same trace id of two tenants is two traces."""

    tenant: Tenant
    trace_id: TraceId


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Address to listen on."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return self.host in {"localhost", "::1"} or self.host.startswith("127.")


class Signal(StrEnum):
    """The OTLP signals; the value is the HTTP path's last part (``/v1/<value>``)."""

    TRACES = "traces"
    LOGS = "logs"
    METRICS = "metrics"

    __hash__ = str.__hash__  # ``Enum.__hash__`` is Python code: several microseconds a request


EXPORT: Final = "Export"
"""The service's only method."""
SERVICES: Final[Mapping[Signal, str]] = {
    Signal.TRACES: "opentelemetry.proto.collector.trace.v1.TraceService",
    Signal.LOGS: "opentelemetry.proto.collector.logs.v1.LogsService",
    Signal.METRICS: "opentelemetry.proto.collector.metrics.v1.MetricsService",
}
FRAME_BYTES: Final = 1 << 20
"""Size of HTTP/2 frames: gRPC's default of 16 KiB splits a request of 512 spans into 44."""


def grpc_path(signal: Signal) -> str:
    """Return the path a client calls to export ``signal``."""
    return f"/{SERVICES[signal]}/{EXPORT}"


def http_path(signal: Signal) -> str:
    """Return the path a client posts ``signal`` to."""
    return f"/v1/{signal.value}"


def tenant_of(headers: Mapping[str, str], names: tuple[str, ...]) -> Tenant:
    """Return the tenant that ``headers`` (lower-case names) identify."""
    given = sorted((name, headers[name]) for name in names if name in headers)
    return Tenant(urlencode(given)) if given else NO_TENANT


def tenant_headers(tenant: Tenant) -> dict[str, str]:
    """Return the headers to forward with the tenant's requests."""
    return dict(parse_qsl(tenant, keep_blank_values=True))


@record
class Arrival:
    """A received request, decompressed, as protobuf."""

    signal: Signal
    body: bytes
    tenant: Tenant = NO_TENANT
    hops: tuple[str, ...] = ()
    """Ids of the blamespan instances it went through before."""
    client: str = ""
    """Address of the client, without its port."""


@record
class Receipt:
    """Acceptance of a request: items rejected and why (OTLP ``partial_success``)."""

    rejected: int = 0
    message: str = ""


class CollectorError(Exception):
    """Base of the collector processor's errors."""


class MalformedRequestError(CollectorError):
    """The bytes are not a valid request: HTTP 400, gRPC ``INVALID_ARGUMENT``. Never retried."""


class RefusedError(CollectorError):
    """Retryable refusal: HTTP 503 with ``Retry-After``, ``RESOURCE_EXHAUSTED`` with ``RetryInfo``.

    Raised before anything was acknowledged; nothing of the request was stored.
    """

    is_loop: ClassVar[bool] = False
    """Whether it was refused because of a forwarding loop, not because the queue is full."""

    def __init__(self, reason: str, *, retry_after_s: float) -> None:
        super().__init__(reason)
        self.reason: Final = reason
        self.retry_after_s: Final = retry_after_s


class Sink(Protocol):
    """Destination of received requests."""

    async def accept(self, arrival: Arrival) -> Receipt:
        """Return once the arrival is durable.

        Raises:
            MalformedRequestError: the body is not a request of its signal.
            RefusedError: it cannot be stored now.
        """
        ...


@record
class Delivered:
    """The backend reported success, but may have permanently rejected some items (partial success)."""

    rejected: int = 0
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TryLater:
    """A retryable failure; ``after_s`` is the backend's retry delay, if it gave one."""

    reason: str
    after_s: float | None = None
    is_away: bool = False
    """The backend did not answer: connection refused or broken, unknown host, or timeout."""

    @property
    def requested_wait_s(self) -> float | None:
        """Seconds the backend asks us to wait; zero counts as absent: it would mean no pause at all."""
        return self.after_s or None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """A permanent refusal of this request; the forwarder bisects it."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NoSuchService:
    """The backend does not take this signal at all (``UNIMPLEMENTED``, 404)."""

    reason: str


SendOutcome: TypeAlias = Delivered | TryLater | Rejected | NoSuchService


class Cause(StrEnum):
    """Causes of our refusals, by which they are counted."""

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
    """Causes of failed sends, by which they are counted."""

    AWAY = "away"
    """The backend did not answer."""
    ASKED_TO_WAIT = "asked_to_wait"
    """The backend asked us to retry after a stated time."""
    FAILING = "failing"
    """The backend answered with a retryable error, without a retry time."""
    REJECTED = "rejected"
    NO_SERVICE = "no_service"


def setback_of(outcome: SendOutcome) -> Setback | None:
    """Return the cause of a failed send; ``None`` if the backend accepted the request."""
    match outcome:
        case Delivered():
            return None
        case Rejected():
            return Setback.REJECTED
        case NoSuchService():
            return Setback.NO_SERVICE
        case TryLater(is_away=True):
            return Setback.AWAY
        case TryLater(requested_wait_s=None):
            return Setback.FAILING
        case TryLater():
            return Setback.ASKED_TO_WAIT


class Exporter(Protocol):
    """Sends a request to a backend once; the forwarder retries."""

    max_bytes: int
    """Largest request the backend accepts, in bytes before compression."""

    async def send(self, signal: Signal, body: bytes, tenant: Tenant, hops: tuple[str, ...]) -> SendOutcome:
        """Send ``body`` once and return the outcome; raises no network error."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...
