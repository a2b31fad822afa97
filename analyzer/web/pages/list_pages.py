"""The page of all runs: filters, order, trend. The URL is the view; the form works without JavaScript."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from aiohttp import web

from analyzer.issues.labels.run_label import LabelKind
from analyzer.issues.recurrence import Issue
from analyzer.web.pages.front import routed
from analyzer.web.pages.run_pages import PageContext, issues_of
from analyzer.web.reads.page_records import RunPage, RunRow
from analyzer.web.reads.trends import Trends
from analyzer.web.rendering import percent, seconds, token_count, usd
from analyzer.web.run_list import MOST_ASKED, InvalidFilter, read_filters, write_key
from analyzer.web.views.run_listing import CHOOSABLE, DEFAULT_LIMIT, Asked, columns, hidden_columns, in_utc

_COLUMNS: Final = "X-Columns"
"""Header that tells the page's script which columns are hidden: it reloads the page if that changes."""


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
    shared, fields = context.shared, _fields(request)
    is_part = fields.pop("part", "") == "rows"
    asked = Asked({name: value for name, value in fields.items() if name != "said"})
    is_clean = all(asked.fields.values()) and len(fields) + is_part == len(request.query)
    if not is_part and not is_clean:  # a form sends its empty fields too, and each chosen column
        raise web.HTTPSeeOther(f"/runs{asked.link()}")
    filters = {name: value for name, value in asked.fields.items() if name != "show"}
    filters = {"limit": str(DEFAULT_LIMIT), **filters}
    try:
        query = read_filters(filters, shared.tenant(request), shared.pages.now_ns())
    except InvalidFilter as refusal:
        none, said = RunPage(rows=()), str(refusal)
        shown = await _shown(
            context,
            request,
            "runs.html",
            none,
            asked=asked,
            columns=(),
            choosable=(),
            trend="",
            error=said,
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
        context,
        request,
        "runs.html",
        page,
        asked=asked,
        columns=columns(asked),
        choosable=CHOOSABLE,
        trend=trend,
        error="",
    )


def _fields(request: web.Request) -> dict[str, str]:
    """Return the fields of a request; of one that is sent twice the last that is not empty, all columns."""
    query = request.query
    found = {name: next((value for value in reversed(query.getall(name)) if value), "") for name in query}
    if "show" in found:
        words = ",".join(query.getall("show")).lower().split(",")
        found["show"] = ",".join(dict.fromkeys(word for word in words if word))[:MOST_ASKED]
    return found | {name: in_utc(found[name]) for name in ("since", "until") if name in found}


async def _shown(
    context: ListContext, request: web.Request, template: str, page: RunPage, **values: Any
) -> web.StreamResponse:
    names = [(row.key.tenant, row.key.run_id) for row in page.rows if row.agent]
    issues = await issues_of(context.shared, names)
    rows = await context.shared.prepared.rows(page.rows, issues)
    cells = [_cells(row, issues.get((row.key.tenant, row.key.run_id))) for row in page.rows]
    hidden = hidden_columns(values["asked"], cells)
    shown = await context.shared.front.show(request, template, page=page, rows=rows, hidden=hidden, **values)
    shown.headers[_COLUMNS] = hidden.words
    return shown


def _cells(row: RunRow, issue: Issue | None) -> dict[str, str]:
    """Return a row's choosable columns as the page shows them."""
    totals = row.totals
    is_corrected = row.said is not None and row.said.kind is LabelKind.CORRECTED
    step = row.said.step if row.said is not None and is_corrected else row.step
    length_s = None if totals is None or totals.duration_ns is None else totals.duration_ns / 1e9
    return {
        "Service": row.service,
        "Workflow": totals.workflow if totals else "",
        "Step": "" if step is None else str(step),
        "Sure": percent(row.certainty),
        "Steps": str(totals.steps) if totals else "-",
        "Duration": seconds(length_s),
        "Tokens": token_count(totals),
        "Cost": "-" if totals is None or totals.cost_usd is None else usd(totals.cost_usd),
        "Issue": "" if issue is None else issue.fingerprint.title,
    }
