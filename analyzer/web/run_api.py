"""The API's routes that read runs: the list, one run's verdict, and its steps."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from aiohttp import web

from analyzer.inquiry.verdict import POOLED
from analyzer.inquiry.whole_run import WholeRun
from analyzer.web.api import label_document, opinion_document
from analyzer.web.pages.front import PageContext, routed
from analyzer.web.reads.documents import RunPage, read_document
from analyzer.web.reads.run_query import Sort, read_filters, write_key
from analyzer.web.reads.whole_runs import WholeRuns
from analyzer.web.rendering import long_answer
from collector_processor.core.analysis import EARLY, NOTES
from collector_processor.core.records import CONFIRMED, PROOF, SAID_SUCCESS, SECOND_OPINION, StoredVerdict
from collector_processor.core.runs import RunTotals

MOST_STEPS: Final = 1_000
"""Steps in one answer; most runs have fewer than 100."""
_USUAL_STEPS: Final = 200


def run_api_routes(context: PageContext) -> list[web.RouteDef]:
    """Return the routes."""
    return routed(
        context,
        ("GET", "/api/runs", _listing),
        ("GET", "/api/runs/{run_id}", _one),
        ("GET", "/api/runs/{run_id}/steps", _steps),
    )


async def _listing(context: PageContext, request: web.Request) -> web.Response:
    query = read_filters(request.query, context.tenant(request), context.pages.now_ns())
    return web.json_response(page_document(await context.pages.runs.page(query), query.sort))


async def _one(context: PageContext, request: web.Request) -> web.Response:
    verdict = await context.find(request)
    name = (verdict.tenant, verdict.run_id)
    shown = await _asked_version(context, request, verdict)
    return web.json_response(
        {
            **run_document(shown),
            **label_document(await context.labels.of(*name)),
            "opinions": await opinions_of(context, verdict),
            **versions_document(await context.pages.runs.versions(*name)),
        }
    )


async def opinions_of(context: PageContext, verdict: StoredVerdict) -> list[dict[str, Any]]:
    """Return the second opinions on a run, newest first."""
    second = context.pages.second
    found = await second.of(verdict.tenant, verdict.run_id) if second is not None else ()
    return [opinion_document(one) for one in found]


async def _steps(context: PageContext, request: web.Request) -> web.Response:
    first = read_number(request, "from", 0, 0, 10**9)
    count = read_number(request, "limit", _USUAL_STEPS, 1, MOST_STEPS)
    document = await read_steps(context.whole, await context.find(request), first, first + count)
    if document is None:
        raise web.HTTPNotFound(text="the steps of this run are not kept\n")
    return await long_answer(lambda: json.dumps(document), "application/json")


async def _asked_version(context: PageContext, request: web.Request, current: StoredVerdict) -> StoredVerdict:
    """Return the version of a verdict that the request asks for; without one, the current version.

    Raises:
        web.HTTPNotFound: there is no such version.
    """
    if "version" not in request.query:
        return current
    number = read_number(request, "version", 1, 1, 10**9)
    if number == current.version:
        return current
    found = await context.pages.runs.version(current, number)
    if found is None:
        raise web.HTTPNotFound(text=f"no such version: the current one is {current.version}\n")
    return found


async def read_steps(
    runs: WholeRuns, verdict: StoredVerdict, first: int = 0, end: int | None = None
) -> dict[str, Any] | None:
    """Return steps of a run as JSON, from its spans if they are kept; ``None`` if no steps are kept."""
    read = await runs.of(verdict)
    if read is None:
        return None
    return await asyncio.to_thread(steps_document, read.whole, first, end, is_whole=read.is_whole)


def steps_document(run: WholeRun, first: int, end: int | None, *, is_whole: bool) -> dict[str, Any]:
    """Return a run with the steps from ``first`` to before ``end``; ``is_whole`` if read from its spans."""
    shown = [asdict(step) for step in run.steps[first:end]]
    return {**run.outline(), "total": len(run.steps), "is_whole": is_whole, "steps": shown}


def read_number(request: web.Request, name: str, usual: int, least: int, most: int) -> int:
    """Read a whole number of a request's query.

    Raises:
        web.HTTPBadRequest: it is not a whole number, or out of bounds.
    """
    text = request.query.get(name, str(usual))
    if not (text.isascii() and text.isdigit() and len(text) < 11 and least <= int(text) <= most):
        raise web.HTTPBadRequest(text=f"{name}: expected {least} to {most}\n")
    return int(text)


def page_document(page: RunPage, sort: Sort = Sort.NEWEST) -> dict[str, Any]:
    """Return a page of runs in an order for the API."""
    return {
        "runs": [{**run_document(row.verdict), "totals": totals_document(row.totals)} for row in page.rows],
        "next": None if page.next is None else write_key(page.next, sort),
        "looked_at": page.looked_at,
    }


def totals_document(totals: RunTotals | None) -> dict[str, Any] | None:
    """Return a run's totals for the API; ``None`` if they are not known."""
    if totals is None:
        return None
    document = asdict(totals)
    duration_ns = document.pop("duration_ns")
    return {**document, "duration_s": None if duration_ns is None else duration_ns / 1e9}


def versions_document(verdicts: Sequence[StoredVerdict]) -> dict[str, Any]:
    """Return the versions of a verdict for the API, in the given order."""
    return {"versions": [_version(verdict) for verdict in verdicts]}


def _version(verdict: StoredVerdict) -> dict[str, Any]:
    document = read_document(verdict.document, verdict.run_id)
    names = (
        *("status", "agent", "step", "span_id", "confidence", "failed_probability"),
        *("reason", "method", "model"),
    )
    return {
        "version": verdict.version,
        **{name: document[name] for name in names},
        "second_opinion": document.get(SECOND_OPINION) is True,
        "provisional": verdict.is_provisional,
        "decided_ns": verdict.decided_ns,
    }


def run_document(verdict: StoredVerdict) -> dict[str, Any]:
    """Return a stored verdict for the API: the command line's object plus the store's fields."""
    document = read_document(verdict.document, verdict.run_id)
    document.pop(CONFIRMED, None)  # the label fields replace it
    document.pop(SECOND_OPINION, None)  # likewise the opinions
    document.pop(SAID_SUCCESS, None)
    return (
        {PROOF: None, POOLED: None, NOTES: [], EARLY: None}
        | document
        | {
            "tenant": verdict.tenant,
            "version": verdict.version,
            "failure_id": verdict.failure_id,
            "service": verdict.service,
            "provisional": verdict.is_provisional,
            "decided_ns": verdict.decided_ns,
        }
    )
