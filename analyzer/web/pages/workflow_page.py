"""Pages and API of workflows: how often they succeed, and what they always do. Not pure."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import quote

from aiohttp import web
from multidict import MultiMapping

from analyzer.history.mining import LEAST_RUNS
from analyzer.history.spectrum import Said
from analyzer.history.versions import Decision
from analyzer.issues.issue_service import WORKFLOWS_EVERY_S
from analyzer.issues.workflow_reports import (
    NO_WORKFLOW,
    AlwaysReport,
    ChangeReport,
    VersionReport,
    WorkflowRefused,
    WorkflowReport,
    listed_json,
    to_json,
)
from analyzer.telemetry.metric_table import MAX_WORKFLOWS
from analyzer.web.front import PageContext, TenantOf, routed
from analyzer.web.pages.issue_page import change_words, share_words
from analyzer.web.reads.issue_reads import ShownWorkflow, ShownWorkflows, WorkflowReader
from analyzer.web.reads.run_query import MOST_ASKED
from analyzer.web.rendering import long_answer, workflow_path
from collector_processor.otlp import Tenant
from semconv.record import record

_MINUTES: Final = WORKFLOWS_EVERY_S // 60
_COMPARED: Final[Mapping[Decision, str]] = {
    Decision.EQUAL: "behaves like the version before",
    Decision.DIFFERENT: "behaves differently from the version before",
    Decision.UNKNOWN: "too few runs to compare with the version before",
}
T = TypeVar("T")
_NAMES_ASKED: Final = ["service", "workflow"]
_NAMES_EXPECTED: Final = "expected ?service=NAME&workflow=NAME; a name may be empty\n"


def workflow_pages(context: PageContext) -> list[web.RouteDef]:
    """Return the routes."""
    return routed(context, ("GET", "/workflows", _workflows), ("GET", "/workflow", _workflow))


async def _workflows(context: PageContext, request: web.Request) -> web.StreamResponse:
    workflows, refused = None, ""
    if context.workflows is not None:
        try:
            workflows = await context.workflows.listed(context.tenant(request))
        except WorkflowRefused as refusal:
            refused = str(refusal)
    return await context.front.show(
        request,
        "workflows.html",
        found=workflows,
        rows=() if workflows is None else tuple(map(workflow_row, workflows.reports)),
        refused=refused,
        is_cut=_is_cut(workflows),
        most=MAX_WORKFLOWS,
        minutes=_MINUTES,
    )


def _is_cut(workflows: ShownWorkflows | None) -> bool:
    return workflows is not None and len(workflows.reports) >= MAX_WORKFLOWS


async def _workflow(context: PageContext, request: web.Request) -> web.StreamResponse:
    """Show one workflow. The list names the tenant too, but a tenant's header takes precedence."""
    query, source = request.query, context.workflows
    tenant = context.tenant(request) or Tenant(query.get("tenant", ""))
    names = query.get("service", ""), query.get("workflow", "")
    workflow = None if source is None else await answered(source.find(tenant, *names))
    if workflow is None:
        raise web.HTTPNotFound(text=f"{NO_WORKFLOW}\n")
    return await context.front.show(request, "workflow.html", shown=workflow_view(workflow), minutes=_MINUTES)


@record
class WorkflowRow:
    """A workflow in the list."""

    report: WorkflowReport
    name: str
    path: str
    passed: str
    """Runs that passed, of those with a known outcome; empty if none has one."""
    newest: str
    """Name of its newest version."""
    compared: str
    """That version against the one before."""
    alarm: str
    """How much more often it fails; empty unless it is an alarm."""
    change: str
    """The last change of the share of passing runs; empty without any."""
    changed_ns: int


@record
class VersionRow:
    """A version of a workflow."""

    name: str
    one: VersionReport
    passed: str
    compared: str
    reason: str
    """What the comparison rests on; empty for the first version."""


@record
class RuleRow:
    """Something that a workflow always does, as a sentence."""

    said: str
    one: AlwaysReport


@record
class IssueRow:
    """The part of an issue in a fall."""

    issue: str
    """Empty for failures of no issue."""
    title: str
    part: str


@record
class ChangeRow:
    """A change of the share of passing runs."""

    at_ns: int
    said: str
    issues: tuple[IssueRow, ...]


@record
class WorkflowView:
    """The page of one workflow."""

    row: WorkflowRow
    rules: tuple[RuleRow, ...]
    nothing: str
    """Why there is no rule; empty if there are some."""
    mined: int
    """Passing runs that the rules are mined from."""
    versions: tuple[VersionRow, ...]
    """Newest first."""
    changes: tuple[ChangeRow, ...]
    """Newest first."""
    runs: str
    """Path of the list of its runs; empty if its names cannot be asked for."""
    read_ns: int


def workflow_row(report: WorkflowReport) -> WorkflowRow:
    """Return a workflow as a row of the list."""
    newest = report.versions[-1] if report.versions else None
    last = report.changes[-1] if report.changes else None
    return WorkflowRow(
        report=report,
        name=report.workflow or "(no name)",
        path=workflow_path(report.service, report.workflow, report.tenant),
        passed=_passed(report.said),
        newest="" if newest is None else _version(newest),
        compared="not known" if newest is None else _compared(newest, "the only version"),
        alarm=_alarm(report),
        change=change_words(last.point) if last is not None else "",
        changed_ns=last.at_ns if last is not None else 0,
    )


def workflow_view(shown: ShownWorkflow) -> WorkflowView:
    """Return the view of one workflow."""
    report = shown.report
    return WorkflowView(
        row=workflow_row(report),
        rules=tuple(RuleRow(said=_rule(always_report), one=always_report) for always_report in report.always),
        nothing="" if report.always else _nothing(len(report.basis)),
        mined=len(report.basis),
        versions=tuple(map(_version_row, reversed(report.versions))),
        changes=tuple(_change_row(change, shown.titles) for change in reversed(report.changes)),
        runs=_runs(report),
        read_ns=shown.read_ns,
    )


def _passed(said: Mapping[str, int]) -> str:
    known = said[Said.PASSED] + said[Said.FAILED]
    return share_words((said[Said.PASSED], known)) if known else ""


def _version(report: VersionReport) -> str:
    return report.release or report.version


def _compared(report: VersionReport, first: str) -> str:
    return first if report.against_before is None else _COMPARED[report.against_before.decision]


def _alarm(report: WorkflowReport) -> str:
    newest = report.newest
    if newest is None or not newest.is_alarm:
        return ""
    return f"{share_words(newest.after)} runs fail, before it {share_words(newest.before)}"


def _rule(report: AlwaysReport) -> str:
    return f"In {report.support} of {report.runs} passing runs {report.rule}."


def _nothing(passed: int) -> str:
    """Return what is needed before a workflow's rules are known."""
    if passed < LEAST_RUNS:
        return (
            f"Not known yet: it takes {LEAST_RUNS} passing runs with known steps, and there are {passed}."
            " A run passes if an evaluator, a check, a rule or a person says so."
        )
    return f"Its {passed} passing runs have nothing in common that says more than their calls themselves."


def _version_row(report: VersionReport) -> VersionRow:
    before = report.against_before
    return VersionRow(
        name=_version(report),
        one=report,
        passed=_passed(report.said) or "-",
        compared=_compared(report, "the first version"),
        reason="" if before is None else before.reason,
    )


def _change_row(report: ChangeReport, titles: Mapping[str, str]) -> ChangeRow:
    return ChangeRow(
        at_ns=report.at_ns,
        said=change_words(report.point),
        issues=tuple(
            IssueRow(
                issue=issue.issue,
                title=titles.get(issue.issue, issue.issue) or "failures of no issue",
                part=f"{100 * issue.part:.0f} % of the rise in failures: {share_words(issue.before)} before,"
                f" {share_words(issue.after)} since",
            )
            for issue in report.issues
        ),
    )


def _runs(report: WorkflowReport) -> str:
    """Return the path of the list of a workflow's runs, which takes only short and printable names."""
    names: Sequence[tuple[str, str]] = (("service", report.service), ("workflow", report.workflow))
    asked = [f"{name}={quote(value, safe='')}" for name, value in names if value]
    can_ask = all(value.isprintable() and len(value) <= MOST_ASKED for _, value in names)
    return f"/runs?{'&'.join(asked)}" if asked and can_ask else ""


def workflow_routes(workflows: WorkflowReader, tenant_of: TenantOf) -> list[web.RouteDef]:
    """Return the routes; ``tenant_of`` returns the tenant of a request's header, empty for all tenants."""

    async def listing(request: web.Request) -> web.Response:
        if request.query:
            raise web.HTTPBadRequest(text="expected no filter: all workflows of the last 30 days\n")
        shown_workflows = await answered(workflows.listed(tenant_of(request)))
        return await _in_json(
            lambda: {"workflows": [listed_json(report) for report in shown_workflows.reports]}
        )

    async def one(request: web.Request) -> web.Response:
        service, workflow = _read_names(request.query)
        shown_workflow = await answered(workflows.find(tenant_of(request), service, workflow))
        if shown_workflow is None:
            raise web.HTTPNotFound(text=f"{NO_WORKFLOW}\n")
        return await _in_json(lambda: to_json(shown_workflow.report))

    return [web.get("/api/workflows", listing), web.get("/api/workflow", one)]


async def answered(reading: Awaitable[T]) -> T:
    """Await a reading; a refusal is a conflict with how the service is set up, or with other tenants.

    Raises:
        HTTPConflict: workflows are not shown, or several tenants have this one.
    """
    try:
        return await reading
    except WorkflowRefused as refusal:
        raise web.HTTPConflict(text=f"{refusal}\n") from refusal


def _read_names(query: MultiMapping[str]) -> tuple[str, str]:
    """Read the names of a workflow and its service; an unknown parameter is refused, as is a second value."""
    if sorted(name for name, _ in query.items()) != _NAMES_ASKED:
        raise web.HTTPBadRequest(text=_NAMES_EXPECTED)
    return query["service"], query["workflow"]


async def _in_json(document: Callable[[], Any]) -> web.Response:
    """Return a document as JSON, written on a thread: many versions make it long."""
    return await long_answer(lambda: json.dumps(document()), "application/json")
