"""The pages for people: which runs there were, and one of them. A shell around ``run_view`` and templates."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, urlencode

from aiohttp import web

from analyzer.errors import AnalyzerError, UnreadableInput
from analyzer.labels import LabelKind, LabelRefused, Said
from analyzer.labels.kept_run import KeptRun, unpack
from analyzer.opinion import Offer
from analyzer.recurrence import Issue
from analyzer.web.front import CleanRun, routed
from analyzer.web.guard import require_stated_origin
from analyzer.web.jobs import Jobs
from analyzer.web.labels import FindOne, Labels, label_document
from analyzer.web.links import TraceLinks
from analyzer.web.rendering import Renderer
from analyzer.web.run_view import RunView, view
from analyzer.web.sessions import Sessions
from analyzer.web.settings_shown import ShownSetting
from analyzer.web.sources import IssueSource, RunKey, RunName, RunQuery, RunSource
from collector_processor.otlp import Tenant
from collector_processor.stored import StoredVerdict
from collector_processor.stores import StoreError
from semconv.model import Status

PER_PAGE: Final = 50
MOST_ASKED: Final = 200
"""Characters of a search."""
_NAME: Final = re.compile(r"[^A-Za-z0-9._-]+")

Document = Callable[[StoredVerdict], dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """What the pages are made from."""

    runs: RunSource
    clean: CleanRun
    """Takes secrets out of what was uploaded."""
    jobs: Jobs | None = None
    """``None``: nothing can be analysed from a page."""
    issues: IssueSource | None = None
    """``None``: recurring failures are not kept."""
    links: TraceLinks = field(default_factory=TraceLinks)
    settings: tuple[ShownSetting, ...] = ()
    now_ns: Callable[[], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """What every page's handler needs, made once."""

    pages: Pages
    renderer: Renderer
    sessions: Sessions
    labels: Labels
    find: FindOne
    tenant: Callable[[web.Request], Tenant]
    document: Document
    has_token: bool

    async def show(self, request: web.Request, template: str, **values: Any) -> web.Response:
        """Return a page within the frame that all have."""
        return await self.renderer.page(
            template, here=request.path, can_sign_out=self.has_token, said=request.query.get("said"), **values
        )


def run_routes(desk: Desk) -> list[web.RouteDef]:
    """Return the routes of the list and of a run."""
    return routed(
        desk,
        ("GET", "/", _home),
        ("GET", "/runs", _listed),
        ("GET", "/runs/{run_id}", _one),
        ("GET", "/runs/{run_id}/report.html", _report),
        ("GET", "/runs/{run_id}/run.json", _export),
        ("POST", "/runs/{run_id}/label", _label),
    )


async def _home(_desk: Desk, _request: web.Request) -> web.StreamResponse:
    raise web.HTTPSeeOther("/runs")


async def _listed(desk: Desk, request: web.Request) -> web.Response:
    query = read_query(request.query, desk.tenant(request))
    page = await desk.pages.runs.page(query)
    asked = {
        "q": query.text,
        "status": query.status.value if query.status else "",
        "service": query.service,
        "agent": query.agent,
    }
    more = None
    if page.next is not None:
        chosen = {name: value for name, value in asked.items() if value}
        more = "?" + urlencode({**chosen, "after": write_key(page.next)})
    template = "rows.html" if request.query.get("part") == "rows" else "runs.html"
    return await desk.show(
        request,
        template,
        page=page,
        issues=await _issues_of(desk, [(row.key.tenant, row.key.run_id) for row in page.rows if row.agent]),
        asked=asked,
        more=more,
        is_first=query.before is None,
        statuses=tuple(Status),
    )


async def _issues_of(desk: Desk, runs: Sequence[RunName]) -> Mapping[RunName, Issue]:
    """Return the recurring failures that runs belong to."""
    source = desk.pages.issues
    return await source.of_runs(runs) if source is not None and runs else {}


def read_query(asked: Any, tenant: Tenant) -> RunQuery:
    """Read what a list was asked for.

    Raises:
        web.HTTPBadRequest: something in it is none of what can be asked.
    """
    status, text = asked.get("status", ""), asked.get("q", "").strip()
    if status and status not in set(Status):
        raise web.HTTPBadRequest(text=f"status: expected one of {', '.join(Status)}\n")
    if len(text) > MOST_ASKED:
        raise web.HTTPBadRequest(text=f"q: expected at most {MOST_ASKED} characters\n")
    return RunQuery(
        tenant=tenant,
        status=Status(status) if status else None,
        text=text,
        service=asked.get("service", "")[:MOST_ASKED],
        agent=asked.get("agent", "")[:MOST_ASKED],
        before=read_key(asked["after"]) if asked.get("after") else None,
        limit=PER_PAGE,
    )


def write_key(key: RunKey) -> str:
    """Return a place in the list as a word for an address."""
    packed = json.dumps([key.decided_ns, key.tenant, key.run_id]).encode()
    return base64.urlsafe_b64encode(packed).decode().rstrip("=")


def read_key(word: str) -> RunKey:
    """Read a place in the list.

    Raises:
        web.HTTPBadRequest: it is none of ours.
    """
    try:
        decided, tenant, run_id = json.loads(base64.urlsafe_b64decode(word + "=" * (-len(word) % 4)))
    except (ValueError, TypeError, RecursionError) as error:
        raise web.HTTPBadRequest(text="after: expected the word from a page's link\n") from error
    if not (isinstance(decided, int) and isinstance(tenant, str) and isinstance(run_id, str)):
        raise web.HTTPBadRequest(text="after: expected the word from a page's link\n")
    if not 0 <= decided < 1 << 63 or not (tenant + run_id).isprintable():
        raise web.HTTPBadRequest(text="after: expected the word from a page's link\n")
    return RunKey(decided_ns=decided, tenant=Tenant(tenant), run_id=run_id)


async def _one(desk: Desk, request: web.Request) -> web.Response:
    verdict = await desk.find(request)
    first = request.query.get("from", "")
    if first and not (first.isascii() and first.isdigit() and len(first) < 10):
        raise web.HTTPBadRequest(text="from: expected the number of a step\n")
    said = await desk.labels.of(verdict.tenant, verdict.run_id)
    document = desk.document(verdict)
    shown = await _view(desk, verdict, document, int(first) if first else None)
    name = (verdict.tenant, verdict.run_id)
    return await desk.show(
        request,
        "run.html",
        run=document,
        shown=shown,
        issue=(await _issues_of(desk, [name])).get(name),
        labels=label_document(said),
        links=desk.pages.links.to(document.get("trace_id") or verdict.trace_id, document.get("span_id")),
        chance=await chance_of(desk.pages.jobs) if shown and shown.has_texts else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Chance:
    """Whether something can be analysed from a page now."""

    offer: Offer | None = None
    obstacle: str = ""
    """Why not, where there is no offer."""


async def chance_of(jobs: Jobs | None) -> Chance:
    """Return what can be chosen on a page, or what stands in the way."""
    if jobs is None:
        return Chance(obstacle="Nothing can be analysed from this page: no analyzer is set.")
    try:
        return Chance(offer=await jobs.opinions.offer())
    except AnalyzerError as error:
        return Chance(obstacle=f"No analyzer answers at the moment ({error}). Look again in a minute.")


async def kept_run(desk: Desk, verdict: StoredVerdict) -> KeptRun | None:
    """Return the run's steps where they are kept and can be read."""
    packed = await desk.pages.runs.kept(verdict.tenant, verdict.run_id)
    if packed is None:
        return None
    try:
        return await asyncio.to_thread(unpack, packed)
    except UnreadableInput:
        return None


async def _view(
    desk: Desk, verdict: StoredVerdict, document: dict[str, Any], first: int | None
) -> RunView | None:
    kept = await kept_run(desk, verdict)
    return None if kept is None else await asyncio.to_thread(view, kept.trajectory, document, first)


async def _report(desk: Desk, request: web.Request) -> web.Response:
    """A page that stands alone: to be attached to a ticket, and read in years."""
    verdict = await desk.find(request)
    document = desk.document(verdict)
    text = await asyncio.to_thread(
        desk.renderer.text,
        "report.html",
        run=document,
        shown=await _view(desk, verdict, document, None),
        style=desk.renderer.style(),
        made_ns=desk.pages.now_ns(),
    )
    return web.Response(text=text, content_type="text/html", headers=attachment(verdict.run_id, "html"))


async def _export(desk: Desk, request: web.Request) -> web.Response:
    verdict = await desk.find(request)
    said = await desk.labels.of(verdict.tenant, verdict.run_id)
    document = {**desk.document(verdict), **label_document(said)}
    # Whatever opens it and however it guesses, there is no tag in it.
    text = json.dumps(document, ensure_ascii=False, indent=2).replace("<", "\\u003c")
    return web.Response(
        text=text, content_type="application/json", headers=attachment(verdict.run_id, "json")
    )


def attachment(name: str, ending: str) -> dict[str, str]:
    """Return the headers of a download; the name is a run's id, which a trace may have chosen."""
    safe = _NAME.sub("-", name)[:80].strip(".-") or "run"
    return {"Content-Disposition": f'attachment; filename="blamespan-{safe}.{ending}"'}


async def _label(desk: Desk, request: web.Request) -> web.StreamResponse:
    """Take a label from the page's form, and show the run again with what became of it."""
    require_stated_origin(request)
    form = await request.post()
    said = read_form({name: str(value) for name, value in form.items()})
    verdict = await desk.find(request)
    try:
        await desk.labels.give(verdict, said)
        outcome = "label"
    except LabelRefused as refusal:
        raise web.HTTPUnprocessableEntity(text=f"{refusal}\n") from refusal
    except StoreError as error:
        raise web.HTTPServiceUnavailable(text=f"{error}\n") from error
    raise web.HTTPSeeOther(f"/runs/{quote(verdict.run_id, safe='')}?said={outcome}#verdict")


def read_form(form: dict[str, str]) -> Said:
    """Read a label from the page's form.

    Raises:
        web.HTTPBadRequest: it says nothing of the kind.
    """
    simple = {"right": LabelKind.CONFIRMED, "wrong": LabelKind.REJECTED, "passed": LabelKind.NOT_A_FAILURE}
    answer, step = form.get("answer", ""), form.get("step", "")
    if answer in simple:
        return Said(kind=simple[answer])
    if answer == "step" and step.isascii() and step.isdigit() and len(step) < 10:
        return Said(kind=LabelKind.CORRECTED, step=int(step))
    raise web.HTTPBadRequest(text="expected: right, wrong, passed, or step with the number of a step\n")
