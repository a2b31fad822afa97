"""Admission of requests, for both receivers: token, tenant, hops and Host header, and refusals. Pure.

Both transports share one table of refusals, so that they refuse the same request in the same way.

The Host header is checked against DNS rebinding: a web page can point its own name to 127.0.0.1 and then
send requests to us as if we were its server, but the Host header still has the page's name. Where no token is
required, only names of this machine are accepted.
"""

from __future__ import annotations

import hmac
import math
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import ip_address
from typing import Final, Protocol

from collector_processor.otlp import (
    HOP_HEADER,
    NO_TENANT,
    TOKEN_HEADER,
    Address,
    Arrival,
    Cause,
    CollectorError,
    MalformedRequestError,
    Receipt,
    RefusedError,
    Signal,
    Sink,
    Tenant,
    tenant_of,
)
from collector_processor.otlp.answers import RpcCode
from collector_processor.otlp.cors import Cors
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


DEFAULT_MAX_BYTES: Final = 20 << 20
"""The OpenTelemetry Collector's HTTP limit (``max_request_body_size``)."""
_LONGEST_HEADER: Final = 8_190
"""Limit of HTTP servers; other transports have no limit for headers."""
_BEARER: Final = "bearer "


class ListenError(CollectorError):
    """The address cannot be listened on; the message names it."""

    def __init__(self, address: Address, why: str) -> None:
        super().__init__(f"cannot listen on {address}: {why}")
        self.address = address


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
    """Return the caller named by a request's headers.

    Raises:
        TurnedAwayError: the token is missing or wrong.
        MalformedRequestError: a tenant or hop header cannot be forwarded as a header.
    """
    folded = _fold(headers)
    if rules.token is not None and not _holds(folded, rules.token):
        raise unauthorized()
    require_sendable(folded, rules.tenant_header_names)
    hops = tuple(hop for part in folded.get(HOP_HEADER, "").split(",") if (hop := part.strip()))
    return Caller(tenant=tenant_of(folded, rules.tenant_header_names), hops=hops, client=client)


def require_sendable(headers: Mapping[str, str], tenant_names: Iterable[str]) -> None:
    """Check the headers (lower-case names) that are forwarded: they may become gRPC metadata.

    Raises:
        MalformedRequestError: a tenant or hop header is not printable ASCII, or too long.
    """
    for name in (*tenant_names, HOP_HEADER):
        value = headers.get(name, "")
        if not (value.isascii() and value.isprintable()):
            raise MalformedRequestError(f"expected printable ASCII in header {name}")
        if len(value) > _LONGEST_HEADER:
            raise MalformedRequestError(f"expected at most {_LONGEST_HEADER} characters in header {name}")


async def hand_over(sink: Sink, signal: Signal, body: bytes, caller: Caller) -> Receipt:
    """Pass a request to the sink; an empty request, which OTLP allows, succeeds without it."""
    if not body:
        return Receipt()
    return await sink.accept(
        Arrival(signal=signal, body=body, tenant=caller.tenant, hops=caller.hops, client=caller.client)
    )


def _fold(headers: Iterable[tuple[str, str | bytes]]) -> dict[str, str]:
    """Return the headers with names in lower case; repeated ones are joined (RFC 9110 5.3)."""
    folded: dict[str, str] = {}
    for name, value in headers:
        if isinstance(value, bytes):  # gRPC's "-bin" metadata; we use none
            continue
        key = name.lower()
        folded[key] = f"{folded[key]}, {value}" if key in folded else value
    return folded


def require_local(host: str, rules: AdmissionRules) -> None:
    """Check the Host header against DNS rebinding.

    Raises:
        TurnedAwayError: the header does not name this machine.
    """
    if rules.token is not None or rules.local_names is None:
        return
    if not names_this_machine(host, rules.local_names):
        raise not_local()


def bears(headers: Iterable[tuple[str, str | bytes]], token: str) -> bool:
    """Return whether a request's headers hold ``token``; the rule for all our servers."""
    return _holds(_fold(headers), token)


def _holds(headers: dict[str, str], token: str) -> bool:
    """Return whether either header holds ``token``; clients may need ``Authorization`` for another use."""
    scheme = headers.get("authorization", "")
    bearer = scheme[len(_BEARER) :].strip() if scheme[: len(_BEARER)].lower() == _BEARER else ""
    wanted = token.encode()
    # Both are always compared: the time taken must not reveal which header was right.
    matches = [
        hmac.compare_digest(given.encode("utf-8", "surrogateescape"), wanted)
        for given in (bearer, headers.get(TOKEN_HEADER, ""))
    ]
    return any(matches)


def names_this_machine(host: str, allowed: Container[str] = ()) -> bool:
    """Return whether a Host header (with or without port) can only mean this machine.

    IP addresses are accepted, since rebinding needs a name; so is a missing header, since browsers always
    send one. ``allowed`` holds further names, in lower case.
    """
    name = _without_port(host.strip().lower()).removesuffix(".")
    return not name or name == "localhost" or name.endswith(".localhost") or name in allowed or _is_ip(name)


def _without_port(host: str) -> str:
    """Return the name in a Host header; all of it if something else than a port follows."""
    if host.startswith("["):
        name, _, rest = host[1:].partition("]")
        port = rest[1:] if rest.startswith(":") else rest and "no port"
    else:
        name, _, port = host.partition(":")
    return name if not port or (port.isascii() and port.isdigit()) else host


@lru_cache(maxsize=256)  # a client sends the same header each time
def _is_ip(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
