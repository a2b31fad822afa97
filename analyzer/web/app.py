"""Health, metrics and verdicts over HTTP. A shell: it asks, and answers; it decides nothing.

``/healthz`` and ``/readyz`` are open, for probes; all else wants the token where
one is set. Without a token only this machine can reach us, and a browser could
be tricked into asking for another site (DNS rebinding): so the Host header has
to name this machine.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import CollectorRegistry

from analyzer.web.labels import Labels, label_document, label_routes
from collector_processor.otlp import tenant_of
from collector_processor.receivers.admission import bears
from collector_processor.runstore import StoredVerdict
from collector_processor.settings import Address

MAX_LISTED: Final = 500
_OPEN_PATHS: Final = frozenset({"/healthz", "/readyz"})
_LOCAL_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})

_WANTED: Final = "expected: Authorization: Bearer <BLAMESPAN_TOKEN>\n"
_NOT_LOCAL: Final = "expected a Host header that names this machine, such as localhost\n"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WebParts:
    """What the pages are made from."""

    is_ready: Callable[[], bool]
    recent: Callable[[int], Awaitable[Sequence[StoredVerdict]]]
    find: Callable[[str], Awaitable[Sequence[StoredVerdict]]]
    metrics: CollectorRegistry
    labels: Labels
    token: str | None = None
    tenant_header_names: tuple[str, ...] = ()


class WebServer:
    """Serves the API of one process."""

    def __init__(self, parts: WebParts, listen: Address) -> None:
        self._listen: Final = listen
        self._runner: Final = web.AppRunner(make_app(parts), access_log=None)

    async def start(self) -> int:
        """Listen, and return the bound port; raises ``OSError`` where the address is taken."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._listen.host, self._listen.port)
        await site.start()
        port: int = self._runner.addresses[0][1]
        return port

    async def stop(self) -> None:
        """Stop listening."""
        await self._runner.cleanup()


def make_app(parts: WebParts) -> web.Application:
    """Return the application."""
    app = web.Application(middlewares=[_guard(parts.token)])
    app.add_routes(
        [
            web.get("/healthz", _healthz),
            web.get("/readyz", _readyz(parts)),
            web.get("/metrics", _metrics(parts)),
            web.get("/api/runs", _runs(parts)),
            web.get("/api/runs/{run_id}", _run(parts)),
            *label_routes(parts.labels, lambda request: _find_one(parts, request)),
        ]
    )
    return app


def _guard(token: str | None) -> Any:
    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path not in _OPEN_PATHS and not _may(request, token):
            raise web.HTTPUnauthorized(text=_WANTED if token else _NOT_LOCAL)
        response = await handler(request)
        response.headers["X-Content-Type-Options"] = "nosniff"
        return response

    return guard


def _may(request: web.Request, token: str | None) -> bool:
    if token is None:
        host = request.host.rsplit(":", 1)[0] if not request.host.endswith("]") else request.host
        return host in _LOCAL_HOSTS
    return bears(request.headers.items(), token)


async def _healthz(_request: web.Request) -> web.Response:
    return web.Response(text="ok\n")


def _readyz(parts: WebParts) -> Handler:
    async def readyz(_request: web.Request) -> web.Response:
        ready = parts.is_ready()
        return web.Response(text="ready\n" if ready else "not ready\n", status=200 if ready else 503)

    return readyz


def _metrics(parts: WebParts) -> Handler:
    async def metrics(_request: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(parts.metrics),
            headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
        )

    return metrics


def _runs(parts: WebParts) -> Handler:
    async def runs(request: web.Request) -> web.Response:
        asked = request.query.get("limit", "100")
        if not (asked.isascii() and asked.isdigit() and 0 < int(asked) <= MAX_LISTED):
            raise web.HTTPBadRequest(text=f"limit: expected 1 to {MAX_LISTED}\n")
        found = await parts.recent(int(asked))
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
    headers = {name.lower(): value for name, value in request.headers.items()}
    asked = tenant_of(headers, parts.tenant_header_names)
    if asked:
        found = [verdict for verdict in found if verdict.tenant == asked]
    if not found:
        raise web.HTTPNotFound(text="no such run\n")
    if len(found) > 1:
        raise web.HTTPConflict(text="several tenants have a run of this id: send the tenant's header\n")
    return found[0]


def run_document(verdict: StoredVerdict) -> dict[str, Any]:
    """Return a stored verdict as the API shows it: the command line's object, and what the store knows."""
    document: dict[str, Any] = json.loads(verdict.document)
    return document | {
        "tenant": verdict.tenant,
        "version": verdict.version,
        "failure_id": verdict.failure_id,
        "service": verdict.service,
        "provisional": verdict.is_provisional,
        "decided_ns": verdict.decided_ns,
    }
