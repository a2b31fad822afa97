"""Admission of requests, for both receivers: token, tenant, hops and Host header, and refusals. Pure.

Both transports share one table of refusals, so that they refuse the same request in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Protocol

from collector_processor.core.headers import (
    MOST_HEADERS,
    Cors,
    bears,
    hops_among,
    names_this_machine,
    tenant_among,
)
from collector_processor.otlp import (
    NO_TENANT,
    Arrival,
    Cause,
    CollectorError,
    MalformedRequestError,
    Receipt,
    RefusedError,
    Signal,
    Sink,
    Tenant,
)
from collector_processor.otlp.answers import RpcCode
from semconv.record import record

# OTLP lets clients retry after 429 and 503, but earlier Python SDKs treated 429
# as permanent (opentelemetry-python#5460).
_BUSY: Final = 503


_CAUSES: Final[Mapping[int, Cause]] = {
    400: Cause.MALFORMED,
    401: Cause.UNAUTHORIZED,
    403: Cause.UNAUTHORIZED,
    404: Cause.UNSUPPORTED,
    405: Cause.UNSUPPORTED,
    408: Cause.SLOW,
    413: Cause.TOO_LARGE,
    415: Cause.UNSUPPORTED,
    431: Cause.TOO_LARGE,
    _BUSY: Cause.FULL,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """One unsuccessful response."""

    code: RpcCode
    http_status: int
    reason: str
    retry_after_s: float | None = None
    """Seconds after which to retry; ``None`` tells the client not to retry."""
    http_headers: Mapping[str, str] = field(default_factory=dict)
    is_loop: bool = False

    @property
    def cause(self) -> Cause:
        """The cause by which the refusal is counted."""
        return Cause.LOOP if self.is_loop else _CAUSES.get(self.http_status, Cause.BROKEN)

    @property
    def retry_after_header(self) -> dict[str, str]:
        """The ``Retry-After`` header, in whole seconds: rounded up, at least 1."""
        if self.retry_after_s is None:
            return {}
        return {"Retry-After": str(max(1, math.ceil(self.retry_after_s)))}


class TurnedAwayError(CollectorError):
    """The receiver refuses the request; nothing reached the sink."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.reason)
        self.refusal: Final = refusal


BROKEN: Final = Refusal(
    code=RpcCode.INTERNAL,
    http_status=500,
    reason="internal error of the receiver: nothing was stored; its log says why",
)
"""An internal error; it omits the exception's text, which may quote the request."""


def refusal_of(error: CollectorError) -> Refusal:
    """Return the refusal for an error of the receiver or the sink."""
    match error:
        case TurnedAwayError():
            return error.refusal
        case RefusedError():
            return Refusal(
                code=RpcCode.RESOURCE_EXHAUSTED,
                http_status=_BUSY,
                reason=error.reason,
                retry_after_s=error.retry_after_s,
                is_loop=error.is_loop,
            )
        case MalformedRequestError():
            return Refusal(code=RpcCode.INVALID_ARGUMENT, http_status=400, reason=str(error))
        case _:
            return BROKEN


def unauthorized() -> TurnedAwayError:
    """Return the error for a missing or wrong token; it does not say which."""
    return TurnedAwayError(
        Refusal(
            code=RpcCode.UNAUTHENTICATED,
            http_status=401,
            reason="missing or wrong token: send it as 'Authorization: Bearer …' or 'x-blamespan-token'",
            http_headers={"WWW-Authenticate": "Bearer"},
        )
    )


def not_local() -> TurnedAwayError:
    """Return the error for a Host header that does not name this machine."""
    return TurnedAwayError(
        Refusal(
            code=RpcCode.PERMISSION_DENIED,
            http_status=403,
            reason="expected a Host header that names this machine, such as localhost"
            " (or the host of BLAMESPAN_WEB_URL), or a token",
        )
    )


def too_large(limit: int) -> TurnedAwayError:
    """Return the error for a body of more than ``limit`` bytes, compressed or not."""
    return TurnedAwayError(
        Refusal(
            code=RpcCode.RESOURCE_EXHAUSTED,
            http_status=413,
            reason=f"expected a request of at most {limit} bytes, before compression",
        )
    )


def too_many_headers() -> TurnedAwayError:
    """Return the error for a request of more than ``MOST_HEADERS`` headers."""
    return TurnedAwayError(
        Refusal(
            code=RpcCode.RESOURCE_EXHAUSTED,
            http_status=431,
            reason=f"expected at most {MOST_HEADERS} headers",
        )
    )


DEFAULT_MAX_BYTES: Final = 20 << 20
"""The OpenTelemetry Collector's HTTP limit (``max_request_body_size``)."""


class Receiver(Protocol):
    """Receives OTLP requests from the network into a sink."""

    async def start(self) -> int:
        """Listen, and return the bound port.

        Raises:
            ListenError: the address is in use or not this machine's.
        """
        ...

    async def stop(self, grace_s: float) -> None:
        """Accept no more requests; running requests have ``grace_s`` seconds to end."""
        ...


def _count_nothing(cause: Cause) -> None:
    """Do nothing: refusals are not counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionRules:
    """Conditions that both receivers set for requests."""

    token: str | None = field(default=None, repr=False)
    """Required in every request, if set; empty is a ``ValueError``, as every request would match."""
    tenant_header_names: tuple[str, ...] = ("x-scope-orgid",)
    """Headers that identify a tenant, in lower case."""
    max_bytes: int = DEFAULT_MAX_BYTES
    """Largest request accepted, after decompression."""
    local_names: tuple[str, ...] | None = None
    """If set and no token is required, the Host header must name this machine or be one of these."""

    cors: Cors = field(default_factory=Cors)
    """Web pages that may send over HTTP."""
    refused: Callable[[Cause], None] = _count_nothing
    """Called for each refused request."""

    def __post_init__(self) -> None:
        if self.token == "":
            raise ValueError("the token is empty: use None to require none")


@record
class Caller:
    """Tenant of a request and the instances it went through."""

    tenant: Tenant = NO_TENANT
    hops: tuple[str, ...] = ()
    client: str = ""
    """Its address, without the port."""


def admit(headers: Iterable[tuple[str, str | bytes]], rules: AdmissionRules, client: str = "") -> Caller:
    """Return the caller named by a request's headers; the token is compared before anything else is read.

    Raises:
        TurnedAwayError: the token is missing or wrong, or there are too many headers.
        MalformedRequestError: a tenant or hop header cannot be forwarded as a header, or a tenant header is
            given twice.
    """
    first = tuple(islice(headers, MOST_HEADERS + 1))
    if rules.token is not None and not bears(first, rules.token):
        raise unauthorized()
    if len(first) > MOST_HEADERS:
        raise too_many_headers()
    tenant = tenant_among(first, rules.tenant_header_names)
    return Caller(tenant=tenant, hops=hops_among(first), client=client)


async def hand_over(sink: Sink, signal: Signal, body: bytes, caller: Caller) -> Receipt:
    """Pass a request to the sink; an empty request, which OTLP allows, succeeds without it."""
    if not body:
        return Receipt()
    return await sink.accept(
        Arrival(signal=signal, body=body, tenant=caller.tenant, hops=caller.hops, client=caller.client)
    )


def require_local(host: str, rules: AdmissionRules) -> None:
    """Check the Host header against DNS rebinding.

    Raises:
        TurnedAwayError: the header does not name this machine.
    """
    if rules.token is not None or rules.local_names is None:
        return
    if not names_this_machine(host, rules.local_names):
        raise not_local()
