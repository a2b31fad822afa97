"""The API's routes that read workflows: their list, and one with what it always does."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from aiohttp import web
from multidict import MultiMapping

from analyzer.issues.workflow_reports import NO_WORKFLOW, WorkflowRefused, listed_json, to_json
from analyzer.web.api import TenantOf
from analyzer.web.long_answers import long_answer
from analyzer.web.reads.workflow_reads import WorkflowReader

T = TypeVar("T")

_NAMES: Final = ["service", "workflow"]
_EXPECTED: Final = "expected ?service=NAME&workflow=NAME; a name may be empty\n"


def workflow_routes(workflows: WorkflowReader, tenant_of: TenantOf) -> list[web.RouteDef]:
    """Return the routes; ``tenant_of`` returns the tenant of a request's header, empty for all tenants."""

    async def listing(request: web.Request) -> web.Response:
        if request.query:
            raise web.HTTPBadRequest(text="expected no filter: all workflows of the last 30 days\n")
        found = await answered(workflows.listed(tenant_of(request)))
        return await _written(lambda: {"workflows": [listed_json(one) for one in found.reports]})

    async def one(request: web.Request) -> web.Response:
        service, workflow = _names(request.query)
        found = await answered(workflows.find(tenant_of(request), service, workflow))
        if found is None:
            raise web.HTTPNotFound(text=f"{NO_WORKFLOW}\n")
        return await _written(lambda: to_json(found.report))

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


def _names(query: MultiMapping[str]) -> tuple[str, str]:
    """Read the names of a workflow and its service; an unknown parameter is refused, as is a second value."""
    if sorted(name for name, _ in query.items()) != _NAMES:
        raise web.HTTPBadRequest(text=_EXPECTED)
    return query["service"], query["workflow"]


async def _written(document: Callable[[], Any]) -> web.Response:
    """Return a document as JSON, written on a thread: many versions make it long."""
    return await long_answer(lambda: json.dumps(document()), "application/json")
