"""Pages of workflows: how often they succeed, and what they always do. Not pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from aiohttp import web

from analyzer.issues.issue_service import WORKFLOWS_EVERY_S
from analyzer.issues.workflow_reports import NO_WORKFLOW, WorkflowRefused
from analyzer.telemetry.metric_table import MAX_WORKFLOWS
from analyzer.web.pages.front import routed
from analyzer.web.pages.run_pages import PageContext
from analyzer.web.reads.page_records import ShownWorkflows
from analyzer.web.reads.workflow_reads import WorkflowReader
from analyzer.web.views.workflow_page import workflow_row, workflow_view
from analyzer.web.workflow_api import answered
from collector_processor.otlp import Tenant

_MINUTES: Final = WORKFLOWS_EVERY_S // 60


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowContext:
    """Dependencies of these pages."""

    shared: PageContext
    workflows: WorkflowReader | None
    """``None`` if runs are not compared with each other."""


def workflow_pages(context: WorkflowContext) -> list[web.RouteDef]:
    """Return the routes."""
    return routed(context, ("GET", "/workflows", _workflows), ("GET", "/workflow", _workflow))


async def _workflows(context: WorkflowContext, request: web.Request) -> web.StreamResponse:
    found, refused = None, ""
    if context.workflows is not None:
        try:
            found = await context.workflows.listed(context.shared.tenant(request))
        except WorkflowRefused as refusal:
            refused = str(refusal)
    return await context.shared.front.show(
        request,
        "workflows.html",
        found=found,
        rows=() if found is None else tuple(map(workflow_row, found.reports)),
        refused=refused,
        is_cut=_is_cut(found),
        most=MAX_WORKFLOWS,
        minutes=_MINUTES,
    )


def _is_cut(found: ShownWorkflows | None) -> bool:
    return found is not None and len(found.reports) >= MAX_WORKFLOWS


async def _workflow(context: WorkflowContext, request: web.Request) -> web.StreamResponse:
    """Show one workflow. The list names the tenant too, but a tenant's header takes precedence."""
    query, source = request.query, context.workflows
    tenant = context.shared.tenant(request) or Tenant(query.get("tenant", ""))
    names = query.get("service", ""), query.get("workflow", "")
    found = None if source is None else await answered(source.find(tenant, *names))
    if found is None:
        raise web.HTTPNotFound(text=f"{NO_WORKFLOW}\n")
    return await context.shared.front.show(
        request, "workflow.html", shown=workflow_view(found), minutes=_MINUTES
    )
