"""The pages of an analyzer half: try a file, see how it is. Runs and issues are the collector half's.

It keeps no run, so it has none to list: who asks for them is sent on to the address that
the operator says our pages have (``BLAMESPAN_WEB_URL``), or told where they are.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from aiohttp import web
from prometheus_client.registry import CollectorRegistry

from analyzer.web.front import CleanRun, routed
from analyzer.web.jobs import Jobs
from analyzer.web.rendering import Renderer
from analyzer.web.sessions import Sessions
from analyzer.web.settings_shown import ShownSetting
from analyzer.web.side_pages import door_routes
from analyzer.web.try_pages import try_routes

_ELSEWHERE: Final = ("/runs", "/runs/{path:.+}", "/issues", "/issues/{path:.+}")
_OURS: Final = "blamespan_analyzer_"
_BUDGET: Final = "blamespan_budget_"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzerPages:
    """What the pages are made from."""

    jobs: Jobs | None
    clean: CleanRun
    settings: tuple[ShownSetting, ...] = ()
    runs_at: str | None = None
    """Address of the pages that show runs, without a slash at its end; ``None`` where nobody said it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzerDesk:
    """What every page's handler needs, made once."""

    pages: AnalyzerPages
    metrics: CollectorRegistry
    renderer: Renderer
    sessions: Sessions
    has_token: bool

    async def show(self, request: web.Request, template: str, **values: Any) -> web.Response:
        """Return a page within the frame that all have."""
        return await self.renderer.page(
            template, here=request.path, can_sign_out=self.has_token, said=request.query.get("said"), **values
        )


def open_sessions(*, is_secure: bool) -> Sessions:
    """Return the sessions of this process's pages."""
    return Sessions(clock=time.monotonic, is_secure=is_secure)


def analyzer_routes(
    pages: AnalyzerPages, sessions: Sessions, metrics: CollectorRegistry, token: str | None
) -> list[web.RouteDef]:
    """Return the routes of all pages."""
    desk = AnalyzerDesk(
        pages=pages, metrics=metrics, renderer=Renderer(), sessions=sessions, has_token=token is not None
    )
    elsewhere = [("GET", path, _elsewhere) for path in _ELSEWHERE]
    return [
        *routed(desk, ("GET", "/", _home), ("GET", "/health", _health), *elsewhere),
        *try_routes(desk),
        *door_routes(desk, token),
    ]


async def _home(_desk: AnalyzerDesk, _request: web.Request) -> web.StreamResponse:
    raise web.HTTPSeeOther("/try")


async def _health(desk: AnalyzerDesk, request: web.Request) -> web.StreamResponse:
    return await desk.show(
        request, "analyzer_health.html", counts=counts_of(desk.metrics), settings=desk.pages.settings
    )


def counts_of(metrics: CollectorRegistry) -> list[tuple[str, float]]:
    """Return what this analyzer counts, by the words of the metrics."""
    return [
        (", ".join([family.documentation, *sample.labels.values()]), sample.value)
        for family in metrics.collect()
        if family.name.startswith((_OURS, _BUDGET))
        for sample in family.samples
        if not sample.name.endswith("_created")
    ]


async def _elsewhere(desk: AnalyzerDesk, request: web.Request) -> web.StreamResponse:
    """Send who looks for runs on to where they are shown."""
    there = desk.pages.runs_at
    if there is not None and urlsplit(there).netloc.lower() != request.host.lower():
        raise web.HTTPSeeOther(there + request.raw_path)
    return await desk.show(request, "elsewhere.html")
