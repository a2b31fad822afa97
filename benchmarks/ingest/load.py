"""Load generator: sends requests as fast as they are acknowledged, or at set times, and records latencies.

At set times, a request's latency is counted from when it was due, even if all senders were busy: requests
delayed by a slow answer count as slow too (no coordinated omission).
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

from benchmarks.ingest.bodies import Body
from benchmarks.ingest.passthrough import PATH

CLIENTS: Final = 32
"""Number of clients that wait for each acknowledgement before the next request."""
PACED_CLIENTS: Final = 128
"""Number of clients at set times: enough for a free one to be found."""
_REFUSED_S: Final = 0.005
"""Pause after a refusal because of load; it counts as part of the latency."""
_MOST_REFUSALS: Final = 400
"""Seconds without a success after which the subject is not overloaded but refuses such requests."""
_LATER: Final = frozenset(
    {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.CANCELLED}
)
"""Responses after which OTLP's clients retry."""
Send: TypeAlias = Callable[[bytes], Awaitable[str]]
"""Sends a request; returns why it was not acknowledged, or an empty string."""


class RefusedError(Exception):
    """Such requests are refused; the message is the subject's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Parameters of the load."""

    protocol: str
    """``grpc`` or ``http``."""
    bodies: Sequence[Body]
    spans: int
    """Spans in each body."""
    is_gzip: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """Results of sending."""

    requests: int
    bytes: int
    """Bytes before compression."""
    seconds: float
    p50_ms: float
    p99_ms: float
    late_p99_ms: float
    """Delays of requests at set times before they were sent: the sender's own part of the latency."""


class _Requests:
    """Numbers the requests of all phases and clients; each is built when it is sent."""

    def __init__(self, load: Load) -> None:
        self._load: Final = load
        # Without new ids, a request is compressed once; with them it cannot be.
        self._ready: Final = {
            at: self._packed(body.fresh(1)) for at, body in enumerate(load.bodies) if not body.ids
        }

    def body(self, number: int) -> bytes:
        place = number % len(self._load.bodies)
        found = self._ready.get(place)
        return self._packed(self._load.bodies[place].fresh(number + 1)) if found is None else found

    def _packed(self, body: bytes) -> bytes:
        # gRPC compresses by itself, and only plain bodies.
        return gzip.compress(body, 1) if self._load.is_gzip and self._load.protocol == "http" else body


async def send(
    load: Load, endpoint: str, *, seconds: float, pace: float | None = None, first: int = 0
) -> Sent:
    """Send for the given time.

    Args:
        load: the load.
        endpoint: URL to send to.
        seconds: duration.
        pace: requests per second; ``None`` for as many as are acknowledged.
        first: the first request's number; the same number gives the same trace ids.

    Raises:
        RefusedError: such requests are refused.
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
    # Several channels, as with several clients, but not so many that channels dominate the measurement.
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
    """Write HTTP by hand: a client library would cost more than the measured subject."""
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


def percentile(values: list[float], share: float) -> float:
    """Return the value below which this share of the values lies; 0 for no values."""
    return sorted(values)[min(int(len(values) * share), len(values) - 1)] if values else 0.0
