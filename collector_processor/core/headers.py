"""Headers of requests to any of our servers: token, tenant, hops, Host, and pages' origins (CORS). Pure.

The Host header is checked against DNS rebinding: a web page can point its own name to 127.0.0.1 and then
send requests to us as if we were its server, but the Host header still has the page's name. Where no token is
required, only names of this machine are accepted.

By default no page may send spans: the browser's preflight request (``OPTIONS``) is not granted, so
it sends nothing. Cookies are never used, so a page has only the rights of its headers:
its requests need the token like any other.
"""

from __future__ import annotations

import hmac
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from itertools import islice
from typing import Final
from urllib.parse import urlsplit

from collector_processor.otlp import HOP_HEADER, TOKEN_HEADER, MalformedRequestError, Tenant, tenant_of

MOST_HEADERS: Final = 128
"""Headers that are looked at, and the limit of our HTTP servers. gRPC's core hands on a million of them, as
HPACK writes a repeated header in one byte, although it has refused the call by then."""
_LONGEST_HEADER: Final = 8_190
"""Limit of HTTP servers; other transports have no limit for headers."""
_BEARER: Final = "bearer "
_TOKEN_HEADERS: Final = ("authorization", TOKEN_HEADER)
WRONG_TOKEN_S: Final = 0.25
"""Seconds until a wrong token is refused, so that guessing takes time."""


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


def _values(headers: Iterable[tuple[str, str | bytes]], names: Container[str]) -> dict[str, list[str]]:
    """Return the values of the headers of these names (lower case), in order."""
    found: dict[str, list[str]] = {}
    for name, value in headers:
        # Bytes are gRPC's "-bin" metadata; we use none.
        if (key := name.lower()) in names and isinstance(value, str):
            found.setdefault(key, []).append(value)
    return found


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


ANY: Final = "*"
_REMEMBERED_S: Final = 7200
"""Seconds for which browsers may cache a preflight answer; Chromium's maximum."""
_HEADERS: Final = ("authorization", "content-encoding", "content-type", TOKEN_HEADER)
"""Request headers that a page may send, besides the tenant headers."""


def read_origins(text: str) -> frozenset[str]:
    """Read a comma-separated list of ``scheme://host[:port]``, or ``*``.

    Raises:
        ValueError: an entry is not an origin as browsers write it.
    """
    origins = frozenset(part.strip().lower() for part in text.split(",") if part.strip())
    for origin in origins - {ANY}:
        url = urlsplit(origin)
        if url.scheme not in {"http", "https"} or not url.netloc or origin != f"{url.scheme}://{url.netloc}":
            raise ValueError(f"{origin!r}: expected https://host or https://host:port, without a path, or *")
        if "@" in url.netloc or ANY in url.netloc:
            raise ValueError(f"{origin!r}: expected a whole host name, without user or *")
    return origins


@dataclass(frozen=True, slots=True, kw_only=True)
class Cors:
    """The CORS policy: allowed origins and request headers."""

    origins: frozenset[str] = frozenset()
    """As returned by ``read_origins``; empty to allow none."""
    tenant_headers: Iterable[str] = ()

    def answer(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return the CORS headers of an answer; empty unless the request comes from an allowed page."""
        if not self.origins:
            return {}
        vary = {"Vary": "Origin"}
        origin = headers.get("Origin", "")
        if not self._allows(origin):
            return vary
        allowed = ANY if ANY in self.origins else origin
        return vary | {"Access-Control-Allow-Origin": allowed, "Access-Control-Expose-Headers": "Retry-After"}

    def preflight(self, method: str, headers: Mapping[str, str]) -> dict[str, str] | None:
        """Return the headers that grant a preflight request; ``None`` if it is not one or not granted."""
        is_question = method == "OPTIONS" and "Access-Control-Request-Method" in headers
        if not is_question or not self._allows(headers.get("Origin", "")):
            return None
        return self.answer(headers) | {
            "Access-Control-Allow-Methods": "POST",
            "Access-Control-Allow-Headers": ", ".join((*_HEADERS, *self.tenant_headers)),
            "Access-Control-Max-Age": str(_REMEMBERED_S),
        }

    def _allows(self, origin: str) -> bool:
        return bool(origin) and (ANY in self.origins or origin.lower() in self.origins)
