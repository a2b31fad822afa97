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
from itertools import islice
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
MOST_HEADERS: Final = 128
"""Headers that are looked at, and the limit of our HTTP servers. gRPC's core hands on a million of them, as
HPACK writes a repeated header in one byte, although it has refused the call by then."""
_LONGEST_HEADER: Final = 8_190
"""Limit of HTTP servers; other transports have no limit for headers."""
_BEARER: Final = "bearer "
_TOKEN_HEADERS: Final = ("authorization", TOKEN_HEADER)


WRONG_TOKEN_S: Final = 0.25
"""Seconds until a wrong token is refused, so that guessing takes time."""


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


def tenant_among(headers: Iterable[tuple[str, str | bytes]], names: tuple[str, ...]) -> Tenant:
    """Return the tenant that a request's headers identify.

    Raises:
        MalformedRequestError: a tenant header is given twice, or cannot be forwarded as a header.
    """
    given = _values(headers, names)
    for name, values in given.items():
        if len(values) > 1:  # a proxy that sets the header would be overruled by what a client sent
            raise MalformedRequestError(f"expected header {name} only once")
        require_sendable(name, values[0])
    return tenant_of({name: values[0] for name, values in given.items()}, names)


def hops_among(headers: Iterable[tuple[str, str | bytes]]) -> tuple[str, ...]:
    """Return the instances that a request went through; repeated headers are one list (RFC 9110 5.3).

    Raises:
        MalformedRequestError: they cannot be forwarded as a header.
    """
    told = ",".join(_values(headers, (HOP_HEADER,)).get(HOP_HEADER, ()))
    require_sendable(HOP_HEADER, told)
    return tuple(hop for part in told.split(",") if (hop := part.strip()))


def require_sendable(name: str, value: str) -> None:
    """Check a header that is forwarded: it may become gRPC metadata.

    Raises:
        MalformedRequestError: it is not printable ASCII, or too long.
    """
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


def _values(headers: Iterable[tuple[str, str | bytes]], names: Container[str]) -> dict[str, list[str]]:
    """Return the values of the headers of these names (lower case), in order."""
    found: dict[str, list[str]] = {}
    for name, value in headers:
        # Bytes are gRPC's "-bin" metadata; we use none.
        if (key := name.lower()) in names and isinstance(value, str):
            found.setdefault(key, []).append(value)
    return found


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
    """Return whether either header holds ``token``; the rule for all our servers.

    Clients may need ``Authorization`` for another use. A header that is given twice holds no token.
    """
    given = _values(islice(headers, MOST_HEADERS), _TOKEN_HEADERS)
    scheme, own = _only(given.get("authorization", [])), _only(given.get(TOKEN_HEADER, []))
    bearer = scheme[len(_BEARER) :].strip() if scheme[: len(_BEARER)].lower() == _BEARER else ""
    wanted = token.encode()
    # Both are always compared: the time taken must not reveal which header was right.
    matches = [hmac.compare_digest(one.encode("utf-8", "surrogateescape"), wanted) for one in (bearer, own)]
    return any(matches)


def _only(values: list[str]) -> str:
    return values[0] if len(values) == 1 else ""


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
