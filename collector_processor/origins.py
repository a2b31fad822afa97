"""Which web pages' scripts may send us spans (CORS): headers in, headers out. Pure.

By default none may: a browser asks first (``OPTIONS``), gets no leave, and sends
nothing. Cookies are never asked for, so a page has no more rights than what it
puts into its headers: a token is wanted of its requests as of any other's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from collector_processor.otlp import TOKEN_HEADER

ANY: Final = "*"
_REMEMBERED_S: Final = 7200
"""How long a browser need not ask again: the most that Chromium takes."""
_HEADERS: Final = ("authorization", "content-encoding", "content-type", TOKEN_HEADER)
"""What a page may send, beside the headers of tenants."""


def read_origins(text: str) -> frozenset[str]:
    """Read a list with commas between of ``scheme://host[:port]``, or ``*``.

    Raises:
        ValueError: an entry is no origin as browsers write it.
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
    """Whose pages may send, and with which headers."""

    origins: frozenset[str] = frozenset()
    """As ``read_origins`` gives them; empty lets no page send."""
    tenant_headers: Iterable[str] = ()

    def answer(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return what every answer to a page says; nothing for a page that may not send, or no page."""
        if not self.origins:
            return {}
        vary = {"Vary": "Origin"}
        origin = headers.get("Origin", "")
        if not self._allows(origin):
            return vary
        allowed = ANY if ANY in self.origins else origin
        return vary | {
            "Access-Control-Allow-Origin": allowed,
            "Access-Control-Expose-Headers": "Retry-After",
        }

    def preflight(self, method: str, headers: Mapping[str, str]) -> dict[str, str] | None:
        """Return what a page's question is answered with; ``None`` for what is none, or gets no leave."""
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
