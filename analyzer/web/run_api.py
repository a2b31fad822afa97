"""The API's routes that read runs: the list, one run's verdict, and its steps."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeAlias

from aiohttp import web

from analyzer.inquiry.verdict import POOLED
from analyzer.inquiry.whole_run import WholeRun
from analyzer.issues.labels.correcting import KeptOpinions
from analyzer.web.api import FindOne, Labels, TenantOf, label_document, opinion_document
from analyzer.web.reads.archive import RunArchive
from analyzer.web.reads.documents import RunPage, read_document, row_of
from analyzer.web.reads.run_query import MAX_LISTED, RunQuery, Sort, read_filters, write_key
from analyzer.web.reads.whole_runs import WholeRuns
from analyzer.web.rendering import long_answer
from collector_processor.core.analysis import EARLY, NOTES
from collector_processor.core.records import CONFIRMED, PROOF, SAID_SUCCESS, SECOND_OPINION, StoredVerdict
from collector_processor.core.runs import CleanRun, RunTotals
from collector_processor.otlp import Tenant
from semconv.dialects import USUAL, Reader

MOST_STEPS: Final = 1_000
"""Steps in one answer; most runs have fewer than 100."""
_USUAL_STEPS: Final = 200


ReadSteps: TypeAlias = Callable[[StoredVerdict, int, int], Awaitable[dict[str, Any] | None]]
"""Returns a run with its steps of a range; ``None`` if its steps are not kept."""
ReadVersions: TypeAlias = Callable[[Tenant, str], Awaitable[Sequence[StoredVerdict]]]
"""Returns the last versions of a run's verdict, newest first."""
ReadVersion: TypeAlias = Callable[[StoredVerdict, int], Awaitable[StoredVerdict | None]]
"""Returns one version of a verdict; ``None`` if there is no such version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReads:
    """Dependencies of the routes."""

    page: Callable[[RunQuery], Awaitable[RunPage]]
    labels: Labels
    find: FindOne
    tenant_of: TenantOf
    now_ns: Callable[[], int] = time.time_ns
    second: KeptOpinions | None = None
    """``None`` if second opinions are not kept."""
    steps: ReadSteps | None = None
    """``None`` if no steps are kept."""
    versions: ReadVersions | None = None
    """``None`` if only the current version of a verdict can be read."""
    version: ReadVersion | None = None
    """Likewise."""


def run_api_routes(reads: RunReads) -> list[web.RouteDef]:
    """Return the routes."""

    async def listing(request: web.Request) -> web.Response:
        query = read_filters(request.query, reads.tenant_of(request), reads.now_ns())
        return web.json_response(page_document(await reads.page(query), query.sort))

    async def one(request: web.Request) -> web.Response:
        verdict = await reads.find(request)
        said = await reads.labels.of(verdict.tenant, verdict.run_id)
        second = reads.second
        given = await second.of(verdict.tenant, verdict.run_id) if second is not None else ()
        opinions = {"opinions": [opinion_document(one) for one in given]}
        read = reads.versions
        versions = (verdict,) if read is None else await read(verdict.tenant, verdict.run_id)
        shown = await _asked_version(reads, request, verdict)
        return web.json_response(
            {**run_document(shown), **label_document(said), **opinions, **versions_document(versions)}
        )

    async def steps(request: web.Request) -> web.Response:
        first = read_number(request, "from", 0, 0, 10**9)
        count = read_number(request, "limit", _USUAL_STEPS, 1, MOST_STEPS)
        verdict = await reads.find(request)
        document = None if reads.steps is None else await reads.steps(verdict, first, first + count)
        if document is None:
            raise web.HTTPNotFound(text="the steps of this run are not kept\n")
        return await long_answer(lambda: json.dumps(document), "application/json")

    return [
        web.get("/api/runs", listing),
        web.get("/api/runs/{run_id}", one),
        web.get("/api/runs/{run_id}/steps", steps),
    ]


async def _asked_version(reads: RunReads, request: web.Request, current: StoredVerdict) -> StoredVerdict:
    """Return the version of a verdict that the request asks for; without one, the current version.

    Raises:
        web.HTTPNotFound: there is no such version.
    """
    if "version" not in request.query:
        return current
    number = read_number(request, "version", 1, 1, 10**9)
    if number == current.version:
        return current
    found = None if reads.version is None else await reads.version(current, number)
    if found is None:
        raise web.HTTPNotFound(text=f"no such version: the current one is {current.version}\n")
    return found


def newest(
    recent: Callable[[int], Awaitable[Sequence[StoredVerdict]]],
) -> Callable[[RunQuery], Awaitable[RunPage]]:
    """Return a list of the newest runs, for a service without pages; filters only by tenant and limit."""

    async def page(query: RunQuery) -> RunPage:
        if query != RunQuery(tenant=query.tenant, limit=query.limit):
            raise web.HTTPBadRequest(text="expected limit alone: this process has no filters\n")
        found = await recent(MAX_LISTED if query.tenant else query.limit)
        of_tenant = [one for one in found if not query.tenant or one.tenant == query.tenant]
        return RunPage(rows=tuple(map(row_of, of_tenant[: query.limit])))

    return page


async def kept_steps(
    runs: RunArchive,
    clean: CleanRun,
    verdict: StoredVerdict,
    first: int = 0,
    end: int | None = None,
    *,
    reader: Reader = USUAL,
) -> dict[str, Any] | None:
    """Return steps of a run as JSON, from its spans if they are kept; ``None`` if no steps are kept."""
    return await read_steps(WholeRuns(runs, clean, reader), verdict, first, end)


async def read_steps(
    runs: WholeRuns, verdict: StoredVerdict, first: int = 0, end: int | None = None
) -> dict[str, Any] | None:
    """Return steps of a run as JSON, as ``kept_steps`` does, from runs that may be read already."""
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


__all__ = [
    "MOST_STEPS",
    "RunReads",
    "kept_steps",
    "newest",
    "page_document",
    "read_steps",
    "run_api_routes",
    "run_document",
    "steps_document",
    "versions_document",
]
