"""Reader of requests to the replay gateway: bodies, JSON objects and model calls. Not pure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

import aiohttp
from aiohttp import web

from analyzer.experiment.replay.canonical import canonical_json
from analyzer.experiment.replay.matching import Match, Spoken
from analyzer.experiment.replay.wire import Asked, UnreadableRequest, Wire
from analyzer.experiment.replay.wire.responses import expanded
from semconv.json_text import read_json
from semconv.record import record

T = TypeVar("T")

BODY_S: Final = 60.0
"""Time limit for a body: allows 24 MiB at 3 Mbit/s."""
_SHORT_BYTES: Final = 64 << 10
"""Longer requests and answers are handled on a thread, so that those of other trials go on."""


@record
class ReadCall:
    """A model call as read from a request."""

    given: dict[str, Any]
    """As sent."""
    body: Mapping[str, Any]
    """With the messages that it continues."""
    asked: Asked
    spoken: Spoken


async def beside(size: int, work: Callable[[], T]) -> T:
    """Do work on something of this size: on a thread if it is long."""
    return work() if size <= _SHORT_BYTES else await asyncio.to_thread(work)


async def read_body(request: web.Request) -> bytes:
    """Return a body, unpacked.

    Raises:
        UnreadableRequest: it is too large, too slow, or not in its Content-Encoding.
    """
    try:
        async with asyncio.timeout(BODY_S):
            return await request.read()
    except TimeoutError:
        raise UnreadableRequest(f"expected the whole body within {BODY_S:g} s") from None
    except web.HTTPRequestEntityTooLarge as error:
        raise UnreadableRequest(str(error)) from None
    except (web.RequestPayloadError, aiohttp.ClientPayloadError) as error:
        raise UnreadableRequest(f"expected a body in its Content-Encoding: {type(error).__name__}") from None


async def read_call(
    wire: Wire,
    raw: bytes,
    served: Mapping[str, list[Any]],
    matches: Iterable[Match],
    omissions: Iterable[frozenset[str]],
) -> ReadCall:
    """Read a model call; a long one on a thread, which also computes the keys of its messages.

    Raises:
        UnreadableRequest: it is not one.
    """

    def read() -> ReadCall:
        given = read_object(raw)
        body = expanded(given, served)
        asked = wire.read(body)
        spoken = Spoken(asked.messages, asked.kind)
        if len(raw) > _SHORT_BYTES:
            spoken.prepare(matches, omissions)
        return ReadCall(given=given, body=body, asked=asked, spoken=spoken)

    return await beside(len(raw), read)


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


def read_tool_call(raw: bytes) -> tuple[dict[str, Any], str]:
    """Read a request of ``@tool``; return it, and its arguments as they are compared.

    Raises:
        UnreadableRequest: it is not a JSON object.
    """
    asked = read_object(raw)
    return asked, canonical_json(str(asked.get("arguments") or ""))
