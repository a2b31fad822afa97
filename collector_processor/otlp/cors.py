"""CORS: the web pages that may send spans. Headers in, headers out. Pure.

By default no page may send: the browser's preflight request (``OPTIONS``) is not granted, so
it sends nothing. Cookies are never used, so a page has only the rights of its headers:
its requests need the token like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from collector_processor.otlp import TOKEN_HEADER

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
