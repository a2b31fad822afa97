"""Short turns of threads while a page or the API is answered. Not pure: they apply to the whole process.

A request passes between threads several times. Each time it would wait for Python's switch interval, 5 ms,
if another thread computes. Ingest without pages does better with long turns: with short ones the journal's
thread interrupts the event loop more often, and a core takes about 8 % fewer small requests
(``python -m benchmarks.ingest speed --subject blamespan --protocol http --spans 16``).
"""

from __future__ import annotations

import sys
from typing import Final

from aiohttp import web

from analyzer.web.events import EVENTS
from analyzer.web.guard import Handler

SWITCH_S: Final = 0.0005
"""Seconds that one thread may hold the interpreter while another waits; chosen by page latency
(``python -m benchmarks.pages`` at commit 8382596b)."""


class ShortTurns:
    """Context that shortens turns while anyone is inside; used on one event loop."""

    def __init__(self) -> None:
        self._inside = 0
        self._usual_s = 0.0

    def __enter__(self) -> None:
        """Shorten turns, if nobody has."""
        if not self._inside:
            self._usual_s = sys.getswitchinterval()
            sys.setswitchinterval(SWITCH_S)
        self._inside += 1

    def __exit__(self, *_: object) -> None:
        """Restore the former length, if everybody has left."""
        self._inside -= 1
        if not self._inside:
            sys.setswitchinterval(self._usual_s)


SHORT_TURNS: Final = ShortTurns()
"""The only one: the interval belongs to the process."""


@web.middleware
async def in_short_turns(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer a request in short turns; not a stream of events, which lasts as long as its page is open."""
    if request.path == EVENTS:
        return await handler(request)
    with SHORT_TURNS:
        return await handler(request)
