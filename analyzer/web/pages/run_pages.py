"""Pages of one run. Uses ``views/run_page.py`` and templates."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import quote

from aiohttp import web

from analyzer.inquiry.errors import AnalyzerError
from analyzer.issues.labels.correcting import KeptOpinions
from analyzer.issues.labels.kept_run import KeptRun
from analyzer.issues.labels.kept_trace import otlp_json, read_kept
from analyzer.issues.labels.run_label import LabelKind, LabelRefused, Statement
from analyzer.issues.recurrence import Issue
from analyzer.methods.choice import Offer
from analyzer.web.api import FindOne, Labels, author_of, label_document, opinion_document
from analyzer.web.guard import require_stated_origin
from analyzer.web.long_answers import long_answer
from analyzer.web.pages.front import CleanRun, Front, ShownSetting, routed
from analyzer.web.pages.prepared import PreparedPages
from analyzer.web.reads.archive import RunArchive
from analyzer.web.reads.page_records import IssueSource, RunName
from analyzer.web.reads.whole_runs import WholeRuns
from analyzer.web.requested_analyses import Jobs
from analyzer.web.run_api import read_steps, versions_document
from analyzer.web.run_list import MOST_ASKED
from analyzer.web.views.proofs import experiment_command, shown_proofs
from analyzer.web.views.run_page import MOST_APART, TraceLink, Wanted, view
from analyzer.web.views.verdict_versions import versions_of
from collector_processor.core.records import SECOND_OPINION, StoredVerdict
from collector_processor.otlp import MalformedRequestError, Tenant
from collector_processor.rebuild.kept_spans import unpack_spans
from semconv.dialects import USUAL, Reader

_NAME: Final = re.compile(r"[^A-Za-z0-9._-]+")

Document = Callable[[StoredVerdict], dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """Dependencies of the pages."""

    runs: RunArchive
    clean: CleanRun
    """Removes secrets from uploads."""
    reader: Reader = USUAL
    """Reads the spans of kept runs and of uploads."""
    jobs: Jobs | None = None
    """``None`` if nothing can be analysed from a page."""
    issues: IssueSource | None = None
    """``None`` if recurring failures are not stored."""
    trace_link: TraceLink = field(default_factory=TraceLink)
    settings: tuple[ShownSetting, ...] = ()
    second: KeptOpinions | None = None
    """Keeps second opinions; ``None`` if they are only shown."""
    card: Mapping[str, Any] = field(default_factory=dict)
    """Card of the ranker in use; empty without one."""
    now_ns: Callable[[], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageContext:
    """Dependencies of the pages that show runs."""

    front: Front
    pages: Pages
    labels: Labels
    find: FindOne
    tenant: Callable[[web.Request], Tenant]
    document: Document
    whole: WholeRuns
    """Reads kept runs."""
    prepared: PreparedPages


def run_routes(context: PageContext) -> list[web.RouteDef]:
    """Return the routes of a run."""
    return routed(
        context,
        ("GET", "/runs/{run_id}", _one),
        ("GET", "/runs/{run_id}/report.html", _report),
        ("GET", "/runs/{run_id}/run.json", _export),
        ("GET", "/api/runs/{run_id}/otlp", _otlp),
        ("POST", "/runs/{run_id}/label", _label),
    )


async def issues_of(context: PageContext, runs: Sequence[RunName]) -> Mapping[RunName, Issue]:
    """Return the recurring failures of runs."""
    source = context.pages.issues
    return await source.of_runs(runs) if source is not None and runs else {}


async def _one(context: PageContext, request: web.Request) -> web.Response:
    return await show_run(context, request)


async def show_run(context: PageContext, request: web.Request, refused: str = "") -> web.Response:
    """Return the page of a run; ``refused`` says why it was not analysed again."""
    verdict = await context.find(request)
    wanted = read_wanted(request.query)
    said = await context.labels.of(verdict.tenant, verdict.run_id)
    document = context.document(verdict)
    read = await context.whole.of(verdict)
    prepared = None if read is None else await context.prepared.run(read.whole, document, wanted)
    shown = None if prepared is None else prepared.shown
    name = (verdict.tenant, verdict.run_id)
    runs = context.pages.runs
    row = next(iter(await runs.rows([name])), None)
    of_service = await runs.proofs_of_service(verdict.tenant, verdict.service)
    return await context.front.show(
        request,
        "run.html",
        run=document,
        shown=shown,
        steps=None if prepared is None else prepared.steps,
        find=wanted.find,
        spans=None if read is None else read.kept.spans,
        versions=versions_of(await context.pages.runs.versions(*name)),
        issue=(await issues_of(context, [name])).get(name),
        workflow=None if row is None or row.totals is None else row.totals.workflow,
        tenant=verdict.tenant,
        labels=label_document(said),
        arms=await runs.trial_arms(*name),
        command=experiment_command(verdict.run_id, of_service),
        proofs=shown_proofs(await runs.proofs(*name)),
        opinions=await _opinions(context, verdict),
        is_second_opinion=verdict.fields.get(SECOND_OPINION) is True,
        trace_link=context.pages.trace_link,
        trace_url=context.pages.trace_link.to(
            document.get("trace_id") or verdict.trace_id, document.get("span_id")
        ),
        chance=await chance_of(context.front.jobs) if shown and shown.has_texts else None,
        refused=refused,
    )


async def _opinions(context: PageContext, verdict: StoredVerdict) -> list[dict[str, Any]]:
    """Return the second opinions on a run, newest first."""
    second = context.pages.second
    found = await second.of(verdict.tenant, verdict.run_id) if second is not None else ()
    return [opinion_document(one) for one in found]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chance:
    """The choices for analyses from a page, or the reason why there are none."""

    offer: Offer | None = None
    obstacle: str = ""
    """The reason if there is no offer."""


async def chance_of(jobs: Jobs | None) -> Chance:
    """Return the choices for analyses on a page, or the obstacle."""
    if jobs is None:
        return Chance(obstacle="Nothing can be analysed from this page: no analyzer is configured.")
    try:
        return Chance(offer=await jobs.opinions.offer())
    except AnalyzerError as error:
        return Chance(obstacle=f"No analyzer answers at the moment ({error}). Try again in a minute.")


async def kept_run(context: PageContext, verdict: StoredVerdict) -> KeptRun | None:
    """Return the run's steps if they are kept and readable."""
    runs = context.pages.runs
    spans = await runs.kept_spans(verdict.tenant, verdict.run_id)
    steps = await runs.kept(verdict.tenant, verdict.run_id)
    if spans is None and steps is None:
        return None
    return await asyncio.to_thread(
        read_kept, verdict, spans, steps, context.pages.clean, context.pages.reader
    )


def read_wanted(query: Mapping[str, str]) -> Wanted:
    """Read the part of a run to show.

    Raises:
        web.HTTPBadRequest: a parameter is invalid.
    """
    find = query.get("find", "").strip()
    if len(find) > MOST_ASKED:
        raise web.HTTPBadRequest(text=f"find: expected at most {MOST_ASKED} characters\n")
    first, step, full = (_number(query, name) for name in ("from", "step", "full"))
    return Wanted(first=first, step=step, full=full, find=find)


def _number(query: Mapping[str, str], name: str) -> int | None:
    """Read the number of a step.

    Raises:
        web.HTTPBadRequest: it is not a number.
    """
    text = query.get(name, "")
    if text and not (text.isascii() and text.isdigit() and len(text) < 10):
        raise web.HTTPBadRequest(text=f"{name}: expected the number of a step\n")
    return int(text) if text else None


async def _report(context: PageContext, request: web.Request) -> web.Response:
    """Return a self-contained report page, to attach to a ticket or archive."""
    verdict = await context.find(request)
    document = context.document(verdict)
    read = await context.whole.of(verdict)
    wanted = Wanted(room=MOST_APART)

    def make() -> str:
        return context.front.renderer.text(
            "report.html",
            run=document,
            shown=None if read is None else view(read.whole, document, wanted),
            style=context.front.renderer.style(),
            made_ns=context.pages.now_ns(),
        )

    return await long_answer(make, "text/html", headers=attachment(verdict.run_id, "html"))


async def _export(context: PageContext, request: web.Request) -> web.Response:
    verdict = await context.find(request)
    said = await context.labels.of(verdict.tenant, verdict.run_id)
    opinions = {"opinions": await _opinions(context, verdict)}
    versions = versions_document(await context.pages.runs.versions(verdict.tenant, verdict.run_id))
    steps = {"run": await read_steps(context.whole, verdict)}
    document = {**context.document(verdict), **label_document(said), **opinions, **versions, **steps}

    def make() -> str:
        # Escaped, so that a program that guesses the content type finds no HTML tag.
        return json.dumps(document, indent=2).replace("<", "\\u003c")

    return await long_answer(make, "application/json", headers=attachment(verdict.run_id, "json"))


async def _otlp(context: PageContext, request: web.Request) -> web.Response:
    """Return a run's kept spans and logs."""
    verdict = await context.find(request)
    packed = await context.pages.runs.kept_spans(verdict.tenant, verdict.run_id)
    if packed is None:
        raise web.HTTPNotFound(text="the spans of this run are not kept\n")
    headers = attachment(f"{verdict.run_id}.otlp", "json")
    try:
        return await long_answer(lambda: otlp_json(unpack_spans(packed)), "application/json", headers=headers)
    except MalformedRequestError as error:
        raise web.HTTPNotFound(text=f"{error}\n") from error


def attachment(name: str, ending: str) -> dict[str, str]:
    """Return the headers of a download; the name is a run's id, which a trace may have chosen."""
    safe = _NAME.sub("-", name)[:80].strip(".-") or "run"
    return {"Content-Disposition": f'attachment; filename="blamespan-{safe}.{ending}"'}


async def _label(context: PageContext, request: web.Request) -> web.StreamResponse:
    """Store a label from the page's form, and show the run again with the result."""
    require_stated_origin(request)
    form = await request.post()
    statement = read_form({name: str(value) for name, value in form.items()})
    verdict = await context.find(request)
    try:
        await context.labels.give(verdict, replace(statement, author=author_of(request)))
    except LabelRefused as refusal:
        raise web.HTTPUnprocessableEntity(text=f"{refusal}\n") from refusal
    if form.get("next") == "queue":
        raise web.HTTPSeeOther("/queue?said=label")
    raise web.HTTPSeeOther(f"/runs/{quote(verdict.run_id, safe='')}?said=label#verdict")


def read_form(form: dict[str, str]) -> Statement:
    """Read a label from the page's form.

    Raises:
        web.HTTPBadRequest: the form holds no label.
    """
    simple = {"right": LabelKind.CONFIRMED, "wrong": LabelKind.REJECTED, "passed": LabelKind.NOT_A_FAILURE}
    answer, step, why = form.get("answer", ""), form.get("step", ""), form.get("why", "")
    if answer in simple:
        return Statement(kind=simple[answer], why=why)
    if answer == "step" and step.isascii() and step.isdigit() and len(step) < 10:
        return Statement(kind=LabelKind.CORRECTED, step=int(step), why=why)
    raise web.HTTPBadRequest(text="expected: right, wrong, passed, or step with the number of a step\n")
