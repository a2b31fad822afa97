"""What the pages of both halves have in common: the frame, the door, the files to try.

``Desk`` (``pages.py``) is that of the half that keeps runs, ``AnalyzerDesk``
(``analyzer_pages.py``) that of the half that keeps none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from aiohttp import web

from analyzer.web.jobs import Jobs
from analyzer.web.rendering import Renderer
from analyzer.web.sessions import Sessions
from semconv.model import Trajectory

CleanRun = Callable[[Trajectory], Trajectory]
D = TypeVar("D")


class Trial(Protocol):
    """What files are tried with."""

    @property
    def jobs(self) -> Jobs | None:
        """Return who analyses; ``None``: nothing can be analysed from a page."""
        ...

    @property
    def clean(self) -> CleanRun:
        """Return what takes secrets out of what was uploaded."""
        ...


class Front(Protocol):
    """What a page that shows no runs needs."""

    @property
    def renderer(self) -> Renderer:
        """Return what makes pages from templates."""
        ...

    @property
    def sessions(self) -> Sessions:
        """Return the browsers we know again."""
        ...

    @property
    def pages(self) -> Trial:
        """Return what files are tried with."""
        ...

    async def show(self, request: web.Request, template: str, **values: Any) -> web.Response:
        """Return a page within the frame that all have."""
        ...


def routed(
    desk: D, *routes: tuple[str, str, Callable[[D, web.Request], Awaitable[web.StreamResponse]]]
) -> list[web.RouteDef]:
    """Return routes whose handlers are handed the desk."""

    def bound(
        handle: Callable[[D, web.Request], Awaitable[web.StreamResponse]],
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handler(request: web.Request) -> web.StreamResponse:
            return await handle(desk, request)

        return handler

    return [web.route(method, path, bound(handle)) for method, path, handle in routes]
