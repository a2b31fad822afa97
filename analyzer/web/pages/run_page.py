"""The page of one run: picture, steps, versions of its verdict, labels and downloads. Not pure.

All steps are listed; the texts of those that matter are on the page, the others' are requested when a step is
opened (``step_page.py``), so that a run of a thousand steps is a small page. Links to the run's trace lead to
Jaeger, and to Grafana with Tempo.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import quote

from aiohttp import web
from markupsafe import Markup

from analyzer.inquiry.errors import AnalyzerError
from analyzer.inquiry.visible import visible_run
from analyzer.inquiry.whole_run import WholeRun, whole_steps
from analyzer.issues.labels.kept_trace import otlp_json
from analyzer.issues.labels.run_label import LabelKind, LabelRefused, Statement
from analyzer.issues.recurrence import Issue
from analyzer.methods.choice import Offer
from analyzer.web.api import (
    author_of,
    label_document,
    opinions_of,
    read_steps,
    run_document,
    versions_document,
)
from analyzer.web.front import PageContext, TraceLink, routed
from analyzer.web.guard import require_stated_origin
from analyzer.web.pages.issue_page import experiment_command, shown_proofs, source_of
from analyzer.web.pages.picture import Clock, draw, lanes_of, name_board, overview
from analyzer.web.pages.step_page import (
    WINDOW,
    Rows,
    ShownStep,
    ShownStretch,
    Wanted,
    finds,
    quotes_of,
    suspicion_of,
)
from analyzer.web.pages.step_texts import MOST_TEXT, shown_text
from analyzer.web.reads.run_query import MOST_ASKED, RunName
from analyzer.web.remembered import PreparedParts
from analyzer.web.rendering import long_answer
from analyzer.web.requested_analyses import Jobs
from collector_processor.core.records import EXPERIMENT, SECOND_OPINION, StoredVerdict
from collector_processor.otlp import MalformedRequestError
from collector_processor.rebuild.kept_spans import unpack_spans
from semconv.model import SpanStatus, Status, Trajectory, agent_label

_FIELDS: Final = ("run_id", "status", "step", "confidence", "ranking", "evidence")
"""Fields of a verdict that the list of steps depends on."""
_NAME: Final = re.compile(r"[^A-Za-z0-9._-]+")
MOST_ROWS: Final = 1_000
"""Number of steps listed on one page."""
MOST_APART: Final = 2_000_000
"""Characters of steps' texts on a page that cannot request further texts."""
_BEFORE: Final = 150
"""Number of steps listed before the decisive one if not all fit."""
WHOLE: Final = Wanted()
_WORDS: Final = {
    Status.NO_FAILURE: "no failure",
    Status.UNDETERMINED: "undetermined",
    Status.WAITING: "waiting",
    Status.CANCELLED: "cancelled",
    Status.UNREADABLE: "not readable",
    Status.ERROR: "not analysed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _PreparedRun:
    """A run's view and its list of steps."""

    shown: RunView
    steps: Markup


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
    labels = await context.labels.of(verdict.tenant, verdict.run_id)
    document = run_document(verdict)
    read = await context.whole.of(verdict)
    prepared = (
        None
        if read is None
        else await prepared_run(context.prepared, context.pages.trace_link, read.whole, document, wanted)
    )
    shown = None if prepared is None else prepared.shown
    name = (verdict.tenant, verdict.run_id)
    runs = context.pages.runs
    row = next(iter(await runs.rows([name])), None)
    of_service = await runs.proofs_of_service(verdict.tenant, verdict.service)
    source = source_of(document, verdict.run_id)
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
        labels=label_document(labels),
        arms=await runs.trial_arms(*name),
        source=source,
        command=experiment_command(source, of_service),
        proofs=shown_proofs(await runs.proofs(*name)),
        opinions=await opinions_of(context, verdict),
        is_second_opinion=verdict.fields.get(SECOND_OPINION) is True,
        trace_link=context.pages.trace_link,
        trace_url=context.pages.trace_link.to(
            document.get("trace_id") or verdict.trace_id, document.get("span_id")
        ),
        chance=await chance_of(context.front.jobs) if shown and shown.has_texts else None,
        refused=refused,
    )


async def prepared_run(
    parts: PreparedParts, link: TraceLink, whole: WholeRun, document: Mapping[str, Any], wanted: Wanted
) -> _PreparedRun:
    """Return a part of a run, with a verdict; made once for each run, part and verdict."""

    def make() -> tuple[_PreparedRun, int]:
        shown = view(whole, document, wanted)
        steps = parts.render("_steps.html", run=document, shown=shown, pager=True, trace_link=link)
        return _PreparedRun(shown=shown, steps=Markup(steps)), len(steps)  # noqa: S704 - from a template

    verdict = json.dumps([document.get(name) for name in _FIELDS])
    return await parts.of((id(whole), verdict, wanted), (whole,), make)


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
    document = run_document(verdict)
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
    labels = await context.labels.of(verdict.tenant, verdict.run_id)
    opinions = {"opinions": await opinions_of(context, verdict)}
    versions = versions_document(await context.pages.runs.versions(verdict.tenant, verdict.run_id))
    steps = {"run": await read_steps(context.whole, verdict)}
    document = {**run_document(verdict), **label_document(labels), **opinions, **versions, **steps}

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The part of a long run that one page shows."""

    first: int
    end: int
    total: int

    @property
    def before(self) -> int | None:
        """First step of the previous part, if there is one."""
        return max(0, self.first - MOST_ROWS) if self.first else None

    @property
    def after(self) -> int | None:
        """First step of the next part, if there is one."""
        return self.end if self.end < self.total else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over a run's steps; ``None`` where no step says."""

    seconds: float
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    errors: int
    first_error: int | None

    @property
    def has_numbers(self) -> bool:
        """Whether any step has a time, tokens or a cost."""
        return bool(self.seconds) or self.tokens is not None or self.cost_usd is not None

    @property
    def tokens(self) -> int | None:
        """Tokens read and written."""
        known = [one for one in (self.input_tokens, self.output_tokens) if one is not None]
        return sum(known) if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """A run's steps and picture."""

    task: str
    output: str
    reference: str
    """The expected answer; empty if not recorded."""
    stretches: tuple[ShownStretch, ...]
    picture: str
    """SVG with all text escaped; empty for a long run."""
    board: str
    """SVG of its lanes' names, escaped likewise."""
    overview: str
    """SVG of the whole run; empty for a short one."""
    window: Window
    agents: tuple[str, ...]
    totals: Totals
    has_texts: bool
    found: int | None = None
    """Number of steps that contain what was searched for; ``None`` without a search."""

    @property
    def steps(self) -> tuple[ShownStep, ...]:
        """The listed steps, in order."""
        return tuple(step for stretch in self.stretches for step in stretch.steps)


def view(run: Trajectory | WholeRun, verdict: Mapping[str, Any], wanted: Wanted = WHOLE) -> RunView:
    """Return the view of a run."""
    whole = run if isinstance(run, WholeRun) else whole_steps(run, lambda one: one)
    if not isinstance(run, WholeRun):  # an upload
        wanted = replace(wanted, room=MOST_APART)
    trajectory = visible_run(whole.trajectory)
    suspicion = suspicion_of(verdict)
    found = None if not wanted.find else finds(whole.steps, wanted.find)
    at = wanted.step if wanted.step is not None else suspicion.decisive
    window = _window(len(trajectory.steps), at, wanted.first)
    listed = list(trajectory.steps if found is not None else trajectory.steps[window.first : window.end])
    if found is not None:
        listed = [step for step in listed if step.index in found][:MOST_ROWS]
        window = Window(first=0, end=len(trajectory.steps), total=len(trajectory.steps))
    is_short = len(trajectory.steps) <= WINDOW
    rows = Rows(whole=whole, clock=Clock.of(whole.trajectory.steps), suspicion=suspicion, wanted=wanted)
    return RunView(
        task=_cut(trajectory.task),
        output=_cut(trajectory.output),
        reference=_cut(trajectory.reference or ""),
        stretches=tuple(rows.stretches(listed, quotes_of(verdict), found)),
        picture=draw(trajectory.steps, suspicion) if is_short else "",
        board=name_board(trajectory.steps, suspicion) if is_short else "",
        overview="" if is_short else overview(trajectory.steps, suspicion),
        window=window,
        agents=lanes_of(trajectory.steps),
        totals=totals_of(whole),
        has_texts=any(step.output or step.input or step.error for step in trajectory.steps),
        found=None if found is None else len(found),
    )


def totals_of(run: WholeRun) -> Totals:
    """Return the sums over a run's steps."""
    steps = run.steps
    failed = [step.index for step in steps if step.status is SpanStatus.ERROR]
    costs = [step.cost_usd for step in steps if step.cost_usd is not None]
    return Totals(
        seconds=Clock.of(run.trajectory.steps).seconds,
        input_tokens=_sum(step.input_tokens for step in steps),
        output_tokens=_sum(step.output_tokens for step in steps),
        cost_usd=sum(costs) if costs else None,
        errors=len(failed),
        first_error=failed[0] if failed else None,
    )


def _sum(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _window(total: int, at: int | None, first: int | None) -> Window:
    if first is None:
        at = at or 0
        first = 0 if at < MOST_ROWS else at - _BEFORE
    first = min(max(0, first), max(0, total - 1))
    return Window(first=first, end=min(total, first + MOST_ROWS), total=total)


def _cut(text: str) -> str:
    text = shown_text(text)
    return text if len(text) <= MOST_TEXT else text[:MOST_TEXT] + " […]"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownVersion:
    """One version of a verdict."""

    version: int
    said: str
    """The agent to blame, else the status."""
    step: int | None
    confidence: float | None
    failed_probability: float | None
    author: str
    """A person, an experiment, or a method with its model."""
    reason: str
    decided_ns: int
    changed: tuple[str, ...]
    """Differences from the version before it; empty for the first one."""


def versions_of(verdicts: Sequence[StoredVerdict]) -> tuple[ShownVersion, ...]:
    """Return the versions, newest first, from the verdicts in the same order."""
    before = [*verdicts[1:], None]
    return tuple(_version(verdict, earlier) for verdict, earlier in zip(verdicts, before, strict=False))


def _version(verdict: StoredVerdict, earlier: StoredVerdict | None) -> ShownVersion:
    fields = verdict.fields
    return ShownVersion(
        version=verdict.version,
        said=agent_label(verdict.agent) if verdict.agent else _version_status(verdict),
        step=verdict.step if verdict.agent else None,
        confidence=_share(fields.get("confidence")),
        failed_probability=_share(fields.get("failed_probability")),
        author=_version_author(verdict),
        reason=str(fields.get("reason") or ""),
        decided_ns=verdict.decided_ns,
        changed=tuple(_version_changes(verdict, earlier)) if earlier else (),
    )


def _share(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _version_status(verdict: StoredVerdict) -> str:
    return {status.value: word for status, word in _WORDS.items()}.get(verdict.status, verdict.status)


def _version_author(verdict: StoredVerdict) -> str:
    if verdict.is_by_person:
        return "a person"
    fields: Any = verdict.fields
    if fields.get("method") == EXPERIMENT:
        return "an experiment"
    model = f" with {fields['model']}" if fields.get("model") else ""
    asked = "a second opinion: " if fields.get(SECOND_OPINION) is True else ""
    so_far = " (while the run was in progress)" if verdict.is_provisional else ""
    return f"{asked}{fields.get('method') or 'an unknown method'}{model}{so_far}"


def _version_changes(verdict: StoredVerdict, earlier: StoredVerdict) -> Iterator[str]:
    if verdict.status != earlier.status:
        yield "status"
    if verdict.agent != earlier.agent:
        yield "agent"
    if (verdict.step, verdict.span_id) != (earlier.step, earlier.span_id):
        yield "step"
    if verdict.fields.get("method") != earlier.fields.get("method"):
        yield "method"
