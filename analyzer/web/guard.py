"""Access control of every HTTP request, before any handler, and the browser sessions it accepts. Not pure.

With a token, clients must send it. Without one, only this machine can connect; but so
can a page in a browser on it, so the Host header must name this machine (DNS
rebinding), and requests with effects must not come from another site's page
(cross-site request forgery). Where clients need a certificate, only the probes are
answered without one, because an orchestrator's probe has none.

Metrics are the operator's: they name the services and agents of all tenants. A request for one tenant is
refused, and if the metrics have a token of their own, no other token gives access to them.

A browser cannot send a bearer token by itself: the person enters it once, and the browser gets a
random cookie (HttpOnly, not sent with forms of other sites). Without a session it is redirected to the
sign-in page.
The cookie of a signed-in session is signed with a key made from the token, so that all processes with that
token accept it, also after a restart. Signed sessions that ended before they expire are kept in a file.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import math
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from aiohttp import web

from collector_processor.core.headers import WRONG_TOKEN_S, bears, names_this_machine
from collector_processor.otlp import TOKEN_HEADER

logger = logging.getLogger(__name__)

MOST_ENDED: Final = 10_000
"""Sessions remembered; the oldest are forgotten first."""
_MOST_BYTES: Final = 1 << 20
"""Of the file when it is read: ``MOST_ENDED`` lines take three quarters of it."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
SIGN_IN: Final = "/sign-in"
STATIC: Final = "/static/"
"""Style sheet and script, the same for all clients."""
METRICS: Final = "/metrics"
OPEN_PATHS: Final = frozenset({"/healthz", "/readyz"})
_SAFE_METHODS: Final = frozenset({"GET", "HEAD"})
_OWN_SITES: Final = frozenset({"same-origin", "none"})
_WANTED: Final = "expected: Authorization: Bearer <BLAMESPAN_TOKEN>\n"
_WANTED_FOR_METRICS: Final = "expected: Authorization: Bearer <BLAMESPAN_METRICS_TOKEN>\n"
_OF_ALL: Final = "expected no tenant's header: metrics name the services and agents of all tenants\n"
_NOT_LOCAL: Final = (
    "expected a Host header that names this machine, such as localhost (or the host of BLAMESPAN_WEB_URL)\n"
)
_FOREIGN: Final = "refused: this request comes from another site's page\n"
_UNSTATED: Final = "expected a browser that sends the form's origin; programs use the API\n"
_UNKNOWN: Final = "expected a client certificate of BLAMESPAN_TLS_CLIENT_CA\n"
_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
COOKIE: Final = "blamespan_session"
LIFETIME_S: Final = 12 * 3600
MOST: Final = 10_000
"""Sessions kept; the least recently used is dropped first."""


@dataclass(slots=True, kw_only=True)
class SignedOut:
    """The ended sessions of one process and of those before it; digests only, as an id lets its owner in."""

    path: Path | None = None
    """A file of its own; ``None`` to remember in memory."""
    wall_s: Callable[[], float] = time.time
    _ends: dict[str, int] = field(default_factory=dict)
    """By digest, when the session would have expired, in Unix seconds."""

    def __post_init__(self) -> None:
        try:
            text = b"" if self.path is None else self.path.read_bytes()[-_MOST_BYTES:]
        except FileNotFoundError:
            return
        except OSError as error:
            logger.warning("signed-out sessions cannot be read", extra={"error": error.strerror})
            return
        for line in text.decode("ascii", "replace").splitlines():
            digest, _, ends_s = line.partition(" ")
            if ends_s.isdecimal() and len(ends_s) < 20 and self.wall_s() < int(ends_s):
                self._ends[digest] = int(ends_s)
        self._write()

    def __contains__(self, id_: str) -> bool:
        """Tell whether the session ended."""
        return _digest(id_) in self._ends

    def add(self, id_: str, ends_s: float) -> None:
        """Remember that a session ended, until it would have expired at ``ends_s`` (Unix seconds)."""
        self._ends[_digest(id_)] = int(min(ends_s, 1e15))
        while len(self._ends) > MOST_ENDED:
            del self._ends[next(iter(self._ends))]
        self._write()

    def _write(self) -> None:
        if self.path is None:
            return
        written = self.path.with_name(f"{self.path.name}.new")
        try:
            written.write_text("".join(f"{digest} {ends}\n" for digest, ends in self._ends.items()))
            written.replace(self.path)
        except OSError as error:
            logger.warning("a signed-out session is kept in memory only", extra={"error": error.strerror})


def _digest(id_: str) -> str:
    return hashlib.sha256(id_.encode("utf-8", "replace")).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardRules:
    """Requirements that a request must meet."""

    token: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    """Names of this machine besides its addresses and ``localhost``; lower case."""
    wants_certificate: bool = False
    metrics_token: str | None = None
    """Token for the metrics; with ``None``, ``token`` gives access, as to everything else."""
    names_tenant: Callable[[web.Request], bool] = lambda _request: False
    """Whether a request is made for one tenant."""
    is_signed_in: Callable[[web.Request], bool] = lambda _request: False
    """Whether a request comes from a signed-in browser."""


def guarding(rules: GuardRules) -> Any:
    """Return the middleware that passes a request on, or refuses it and says what was expected."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            if request.path not in OPEN_PATHS:
                await _require_slowly(request, rules)
            response = await handler(request)
        except web.HTTPException as refusal:
            _harden(refusal)
            raise
        _harden(response)
        return response

    return guard


async def _require_slowly(request: web.Request, rules: GuardRules) -> None:
    """Check a request; a wrong token is refused only after a while."""
    try:
        _require(request, rules)
    except (web.HTTPUnauthorized, web.HTTPSeeOther):
        if rules.token is not None and {"Authorization", TOKEN_HEADER} & set(request.headers):
            await asyncio.sleep(WRONG_TOKEN_S)
        raise


def _require(request: web.Request, rules: GuardRules) -> None:
    if rules.wants_certificate and not request.get_extra_info("peercert"):
        raise web.HTTPForbidden(text=_UNKNOWN)
    if request.path == METRICS and rules.names_tenant(request):
        raise web.HTTPForbidden(text=_OF_ALL)
    if request.path == METRICS and rules.metrics_token is not None:
        if not bears(request.headers.items(), rules.metrics_token):
            raise web.HTTPUnauthorized(text=_WANTED_FOR_METRICS, headers={"WWW-Authenticate": "Bearer"})
    elif rules.token is None:
        if not names_this_machine(request.headers.get("Host", ""), rules.allowed_hosts):
            raise web.HTTPUnauthorized(text=_NOT_LOCAL)
    elif not _is_let_in(request, rules, rules.token):
        if _shows_pages(request):
            raise web.HTTPSeeOther(f"{SIGN_IN}?{urlencode({'next': request.raw_path})}")
        raise web.HTTPUnauthorized(text=_WANTED, headers={"WWW-Authenticate": "Bearer"})
    if request.method not in _SAFE_METHODS and _is_foreign(request):
        raise web.HTTPForbidden(text=_FOREIGN)


def _is_let_in(request: web.Request, rules: GuardRules, token: str) -> bool:
    is_at_the_door = request.path == SIGN_IN or request.path.startswith(STATIC)
    return is_at_the_door or bears(request.headers.items(), token) or rules.is_signed_in(request)


def _shows_pages(request: web.Request) -> bool:
    """Tell whether a browser requests a page, rather than a program an API answer."""
    is_page = not request.path.startswith("/api/") and request.path != METRICS
    return is_page and request.method == "GET" and "text/html" in request.headers.get("Accept", "")


def require_stated_origin(request: web.Request) -> None:
    """Refuse a form without an origin: every browser sends one.

    Another site's page may send a form without our permission, so a missing origin is not accepted here; the
    guard has already checked origins that are given.
    """
    if not {"Origin", "Sec-Fetch-Site"} & set(request.headers):
        raise web.HTTPForbidden(text=_UNSTATED)


def _is_foreign(request: web.Request) -> bool:
    """Tell whether a browser marks the request as coming from another origin; other clients send no mark."""
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None and site not in _OWN_SITES:
        return True
    origin, host = request.headers.get("Origin"), request.headers.get("Host", "")
    return origin is not None and origin.lower() not in {
        f"{way}://{host}".lower() for way in ("http", "https")
    }


def _harden(response: web.StreamResponse) -> None:
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)


def session_key(token: str | None) -> bytes | None:
    """Return the key that signs sessions, the same for all processes with one token; ``None`` without one."""
    return None if token is None else hmac.new(token.encode(), b"blamespan session", "sha256").digest()


@dataclass(slots=True)
class _Session:
    used: float
    is_signed_in: bool = False
    ends_s: float = math.inf
    """End of a signed session in Unix seconds; using the session does not prolong it."""


@dataclass(slots=True, kw_only=True)
class Sessions:
    """All sessions of one process.

    With a key, the id of a signed-in session is signed, and every process with the same key accepts it until
    ``LIFETIME_S`` after it began: behind a load balancer, a browser signs in once. A session that ends is
    refused at once by the process that ended it; the browser deletes its cookie.
    """

    clock: Callable[[], float]
    """Seconds, monotonic."""
    key: bytes | None = field(default=None, repr=False)
    """Signs ids; ``None`` for sessions of this process only."""
    wall_s: Callable[[], float] = time.time
    """Unix seconds: signed ids expire by it."""
    is_secure: bool = False
    """Whether the cookie is sent over TLS only."""
    _known: dict[str, _Session] = field(default_factory=dict)
    ended: SignedOut = field(default_factory=SignedOut)
    """Signed sessions that ended before they expire."""

    def is_signed_in(self, request: web.Request) -> bool:
        """Tell whether the request comes from a signed-in browser."""
        session = self._find(request.cookies.get(COOKIE, ""))
        return session is not None and session.is_signed_in

    def owner(self, request: web.Request) -> str | None:
        """Return the id of a request's session; ``None`` without a known one."""
        id_ = request.cookies.get(COOKIE, "")
        return id_ if self._find(id_) is not None else None

    def begin(self, response: web.StreamResponse, *, signed_in: bool) -> str:
        """Start a session, set its cookie on ``response``, and return its id.

        The cookie is Lax rather than Strict, so that a link from a chat or a dashboard opens its
        run. Requests with effects are POSTs, and other sites' POSTs do not carry a Lax cookie.
        """
        while len(self._known) >= MOST:
            del self._known[next(iter(self._known))]
        id_ = secrets.token_urlsafe(32)
        ends_s = math.inf
        if signed_in and self.key is not None:
            ends_s = int(self.wall_s()) + LIFETIME_S
            id_ = self._signed(f"{id_}.{ends_s}", self.key)
        self._known[id_] = _Session(used=self.clock(), is_signed_in=signed_in, ends_s=ends_s)
        response.set_cookie(
            COOKIE, id_, httponly=True, samesite="Lax", secure=self.is_secure, max_age=LIFETIME_S, path="/"
        )
        return id_

    def end(self, request: web.Request, response: web.StreamResponse) -> None:
        """Delete the session of a request."""
        id_ = request.cookies.get(COOKIE, "")
        if self._find(id_) is not None:
            self.ended.add(id_, self._known.pop(id_).ends_s)
        response.del_cookie(COOKIE, path="/")

    @staticmethod
    def _signed(text: str, key: bytes) -> str:
        return f"{text}.{hmac.new(key, text.encode(), 'sha256').hexdigest()}"

    def _is_of_a_sibling(self, id_: str) -> bool:
        """Tell whether another process with our key began this session, and it has not expired."""
        text, _, _ = id_.rpartition(".")
        ends_s = text.rpartition(".")[2]
        if self.key is None or not id_.isascii() or id_ in self.ended or not ends_s.isdecimal():
            return False
        is_signed = hmac.compare_digest(id_, self._signed(text, self.key))
        return is_signed and self.wall_s() < int(ends_s)

    def _find(self, id_: str) -> _Session | None:
        session = self._known.pop(id_, None)
        now = self.clock()
        if session is None and self._is_of_a_sibling(id_):
            while len(self._known) >= MOST:
                del self._known[next(iter(self._known))]
            session = _Session(used=now, is_signed_in=True, ends_s=int(id_.rsplit(".", 2)[1]))
        if session is None or now - session.used > LIFETIME_S or self.wall_s() >= session.ends_s:
            return None
        session.used = now
        self._known[id_] = session  # mark it as most recently used
        return session
