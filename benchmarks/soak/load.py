"""A mixed load at a steady pace: plain spans and agents' runs, over gRPC and HTTP, compressed and not."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import aiohttp
import grpc
import grpc.aio

from benchmarks.ingest.bodies import make_request
from benchmarks.ingest.passthrough import PATH
from tests.e2e.demo_again import DemoAgain
from tests.e2e.line import Line

_BODIES: Final = 8
_FULL_S: Final = 0.5
_TIMEOUT_S: Final = 60.0
_FULL: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED})
_GOOD: Final = 4
"""One run in this many does not fail."""

Door: TypeAlias = Callable[[bytes], Awaitable[bool]]
"""Sends a request; returns ``False`` if the service asks for a retry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Load per second."""

    requests: float
    """Requests of plain spans."""
    spans: int
    """Spans in each of these requests."""
    runs: float


@dataclass(slots=True)
class Sent:
    """Counts of acknowledged data so far."""

    spans: int = 0
    runs: set[str] = field(default_factory=set)
    """Trace ids of the agents' runs."""


async def keep_sending(pace: Pace, line: Line, sent: Sent, is_over: Callable[[], bool]) -> None:
    """Send until the end, and count acknowledged data."""
    async with AsyncExitStack() as stack:
        doors = itertools.cycle(await _doors(line, stack))
        plain = itertools.cycle(make_request(pace.spans, 0, seed) for seed in range(_BODIES))
        async with asyncio.TaskGroup() as group:
            group.create_task(_send_plain(pace, doors, plain, sent, is_over))
            group.create_task(_send_runs(pace, doors, sent, is_over))


async def _send_plain(
    pace: Pace, doors: Iterator[Door], bodies: Iterator[bytes], sent: Sent, is_over: Callable[[], bool]
) -> None:
    async def send() -> None:
        await _insist(next(doors), next(bodies))
        sent.spans += pace.spans

    await _steadily(pace.requests, send, is_over)


async def _send_runs(pace: Pace, doors: Iterator[Door], sent: Sent, is_over: Callable[[], bool]) -> None:
    failing, good, numbers = DemoAgain(), DemoAgain(is_failing=False), itertools.count(1)

    async def send() -> None:
        again = good if next(numbers) % _GOOD == 0 else failing
        run = again.next()
        await _insist(next(doors), run.before)
        await _insist(next(doors), run.root)
        sent.spans += again.spans
        sent.runs.add(run.trace_id)

    await _steadily(pace.runs, send, is_over)


async def _steadily(per_s: float, send: Callable[[], Awaitable[None]], is_over: Callable[[], bool]) -> None:
    """Send sequentially at a pace; time lost to a slow service is not made up for."""
    while not is_over():
        began = time.monotonic()
        await send()
        await asyncio.sleep(max(0.0, began + 1 / per_s - time.monotonic()))


async def _insist(door: Door, body: bytes) -> None:
    while not await door(body):  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(_FULL_S)


async def _doors(line: Line, stack: AsyncExitStack) -> Sequence[Door]:
    channel = await stack.enter_async_context(grpc.aio.insecure_channel(line.grpc.removeprefix("http://")))
    session = await stack.enter_async_context(
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S))
    )
    call = channel.unary_unary(PATH, None, None)
    url = f"{line.http}/v1/traces"
    return [
        _over_grpc(call, grpc.Compression.NoCompression),
        _over_http(session, url, {}),
        _over_grpc(call, grpc.Compression.Gzip),
        _over_http(session, url, {"Content-Encoding": "gzip"}),
    ]


def _over_grpc(call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes], compression: grpc.Compression) -> Door:
    async def send(body: bytes) -> bool:
        try:
            await call(body, compression=compression, timeout=_TIMEOUT_S)
        except grpc.RpcError as error:
            if error.code() in _FULL:
                return False
            raise
        return True

    return send


def _over_http(session: aiohttp.ClientSession, url: str, packed: dict[str, str]) -> Door:
    headers = {"Content-Type": "application/x-protobuf", **packed}

    async def send(body: bytes) -> bool:
        data = gzip.compress(body, 1) if packed else body
        async with session.post(url, data=data, headers=headers) as answer:
            await answer.read()
            if answer.status in {429, 503}:
                return False
            answer.raise_for_status()
            return True

    return send
