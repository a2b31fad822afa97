"""Who may come in, for whom, and by which way it came: read from a request's headers.

Shared by both receivers. Pure: headers in, a caller or a refusal out.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from collector_processor.origins import Cors
from collector_processor.otlp import (
    HOP_HEADER,
    NO_TENANT,
    TOKEN_HEADER,
    Arrival,
    Cause,
    MalformedRequestError,
    Receipt,
    Signal,
    Sink,
    Tenant,
    tenant_of,
)
from collector_processor.receivers.hosts import names_this_machine
from collector_processor.receivers.refusal import not_local, unauthorized

DEFAULT_MAX_BYTES: Final = 20 << 20
"""The OpenTelemetry Collector's HTTP limit (``max_request_body_size``)."""

_BEARER: Final = "bearer "


def _count_nothing(cause: Cause) -> None:
    """Nobody counts refusals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorRules:
    """What both receivers ask of a request."""

    token: str | None = field(default=None, repr=False)
    """Wanted of every request, if set; an empty one is a ``ValueError``: every request would bear it."""
    tenant_header_names: tuple[str, ...] = ("x-scope-orgid",)
    """Lower case."""
    max_bytes: int = DEFAULT_MAX_BYTES
    """The largest request taken, decompressed."""
    local_names: tuple[str, ...] | None = None
    """Where set and no token is asked for, a Host header must name this machine, or be one of these."""

    cors: Cors = field(default_factory=Cors)
    """Which web pages may send, over HTTP."""
    refused: Callable[[Cause], None] = _count_nothing
    """Called for each refused request."""

    def __post_init__(self) -> None:
        if self.token == "":
            raise ValueError("the token is empty; None asks for none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Whom a request is for and through whom it came."""

    tenant: Tenant = NO_TENANT
    hops: tuple[str, ...] = ()


def admit(headers: Iterable[tuple[str, str | bytes]], rules: DoorRules) -> Caller:
    """Return the caller that a request's headers speak of.

    Raises:
        TurnedAwayError: the token is not ours.
        MalformedRequestError: a tenant or hop header could not go on as a header.
    """
    folded = _fold(headers)
    if rules.token is not None and not _holds(folded, rules.token):
        raise unauthorized()
    for name in (*rules.tenant_header_names, HOP_HEADER):
        # gRPC metadata, by which they may have to go on, is printable ASCII.
        if (value := folded.get(name)) is not None and not (value.isascii() and value.isprintable()):
            raise MalformedRequestError(f"expected printable ASCII in header {name}")
    hops = tuple(hop for part in folded.get(HOP_HEADER, "").split(",") if (hop := part.strip()))
    return Caller(tenant=tenant_of(folded, rules.tenant_header_names), hops=hops)


async def hand_over(sink: Sink, signal: Signal, body: bytes, caller: Caller) -> Receipt:
    """Give a request to the sink; an empty one, which OTLP allows, holds nothing to keep."""
    if not body:
        return Receipt()
    return await sink.accept(Arrival(signal=signal, body=body, tenant=caller.tenant, hops=caller.hops))


def _fold(headers: Iterable[tuple[str, str | bytes]]) -> dict[str, str]:
    """Lower-case the names; join what came under one name, as RFC 9110 5.3 does."""
    folded: dict[str, str] = {}
    for name, value in headers:
        if isinstance(value, bytes):  # gRPC's "-bin" metadata, none of ours
            continue
        key = name.lower()
        folded[key] = f"{folded[key]}, {value}" if key in folded else value
    return folded


def require_local(host: str, rules: DoorRules) -> None:
    """Turn a browser away that was tricked into calling us by another site's name.

    Raises:
        TurnedAwayError: the Host header does not name this machine.
    """
    if rules.token is not None or rules.local_names is None:
        return
    if not names_this_machine(host, rules.local_names):
        raise not_local()


def bears(headers: Iterable[tuple[str, str | bytes]], token: str) -> bool:
    """Tell whether a request's headers hold ``token``; the same rule for every door."""
    return _holds(_fold(headers), token)


def _holds(headers: dict[str, str], token: str) -> bool:
    """Whether either header holds ``token``; agents may need ``Authorization`` for something else."""
    scheme = headers.get("authorization", "")
    bearer = scheme[len(_BEARER) :].strip() if scheme[: len(_BEARER)].lower() == _BEARER else ""
    wanted = token.encode()
    # Both are compared, whatever the first says: time must not tell which header was right.
    matches = [
        hmac.compare_digest(given.encode("utf-8", "surrogateescape"), wanted)
        for given in (bearer, headers.get(TOKEN_HEADER, ""))
    ]
    return any(matches)
