"""HTTP API of runs, issues, labels and deletion; ``openapi.yaml`` describes it.

A browser sends requests with effects on behalf of any page; it only hides the response from that page.
``guard.py`` refuses requests that a browser marks as coming from another site; for browsers that do not mark
them, such a request must have the content type of JSON, which a foreign page cannot send without our
permission (none is given).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from aiohttp import web

from analyzer.inquiry.verdict import POOLED
from analyzer.inquiry.whole_run import WholeRun
from analyzer.issues.labels.label_store import Opinion
from analyzer.issues.labels.run_label import Label, LabelKind, LabelRefused, Statement, to_json
from analyzer.issues.recurrence import IssueState
from analyzer.issues.report import Wanted
from analyzer.web.front import FindOne, Labels, PageContext, TenantOf, routed
from analyzer.web.reads.documents import RunPage, read_document
from analyzer.web.reads.issue_reads import IssueReader
from analyzer.web.reads.run_query import Sort, read_filters, read_limit, write_key
from analyzer.web.reads.whole_runs import WholeRuns
from analyzer.web.rendering import long_answer
from collector_processor.core.analysis import EARLY, NOTES
from collector_processor.core.records import CONFIRMED, PROOF, SAID_SUCCESS, SECOND_OPINION, StoredVerdict
from collector_processor.core.runs import RunTotals
from collector_processor.otlp import Tenant

MAX_MUTE_S: Final = 366 * 86_400
_JSON: Final = "application/json"
_STATED: Final = {"agent", "step", "failed", "why"}
_USERS: Final = (
    "X-Forwarded-Preferred-Username",
    "X-Forwarded-User",
    "X-Auth-Request-User",
    "X-Forwarded-Email",
    "Remote-User",
)
"""Headers in which proxies that sign people in name them, such as oauth2-proxy and Authelia."""
_MUTE_EXPECTED: Final = f'expected {{"for_s": SECONDS}}, 0 to {MAX_MUTE_S}; 0 ends it\n'
_ISSUE_FILTERS: Final = ("limit", "state", "service", "agent")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def issue_routes(issues: IssueReader, tenant_of: TenantOf) -> list[web.RouteDef]:
    """Return the routes; ``tenant_of`` returns the tenant of a request's header, empty for all tenants."""

    async def listing(request: web.Request) -> web.Response:
        wanted = read_wanted(request.query, tenant_of(request))
        return web.json_response({"issues": await issues.documents(wanted)})

    async def fix(request: web.Request) -> web.Response:
        tenant, issue_id = await _meant(issues, request, tenant_of(request))
        found = await issues.fix_document(tenant, issue_id, request.query.get("since", "").strip())
        if found is None:
            raise web.HTTPNotFound(text="no such issue\n")
        return web.json_response({"id": issue_id, "tenant": tenant, **found})

    async def resolve(request: web.Request) -> web.Response:
        await _json(request)
        tenant, issue_id = await _meant(issues, request, tenant_of(request))
        await _written(issues.resolve(tenant, issue_id))
        return web.json_response({"id": issue_id, "tenant": tenant, "state": IssueState.RESOLVED.value})

    async def mute(request: web.Request) -> web.Response:
        for_s = read_mute(await _json(request))
        tenant, issue_id = await _meant(issues, request, tenant_of(request))
        until_ns = time.time_ns() + int(for_s * 10**9) if for_s else 0
        await _written(issues.mute(tenant, issue_id, until_ns))
        return web.json_response({"id": issue_id, "tenant": tenant, "muted_until_ns": until_ns})

    return [
        web.get("/api/issues", listing),
        web.get("/api/issues/{issue_id}/fix", fix),
        web.post("/api/issues/{issue_id}/resolve", resolve),
        web.post("/api/issues/{issue_id}/mute", mute),
    ]


def read_wanted(query: Mapping[str, str], tenant: Tenant) -> Wanted:
    """Read the filters of a request.

    Raises:
        HTTPBadRequest: a filter is unknown or invalid.
    """
    unknown = sorted(query.keys() - set(_ISSUE_FILTERS))
    if unknown:
        told = f"{unknown[0][:50]!r}: unknown filter; expected {', '.join(_ISSUE_FILTERS)}\n"
        raise web.HTTPBadRequest(text=told)
    state = query.get("state")
    if state is not None and state not in set(IssueState):
        raise web.HTTPBadRequest(text=f"state: expected one of {', '.join(IssueState)}\n")
    return Wanted(
        tenant=tenant or None,
        state=None if state is None else IssueState(state),
        service=query.get("service"),
        agent=query.get("agent"),
        limit=read_limit(query),
    )


def read_mute(document: object) -> float:
    """Read the duration of muting, in seconds.

    Raises:
        HTTPBadRequest: the document has no valid duration.
    """
    for_s: object = document.get("for_s") if isinstance(document, Mapping) and len(document) == 1 else None
    if isinstance(for_s, bool) or not isinstance(for_s, int | float):
        raise web.HTTPBadRequest(text=_MUTE_EXPECTED)
    if not 0 <= for_s <= MAX_MUTE_S:  # this also rejects NaN
        raise web.HTTPBadRequest(text=_MUTE_EXPECTED)
    return float(for_s)


async def _json(request: web.Request, expected: str = "expected JSON\n") -> object:
    """Return a request's document; ``None`` for an empty body."""
    if request.content_type != _JSON:
        raise web.HTTPUnsupportedMediaType(text=f"expected Content-Type: {_JSON}\n")
    body = await request.read()  # bounded by the application
    try:
        return json.loads(body) if body.strip() else None
    except (ValueError, RecursionError):
        raise web.HTTPBadRequest(text=expected) from None


async def _meant(issues: IssueReader, request: web.Request, tenant: Tenant) -> tuple[Tenant, str]:
    issue_id = request.match_info["issue_id"]
    tenants = [one for one in await issues.tenants_of(issue_id) if not tenant or one == tenant]
    if not tenants:
        raise web.HTTPNotFound(text="no such issue\n")
    if len(tenants) > 1:
        raise web.HTTPConflict(text="several tenants have an issue of this id: send the tenant's header\n")
    return tenants[0], issue_id


async def _written(writing: Awaitable[bool]) -> None:
    if not await writing:
        raise web.HTTPNotFound(text="no such issue\n")


_EXPECTED: Final = (
    'expected {"agent": NAME, "step": N}, either or both, or {"failed": false}; and as you like "why": TEXT\n'
)
_REASON_EXPECTED: Final = 'expected {"why": TEXT}, or nothing\n'

_CHOICE_EXPECTED: Final = (
    'expected {"method": NAME}, and optionally "model": NAME, "failed": true, "reference": TEXT'
    ' and "with_reference": true or false\n'
)
_CHOICE_FIELDS: Final = frozenset({"method", "model", "failed", "reference", "with_reference"})


def label_routes(labels: Labels, find: FindOne) -> list[web.RouteDef]:
    """Return the routes that take labels."""
    return [
        web.post("/api/runs/{run_id}/label", _giving(labels, find, read_statement)),
        web.post("/api/runs/{run_id}/confirm", _giving(labels, find, _always(LabelKind.CONFIRMED))),
        web.post("/api/runs/{run_id}/reject", _giving(labels, find, _always(LabelKind.REJECTED))),
    ]


def read_statement(document: object) -> Statement:
    """Read a label's content.

    Raises:
        ValueError: the document is not a label.
    """
    if not isinstance(document, Mapping) or not document or document.keys() - _STATED:
        raise ValueError(_EXPECTED)
    agent, step, failed = document.get("agent"), document.get("step"), document.get("failed", True)
    is_step = step is None or (isinstance(step, int) and not isinstance(step, bool))
    if not (agent is None or isinstance(agent, str)) or not is_step or not isinstance(failed, bool):
        raise ValueError(_EXPECTED)
    names_something = agent is not None or step is not None
    if names_something is not failed:
        raise ValueError(_EXPECTED)
    kind = LabelKind.CORRECTED if failed else LabelKind.NOT_A_FAILURE
    return Statement(kind=kind, agent=agent, step=step, why=_why(document))


def _always(kind: LabelKind) -> Callable[[object], Statement]:
    """Return a reader of labels of one kind: their body is empty or has a reason."""

    def read(document: object) -> Statement:
        if document is not None and not isinstance(document, Mapping):
            raise ValueError(_REASON_EXPECTED)
        return Statement(kind=kind, why=_why(document or {}))

    return read


def _why(document: Mapping[str, object]) -> str:
    match document.get("why"):
        case None:
            return ""
        case str(why):
            return why
        case _:
            raise ValueError(_EXPECTED)


def author_of(request: web.Request) -> str:
    """Return the signed-in user's name, as a proxy that signs people in states it; empty without one."""
    return next((request.headers[name] for name in _USERS if request.headers.get(name)), "")


def _giving(labels: Labels, find: FindOne, read: Callable[[object], Statement]) -> Handler:
    async def handle(request: web.Request) -> web.Response:
        document = await _json(request, _EXPECTED)
        try:
            statement = read(document)
        except ValueError as error:
            raise web.HTTPBadRequest(text=str(error)) from None
        verdict = await find(request)
        try:
            accepted = await labels.give(verdict, replace(statement, author=author_of(request)))
        except LabelRefused as refusal:
            raise web.HTTPUnprocessableEntity(text=f"{refusal}\n") from refusal
        return web.json_response(accepted.to_json())

    return handle


def label_document(labels: Sequence[Label]) -> Mapping[str, Any]:
    """Return a run's label fields: the current label, and the earlier ones, newest first."""
    documents = [to_json(label) for label in labels]
    return {"label": documents[0] if documents else None, "earlier_labels": documents[1:]}


async def read_choice_fields(request: web.Request) -> Mapping[str, str]:
    """Read the choice of a second opinion: method, model, whether the run failed, the expected answer.

    Raises:
        HTTPBadRequest: the document is not a choice.
    """
    document = await _json(request, _CHOICE_EXPECTED)
    if not isinstance(document, Mapping) or document.keys() - _CHOICE_FIELDS:
        raise web.HTTPBadRequest(text=_CHOICE_EXPECTED)
    method, model, failed = document.get("method"), document.get("model", ""), document.get("failed", False)
    if not (isinstance(method, str) and isinstance(model, str | None) and isinstance(failed, bool)):
        raise web.HTTPBadRequest(text=_CHOICE_EXPECTED)
    reference = document.get("reference", "")
    sees = document.get("with_reference", bool(reference))
    if not (isinstance(reference, str) and isinstance(sees, bool)):
        raise web.HTTPBadRequest(text=_CHOICE_EXPECTED)
    given = {"method": method, "model": model or "", "reference": reference}
    return given | ({"failed": "yes"} if failed else {}) | ({"with_reference": "yes"} if sees else {})


def opinion_document(opinion: Opinion) -> dict[str, Any]:
    """Return a second opinion: the choice, the time and the verdict."""
    chosen = {"method": opinion.method, "model": opinion.model or None}
    verdict = read_document(opinion.document, opinion.run_id)
    return {"chosen": chosen, "given_ns": opinion.given_ns, "verdict": verdict}


DeleteRun = Callable[[Tenant, str], Awaitable[bool]]
DeleteTenant = Callable[[Tenant], Awaitable[int]]
Forget = Callable[[Tenant, str | None], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleting:
    """Functions that delete runs from the store."""

    run: DeleteRun
    tenant: DeleteTenant


def delete_routes(
    deleting: Deleting, find: FindOne, tenant_of: TenantOf, forget: Forget
) -> list[web.RouteDef]:
    """Return the routes that delete runs; foreign pages cannot send DELETE without our permission.

    ``forget`` drops from memory what is kept of a tenant's run, or of all its runs if it gets ``None``.
    """

    async def one(request: web.Request) -> web.Response:
        verdict = await find(request)
        await deleting.run(verdict.tenant, verdict.run_id)
        await forget(verdict.tenant, verdict.run_id)
        return web.json_response({"deleted": 1})

    async def everything(request: web.Request) -> web.Response:
        # No other parameter: a filter that is not applied would delete more than was meant.
        if dict(request.query) != {"all": "yes"}:
            raise web.HTTPBadRequest(text="expected ?all=yes: deletes all runs of the header's tenant\n")
        tenant = tenant_of(request)
        count = await deleting.tenant(tenant)
        await forget(tenant, None)
        return web.json_response({"deleted": count})

    return [web.delete("/api/runs/{run_id}", one), web.delete("/api/runs", everything)]


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
    opinions = await second.of(verdict.tenant, verdict.run_id) if second is not None else ()
    return [opinion_document(opinion) for opinion in opinions]


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
    verdict = await context.pages.runs.version(current, number)
    if verdict is None:
        raise web.HTTPNotFound(text=f"no such version: the current one is {current.version}\n")
    return verdict


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
