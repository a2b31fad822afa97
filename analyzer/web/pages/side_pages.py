"""Pages of health and of recurring failures. Not pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

from aiohttp import web
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from analyzer.web.guard import METRICS, require_stated_origin
from analyzer.web.pages.front import routed
from analyzer.web.pages.run_pages import PageContext
from analyzer.web.probes import Probe
from analyzer.web.reads.page_records import RunQuery, RunRow, ShownIssue
from analyzer.web.reads.recent_work import RecentWork
from analyzer.web.run_list import MOST_ASKED
from analyzer.web.views.issue_page import MOST_EXAMPLES, IssueView, Proofs, issue_view
from collector_processor.otlp import Tenant
from semconv.model import Status

_MUTED_NS: Final = 7 * 24 * 3600 * 10**9
_MOST_ISSUES: Final = 200
_MOST_GOOD: Final = 20
_BACKLOG: Final = ("blamespan_open_traces", "blamespan_examinations")
_ITEMS: Final = "blamespan_items_"


def health_routes(context: PageContext, probe: Probe, recent: RecentWork) -> list[web.RouteDef]:
    """Return the route of the health page."""

    async def health(context: PageContext, request: web.Request) -> web.StreamResponse:
        metrics = await _metrics(probe)
        return await context.front.show(
            request,
            "health.html",
            done=await recent.read(),
            items=items_of(metrics),
            backlog=backlog_of(metrics),
            settings=context.pages.settings,
        )

    return routed(context, ("GET", "/health", health))


async def _metrics(probe: Probe) -> list[Metric]:
    """Return the metrics of the process that takes spans; none while it does not answer."""
    found = await probe(METRICS, "")
    return list(text_string_to_metric_families(found.body)) if found.status == HTTPStatus.OK else []


def items_of(metrics: Iterable[Metric]) -> dict[str, dict[str, int]]:
    """Return the numbers of items received, forwarded, lost and so on, by signal."""
    found: dict[str, dict[str, int]] = {}
    for family in metrics:
        if family.name.startswith(_ITEMS):
            for sample in family.samples:
                counts = found.setdefault(family.name.removeprefix(_ITEMS), {})
                counts[sample.labels.get("signal", "")] = int(sample.value)
    return found


def backlog_of(metrics: Iterable[Metric]) -> dict[str, int]:
    """Return the work waiting and in progress by the metrics' descriptions."""
    return {
        family.documentation: int(family.samples[0].value)
        for family in metrics
        if family.name in _BACKLOG and family.samples
    }


def issue_pages(context: PageContext) -> list[web.RouteDef]:
    """Return the routes of the page of recurring failures."""
    return routed(
        context,
        ("GET", "/issues", _issues),
        ("GET", "/issues/{issue_id}", _issue),
        ("POST", "/issues/{issue_id}/resolve", _resolve),
        ("POST", "/issues/{issue_id}/mute", _mute),
    )


async def _issues(context: PageContext, request: web.Request) -> web.StreamResponse:
    source = context.pages.issues
    found = None if source is None else await source.issues(context.tenant(request), _MOST_ISSUES)
    shown = found or ()
    last = await context.pages.runs.rows([(one.tenant, one.issue.runs[0]) for one in shown if one.issue.runs])
    return await context.front.show(
        request,
        "issues.html",
        issues=found,
        recurring=[one for one in shown if one.issue.count > 1],
        single=[one for one in shown if one.issue.count <= 1],
        last_runs={(row.key.tenant, row.key.run_id): row for row in last},
        now_ns=context.pages.now_ns(),
    )


async def _issue(context: PageContext, request: web.Request) -> web.StreamResponse:
    """Show one recurring failure; lists, runs and alerts link here."""
    source = context.pages.issues
    since = request.query.get("since", "").strip()
    wanted = context.tenant(request), request.match_info["issue_id"], since
    found = await source.issue(*wanted) if source else ()
    if not found:
        raise web.HTTPNotFound(text="no such issue\n")
    now_ns = context.pages.now_ns()
    views = [await _view(context, one, now_ns) for one in found]
    return await context.front.show(request, "issue.html", views=views, now_ns=now_ns)


async def _view(context: PageContext, one: ShownIssue, now_ns: int) -> IssueView:
    runs, mark = context.pages.runs, one.issue.fingerprint
    proofs = Proofs(
        of_issue=await runs.proofs(one.tenant, mark.id),
        of_service=await runs.proofs_of_service(one.tenant, mark.service),
    )
    return issue_view(one, await _examples(context, one), await _good(context, one), proofs, now_ns)


async def _examples(context: PageContext, one: ShownIssue) -> Sequence[RunRow]:
    names = [(one.tenant, run_id) for run_id in one.issue.runs[:MOST_EXAMPLES]]
    return await context.pages.runs.rows(names)


async def _good(context: PageContext, one: ShownIssue) -> RunRow | None:
    """Return the service's last run without a failure, if it is among the newest runs."""
    service = one.issue.fingerprint.service
    asked = RunQuery(
        tenant=one.tenant, statuses=(Status.NO_FAILURE,), service=service[:MOST_ASKED], limit=_MOST_GOOD
    )
    page = await context.pages.runs.page(asked)
    return next((row for row in page.rows if row.service == service), None)


async def _resolve(context: PageContext, request: web.Request) -> web.StreamResponse:
    require_stated_origin(request)
    source, form = context.pages.issues, await request.post()
    issue_id = request.match_info["issue_id"]
    if source is None or not await source.resolve(_owner(context, request, form), issue_id):
        raise web.HTTPNotFound(text="no such issue\n")
    raise web.HTTPSeeOther(_back(form, issue_id, "resolved"))


async def _mute(context: PageContext, request: web.Request) -> web.StreamResponse:
    """Mute an issue for a week; ``until=0`` in the form unmutes it."""
    require_stated_origin(request)
    source, form = context.pages.issues, await request.post()
    is_over = form.get("until") == "0"
    until_ns = 0 if is_over else context.pages.now_ns() + _MUTED_NS
    issue_id = request.match_info["issue_id"]
    if source is None or not await source.mute(_owner(context, request, form), issue_id, until_ns):
        raise web.HTTPNotFound(text="no such issue\n")
    raise web.HTTPSeeOther(_back(form, issue_id, "unmuted" if is_over else "muted"))


def _owner(context: PageContext, request: web.Request, form: Mapping[str, object]) -> Tenant:
    """Return the issue's tenant: from the request's header, else from the form."""
    return context.tenant(request) or Tenant(str(form.get("tenant", "")))


def _back(form: Mapping[str, object], issue_id: str, said: str) -> str:
    """Return the URL of the form's page, with the message to show."""
    page = f"/issues/{quote(issue_id, safe='')}" if form.get("on") == "issue" else "/issues"
    return f"{page}?said={said}"
