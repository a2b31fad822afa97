"""Parts of a run's page that are requested when a step is opened: its texts, and its raw span."""

from __future__ import annotations

import asyncio
from typing import Final
from urllib.parse import quote

from aiohttp import web

from analyzer.web.pages.front import routed
from analyzer.web.pages.run_pages import PageContext
from analyzer.web.reads.whole_runs import ReadRun
from analyzer.web.views.raw_span import span_json
from analyzer.web.views.run_page import body_of
from collector_processor.core.records import StoredVerdict
from semconv.model import Span

_MOST_DIGITS: Final = 9


def step_routes(context: PageContext) -> list[web.RouteDef]:
    """Return the routes of a step."""
    return routed(
        context,
        ("GET", "/runs/{run_id}/steps/{step}", _texts),
        ("GET", "/runs/{run_id}/steps/{step}/span.json", _span),
    )


async def _texts(context: PageContext, request: web.Request) -> web.Response:
    """Return a step's texts as a part of a page; with ``?full=1`` regardless of their length."""
    verdict, read, step = await _asked(context, request)
    document, is_full = context.document(verdict), request.query.get("full") == "1"
    body = await asyncio.to_thread(body_of, read.whole, step, document, is_full=is_full)
    page = f"/runs/{quote(verdict.run_id, safe='')}"
    return await context.front.renderer.page(
        "step.html", body=body, page=page, links=context.pages.trace_link
    )


async def _span(context: PageContext, request: web.Request) -> web.Response:
    _, read, step = await _asked(context, request)
    span = _span_of(read, step)
    if span is None:
        raise web.HTTPNotFound(text="the span of this step is not kept\n")
    text = await asyncio.to_thread(span_json, span, context.pages.clean)
    return web.Response(text=text, content_type="application/json")


async def _asked(context: PageContext, request: web.Request) -> tuple[StoredVerdict, ReadRun, int]:
    """Return the run and the step of a request's path.

    Raises:
        web.HTTPNotFound: there is no such run or step, or its steps are not kept.
    """
    verdict = await context.find(request)
    read = await context.whole.of(verdict)
    if read is None:
        raise web.HTTPNotFound(text="the steps of this run are not kept\n")
    text = request.match_info["step"]
    is_number = text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
    if not is_number or int(text) >= len(read.whole.steps):
        raise web.HTTPNotFound(text=f"no such step: expected 0 to {len(read.whole.steps) - 1}\n")
    return verdict, read, int(text)


def _span_of(read: ReadRun, index: int) -> Span | None:
    step = read.whole.steps[index]
    spans = read.kept.run.trace.spans if read.kept.run is not None else ()
    found = ((one.trace_id, one.span_id) == (step.trace_id, step.span_id) for one in spans)
    return next((span for span, is_it in zip(spans, found, strict=True) if is_it), None)
