"""Bounded reading from many gRPC clients: slow clients give way to others."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import grpc
import grpc.aio
import pytest

from analyzer.service.all_in_one import Doors, make_receivers
from collector_processor.otlp import RefusedError, Signal, grpc_path
from collector_processor.receivers import AdmissionRules, GrpcReceiver
from collector_processor.receivers.overload import (
    CALM_BYTES,
    CALM_S,
    EVERY_S,
    PRESSED_BYTES,
    Heap,
    MessageReads,
    ReadLimits,
    Trimmer,
    glibc,
)
from collector_processor.settings import Settings
from tests.contract.doors import LOOPBACK, Client, GrpcClient, HttpClient, MemorySink, listening
from tests.otlp_requests import request, span

RULES = ReadLimits(quick=2, quick_s=0.05, slow=3, slow_s=0.2, waiting=100)


async def never() -> bytes:
    await asyncio.Event().wait()
    return b""


async def at_once() -> bytes:
    return b"body"


async def test_half_open_calls_delay_others_only_briefly() -> None:
    reads = MessageReads(RULES)
    half_open = [asyncio.create_task(reads.read(never)) for _ in range(50)]
    await asyncio.sleep(0)
    assert await reads.read(at_once) == b"body"  # though 25 times as many were before it as are read at once
    refused = await asyncio.gather(*half_open, return_exceptions=True)
    assert all(isinstance(one, RefusedError) and one.retry_after_s for one in refused)
    assert {str(one) for one in refused} == {
        "3 large or slow requests are being read already: retry",
        "the request did not arrive within 0.2 s",
    }
    assert await reads.read(at_once) == b"body"


async def test_no_more_are_read_at_once_than_the_rules_say() -> None:
    reads, reading, most = MessageReads(replace(RULES, slow_s=60.0)), 0, 0
    has_come = asyncio.Event()

    async def large() -> bytes:
        nonlocal reading, most
        reading += 1
        most = max(most, reading)
        try:
            await has_come.wait()
            return b"large"
        finally:
            reading -= 1

    asked = [asyncio.create_task(reads.read(large)) for _ in range(40)]
    await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)  # one for which there is no place
    has_come.set()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert most <= RULES.quick + RULES.slow
    assert answers.count(b"large") >= RULES.slow
    assert all(one == b"large" or isinstance(one, RefusedError) for one in answers)


async def test_requests_beyond_the_queue_limit_are_refused() -> None:
    reads = MessageReads(ReadLimits(quick=1, quick_s=60, slow=1, waiting=2))
    waiting = [asyncio.create_task(reads.read(never)) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(RefusedError, match="2 requests are waiting already"):
        await reads.read(at_once)
    for one in waiting:
        one.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_long_queue_counts_as_full_before_a_request_is_refused() -> None:
    told: list[None] = []
    rules = ReadLimits(quick=1, quick_s=60, slow=1, many_waiting=3)
    reads = MessageReads(rules, lambda: told.append(None))
    waiting = [asyncio.create_task(reads.read(never)) for _ in range(3)]  # one is read, two wait
    await asyncio.sleep(0)
    assert told == []
    waiting.append(asyncio.create_task(reads.read(never)))
    await asyncio.sleep(0)
    assert told == [None]
    for one in waiting:
        one.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_client_that_goes_away_leaves_its_place() -> None:
    reads = MessageReads(ReadLimits(quick=1, quick_s=60, slow=1))
    for _ in range(3):
        gone = asyncio.create_task(reads.read(never))
        await asyncio.sleep(0)
        gone.cancel()
        with suppress(asyncio.CancelledError):
            await gone
    assert await reads.read(at_once) == b"body"


async def test_over_grpc_a_small_request_overtakes_unfinished_ones() -> None:
    sink = MemorySink()
    receiver = GrpcReceiver(
        sink, LOOPBACK, AdmissionRules(), buffer_bytes=1 << 20
    )  # two large ones at a time
    async with listening(receiver) as port, grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        path = grpc_path(Signal.TRACES)
        make: Any = channel  # the stubs want serializers
        opened = make.stream_unary(path)
        gate = asyncio.Event()

        async def silent() -> Any:
            await gate.wait()
            for message in _none():
                yield message

        half_open = [opened(silent()) for _ in range(60)]
        call = make.unary_unary(path)
        await call(request(span(1)), timeout=60)
        assert len(sink.arrivals) == 1
        code = await next(asyncio.as_completed([one.code() for one in half_open]))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        gate.set()
        for one in half_open:
            one.cancel()


def _none() -> Iterator[bytes]:
    yield from ()


async def test_a_call_without_a_message_is_refused_with_what_was_expected() -> None:
    async with (
        listening(GrpcReceiver(MemorySink(), LOOPBACK, AdmissionRules())) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        make: Any = channel
        call = make.stream_unary(grpc_path(Signal.TRACES))
        with pytest.raises(grpc.aio.AioRpcError, match="expected a message") as refused:
            await call(_none())
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_what_is_read_and_not_yet_stored_is_bounded_too() -> None:
    class Slow(MemorySink):
        async def accept(self, arrival: Any) -> Any:
            await gate.wait()
            return await super().accept(arrival)

    gate, body = asyncio.Event(), request(span(1, attributes={"text": "x" * 400_000}))
    receiver = GrpcReceiver(Slow(), LOOPBACK, AdmissionRules(), buffer_bytes=1 << 20)
    async with listening(receiver) as port, grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        make: Any = channel
        call = make.unary_unary(grpc_path(Signal.TRACES))
        calls = [asyncio.ensure_future(call(body, timeout=60)) for _ in range(5)]
        done, pending = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED, timeout=60)
        while len(done) < 3:
            more, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED, timeout=60)
            done |= more
        errors: list[Any] = [one.exception() for one in done]
        assert {one.code() for one in errors} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        assert "1048576 bytes of requests are being received already" in errors[0].details()
        gate.set()
        assert [await one for one in pending] == [b"", b""]


class RecordedHeap:
    """Its calls, in order."""

    def __init__(self) -> None:
        self.asked: list[int | str] = []
        self.heap = Heap(trim=lambda: self.asked.append("trim"), map_from=self.asked.append)


async def test_memory_is_given_back_after_a_refusal_and_not_for_each() -> None:
    now, recorded = [0.0], RecordedHeap()
    trimmer = Trimmer(recorded.heap, clock=lambda: now[0])
    for now[0] in (0.0, 0.5 * EVERY_S, 0.9 * EVERY_S, 1.1 * EVERY_S, 2.0 * EVERY_S, 10 * EVERY_S):
        trimmer.when_full()
        assert trimmer._task is not None
        await trimmer._task
    trimmer.close()
    assert recorded.asked == [PRESSED_BYTES, *["trim"] * 3]


async def test_memory_is_mapped_by_itself_until_a_flood_is_over() -> None:
    now, recorded = [0.0], RecordedHeap()
    trimmer = Trimmer(recorded.heap, clock=lambda: now[0])
    trimmer.when_full()
    now[0] = 0.7 * CALM_S
    trimmer.when_full()
    now[0] = 1.1 * CALM_S
    trimmer.look()
    assert CALM_BYTES not in recorded.asked
    now[0] = 1.8 * CALM_S
    trimmer.look()
    assert trimmer._task is not None
    await trimmer._task
    assert [one for one in recorded.asked if one != "trim"] == [PRESSED_BYTES, CALM_BYTES]
    assert recorded.asked[-1] == "trim"
    trimmer.when_full()  # the next one
    assert PRESSED_BYTES in recorded.asked[-2:]
    trimmer.close()


async def test_what_this_c_library_can_do_is_done() -> None:
    Trimmer(glibc()).when_full()
    glibc().map_from(CALM_BYTES)


async def test_a_door_that_is_calm_again_does_not_say_so_for_one_that_is_still_flooded() -> None:
    now, recorded = [0.0], RecordedHeap()
    trimmer = Trimmer(recorded.heap, clock=lambda: now[0])
    settings = Settings(otlp_grpc_listen="127.0.0.1:0", otlp_http_listen="127.0.0.1:0")  # type: ignore[call-arg]
    full = MemorySink(*(RefusedError("we are full", retry_after_s=1.0) for _ in range(3)))
    over_grpc, over_http = make_receivers(
        settings, full, Doors(trimmer=trimmer, refusals=Counter(), tls=None, beside={})
    )

    async def refused(client: Client, port: int) -> None:
        assert (await client.post(port, Signal.TRACES, request(span(1)))).message == "we are full"

    async with listening(over_grpc) as grpc_port, listening(over_http) as http_port:
        await refused(HttpClient(), http_port)
        now[0] = 0.7 * CALM_S
        await refused(GrpcClient(), grpc_port)
        now[0] = 1.4 * CALM_S
        trimmer.look()
        await refused(HttpClient(), http_port)
        now[0] = 2.0 * CALM_S
        trimmer.look()
        assert [one for one in recorded.asked if one != "trim"] == [PRESSED_BYTES]
    trimmer.close()
