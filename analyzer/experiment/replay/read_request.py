"""Reader of requests to the replay gateway: bodies, JSON objects and model calls. Not pure."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import aiohttp
from aiohttp import web

from analyzer.experiment.replay.wire import Asked, UnreadableRequest, Wire
from analyzer.experiment.replay.wire.responses import expanded
from semconv.json_text import read_json

_SHORT_BYTES: Final = 64 << 10
"""Longer requests are read on a thread, so that the other trials' go on."""


async def read_body(request: web.Request) -> bytes:
    """Return a body, unpacked.

    Raises:
        UnreadableRequest: it is too large, or not in its Content-Encoding.
    """
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        raise UnreadableRequest(str(error)) from None
    except (web.RequestPayloadError, aiohttp.ClientPayloadError) as error:
        raise UnreadableRequest(f"expected a body in its Content-Encoding: {type(error).__name__}") from None


async def read_call(
    wire: Wire, raw: bytes, served: Mapping[str, list[Any]]
) -> tuple[dict[str, Any], Mapping[str, Any], Asked]:
    """Read a model call, a long one on a thread: as sent, with the messages it continues, and what it asks.

    Raises:
        UnreadableRequest: it is not one.
    """

    def read() -> tuple[dict[str, Any], Mapping[str, Any], Asked]:
        given = read_object(raw)
        body = expanded(given, served)
        return given, body, wire.read(body)

    return read() if len(raw) <= _SHORT_BYTES else await asyncio.to_thread(read)


def read_object(raw: bytes) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        UnreadableRequest: it is something else.
    """
    try:
        found = read_json(raw.decode())
    except (ValueError, RecursionError) as error:
        raise UnreadableRequest(f"expected a JSON object: {error}") from None
    if not isinstance(found, dict):
        raise UnreadableRequest("expected a JSON object")
    return found
