"""The pages beside the runs: health, recurring failures, the door; and style and script. A shell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote

from aiohttp import web
from prometheus_client.registry import CollectorRegistry

from analyzer.web.front import Front, routed
from analyzer.web.guard import SIGN_IN, STATIC, require_stated_origin
from analyzer.web.issue_view import MOST_EXAMPLES, issue_view
from analyzer.web.pages import MOST_ASKED, Desk
from analyzer.web.recent_work import RecentWork
from analyzer.web.sources import RunQuery, RunRow, ShownIssue
from collector_processor.otlp import Tenant
from collector_processor.receivers.admission import bears
from semconv.model import Status

_MUTED_NS: Final = 7 * 24 * 3600 * 10**9
_MOST_ISSUES: Final = 200
_MOST_GOOD: Final = 20
_TYPES: Final = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_BACKLOG: Final = ("blamespan_open_traces", "blamespan_examinations")
_ITEMS: Final = "blamespan_items_"


def health_routes(desk: Desk, metrics: CollectorRegistry, recent: RecentWork) -> list[web.RouteDef]:
    """Return the route of the health page."""

    async def health(desk: Desk, request: web.Request) -> web.StreamResponse:
        return await desk.show(
            request,
            "health.html",
            done=await recent.read(),
            items=items_of(metrics),
            backlog=backlog_of(metrics),
            settings=desk.pages.settings,
        )

    return routed(desk, ("GET", "/health", health))


def items_of(metrics: CollectorRegistry) -> dict[str, dict[str, int]]:
    """Return how many items of each signal were received, forwarded, lost and so on."""
    found: dict[str, dict[str, int]] = {}
    for family in metrics.collect():
        if family.name.startswith(_ITEMS):
            for sample in family.samples:
                counts = found.setdefault(family.name.removeprefix(_ITEMS), {})
                counts[sample.labels.get("signal", "")] = int(sample.value)
    return found


def backlog_of(metrics: CollectorRegistry) -> dict[str, int]:
    """Return what waits and what is under way, by the words of the metrics."""
    return {
        family.documentation: int(family.samples[0].value)
        for family in metrics.collect()
        if family.name in _BACKLOG and family.samples
    }


def issue_routes(desk: Desk) -> list[web.RouteDef]:
    """Return the routes of the page of recurring failures."""
    return routed(
        desk,
        ("GET", "/issues", _issues),
        ("GET", "/issues/{issue_id}", _issue),
        ("POST", "/issues/{issue_id}/resolve", _resolve),
        ("POST", "/issues/{issue_id}/mute", _mute),
    )


async def _issues(desk: Desk, request: web.Request) -> web.StreamResponse:
    source = desk.pages.issues
    found = None if source is None else await source.issues(desk.tenant(request), _MOST_ISSUES)
    return await desk.show(request, "issues.html", issues=found, now_ns=desk.pages.now_ns())


async def _issue(desk: Desk, request: web.Request) -> web.StreamResponse:
    """One recurring failure: what lists, runs and alerts lead to."""
    source = desk.pages.issues
    found = await source.issue(desk.tenant(request), request.match_info["issue_id"]) if source else ()
    if not found:
        raise web.HTTPNotFound(text="no such issue\n")
    now_ns = desk.pages.now_ns()
    views = [issue_view(one, await _examples(desk, one), await _good(desk, one), now_ns) for one in found]
    return await desk.show(request, "issue.html", views=views, now_ns=now_ns)


async def _examples(desk: Desk, one: ShownIssue) -> Sequence[RunRow]:
    names = [(one.tenant, run_id) for run_id in one.issue.runs[:MOST_EXAMPLES]]
    return await desk.pages.runs.rows(names)


async def _good(desk: Desk, one: ShownIssue) -> RunRow | None:
    """Return the last run of its service without a failure, if it is among the newest."""
    service = one.issue.fingerprint.service
    asked = RunQuery(tenant=one.tenant, status=Status.NO_FAILURE, text=service[:MOST_ASKED], limit=_MOST_GOOD)
    page = await desk.pages.runs.page(asked)
    return next((row for row in page.rows if row.service == service), None)


async def _resolve(desk: Desk, request: web.Request) -> web.StreamResponse:
    require_stated_origin(request)
    source, form = desk.pages.issues, await request.post()
    issue_id = request.match_info["issue_id"]
    if source is None or not await source.resolve(_owner(desk, request, form), issue_id):
        raise web.HTTPNotFound(text="no such issue\n")
    raise web.HTTPSeeOther(_back(form, issue_id, "resolved"))


async def _mute(desk: Desk, request: web.Request) -> web.StreamResponse:
    """Mute for a week; ``until=0`` in the form lets the issue be heard again."""
    require_stated_origin(request)
    source, form = desk.pages.issues, await request.post()
    is_over = form.get("until") == "0"
    until_ns = 0 if is_over else desk.pages.now_ns() + _MUTED_NS
    issue_id = request.match_info["issue_id"]
    if source is None or not await source.mute(_owner(desk, request, form), issue_id, until_ns):
        raise web.HTTPNotFound(text="no such issue\n")
    raise web.HTTPSeeOther(_back(form, issue_id, "unmuted" if is_over else "muted"))


def _owner(desk: Desk, request: web.Request, form: Mapping[str, object]) -> Tenant:
    """Return whose issue is meant: who bears no tenant's header sees all, and the form says which it is."""
    return desk.tenant(request) or Tenant(str(form.get("tenant", "")))


def _back(form: Mapping[str, object], issue_id: str, said: str) -> str:
    """Return the page that the form was on, which says what became of it."""
    page = f"/issues/{quote(issue_id, safe='')}" if form.get("on") == "issue" else "/issues"
    return f"{page}?said={said}"


def door_routes(desk: Front, token: str | None) -> list[web.RouteDef]:
    """Return the routes by which a browser signs in and out, and of what every page needs."""

    async def ask(desk: Front, request: web.Request) -> web.StreamResponse:
        going = local(request.query.get("next", ""))
        return await desk.show(request, "sign_in.html", next=going, wrong=False)

    async def sign_in(desk: Front, request: web.Request) -> web.StreamResponse:
        require_stated_origin(request)
        form = await request.post()
        going = local(str(form.get("next", "")))
        shown = str(form.get("token", ""))
        if token is None or not bears([("x-blamespan-token", shown)], token):
            page = await desk.show(request, "sign_in.html", next=going, wrong=True)
            page.set_status(401)
            return page
        response = web.HTTPSeeOther(going)
        desk.sessions.begin(response, signed_in=True)
        raise response

    async def sign_out(desk: Front, request: web.Request) -> web.StreamResponse:
        require_stated_origin(request)
        response = web.HTTPSeeOther(SIGN_IN)
        desk.sessions.end(request, response)
        raise response

    return routed(
        desk,
        ("GET", SIGN_IN, ask),
        ("POST", SIGN_IN, sign_in),
        ("POST", "/sign-out", sign_out),
        ("GET", STATIC + "{name}", _static),
    )


def local(path: str) -> str:
    """Return a path of ours to go on to, whatever was asked for: never another site's."""
    is_ours = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return quote(path, safe="/?&=%#") if is_ours and "\\" not in path else "/runs"


async def _static(desk: Front, request: web.Request) -> web.StreamResponse:
    name = request.match_info["name"]
    body = desk.renderer.files.get(name)
    if body is None:
        raise web.HTTPNotFound(text="no such file\n")
    # Pages name a file with the digest of all: a new version is another address.
    headers = {"Cache-Control": "public, max-age=31536000, immutable"}
    kind = _TYPES[name.rpartition(".")[2]]
    return web.Response(body=body, content_type=kind, charset="utf-8", headers=headers)
