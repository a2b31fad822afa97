"""Pages of an analyzer half: try a file, and health. All about runs is on the collector half's pages.

The analyzer keeps no runs; requests for them are redirected to ``BLAMESPAN_WEB_URL``, or
answered with a page that says where they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web
from prometheus_client.registry import CollectorRegistry

from analyzer.web.guard import Sessions
from analyzer.web.pages.front import Front, ShownSetting, routed, sign_in_routes
from analyzer.web.pages.try_page import try_routes
from analyzer.web.rendering import renderer
from analyzer.web.requested_analyses import Jobs

_ELSEWHERE: Final = (
    "/runs", "/runs/{path:.+}", "/issues", "/issues/{path:.+}", "/workflows", "/workflow", "/queue",
)  # fmt: skip
_OURS: Final = "blamespan_analyzer_"
_BUDGET: Final = "blamespan_budget_"


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


def counts_of(metrics: CollectorRegistry) -> list[tuple[str, float]]:
    """Return this analyzer's counts by the metrics' descriptions."""
    return [
        (", ".join([family.documentation, *sample.labels.values()]), sample.value)
        for family in metrics.collect()
        if family.name.startswith((_OURS, _BUDGET))
        for sample in family.samples
        if not sample.name.endswith("_created")
    ]
