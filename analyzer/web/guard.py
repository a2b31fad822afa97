"""Who may ask, and from where: asked of every request before anything else. Pure but for aiohttp's types.

With a token, whoever bears it. Without, only this machine can reach us; but so can
a page that a browser on it shows, so the Host header must name this machine (DNS
rebinding), and what changes something must not come from another site's page
(cross-site request forgery). Where clients need a certificate, the probes alone
are answered without one: an orchestrator's probe has none.

A browser shows the token once and is known by its session from then on
(``sessions.py``); one that is not is sent to the door for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from aiohttp import web

from collector_processor.receivers.admission import bears
from collector_processor.receivers.hosts import names_this_machine

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

SIGN_IN: Final = "/sign-in"
STATIC: Final = "/static/"
"""Style and script, the same for everybody."""
OPEN_PATHS: Final = frozenset({"/healthz", "/readyz"})
_SAFE_METHODS: Final = frozenset({"GET", "HEAD"})
_OWN_SITES: Final = frozenset({"same-origin", "none"})
_WANTED: Final = "expected: Authorization: Bearer <BLAMESPAN_TOKEN>\n"
_NOT_LOCAL: Final = (
    "expected a Host header that names this machine, such as localhost (or one of BLAMESPAN_ALLOWED_HOSTS)\n"
)
_FOREIGN: Final = "expected no request from another site's page\n"
_UNSTATED: Final = "expected a browser that says where a form comes from; programs use the API\n"
_UNKNOWN: Final = "expected a client certificate of BLAMESPAN_TLS_CLIENT_CA\n"
_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardRules:
    """What is asked of a request."""

    token: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    """Lower case; names of this machine beyond its addresses and ``localhost``."""
    wants_certificate: bool = False
    is_signed_in: Callable[[web.Request], bool] = lambda _request: False
    """Whether a request comes from a browser that showed the token before."""


def guarding(rules: GuardRules) -> Any:
    """Return the middleware that lets a request through, or says what was expected."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            if request.path not in OPEN_PATHS:
                _require(request, rules)
            response = await handler(request)
        except web.HTTPException as refusal:
            _harden(refusal)
            raise
        _harden(response)
        return response

    return guard


def _require(request: web.Request, rules: GuardRules) -> None:
    if rules.wants_certificate and not _certificate(request):
        raise web.HTTPForbidden(text=_UNKNOWN)
    if rules.token is None:
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
    """Whether a person with a browser asks for a page, rather than a program for an answer."""
    is_page = not request.path.startswith("/api/") and request.path != "/metrics"
    return is_page and request.method == "GET" and "text/html" in request.headers.get("Accept", "")


def require_stated_origin(request: web.Request) -> None:
    """Refuse a form that no browser vouches for: each says where a form comes from.

    A form may be sent by another site's page without our leave, so saying nothing is not
    enough here; that what is said is us, the guard has seen to.
    """
    if not {"Origin", "Sec-Fetch-Site"} & set(request.headers):
        raise web.HTTPForbidden(text=_UNSTATED)


def _certificate(request: web.Request) -> object:
    return request.get_extra_info("peercert")


def _is_foreign(request: web.Request) -> bool:
    """Whether a browser says that a page of another origin sent this; other clients say nothing."""
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
