"""The outbox delivers at least once, in order, with the same bytes; deliveries do not block each other."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial

import pytest

from collector_processor.core.disk import StoreError
from collector_processor.core.records import Outgoing
from collector_processor.core.scores import Lane
from collector_processor.exporters import MemoryExporter
from collector_processor.forwarding.outbox import OutboxDelivery
from collector_processor.forwarding.sender import (
    FIRST_WAIT_S,
    LONGEST_WAIT_S,
    NO_SERVICE_S,
    Part,
    Sender,
    Sending,
)
from collector_processor.otlp import (
    NO_TENANT,
    Delivered,
    NoSuchService,
    Rejected,
    SendOutcome,
    Setback,
    Signal,
    Tenant,
    TryLater,
)

ACME, BETA = Tenant("x-scope-orgid=acme"), Tenant("x-scope-orgid=beta")
BUSY = TryLater(reason="busy")


class Outbox:
    """An outbox in memory, and a simulated clock."""

    def __init__(
        self,
        *outcomes: SendOutcome,
        has_backend: bool = True,
        exporter: MemoryExporter | None = None,
        signal: Signal = Signal.TRACES,
        look_s: float | None = None,
    ) -> None:
        self.signal = signal
        self.delivered: list[Outgoing] = []
        self.entries: list[Outgoing] = []
        self.exporter = exporter or MemoryExporter(outcomes)
        self.now = self.tick_s = 0.0
        self.disk_is_slow = False
        self.unreadable = self.full_for = 0
        self.rests: list[float] = []
        send = partial(self.exporter.send, signal)
        self.sender = Sender(signal, send, self.exporter.max_bytes, now=self.clock)
        self.delivery = OutboxDelivery(
            signal,
            read=self.read,
            forget=self.forget,
            sender=self.sender if has_backend else None,
            look_s=look_s,
            pause=self.rest,
            delivered=self.delivered.append,
        )

    def clock(self) -> float:
        self.now += self.tick_s
        return self.now

    def add(self, body: str, tenant: Tenant = NO_TENANT) -> None:
        number = len(self.entries) + 1
        self.entries.append(Outgoing(signal=self.signal, body=body.encode(), id=number, tenant=tenant))

    async def read(self, signal: Signal | Lane, skip: AbstractSet[Tenant]) -> list[Outgoing]:
        for _ in range(3 * self.disk_is_slow):
            await asyncio.sleep(0)
        if self.unreadable:
            self.unreadable -= 1
            raise StoreError("the store cannot be used: disk I/O error")
        return [one for one in self.entries if one.signal is signal and one.tenant not in skip]

    async def rest(self, seconds: float) -> None:
        self.rests.append(seconds)

    async def forget(self, ids: list[int]) -> None:
        if self.full_for:
            self.full_for -= 1
            raise StoreError("the store cannot write: database or disk is full")
        self.entries = [one for one in self.entries if one.id not in ids]

    def taken(self) -> list[str]:
        return [request.body.decode() for request in self.exporter.delivered]

    def asked(self) -> list[str]:
        return [request.body.decode() for request in self.exporter.requests]


async def test_what_waits_of_a_tenant_goes_in_one_request_in_order_and_is_struck_out() -> None:
    outbox = Outbox()
    for body, tenant in (("a", ACME), ("1", BETA), ("b", ACME), ("c", ACME)):
        outbox.add(body, tenant)
    assert await outbox.delivery.send_some()
    assert not await outbox.delivery.send_some()
    assert (outbox.taken(), outbox.entries, outbox.delivery.sent) == (["abc", "1"], [], 4)
    assert [request.tenant for request in outbox.exporter.requests] == [ACME, BETA]


async def test_no_request_is_larger_than_the_backend_takes() -> None:
    outbox = Outbox(exporter=MemoryExporter(max_bytes=4))
    for body in ("aa", "b", "cc", "dddddd", "e"):
        outbox.add(body)
    await outbox.delivery.send_some()
    assert outbox.taken() == ["aab", "cc", "dddddd", "e"]  # one that is too large by itself goes alone


async def test_an_entry_stays_until_the_backend_has_taken_it() -> None:
    outbox = Outbox(BUSY)
    outbox.add("a")
    assert await outbox.delivery.send_some()
    assert len(outbox.entries) == 1
    assert not await outbox.delivery.send_some()  # not before the pause is over
    outbox.now = FIRST_WAIT_S
    await outbox.delivery.send_some()
    assert (outbox.taken(), outbox.entries) == (["a"], [])


async def test_a_full_disk_neither_ends_the_loop_nor_has_an_entry_sent_twice() -> None:
    outbox = Outbox()
    outbox.add("a")
    outbox.full_for = 3
    assert await outbox.delivery.send_some()
    assert len(outbox.rests) == 3
    assert (outbox.taken(), outbox.entries) == (["a"], [])


async def test_the_same_bytes_are_sent_again_after_a_crash_before_the_striking_out() -> None:
    outbox = Outbox()
    outbox.add("a")
    (entry,) = outbox.entries
    await outbox.delivery.send_some()
    outbox.entries = [entry]  # the process died before it was written
    await outbox.delivery.send_some()
    assert outbox.taken() == ["a", "a"]


async def test_a_throttled_tenant_delays_no_other() -> None:
    outbox = Outbox(TryLater(reason="quota", after_s=60))
    outbox.add("a1", ACME)
    outbox.add("a2", ACME)
    outbox.add("b1", BETA)
    await outbox.delivery.send_some()
    assert outbox.taken() == ["b1"]
    assert len(outbox.exporter.requests) == 2  # a2 did not even knock
    outbox.now = 59
    outbox.add("b2", BETA)
    await outbox.delivery.send_some()
    outbox.now = 60
    await outbox.delivery.send_some()
    assert outbox.taken() == ["b1", "b2", "a1a2"]


async def test_a_backend_that_asks_for_no_pause_gets_ours() -> None:
    """A ``RetryInfo`` without a delay, or a date in the past, asks for no delay."""
    outbox = Outbox(TryLater(reason="busy", after_s=0.0))
    outbox.add("a")
    assert await outbox.delivery.send_some()
    assert not await outbox.delivery.send_some()
    outbox.now = FIRST_WAIT_S
    await outbox.delivery.send_some()
    assert outbox.taken() == ["a"]


async def test_pauses_grow_to_a_limit_and_start_over_after_a_success() -> None:
    outbox = Outbox(*[BUSY] * 20, Delivered(), BUSY)
    outbox.add("a")
    pauses = list[float]()
    while outbox.entries:
        before = outbox.now
        while outbox.entries and not await outbox.delivery.send_some():
            outbox.now += 0.125
        pauses.append(outbox.now - before)
    assert max(pauses) <= LONGEST_WAIT_S
    assert pauses[-1] >= LONGEST_WAIT_S / 2
    assert pauses[1] <= FIRST_WAIT_S + 0.125
    outbox.add("b")
    await outbox.delivery.send_some()
    outbox.now += FIRST_WAIT_S
    assert await outbox.delivery.send_some()
    assert outbox.taken() == ["a", "b"]


@pytest.mark.parametrize(
    "outcome",
    [
        pytest.param(Rejected(reason="no"), id="refused"),
        pytest.param(Delivered(rejected=1, message="too old"), id="partly taken"),
    ],
)
async def test_what_is_refused_for_good_is_counted_and_not_sent_again(outcome: SendOutcome) -> None:
    outbox = Outbox(outcome)
    outbox.add("a", ACME)
    outbox.add("b", BETA)
    await outbox.delivery.send_some()
    assert (outbox.entries, outbox.delivery.sent, outbox.delivery.refused) == ([], 1, 1)
    assert len(outbox.exporter.requests) == 2


def logs_outbox(*outcomes: SendOutcome) -> Outbox:
    return Outbox(*outcomes, signal=Signal.LOGS)


async def test_logs_that_the_backend_has_no_service_for_are_asked_for_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outbox = logs_outbox(NoSuchService(reason="no logs here"))
    for body in ("a", "b"):
        outbox.add(body)
        await outbox.delivery.send_some()
    assert (len(outbox.exporter.requests), outbox.entries) == (1, [])
    assert (outbox.delivery.sent, outbox.delivery.refused, outbox.delivery.unsupported) == (0, 0, 2)
    assert len(caplog.records) == 1
    outbox.now = NO_SERVICE_S
    outbox.add("c")
    await outbox.delivery.send_some()
    assert outbox.taken() == ["c"]


async def test_carriers_wait_out_an_ingress_that_knows_no_such_path() -> None:
    outbox = Outbox(NoSuchService(reason="404 page not found"))
    outbox.add("a")
    await outbox.delivery.send_some()
    assert len(outbox.entries) == 1
    outbox.now = FIRST_WAIT_S
    await outbox.delivery.send_some()
    assert (outbox.taken(), outbox.delivery.unsupported) == (["a"], 0)


async def test_what_is_delivered_is_reported_once_the_backend_has_it_and_never_before() -> None:
    outbox = Outbox(TryLater(reason="connection refused", is_away=True))
    outbox.add("a")
    await outbox.delivery.send_some()
    assert outbox.delivered == []
    assert outbox.sender.setbacks == {Setback.AWAY: 1}
    outbox.now = FIRST_WAIT_S
    await outbox.delivery.send_some()
    assert [entry.body for entry in outbox.delivered] == [b"a"]


async def test_what_is_refused_is_never_reported_as_delivered() -> None:
    outbox = Outbox(Rejected(reason="no"))
    outbox.add("a")
    await outbox.delivery.send_some()
    assert outbox.delivered == []


async def test_a_refused_batch_is_bisected_until_the_bad_entry_is_alone() -> None:
    bad = Rejected(reason="c")
    outbox = Outbox(bad, Delivered(), bad, bad)
    for body in ("a", "b", "c", "d"):
        outbox.add(body)
    await outbox.delivery.send_some()
    assert outbox.asked() == ["abcd", "ab", "cd", "c", "d"]
    assert (outbox.entries, outbox.delivery.sent, outbox.delivery.refused) == ([], 3, 1)


async def test_what_a_bisected_request_has_left_waits_where_the_backend_asks_it_to() -> None:
    outbox = Outbox(Rejected(reason="one of them"), Delivered(), BUSY)
    for body in ("a", "b", "c"):
        outbox.add(body)
    await outbox.delivery.send_some()
    assert outbox.asked() == ["abc", "a", "bc"]
    assert [one.body for one in outbox.entries] == [b"b", b"c"]
    assert [one.body for one in outbox.delivered] == [b"a"]
    outbox.now = FIRST_WAIT_S
    await outbox.delivery.send_some()
    assert (outbox.taken(), outbox.entries) == (["a", "bc"], [])


async def test_rows_and_verdicts_of_a_throttled_tenant_wait_together() -> None:
    outbox = Outbox(TryLater(reason="quota", after_s=60))
    rows = Sending(parts=deque[Part]([Body(b"rows")]), tenant=ACME)
    assert await outbox.sender.attempt(rows) == 60
    outbox.add("a", ACME)
    outbox.add("b", BETA)
    await outbox.delivery.send_some()
    assert outbox.taken() == ["b"]
    assert await outbox.sender.attempt(rows) == 0
    await outbox.delivery.send_some()
    assert outbox.taken() == ["b", "rows", "a"]


@dataclass
class Body:
    """A part of a request that cannot be bisected."""

    body: bytes
    items: int = 1

    def halves(self) -> None:
        """Return nothing."""


async def test_with_no_backend_entries_are_struck_out() -> None:
    outbox = Outbox(has_backend=False)
    outbox.add("a")
    await outbox.delivery.send_some()
    assert (outbox.entries, outbox.delivery.sent) == ([], 0)


async def test_it_sends_what_it_is_woken_for() -> None:
    outbox = Outbox()
    running = asyncio.create_task(outbox.delivery.run())
    outbox.add("a")
    outbox.delivery.wake()
    await outbox.exporter.wait_for_requests(1)
    outbox.add("b")
    outbox.delivery.wake()
    await outbox.exporter.wait_for_requests(2)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert outbox.taken() == ["a", "b"]


async def test_a_pause_that_ends_before_it_rests_is_followed_by_the_next_try() -> None:
    outbox = Outbox(TryLater(reason="quota", after_s=0.01))
    outbox.tick_s = 1.0
    outbox.add("a")
    running = asyncio.create_task(outbox.delivery.run())
    async with asyncio.timeout(60):
        await outbox.exporter.wait_for_requests(2)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert outbox.taken() == ["a"]


async def test_it_finds_what_another_process_added() -> None:
    outbox = Outbox(look_s=0.0)
    outbox.add("a")
    running = asyncio.create_task(outbox.delivery.run())
    await outbox.exporter.wait_for_requests(1)
    outbox.add("b")  # nobody wakes it
    await outbox.exporter.wait_for_requests(2)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert outbox.taken() == ["a", "b"]


async def test_an_outbox_that_cannot_be_read_is_read_later() -> None:
    outbox = Outbox()
    outbox.add("a")
    outbox.unreadable = 3
    running = asyncio.create_task(outbox.delivery.run())
    await outbox.exporter.wait_for_requests(1)
    assert len(outbox.rests) == 3
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert outbox.taken() == ["a"]


async def test_a_shutdown_sends_what_there_is_and_waits_for_no_pause() -> None:
    outbox = Outbox(TryLater(reason="quota", after_s=60))
    outbox.add("a", ACME)
    outbox.add("b", BETA)
    await outbox.delivery.drain(5)
    assert (outbox.taken(), len(outbox.entries)) == (["b"], 1)


class SlowBackend(MemoryExporter):
    """A backend that has received a request, and answers when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.may_answer = asyncio.Event()

    async def send(self, signal: Signal, body: bytes, tenant: Tenant, hops: tuple[str, ...]) -> SendOutcome:
        outcome = await super().send(signal, body, tenant, hops)
        await self.may_answer.wait()
        return outcome


async def test_a_shutdown_does_not_send_again_what_is_under_way() -> None:
    backend = SlowBackend()
    outbox = Outbox(exporter=backend)
    outbox.add("a")
    running = asyncio.create_task(outbox.delivery.run())
    await backend.wait_for_requests(1)
    outbox.add("b")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    asyncio.get_running_loop().call_soon(backend.may_answer.set)
    await outbox.delivery.drain(60)
    assert (outbox.taken(), outbox.entries) == (["a", "b"], [])


async def test_a_shutdown_waits_no_longer_than_it_may_for_what_is_under_way() -> None:
    backend = SlowBackend()
    outbox = Outbox(exporter=backend)
    outbox.add("a")
    running = asyncio.create_task(outbox.delivery.run())
    await backend.wait_for_requests(1)
    running.cancel()
    async with asyncio.timeout(60):
        await outbox.delivery.drain(0)
    backend.may_answer.set()
    await asyncio.sleep(0)
    assert (outbox.taken(), len(outbox.entries)) == (["a"], 1)


@pytest.mark.parametrize(("waiting", "said"), [(0, 0), (1, 1)])
async def test_a_shutdown_without_time_says_so_only_where_something_is_left(
    waiting: int, said: int, caplog: pytest.LogCaptureFixture
) -> None:
    outbox = Outbox()
    outbox.disk_is_slow = True
    for _ in range(waiting):
        outbox.add("a")
    await outbox.delivery.drain(0)
    assert len(caplog.records) == said
    assert len(outbox.entries) == waiting


async def test_a_shutdown_ends_though_the_disk_reads_nothing(caplog: pytest.LogCaptureFixture) -> None:
    outbox = Outbox()
    outbox.disk_is_slow = True
    outbox.unreadable = 10
    outbox.add("a")
    await outbox.delivery.drain(0)
    assert caplog.messages == [
        "stopped before every verdict was delivered: the rest is sent after the next start"
    ]
