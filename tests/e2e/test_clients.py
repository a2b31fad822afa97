"""With very many, slow or greedy clients, all are served and memory stays bounded."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Final
from urllib.parse import urlsplit

import grpc
import pytest

from collector_processor.otlp import Signal, grpc_path, http_path
from collector_processor.rebuild.encode import encode
from tests.e2e.backend import grpc_backend
from tests.e2e.line import Line, StartLine
from tests.e2e.traffic import send
from tests.factories import span

CONNECTIONS: Final = 2000
LARGE_CLIENTS: Final = 1200
LARGE_BYTES: Final = 1 << 20
MOST_GROWN: Final = {"grpc": 0.4, "http": 0.75}
"""Share of everything that is sent at once. Over HTTP, uvloop reads 256 KiB of each connection before a
request can be refused."""
OK: Final = 200
BUSY: Final = 503
FLOODERS: Final = 24
FLOOD_REQUESTS: Final = 2_000
SMALL_REQUESTS: Final = 40
MOST_UNFAIR: Final = 10.0
"""Factor by which a small client's median wait may exceed that of the flooding ones."""
MOST_MEMORY: Final = 400 << 20
PATH: Final = http_path(Signal.TRACES)


@contextmanager
def many_files(count: int) -> Iterator[None]:
    """Let this process and its children open this many sockets."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        pytest.skip(f"{count} open files wanted, {hard} allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or 0


def http_request(body: bytes) -> bytes:
    head = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-protobuf\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> int:
    """Send one request on a connection that stays open; return the status."""
    writer.write(request)
    await writer.drain()
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
    await reader.readexactly(length)
    return int(head.split()[1])


def test_two_thousand_connections_over_http_are_all_served(start_line: StartLine) -> None:
    with many_files(2 * CONNECTIONS + 500), grpc_backend() as backend:
        line = start_line(forward_endpoint=backend.url)
        codes = asyncio.run(_all_at_once(line))
        assert codes == [200] * CONNECTIONS
        line.await_items("forwarded", CONNECTIONS)
        assert line.peak() < MOST_MEMORY


async def _all_at_once(line: Line) -> list[int]:
    host, port = address(line.http)
    opened = [await asyncio.open_connection(host, port) for _ in range(CONNECTIONS)]
    requests = [http_request(encode([span(number)])) for number in range(1, CONNECTIONS + 1)]
    try:
        async with asyncio.timeout(300):
            return list(
                await asyncio.gather(
                    *(ask(*streams, request) for streams, request in zip(opened, requests, strict=True))
                )
            )
    finally:
        for _, writer in opened:
            writer.close()


def test_two_thousand_connections_over_grpc_are_all_served(start_line: StartLine) -> None:
    with many_files(2 * CONNECTIONS + 500), grpc_backend() as backend:
        line = start_line(forward_endpoint=backend.url)
        assert asyncio.run(_all_over_grpc(line)) == CONNECTIONS
        line.await_items("forwarded", CONNECTIONS)
        assert line.peak() < MOST_MEMORY


async def _all_over_grpc(line: Line) -> int:
    target = line.grpc.removeprefix("http://")
    # Else channels to one address share one connection.
    own = (("grpc.use_local_subchannel_pool", 1),)
    channels = [grpc.aio.insecure_channel(target, options=own) for _ in range(CONNECTIONS)]

    async def one(number: int) -> None:
        call: Callable[..., Callable[..., Awaitable[bytes]]] = channels[number].unary_unary
        export = call(grpc_path(Signal.TRACES))
        body, is_taken = encode([span(number + 1)]), False
        while not is_taken:
            try:
                await export(body, timeout=300, wait_for_ready=True)
                is_taken = True
            except grpc.RpcError as error:  # as clients do: a crowded machine resets connections
                if error.code() is not grpc.StatusCode.CANCELLED:
                    raise

    await asyncio.gather(*(one(number) for number in range(CONNECTIONS)))
    served = len(channels)
    await asyncio.gather(*(channel.close(None) for channel in channels))
    return served


@pytest.mark.parametrize("way", ["grpc", "http"])
def test_large_requests_of_many_clients_come_again_and_memory_stays_bounded(
    start_line: StartLine, way: str
) -> None:
    """Together they are forty times the limit; without it, all of it would be in memory."""
    with many_files(2 * LARGE_CLIENTS + 500), grpc_backend() as backend:
        line = start_line(forward_endpoint=backend.url, receiving_bytes=32 << 20)
        before, flood = line.peak(), _large_over_grpc if way == "grpc" else _large_over_http
        refusals = asyncio.run(flood(line, LARGE_CLIENTS, LARGE_BYTES))
        share = (line.peak() - before) / (LARGE_CLIENTS * LARGE_BYTES)
        print(f"{way}: grew by {share:.3f} of what was sent, {refusals} refusals")
        assert share < MOST_GROWN[way]
        line.await_items("forwarded", LARGE_CLIENTS)


async def _large_over_http(line: Line, clients: int, size: int) -> int:
    """Do the same over HTTP, with one connection per try."""
    host, port = address(line.http)
    refusals = 0

    async def one(number: int) -> None:
        nonlocal refusals
        request = http_request(encode([span(number + 1, attributes={"text": "x" * size})]))
        while await _try(host, port, request) != OK:
            refusals += 1
            await asyncio.sleep(1)

    await asyncio.gather(*(one(number) for number in range(clients)))
    return refusals


async def _try(host: str, port: int, request: bytes) -> int:
    """Send one request; return the status, or 503 if the connection is closed before all is sent."""
    try:
        reader, writer = await asyncio.open_connection(host, port)
    except OSError:
        return BUSY
    try:
        return await ask(reader, writer, request)
    except (ConnectionError, asyncio.IncompleteReadError):
        return BUSY
    finally:
        writer.close()


async def _large_over_grpc(line: Line, clients: int, size: int) -> int:
    """Send one request of each client at once, until all are accepted; return the refusals."""
    target, refusals = line.grpc.removeprefix("http://"), 0
    own = (("grpc.use_local_subchannel_pool", 1),)
    channels = [grpc.aio.insecure_channel(target, options=own) for _ in range(clients)]
    come_again = {grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.CANCELLED}

    async def one(number: int) -> None:
        nonlocal refusals
        call: Callable[..., Callable[..., Awaitable[bytes]]] = channels[number].unary_unary
        export = call(grpc_path(Signal.TRACES))
        body, is_taken = encode([span(number + 1, attributes={"text": "x" * size})]), False
        while not is_taken:
            try:
                await export(body, timeout=300, wait_for_ready=True)
                is_taken = True
            except grpc.RpcError as error:
                if error.code() not in come_again:
                    raise
                refusals += 1
                await asyncio.sleep(1)

    await asyncio.gather(*(one(number) for number in range(clients)))
    await asyncio.gather(*(channel.close(None) for channel in channels))
    return refusals


def test_a_small_client_is_served_while_others_flood_with_one_span_requests(start_line: StartLine) -> None:
    """The flooding clients send as fast as they are answered; the small one waits about as long as one of
    them."""
    with grpc_backend() as backend:
        line = start_line(forward_endpoint=backend.url)
        waits, floods = asyncio.run(_flooded(line))
        assert median(waits) < MOST_UNFAIR * median(floods)
        sent = len(floods) + len(waits)
        line.await_items("forwarded", sent)
        assert line.balance()["received"] == sent
        assert line.peak() < MOST_MEMORY


async def _flooded(line: Line) -> tuple[list[float], list[float]]:
    """Return the waits of the small client and of the flooding ones, until both have waited often enough."""
    host, port = address(line.http)
    request = http_request(encode([span(1)]))
    waits, floods = list[float](), list[float]()

    async def sends(into: list[float], pause_s: float) -> None:
        streams = await asyncio.open_connection(host, port)
        while len(waits) < SMALL_REQUESTS or len(floods) < FLOOD_REQUESTS:
            began = time.monotonic()
            assert await ask(*streams, request) == 200
            into.append(time.monotonic() - began)
            await asyncio.sleep(pause_s)
        streams[1].close()

    async with asyncio.TaskGroup() as group:
        group.create_task(sends(waits, 0.05))
        for _ in range(FLOODERS):
            group.create_task(sends(floods, 0.0))
    return waits, floods


def test_half_open_clients_and_slow_readers_delay_no_other(start_line: StartLine) -> None:
    with many_files(1000), grpc_backend() as backend:
        line = start_line(forward_endpoint=backend.url)
        asyncio.run(_among_the_slow(line))
        line.await_items("forwarded", 20)
        assert line.peak() < MOST_MEMORY


async def _among_the_slow(line: Line) -> None:
    host, port = address(line.http)
    opened = [await asyncio.open_connection(host, port) for _ in range(300)]
    for place, (_, writer) in enumerate(opened):
        if place % 4 == 1:  # a head that does not end; the first quarter says nothing at all
            writer.write(b"POST /v1/traces HTTP/1.1\r\nHost: local")
        if place % 4 == 2:  # a body that does not come
            writer.write(http_request(encode([span(1)]))[:-5])
        if place % 4 == 3:  # asks and asks, and reads no answer
            writer.write(http_request(b"") * 200)
    for number in range(1, 21):
        # Who is slow is not waited for: this one would give up before they do.
        await asyncio.to_thread(send, line, encode([span(number)]), way="http" if number % 2 else "grpc")
    for _, writer in opened:
        writer.close()


def test_requests_of_20_mb_are_taken_or_asked_to_retry_in_bounded_memory(
    start_line: StartLine,
) -> None:
    """Eight clients at once: the bodies together are bounded, and refused ones are sent again."""
    text = "x" * 100_000
    body = encode([span(number, attributes={"text": text}) for number in range(1, 201)])
    assert len(body) > 20_000_000
    with grpc_backend() as backend:
        # They have one address, and half of it is one client's.
        line = start_line(forward_endpoint=backend.url, receiving_bytes=128 << 20)
        codes = asyncio.run(_heavy(line, http_request(body)))
        taken = codes.count(200)
        assert set(codes) <= {200, 429, 503}
        assert taken >= 2
        line.await_items("acknowledged", 200 * taken)
        wait = line.peak()
        assert wait < 2 * MOST_MEMORY
        line.await_items("forwarded", 200 * taken)


async def _heavy(line: Line, request: bytes) -> list[int]:
    host, port = address(line.http)

    async with asyncio.timeout(300):
        return list(await asyncio.gather(*(_try(host, port, request) for _ in range(8))))
