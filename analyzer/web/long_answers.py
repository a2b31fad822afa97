"""Responses as long as a run: made and encoded on a thread, sent in pieces. Not pure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Final

from aiohttp import web

_AT_ONCE: Final = 256 << 10
"""Bytes of a body sent at once. Longer bodies are sent in pieces, between which the event loop does other
work: to send 30 MB at once takes 0.1 s."""


async def long_answer(
    make: Callable[[], str | bytes],
    content_type: str,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    """Return a response with the text that ``make`` returns.

    Args:
        make: called on a thread; whatever it raises is raised here.
        content_type: without a charset; texts are UTF-8.
        status: the response's status.
        headers: further headers.
    """

    def made() -> bytes:
        found = make()
        return found.encode() if isinstance(found, str) else found

    body = await asyncio.to_thread(made)
    told = {"Content-Type": f"{content_type}; charset=utf-8", **(headers or {})}
    return web.Response(body=BytesIO(body) if len(body) > _AT_ONCE else body, status=status, headers=told)
