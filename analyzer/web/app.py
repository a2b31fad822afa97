"""Health, metrics, verdicts and pages over HTTP. A shell: it asks, and answers; it decides nothing.

``/healthz`` and ``/readyz`` are open, for probes; who may ask for all else, ``guard.py`` knows.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import web
from prometheus_client import exposition
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import CollectorRegistry

from analyzer.web.events import Changes
from analyzer.web.guard import GuardRules, Handler, guarding
from analyzer.web.issues_api import MAX_LISTED, Issues, issue_api_routes, read_limit
from analyzer.web.labels import FindOne, Labels, label_document, label_routes
from analyzer.web.openapi import OPENAPI
from analyzer.web.pages import Desk, Pages, run_routes
from analyzer.web.recent_work import RecentWork
from analyzer.web.rendering import Renderer
from analyzer.web.sessions import Sessions
from analyzer.web.side_pages import door_routes, health_routes, issue_routes
from analyzer.web.try_pages import again_routes, try_routes
from collector_processor.otlp import Tenant, tenant_of
from collector_processor.receivers import ListenError
from collector_processor.receivers.protocol_log import ProtocolLogger
from collector_processor.receivers.room import DEFAULT_CONNECTIONS, with_room
from collector_processor.settings import Address
from collector_processor.stored import CONFIRMED, StoredVerdict
from collector_processor.tls import ServerTls, TlsFiles, reason_of

logger = logging.getLogger(__name__)

_MAX_BODY: Final = 64 << 10
"""Bytes of a label."""
_IDLE_S: Final = 75.0
_GRACE_S: Final = 5.0
"""What an answer under way gets when we stop; the journal's own time must not go by with a slow reader."""
_OPENMETRICS: Final = "application/openmetrics-text"
"""Prometheus asks for it; only there are exemplars."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebParts:
    """What the pages are made from."""

    is_ready: Callable[[], bool]
    recent: Callable[[int], Awaitable[Sequence[StoredVerdict]]]
    find: Callable[[str], Awaitable[Sequence[StoredVerdict]]]
    metrics: CollectorRegistry
    labels: Labels
    issues: Issues | None = None
    """``None``: recurring failures are not kept."""
    token: str | None = field(default=None, repr=False)
    tenant_header_names: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    """Names of this machine that a Host header may bear beside ``localhost``; lower case."""
    tls: TlsFiles | None = None
    most_connections: int = DEFAULT_CONNECTIONS
    pages: Pages | None = None
    """``None``: the API alone."""


class WebServer:
    """Serves the API of one process."""

    def __init__(self, parts: WebParts, listen: Address) -> None:
        self._listen: Final = listen
        self._parts: Final = parts
        self._runner: Final = web.AppRunner(
            make_app(parts),
            access_log=None,
            logger=ProtocolLogger(f"{__name__}.protocol"),
            keepalive_timeout=_IDLE_S,
            shutdown_timeout=_GRACE_S,
        )
        self._listener: asyncio.Server | None = None

    async def start(self) -> int:
        """Listen, and return the bound port.

        Raises:
            ListenError: the address is taken or not ours, or a TLS file cannot be read.
        """
        await self._runner.setup()
        assert self._runner.server is not None
        try:
            # A client without a certificate is told so in words, and probes are answered (``guard.py``).
            tls = ServerTls(self._parts.tls, ssl.CERT_OPTIONAL).context() if self._parts.tls else None
            connect = with_room(self._runner.server, self._parts.most_connections)
            self._listener = await asyncio.get_running_loop().create_server(
                connect, self._listen.host, self._listen.port, ssl=tls
            )
        except (OSError, ValueError) as error:
            raise ListenError(self._listen, reason_of(error)) from error
        return int(self._listener.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop listening."""
        if self._listener is not None:
            self._listener.close()
        await self._runner.cleanup()


def make_app(parts: WebParts) -> web.Application:
    """Return the application."""
    sessions = Sessions(clock=time.monotonic, is_secure=parts.tls is not None)
    rules = GuardRules(
        token=parts.token,
        allowed_hosts=parts.allowed_hosts,
        wants_certificate=parts.tls is not None and parts.tls.client_ca is not None,
        is_signed_in=sessions.is_signed_in,
    )
    app = web.Application(middlewares=[guarding(rules)], client_max_size=_MAX_BODY)

    async def find(request: web.Request) -> StoredVerdict:
        return await _find_one(parts, request)

    app.add_routes(
        [
            web.get("/healthz", _healthz),
            web.get("/readyz", _readyz(parts)),
            web.get("/metrics", _metrics(parts)),
            web.get("/api/runs", _runs(parts)),
            web.get("/api/runs/{run_id}", _run(parts)),
            web.get("/api/openapi.json", _openapi),
            *label_routes(parts.labels, find),
            *_issue_routes(parts),
        ]
    )
    if parts.pages is not None:
        _add_pages(app, parts, parts.pages, sessions, find)
    return app


def _add_pages(
    app: web.Application, parts: WebParts, pages: Pages, sessions: Sessions, find: FindOne
) -> None:
    desk = Desk(
        pages=pages,
        renderer=Renderer(),
        sessions=sessions,
        labels=parts.labels,
        find=find,
        tenant=lambda request: _tenant(parts, request),
        document=run_document,
        has_token=parts.token is not None,
    )
    changes = Changes(runs=pages.runs)
    app.on_shutdown.append(changes.close)
    recent = RecentWork(runs=pages.runs, now_ns=pages.now_ns)
    app.cleanup_ctx.append(_looking_ahead(desk.renderer, recent))
    app.add_routes(
        [
            *run_routes(desk),
            *try_routes(desk),
            *again_routes(desk),
            *issue_routes(desk),
            *health_routes(desk, parts.metrics, recent),
            *door_routes(desk, parts.token),
            web.get("/events", changes.listen),
        ]
    )


def _looking_ahead(
    renderer: Renderer, recent: RecentWork
) -> Callable[[web.Application], AsyncIterator[None]]:
    """Return what does, beside the first requests, what each first page would have to wait for."""

    async def look() -> None:
        await asyncio.to_thread(renderer.prepare)
        await recent.read()

    async def beside(_app: web.Application) -> AsyncIterator[None]:
        task = asyncio.create_task(look())
        task.add_done_callback(_say_what_failed)
        yield
        task.cancel()
        await asyncio.wait({task})

    return beside


def _say_what_failed(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        logger.warning("the first look of the pages failed", exc_info=task.exception())


async def _openapi(_request: web.Request) -> web.Response:
    return web.json_response(OPENAPI)


def _issue_routes(parts: WebParts) -> list[web.RouteDef]:
    return issue_api_routes(parts.issues, lambda request: _tenant(parts, request)) if parts.issues else []


async def _healthz(_request: web.Request) -> web.Response:
    return web.Response(text="ok\n")


def _readyz(parts: WebParts) -> Handler:
    async def readyz(_request: web.Request) -> web.Response:
        ready = parts.is_ready()
        return web.Response(text="ready\n" if ready else "not ready\n", status=200 if ready else 503)

    return readyz


def _metrics(parts: WebParts) -> Handler:
    async def metrics(request: web.Request) -> web.Response:
        # The library's own negotiation fails on a version that is no number; ours asks for none.
        accepted = ",".join(request.headers.getall("Accept", [])).lower().split(",")
        if any(one.partition(";")[0].strip() == _OPENMETRICS for one in accepted):
            written = openmetrics.generate_latest(parts.metrics)  # type: ignore[no-untyped-call]
            return _exposed(written, f"{_OPENMETRICS}; version=1.0.0")
        return _exposed(exposition.generate_latest(parts.metrics), "text/plain; version=0.0.4")

    return metrics


def _exposed(body: bytes, version: str) -> web.Response:
    return web.Response(body=body, headers={"Content-Type": f"{version}; charset=utf-8"})


def _runs(parts: WebParts) -> Handler:
    async def runs(request: web.Request) -> web.Response:
        asked, tenant = read_limit(request.query), _tenant(parts, request)
        found = await parts.recent(MAX_LISTED if tenant else asked)
        found = [verdict for verdict in found if not tenant or verdict.tenant == tenant][:asked]
        return web.json_response({"runs": [run_document(verdict) for verdict in found]})

    return runs


def _run(parts: WebParts) -> Handler:
    async def run(request: web.Request) -> web.Response:
        verdict = await _find_one(parts, request)
        said = await parts.labels.of(verdict.tenant, verdict.run_id)
        return web.json_response({**run_document(verdict), **label_document(said)})

    return run


async def _find_one(parts: WebParts, request: web.Request) -> StoredVerdict:
    """Return the run that the path means, of the tenant whose header the request bears."""
    found = await parts.find(request.match_info["run_id"])
    asked = _tenant(parts, request)
    if asked:
        found = [verdict for verdict in found if verdict.tenant == asked]
    if not found:
        raise web.HTTPNotFound(text="no such run\n")
    if len(found) > 1:
        raise web.HTTPConflict(text="several tenants have a run of this id: send the tenant's header\n")
    return found[0]


def _tenant(parts: WebParts, request: web.Request) -> Tenant:
    """Return the tenant whose header a request bears; empty for none."""
    headers = {name.lower(): value for name, value in request.headers.items()}
    return tenant_of(headers, parts.tenant_header_names)


def run_document(verdict: StoredVerdict) -> dict[str, Any]:
    """Return a stored verdict as the API shows it: the command line's object, and what the store knows."""
    document: dict[str, Any] = json.loads(verdict.document)
    document.pop(CONFIRMED, None)  # the label says so
    return document | {
        "tenant": verdict.tenant,
        "version": verdict.version,
        "failure_id": verdict.failure_id,
        "service": verdict.service,
        "provisional": verdict.is_provisional,
        "decided_ns": verdict.decided_ns,
    }
