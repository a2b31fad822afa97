"""Issues over HTTP: read, resolve, mute. Who may, ``guard.py`` knows; what changes something must be JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from aiohttp import web

from analyzer.issues.report import Wanted
from analyzer.recurrence import IssueState
from collector_processor.otlp import Tenant
from collector_processor.stores import StoreError

MAX_LISTED: Final = 500
MAX_MUTE_S: Final = 366 * 86_400
_JSON: Final = "application/json"
_MUTE_EXPECTED: Final = f'expected {{"for_s": SECONDS}}, 0 to {MAX_MUTE_S}; 0 ends it\n'

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
TenantOf = Callable[[web.Request], Tenant]


class Issues(Protocol):
    """What the API asks of whoever keeps issues."""

    async def documents(self, wanted: Wanted) -> list[dict[str, Any]]:
        """Return issues as programs get them."""
        ...

    async def tenants_of(self, issue_id: str) -> Sequence[Tenant]:
        """Return who has an issue of this id."""
        ...

    async def resolve(self, tenant: Tenant, issue_id: str) -> bool:
        """Close an issue; ``False`` where there is none."""
        ...

    async def mute(self, tenant: Tenant, issue_id: str, until_ns: int) -> bool:
        """Tell nobody of an issue until then; ``False`` where there is none."""
        ...


def issue_api_routes(issues: Issues, tenant_of: TenantOf) -> list[web.RouteDef]:
    """Return the routes.

    Args:
        issues: who keeps them.
        tenant_of: the tenant whose header a request bears; empty for none, which means all.
    """

    async def listing(request: web.Request) -> web.Response:
        wanted = read_wanted(request.query, tenant_of(request))
        return web.json_response({"issues": await issues.documents(wanted)})

    async def resolve(request: web.Request) -> web.Response:
        await _body(request)
        tenant, issue_id = await _meant(issues, request, tenant_of(request))
        await _written(issues.resolve(tenant, issue_id))
        return web.json_response({"id": issue_id, "tenant": tenant, "state": IssueState.RESOLVED.value})

    async def mute(request: web.Request) -> web.Response:
        for_s = read_mute(await _body(request))
        tenant, issue_id = await _meant(issues, request, tenant_of(request))
        until_ns = time.time_ns() + int(for_s * 10**9) if for_s else 0
        await _written(issues.mute(tenant, issue_id, until_ns))
        return web.json_response({"id": issue_id, "tenant": tenant, "muted_until_ns": until_ns})

    return [
        web.get("/api/issues", listing),
        web.post("/api/issues/{issue_id}/resolve", resolve),
        web.post("/api/issues/{issue_id}/mute", mute),
    ]


def read_wanted(query: Mapping[str, str], tenant: Tenant) -> Wanted:
    """Read the filters of a request.

    Raises:
        HTTPBadRequest: one is none.
    """
    state = query.get("state")
    if state is not None and state not in set(IssueState):
        raise web.HTTPBadRequest(text=f"state: expected one of {', '.join(IssueState)}\n")
    return Wanted(
        tenant=tenant or None,
        state=None if state is None else IssueState(state),
        service=query.get("service"),
        agent=query.get("agent"),
        limit=read_limit(query),
    )


def read_limit(query: Mapping[str, str]) -> int:
    """Read how many are wanted.

    Raises:
        HTTPBadRequest: it does not say.
    """
    asked = query.get("limit", "100")
    if not (asked.isascii() and asked.isdigit() and len(asked) < 5 and 0 < int(asked) <= MAX_LISTED):
        raise web.HTTPBadRequest(text=f"limit: expected 1 to {MAX_LISTED}\n")
    return int(asked)


def read_mute(document: object) -> float:
    """Read for how long, in seconds.

    Raises:
        HTTPBadRequest: it does not say.
    """
    for_s: object = document.get("for_s") if isinstance(document, Mapping) and len(document) == 1 else None
    if isinstance(for_s, bool) or not isinstance(for_s, int | float):
        raise web.HTTPBadRequest(text=_MUTE_EXPECTED)
    if not 0 <= for_s <= MAX_MUTE_S:  # of what is no number neither is true
        raise web.HTTPBadRequest(text=_MUTE_EXPECTED)
    return float(for_s)


async def _body(request: web.Request) -> object:
    if request.content_type != _JSON:  # a page of another site may not send that (``labels.py``)
        raise web.HTTPUnsupportedMediaType(text=f"expected Content-Type: {_JSON}\n")
    body = await request.read()  # bounded by the application
    try:
        return json.loads(body) if body.strip() else None
    except (ValueError, RecursionError):
        raise web.HTTPBadRequest(text="expected JSON\n") from None


async def _meant(issues: Issues, request: web.Request, tenant: Tenant) -> tuple[Tenant, str]:
    issue_id = request.match_info["issue_id"]
    found = [one for one in await issues.tenants_of(issue_id) if not tenant or one == tenant]
    if not found:
        raise web.HTTPNotFound(text="no such issue\n")
    if len(found) > 1:
        raise web.HTTPConflict(text="several tenants have an issue of this id: send the tenant's header\n")
    return found[0], issue_id


async def _written(writing: Awaitable[bool]) -> None:
    try:
        if not await writing:
            raise web.HTTPNotFound(text="no such issue\n")
    except StoreError as error:
        raise web.HTTPServiceUnavailable(text=f"{error}\n") from error
