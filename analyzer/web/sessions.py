"""Browsers we know again: who signed in with the token, and whose uploads are whose.

A browser cannot send a bearer token by itself: it is asked for it once, and gets a
cookie that says nothing (random, HttpOnly, not sent along by forms of other sites).
Sessions live in memory: after a restart people sign in again.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web

COOKIE: Final = "blamespan_session"
LIFETIME_S: Final = 12 * 3600
MOST: Final = 10_000
"""The one that was not used for longest goes first."""


@dataclass(slots=True)
class _Session:
    used: float
    is_signed_in: bool = False


@dataclass(slots=True, kw_only=True)
class Sessions:
    """All sessions of one process."""

    clock: Callable[[], float]
    """Seconds, monotonic."""
    is_secure: bool = False
    """Whether the cookie is for TLS only."""
    _known: dict[str, _Session] = field(default_factory=dict)

    def is_signed_in(self, request: web.Request) -> bool:
        """Tell whether the request comes from a browser that showed the token."""
        found = self._find(request.cookies.get(COOKIE, ""))
        return found is not None and found.is_signed_in

    def owner(self, request: web.Request) -> str | None:
        """Return the session that a request belongs to, if it is a known one."""
        id_ = request.cookies.get(COOKIE, "")
        return id_ if self._find(id_) is not None else None

    def begin(self, response: web.StreamResponse, *, signed_in: bool) -> str:
        """Begin a session that ``response`` tells the browser of; return its id.

        Lax rather than strict: a link from a chat or a dashboard opens the run it names. What
        changes something is a POST, which such a cookie does not go along with.
        """
        while len(self._known) >= MOST:
            del self._known[next(iter(self._known))]
        id_ = secrets.token_urlsafe(32)
        self._known[id_] = _Session(used=self.clock(), is_signed_in=signed_in)
        response.set_cookie(
            COOKIE, id_, httponly=True, samesite="Lax", secure=self.is_secure, max_age=LIFETIME_S, path="/"
        )
        return id_

    def end(self, request: web.Request, response: web.StreamResponse) -> None:
        """Forget the session of a request."""
        self._known.pop(request.cookies.get(COOKIE, ""), None)
        response.del_cookie(COOKIE, path="/")

    def _find(self, id_: str) -> _Session | None:
        found = self._known.pop(id_, None)
        now = self.clock()
        if found is None or now - found.used > LIFETIME_S:
            return None
        found.used = now
        self._known[id_] = found  # the last in the order of use
        return found
