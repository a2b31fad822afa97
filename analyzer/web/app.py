"""HTTP servers of health, metrics, the API and the pages, and the API's OpenAPI description. Not pure.

``/healthz`` and ``/readyz`` are open, for probes; ``guard.py`` decides which other requests are answered.

An analyzer half keeps no runs: it has pages to try a file and of its health. Requests for runs are redirected
to ``BLAMESPAN_WEB_URL``, or answered with a page that says where they are.

The description has its paths from ``openapi.yaml``, its schemas from ``records/json_records.py``. The schemas
are generated when it is first requested, so that they cannot differ from the records. Descriptions come from
the docstrings of records and fields.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from functools import cache, partial
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from textwrap import dedent
from typing import Any, Final, get_args, get_type_hints
from urllib.parse import urlsplit

import yaml
from aiohttp import web
from prometheus_client.registry import CollectorRegistry
from pydantic import TypeAdapter

from analyzer.history.run_diff import RunDiff
from analyzer.records.issue_records import Issue, IssueFix, Workflow, WorkflowInFull
from analyzer.records.json_records import (
    GivenLabel,
    Job,
    Label,
    LabelledRun,
    Opinion,
    QueuedRuns,
    RunPage,
    RunSteps,
    RunVerdict,
)
from analyzer.web.api import Deleting, delete_routes, issue_routes, label_routes, run_api_routes
from analyzer.web.front import (
    Front,
    Labels,
    PageContext,
    Pages,
    ShownSetting,
    routed,
    sign_in_routes,
    styling,
)
from analyzer.web.guard import GuardRules, Handler, Sessions, SignedOut, guarding, session_key
from analyzer.web.pages.compare_page import compare_routes
from analyzer.web.pages.health_page import RecentWork, counts_of, health_routes
from analyzer.web.pages.issue_page import issue_pages
from analyzer.web.pages.list_page import EVENTS, Changes, list_routes
from analyzer.web.pages.queue_page import queue_routes
from analyzer.web.pages.run_page import run_routes
from analyzer.web.pages.step_page import step_routes
from analyzer.web.pages.step_texts import clear_formatted
from analyzer.web.pages.try_page import again_routes, analyse_routes, try_routes
from analyzer.web.pages.workflow_page import workflow_pages, workflow_routes
from analyzer.web.probes import Probe, Probes, probe_routes
from analyzer.web.reads.archive import Trends
from analyzer.web.reads.issue_reads import WorkflowReader
from analyzer.web.reads.run_query import InvalidFilter, RunQuery
from analyzer.web.reads.whole_runs import WholeRuns
from analyzer.web.remembered import PreparedParts
from analyzer.web.rendering import Renderer, renderer
from analyzer.web.requested_analyses import Jobs
from collector_processor.core.disk import StoreError
from collector_processor.core.headers import tenant_among
from collector_processor.core.http_server import HttpServer
from collector_processor.core.records import StoredVerdict, forget_documents
from collector_processor.otlp import Address, MalformedRequestError, Tenant
from collector_processor.otlp.tls import TlsFiles

logger = logging.getLogger(__name__)

_ANSWERS: Final = (
    RunVerdict,
    LabelledRun,
    RunPage,
    QueuedRuns,
    RunSteps,
    Opinion,
    Label,
    GivenLabel,
    Issue,
    IssueFix,
    Workflow,
    WorkflowInFull,
    Job,
    RunDiff,
)
"""The records that the API answers with; those inside them follow."""
_PLACE: Final = "#/components/schemas/"


@cache
def openapi() -> dict[str, Any]:
    """Return the API's description with this version's number, made once; callers must not change it."""
    document: dict[str, Any] = yaml.safe_load(files(__package__).joinpath("openapi.yaml").read_bytes())
    del document["fragments"]
    document["info"]["version"] = version("blamespan")
    document["components"]["schemas"] = schemas()
    return document


def schemas() -> dict[str, Any]:
    """Return the JSON schemas of all records, by name; enumerations are written out in each record."""
    _, made = TypeAdapter.json_schemas(
        [(each, "serialization", TypeAdapter(each)) for each in _ANSWERS], ref_template=_PLACE + "{model}"
    )
    found: dict[str, Any] = made["$defs"]
    plain = {name: _plain(schema, found) for name, schema in found.items() if "enum" not in schema}
    for record in _with_inner(_ANSWERS):
        for name, text in _field_texts(record):
            plain[record.__name__]["properties"][name].setdefault("description", text)
    return dict(sorted(plain.items()))


def _with_inner(kinds: Iterable[Any]) -> Iterator[type]:
    """Yield the records among these types and inside them."""
    for kind in kinds:
        if is_dataclass(kind):
            assert isinstance(kind, type)
            yield kind
            yield from _with_inner(get_type_hints(kind).values())
        else:
            yield from _with_inner(get_args(kind))


def _plain(schema: Any, found: Mapping[str, Any]) -> Any:
    """Return a schema without generated titles, with enumerations in place and nullable types as a list."""
    if isinstance(schema, list):
        return [_plain(each, found) for each in schema]
    if not isinstance(schema, dict):
        return schema
    referred = found.get(str(schema.get("$ref", "")).removeprefix(_PLACE), {})
    if "enum" in referred or "const" in referred:
        return {name: value for name, value in referred.items() if name in {"enum", "const", "type"}}
    plain = {
        name: {field: _plain(value, found) for field, value in inner.items()}
        if name == "properties"
        else _plain(inner, found)
        for name, inner in schema.items()
        if name != "title"
    }
    kinds = plain.get("anyOf")
    if isinstance(kinds, list) and len(kinds) == 2 and kinds[1] == {"type": "null"} and "type" in kinds[0]:
        known = dict(kinds[0])
        if "enum" in known:
            known["enum"] = [*known["enum"], None]
        del plain["anyOf"]
        return {**known, "type": [known["type"], "null"], **plain}
    return plain


def _field_texts(record: type) -> Iterator[tuple[str, str]]:
    """Yield the docstrings of a record's fields; an inherited field has that of its own class."""
    for each in record.__mro__:
        if is_dataclass(each):
            body = ast.parse(dedent(inspect.getsource(each))).body[0]
            assert isinstance(body, ast.ClassDef)
            for before, after in zip(body.body, body.body[1:], strict=False):
                match before, after:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(
                        value=ast.Constant(value=str(text))
                    ):
                        yield name, " ".join(text.split())


_MAX_BODY: Final = 64 << 10
"""Largest label, in bytes."""
_ELSEWHERE: Final = (
    "/runs", "/runs/{path:.+}", "/issues", "/issues/{path:.+}", "/workflows", "/workflow", "/queue",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class WebParts:
    """Dependencies of the API and the pages."""

    probe: Probe
    """Answers about health, readiness and metrics."""
    find: Callable[[str], Awaitable[Sequence[StoredVerdict]]]
    labels: Labels
    pages: Pages
    deleting: Deleting | None = None
    """``None`` if nothing can be deleted."""
    workflows: WorkflowReader | None = None
    """``None`` if runs are not compared with each other."""
    token: str | None = field(default=None, repr=False)
    metrics_token: str | None = field(default=None, repr=False)
    tenant_header_names: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    """Names accepted in a Host header besides ``localhost``; lower case."""
    signed_out: Path | None = None
    """File with the sessions that ended; ``None`` to remember them in memory."""
    tls: TlsFiles | None = None


def web_server(parts: WebParts, listen: Address) -> HttpServer:
    """Return the server of the API and the pages; it does not listen yet."""
    return HttpServer(make_app(parts), listen, parts.tls)


@web.middleware
async def _say_refusal(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer 503 if the store refuses (disk full, server down), and 400 if a body cannot be unpacked."""
    try:
        return await handler(request)
    except web.RequestPayloadError as error:
        raise web.HTTPBadRequest(text="expected a body as its Content-Encoding says\n") from error
    except StoreError as error:
        raise web.HTTPServiceUnavailable(text=f"{error}\n") from error
    except InvalidFilter as error:
        raise web.HTTPBadRequest(text=f"{error}\n") from error


def make_app(parts: WebParts) -> web.Application:
    """Return the application."""
    sessions = Sessions(
        clock=time.monotonic,
        key=session_key(parts.token),
        is_secure=parts.tls is not None,
        ended=SignedOut(path=parts.signed_out),
    )
    rules = GuardRules(
        token=parts.token,
        metrics_token=parts.metrics_token,
        names_tenant=lambda request: bool(_tenant(parts, request)),
        allowed_hosts=parts.allowed_hosts,
        wants_certificate=parts.tls is not None and parts.tls.client_ca is not None,
        is_signed_in=sessions.is_signed_in,
    )
    app = web.Application(middlewares=[guarding(rules), _say_refusal], client_max_size=_MAX_BODY)

    front = Front(
        renderer=renderer(), sessions=sessions, jobs=parts.pages.jobs, has_token=parts.token is not None
    )
    context = _context(parts, front)
    app.middlewares.insert(1, styling(front))  # inside the guard, around all others
    changes = Changes(newest=parts.pages.runs.newest)
    app.on_shutdown.append(changes.close)
    recent = RecentWork(analyses_since=parts.pages.runs.analyses_since, now_ns=parts.pages.now_ns)
    app.cleanup_ctx.append(_looking_ahead(front.renderer, recent, context.trends))
    app.add_routes(
        [
            *probe_routes(parts.probe),
            *_api_routes(parts, context),
            *list_routes(context),
            *run_routes(context),
            *step_routes(context),
            *compare_routes(context),
            *queue_routes(context),
            *try_routes(front),
            *again_routes(context),
            *issue_pages(context),
            *workflow_pages(context),
            *health_routes(context, parts.probe, recent),
            *sign_in_routes(front, parts.token),
            web.get(EVENTS, changes.listen),
        ]
    )
    return app


def _context(parts: WebParts, front: Front) -> PageContext:
    pages = parts.pages

    async def find(request: web.Request) -> StoredVerdict:
        return await _find_named(parts, request, request.match_info["run_id"])

    return PageContext(
        front=front,
        pages=pages,
        labels=parts.labels,
        find=find,
        tenant=partial(_tenant, parts),
        named=partial(_find_named, parts),
        whole=WholeRuns(pages.runs, pages.clean, pages.reader),
        prepared=PreparedParts(front.renderer.text),
        trends=Trends(read=pages.runs.trend, now_ns=pages.now_ns),
        workflows=parts.workflows,
    )


def _api_routes(parts: WebParts, context: PageContext) -> list[web.RouteDef]:
    find, tenant, jobs = context.find, context.tenant, parts.pages.jobs
    deleting, issues = parts.deleting, parts.pages.issues
    return [
        *run_api_routes(context),
        web.get("/api/openapi.json", _openapi),
        *label_routes(parts.labels, find),
        *(() if deleting is None else delete_routes(deleting, find, tenant, partial(_forget, context))),
        *(() if issues is None else issue_routes(issues, tenant)),
        *(() if parts.workflows is None else workflow_routes(parts.workflows, tenant)),
        *(() if jobs is None else analyse_routes(jobs)),
    ]


async def _forget(context: PageContext, tenant: Tenant, run_id: str | None) -> None:
    """Drop all texts in memory, and the second opinions on a tenant's run, or on all its runs for ``None``.

    A request that read the run before it was deleted may keep a part of it again; nothing leads to that
    part, and newer ones displace it.
    """
    if context.pages.jobs is not None:
        context.pages.jobs.forget(tenant, run_id)

    def clear() -> None:
        context.whole.clear()
        context.prepared.clear()
        clear_formatted()
        forget_documents()
        from analyzer.signals.memory import forget_texts  # noqa: PLC0415 - all that judges a run; in a thread

        forget_texts()

    await asyncio.to_thread(clear)


def _looking_ahead(
    renderer: Renderer, recent: RecentWork, trends: Trends
) -> Callable[[web.Application], AsyncIterator[None]]:
    """Return a start-up hook that warms the pages' caches in the background."""

    async def look() -> None:
        await asyncio.to_thread(renderer.prepare)
        await trends.of(RunQuery())
        await recent.read()

    async def beside(_app: web.Application) -> AsyncIterator[None]:
        task = asyncio.create_task(look())
        task.add_done_callback(_say_what_failed)
        yield
        task.cancel()
        await asyncio.wait({task})

    return beside


def _say_what_failed(task: asyncio.Task[None]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None:
        logger.warning(
            "the pages could not be prepared: the first ones are slower",
            extra={"reason": str(error)},
            exc_info=None if isinstance(error, StoreError) else error,
        )


async def _openapi(_request: web.Request) -> web.Response:
    return web.json_response(await asyncio.to_thread(openapi))


def common_routes(is_ready: Callable[[], bool], metrics: CollectorRegistry) -> list[web.RouteDef]:
    """Return the routes that every process has: the probes, and the metrics."""
    return probe_routes(Probes(is_ready=is_ready, metrics=metrics))


async def _find_named(parts: WebParts, request: web.Request, run_id: str) -> StoredVerdict:
    """Return a run by its id, for the tenant of the request's header."""
    verdicts = await parts.find(run_id)
    tenant = _tenant(parts, request)
    if tenant:
        verdicts = [verdict for verdict in verdicts if verdict.tenant == tenant]
    if not verdicts:
        raise web.HTTPNotFound(text="no such run\n")
    if len(verdicts) > 1:
        raise web.HTTPConflict(text="several tenants have a run of this id: send the tenant's header\n")
    return verdicts[0]


def _tenant(parts: WebParts, request: web.Request) -> Tenant:
    """Return the tenant of the request's header; empty without one."""
    try:
        return tenant_among(request.headers.items(), parts.tenant_header_names)
    except MalformedRequestError as error:
        raise web.HTTPBadRequest(text=f"{error}\n") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzerPages:
    """Dependencies of the pages."""

    jobs: Jobs | None
    settings: tuple[ShownSetting, ...] = ()
    runs_at: str | None = None
    """Address of the pages that show runs, without a trailing slash; ``None`` if not configured."""


def analyzer_routes(
    pages: AnalyzerPages, sessions: Sessions, metrics: CollectorRegistry, token: str | None
) -> list[web.RouteDef]:
    """Return the routes of all pages."""
    front = Front(
        renderer=renderer(),
        sessions=sessions,
        jobs=pages.jobs,
        has_token=token is not None,
    )

    async def home(_front: Front, _request: web.Request) -> web.StreamResponse:
        raise web.HTTPSeeOther("/try")

    async def health(front: Front, request: web.Request) -> web.StreamResponse:
        counts = counts_of(metrics)
        return await front.show(request, "analyzer_health.html", counts=counts, settings=pages.settings)

    async def elsewhere(front: Front, request: web.Request) -> web.StreamResponse:
        """Redirect requests for runs to the pages that show them."""
        there = pages.runs_at
        if there is not None and urlsplit(there).netloc.lower() != request.host.lower():
            raise web.HTTPSeeOther(there + request.raw_path)
        return await front.show(request, "elsewhere.html")

    moved = [("GET", path, elsewhere) for path in _ELSEWHERE]
    return [
        *routed(front, ("GET", "/", home), ("GET", "/health", health), *moved),
        *try_routes(front),
        *sign_in_routes(front, token),
    ]
