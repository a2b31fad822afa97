"""Sends requests as fast as they are acknowledged, or at set times; notes how long each took.

At set times, a request's wait begins when it was due, though all senders were busy then:
what a slow answer holds up counts as slow too (no coordinated omission).
"""

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

from tests.bench.ingest.bodies import Body
from tests.bench.ingest.floor import percentile
from tests.bench.ingest.passthrough import PATH

CLIENTS: Final = 32
"""Who wait for their acknowledgement before they send again."""
PACED_CLIENTS: Final = 128
"""Enough that a request that is due finds one who is free."""
_REFUSED_S: Final = 0.005
"""How long we wait where somebody is full; the wait counts as part of the request's."""
_MOST_REFUSALS: Final = 400
"""Without a single success: it is not full, it takes nothing like it."""
_LATER: Final = frozenset(
    {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.CANCELLED}
)
"""Where OTLP's clients come back."""
Send: TypeAlias = Callable[[bytes], Awaitable[str]]
"""Says why it was not acknowledged; empty if it was."""


class RefusedError(Exception):
    """Nothing of the kind is taken; the message is the other side's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is sent."""

    protocol: str
    """``grpc`` or ``http``."""
    bodies: Sequence[Body]
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
    late_p99_ms: float
    """How late those at set times were sent: the sender's own part of the wait."""


class _Requests:
    """Numbers requests, of all phases and clients; each is made when it is sent."""

    def __init__(self, load: Load) -> None:
        self._load: Final = load
        # Without new ids a request is packed once; with them it cannot be.
        self._ready: Final = {
            at: self._packed(body.fresh(1)) for at, body in enumerate(load.bodies) if not body.ids
        }

    def body(self, number: int) -> bytes:
        place = number % len(self._load.bodies)
        found = self._ready.get(place)
        return self._packed(self._load.bodies[place].fresh(number + 1)) if found is None else found

    def _packed(self, body: bytes) -> bytes:
        # gRPC compresses by itself, and only what is plain.
        return gzip.compress(body, 1) if self._load.is_gzip and self._load.protocol == "http" else body


async def send(
    load: Load, endpoint: str, *, seconds: float, pace: float | None = None, first: int = 0
) -> Sent:
    """Send for so long.

    Args:
        load: what.
        endpoint: where, as a URL.
        seconds: for how long.
        pace: requests a second; ``None`` for as many as are acknowledged.
        first: the first request's number; the same number makes the same trace ids.

    Raises:
        RefusedError: nothing like it is taken.
    """
    clients = CLIENTS if pace is None else PACED_CLIENTS
    requests = _Requests(load)
    async with AsyncExitStack() as stack:
        senders = [await _sender(load, endpoint, place, stack) for place in range(clients)]
        waits: list[float] = []
        late: list[float] = []
        count, refusals, began = 0, 0, time.perf_counter()

        async def client(sender: Send) -> None:
            nonlocal count, refusals
            while (due := _due(began, count, pace)) - began < seconds:
                number, count = count, count + 1
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                late.append(time.perf_counter() - due)
                body = requests.body(first + number)
                while reason := await sender(body):
                    refusals += 1
                    if not waits and refusals > _MOST_REFUSALS:
                        raise RefusedError(reason)
                    await asyncio.sleep(_REFUSED_S)
                waits.append(time.perf_counter() - due)

        await asyncio.gather(*(client(sender) for sender in senders))
        lasted = time.perf_counter() - began
    sizes = [body.size for body in load.bodies]
    return Sent(
        requests=count,
        bytes=sum(sizes[(first + number) % len(sizes)] for number in range(count)),
        seconds=lasted,
        p50_ms=1000 * percentile(waits, 0.5),
        p99_ms=1000 * percentile(waits, 0.99),
        late_p99_ms=1000 * percentile(late, 0.99),
    )


def _due(began: float, number: int, pace: float | None) -> float:
    return time.perf_counter() if pace is None else began + number / pace


async def _sender(load: Load, endpoint: str, place: int, stack: AsyncExitStack) -> Send:
    if load.protocol == "http":
        return await _http_sender(load, endpoint, stack)
    compression = grpc.Compression.Gzip if load.is_gzip else grpc.Compression.NoCompression
    # Some channels, as there are some clients; not so many that they are what is measured.
    options = (("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1), ("n", place % 32))
    channel = grpc.aio.insecure_channel(endpoint.removeprefix("http://"), options=options)
    await stack.enter_async_context(channel)
    call = channel.unary_unary(PATH, None, None)

    async def post(body: bytes) -> str:
        try:
            await call(body, compression=compression)
        except grpc.aio.AioRpcError as error:
            if error.code() in _LATER:
                return f"{error.code().name}: {error.details()}"
            raise
        return ""

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

    async def post(body: bytes) -> str:
        writer.write(f"{head}{len(body)}\r\n\r\n".encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = next(
            (int(line[15:]) for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:")),
            0,
        )
        await reader.readexactly(length)
        status = int(answer[9:12])
        if status in {429, 503}:
            return f"HTTP {status}"
        if status != 200:
            raise RefusedError(f"HTTP {status}")
        return ""

    return post
