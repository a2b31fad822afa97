"""Common parts of both halves' pages: layout, sign-in, static files, uploads, the settings shown."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import quote

from aiohttp import web
from pydantic.fields import FieldInfo

from analyzer.issues.correcting import KeptOpinions
from analyzer.issues.labels.labelling import AcceptedLabel
from analyzer.issues.labels.run_label import Label, Statement
from analyzer.web.guard import SIGN_IN, STATIC, Handler, Sessions, require_stated_origin
from analyzer.web.reads.archive import RunArchive, Trends
from analyzer.web.reads.issue_reads import IssueReader, WorkflowReader
from analyzer.web.reads.whole_runs import WholeRuns
from analyzer.web.remembered import PreparedParts
from analyzer.web.rendering import Renderer
from analyzer.web.requested_analyses import Jobs
from collector_processor.core.headers import WRONG_TOKEN_S, bears
from collector_processor.core.records import StoredVerdict
from collector_processor.otlp import Tenant
from collector_processor.settings import Settings, setting_name
from semconv.dialects import USUAL, Reader
from semconv.model import Trajectory

TenantOf = Callable[[web.Request], Tenant]

FindOne = Callable[[web.Request], Awaitable[StoredVerdict]]
"""Returns the run in a request's path, for the request's tenant; raises a 404 or 409 if there is not exactly
one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """Functions that store labels and read them."""

    give: Callable[[StoredVerdict, Statement], Awaitable[AcceptedLabel]]
    of: Callable[[Tenant, str], Awaitable[Sequence[Label]]]


CleanRun = Callable[[Trajectory], Trajectory]
D = TypeVar("D")

_TYPES: Final = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_ADDRESSES: Final = ("_endpoint", "_url")
_MAY_HOLD_SECRETS: Final = frozenset({"redact_patterns"})
"""Patterns of users' secrets, which reveal the form of the secrets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """Dependencies of the pages that both halves have."""

    renderer: Renderer
    sessions: Sessions
    jobs: Jobs | None
    """``None`` if nothing can be analysed from a page."""
    has_token: bool

    async def show(self, request: web.Request, template: str, **values: Any) -> web.Response:
        """Return a page within the common layout."""
        return await self.renderer.page(
            template, here=request.path, can_sign_out=self.has_token, said=request.query.get("said"), **values
        )


def styling(context: Front) -> Any:
    """Return the middleware that shows a browser an error as a page; programs get it as text."""

    @web.middleware
    async def style(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPError as error:
            if request.path.startswith("/api/") or "text/html" not in request.headers.get("Accept", ""):
                raise
            kept = ("Retry-After", "WWW-Authenticate", "Allow")
            return await context.renderer.page(
                "error.html",
                status=error.status,
                headers={name: error.headers[name] for name in kept if name in error.headers},
                here=request.path,
                can_sign_out=context.has_token,
                said=None,
                error_status=error.status,
                run_id="" if isinstance(error, web.HTTPNotFound) else request.match_info.get("run_id", ""),
                reason=error.reason,
                text=(error.text or "").strip(),
            )

    return style


def routed(
    context: D, *routes: tuple[str, str, Callable[[D, web.Request], Awaitable[web.StreamResponse]]]
) -> list[web.RouteDef]:
    """Return routes whose handlers receive the page context."""
    return [web.route(method, path, partial(handle, context)) for method, path, handle in routes]


def sign_in_routes(context: Front, token: str | None) -> list[web.RouteDef]:
    """Return the routes of sign-in, sign-out and the static files."""

    async def ask(context: Front, request: web.Request) -> web.StreamResponse:
        going = local(request.query.get("next", ""))
        return await context.show(request, "sign_in.html", next=going, wrong=False)

    async def sign_in(context: Front, request: web.Request) -> web.StreamResponse:
        require_stated_origin(request)
        form = await request.post()
        going = local(str(form.get("next", "")))
        shown = str(form.get("token", ""))
        if token is None or not bears([("x-blamespan-token", shown)], token):
            await asyncio.sleep(WRONG_TOKEN_S)
            page = await context.show(request, "sign_in.html", next=going, wrong=True)
            page.set_status(401)
            return page
        response = web.HTTPSeeOther(going)
        context.sessions.begin(response, signed_in=True)
        raise response

    async def sign_out(context: Front, request: web.Request) -> web.StreamResponse:
        require_stated_origin(request)
        response = web.HTTPSeeOther(SIGN_IN)
        context.sessions.end(request, response)
        raise response

    return routed(
        context,
        ("GET", SIGN_IN, ask),
        ("POST", SIGN_IN, sign_in),
        ("POST", "/sign-out", sign_out),
        ("GET", STATIC + "{name}", _static),
    )


def local(path: str) -> str:
    """Return a path on this site to redirect to, never another site's."""
    is_ours = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return quote(path, safe="/?&=%#") if is_ours and "\\" not in path else "/runs"


async def _static(context: Front, request: web.Request) -> web.StreamResponse:
    name = request.match_info["name"]
    body = context.renderer.files.get(name)
    if body is None:
        raise web.HTTPNotFound(text="no such file\n")
    # Pages link to static files with a digest of all of them: a new version has another URL.
    headers = {"Cache-Control": "public, max-age=31536000, immutable"}
    kind = _TYPES[name.rpartition(".")[2]]
    return web.Response(body=body, content_type=kind, charset="utf-8", headers=headers)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownSetting:
    """One setting."""

    name: str
    value: str
    meaning: str
    is_default: bool


_LINK: Final = re.compile(r" \(\[[^]]+\]\([^)]+\)\)|\[([^]]+)\]\([^)]+\)")
"""A link to the documentation, which the service does not have; one in parentheses is left out whole."""


def shown_settings(settings: Settings) -> tuple[ShownSetting, ...]:
    """Return all settings; of possibly secret ones, only whether they are set."""
    fields: Mapping[str, FieldInfo] = type(settings).model_fields
    given = dict(settings)
    defaults = {
        name: field.get_default(call_default_factory=True, validated_data=given)
        for name, field in fields.items()
    }
    return tuple(
        ShownSetting(
            name=setting_name(name),
            value=_shown(name, given[name], is_secret=not field.repr and given[name] != defaults[name]),
            meaning=_LINK.sub(r"\1", field.description),
            is_default=given[name] == defaults[name],
        )
        for name, field in fields.items()
        if field.description
    )


def _shown(name: str, value: Any, *, is_secret: bool) -> str:
    if value is None or value in ("", ()):
        return "not set"
    if is_secret or name in _MAY_HOLD_SECRETS:
        return "set, not shown"
    if name.endswith(_ADDRESSES):  # queries may contain keys
        return str(value).partition("?")[0]
    return str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceLink:
    """Address of a trace in the user's backend, from a template; without a template there is no link."""

    template: str = ""
    """Contains ``{trace_id}``, and ``{span_id}`` if the backend can show a span."""

    def to(self, trace_id: str | None, span_id: str | None) -> str:
        """Return the address, or nothing; ids are escaped, so that each stays in its place."""
        if not self.template or not trace_id:
            return ""
        address = self.template.replace("{trace_id}", quote(trace_id, safe=""))
        return address.replace("{span_id}", quote(span_id or "", safe=""))


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
    issues: IssueReader | None = None
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
    named: Callable[[web.Request, str], Awaitable[StoredVerdict]]
    """Returns a run by its id; raises a 404 or 409 if there is not exactly one."""
    tenant: Callable[[web.Request], Tenant]
    whole: WholeRuns
    """Reads kept runs."""
    prepared: PreparedParts
    trends: Trends
    workflows: WorkflowReader | None
    """``None`` if runs are not compared with each other."""
