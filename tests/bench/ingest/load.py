"""Sends ready-made requests as fast as they are acknowledged, or at a pace; notes how long each took."""

from __future__ import annotations

import asyncio
import gzip
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final, TypeAlias

import grpc
import grpc.aio

from tests.bench.ingest.passthrough import PATH

CLIENTS: Final = 32
_CHANNELS: Final = 4
_REFUSED_S: Final = 0.005
"""How long we wait where somebody is full; the wait counts as part of the request's."""
_FULL: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED})
Send: TypeAlias = Callable[[bytes], Awaitable[bool]]
"""Says whether it was acknowledged; ``False`` where the other side is full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is sent."""

    protocol: str
    """``grpc`` or ``http``."""
    bodies: Sequence[bytes]
    spans: int
    """In each body."""
    is_gzip: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What became of it."""

    requests: int
    bytes: int
    """Before compression."""
    seconds: float
    p50_ms: float
    p99_ms: float


async def send(load: Load, endpoint: str, *, seconds: float, pace: float | None = None) -> Sent:
    """Send for so long.

    Args:
        load: what.
        endpoint: where, as a URL.
        seconds: for how long.
        pace: requests a second; ``None`` for as many as are acknowledged.

    Raises:
        RuntimeError: something was refused for good.
    """
    async with AsyncExitStack() as stack:
        senders = [await _sender(load, endpoint, place, stack) for place in range(CLIENTS)]
        packed = [gzip.compress(body, 1) if load.is_gzip else body for body in load.bodies]
        waits: list[float] = []
        count, began = 0, time.perf_counter()

        async def client(sender: Send) -> None:
            nonlocal count
            while time.perf_counter() - began < seconds:
                number, count = count, count + 1
                due = time.perf_counter() if pace is None else began + number / pace
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                while not await sender(packed[number % len(packed)]):  # noqa: ASYNC110 - there is nothing to be told by
                    await asyncio.sleep(_REFUSED_S)
                waits.append(time.perf_counter() - due)

        await asyncio.gather(*(client(sender) for sender in senders))
        lasted = time.perf_counter() - began
    waits.sort()
    return Sent(
        requests=count,
        bytes=sum(len(load.bodies[number % len(load.bodies)]) for number in range(count)),
        seconds=lasted,
        p50_ms=1000 * waits[len(waits) // 2],
        p99_ms=1000 * waits[int(len(waits) * 0.99)],
    )


async def _sender(load: Load, endpoint: str, place: int, stack: AsyncExitStack) -> Send:
    if load.protocol == "http":
        return await _http_sender(load, endpoint, stack)
    compression = grpc.Compression.Gzip if load.is_gzip else grpc.Compression.NoCompression
    options = (("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1), ("n", place))
    channel = grpc.aio.insecure_channel(endpoint.removeprefix("http://"), options=options)
    await stack.enter_async_context(channel)
    call = channel.unary_unary(PATH, None, None)
    plain = {gzip.compress(body, 1): body for body in load.bodies} if load.is_gzip else {}

    async def post(body: bytes) -> bool:
        try:
            await call(plain.get(body, body), compression=compression)
        except grpc.RpcError as error:
            if error.code() in _FULL:
                return False
            raise
        return True

    return post


async def _http_sender(load: Load, endpoint: str, stack: AsyncExitStack) -> Send:
    """Write HTTP by hand: a client library would cost more than what is measured."""
    host, _, port = endpoint.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    stack.callback(writer.close)
    encoding = "content-encoding: gzip\r\n" if load.is_gzip else ""
    head = (
        f"POST /v1/traces HTTP/1.1\r\nhost: {host}:{port}\r\n{encoding}"
        "content-type: application/x-protobuf\r\ncontent-length: "
    )

    async def post(body: bytes) -> bool:
        writer.write(f"{head}{len(body)}\r\n\r\n".encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = next(
            (int(line[15:]) for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:")),
            0,
        )
        await reader.readexactly(length)
        status = int(answer[9:12])
        if status not in {200, 429, 503}:
            raise RuntimeError(answer.decode())
        return status == 200

    return post
