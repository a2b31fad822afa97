"""The page of all runs: filters, order, trend. The URL is the view; the form works without JavaScript."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from aiohttp import web

from analyzer.web.pages.front import routed
from analyzer.web.pages.run_pages import PageContext, issues_of
from analyzer.web.reads.page_records import RunPage
from analyzer.web.reads.trends import Trends
from analyzer.web.run_list import InvalidFilter, read_filters, write_key
from analyzer.web.views.run_listing import DEFAULT_LIMIT, Asked, columns


@dataclass(frozen=True, slots=True, kw_only=True)
class ListContext:
    """Dependencies of the list."""

    shared: PageContext
    trends: Trends


def list_routes(context: ListContext) -> list[web.RouteDef]:
    """Return the routes."""
    return routed(context, ("GET", "/", _home), ("GET", "/runs", _listed))


async def _home(_context: ListContext, _request: web.Request) -> web.StreamResponse:
    raise web.HTTPSeeOther("/runs")


async def _listed(context: ListContext, request: web.Request) -> web.StreamResponse:
    shared, fields = context.shared, dict(request.query)
    is_part = fields.pop("part", "") == "rows"
    asked = Asked({name: value for name, value in fields.items() if name != "said"})
    if not is_part and not all(asked.fields.values()):  # a form sends its empty fields too
        raise web.HTTPSeeOther(f"/runs{asked.link()}")
    filters = {"limit": str(DEFAULT_LIMIT), **asked.fields}
    try:
        query = read_filters(filters, shared.tenant(request), shared.pages.now_ns())
    except InvalidFilter as refusal:
        none, said = RunPage(rows=()), str(refusal)
        shown = await _shown(
            context, request, "runs.html", none, asked=asked, columns=(), trend="", error=said
        )
        shown.set_status(400)
        return shown
    page = await shared.pages.runs.page(query)
    if is_part:
        return await _shown(context, request, "rows.html", page, asked=asked)
    if page.next is not None:
        asked = replace(asked, next=write_key(page.next, query.sort))
    trend = await shared.prepared.trend(await context.trends.of(query), asked)
    return await _shown(
        context, request, "runs.html", page, asked=asked, columns=columns(asked), trend=trend, error=""
    )


async def _shown(
    context: ListContext, request: web.Request, template: str, page: RunPage, **values: Any
) -> web.StreamResponse:
    names = [(row.key.tenant, row.key.run_id) for row in page.rows if row.agent]
    issues = await issues_of(context.shared, names)
    rows = await context.shared.prepared.rows(page.rows, issues)
    return await context.shared.front.show(request, template, page=page, rows=rows, **values)
