from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from collector_processor.core.disk import STORE_RETRY_S
from collector_processor.exporters import MemoryExporter
from collector_processor.forwarding.forwarder import Forwarder, ForwarderLimits
from collector_processor.forwarding.ledger import Counts, Ledger
from collector_processor.forwarding.sender import Sender
from collector_processor.journal import Journal, open_journal
from collector_processor.journal.chunks import Backlog, Chunk, Entry, Queue, State
from collector_processor.otlp import (
    NO_TENANT,
    Delivered,
    Exporter,
    NoSuchService,
    Rejected,
    SendOutcome,
    Setback,
    Signal,
    Tenant,
    TryLater,
)
from collector_processor.wire.scan import scan_traces
from tests.otlp_requests import many_spans, metric_request, numbers_in, request, span

LARGE = 4 << 20
AGENT = {"openinference.span.kind": "AGENT"}


class Clock:
    """A clock that only sleeping advances."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sleeps: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


class Picky:
    """A backend that refuses requests by their content."""

    def __init__(self, judge: Callable[[list[int]], SendOutcome]) -> None:
        self.max_bytes = LARGE
        self.judge = judge
        self.sends: list[list[int]] = []
        self.taken: list[int] = []

    async def send(self, signal: Signal, body: bytes, tenant: Tenant, hops: tuple[str, ...]) -> SendOutcome:
        del signal, tenant, hops
        numbers = numbers_in(body)
        self.sends.append(numbers)
        outcome = self.judge(numbers)
        if isinstance(outcome, Delivered):
            self.taken += numbers
        return outcome

    async def close(self) -> None:
        """Do nothing."""


@dataclass
class Bench:
    journal: Journal
    ledger: Ledger
    forwarder: Forwarder
    senders: dict[Signal, Sender]
    clock: Clock = field(default_factory=Clock)

    async def store(
        self,
        body: bytes,
        *,
        signal: Signal = Signal.TRACES,
        tenant: str = "",
        hops: tuple[str, ...] = (),
        state: State = State.PENDING,
    ) -> Chunk:
        found = scan_traces(body) if signal is Signal.TRACES else None
        items = found.item_count if found else 1
        entry = Entry(
            signal=signal,
            tenant=Tenant(tenant),
            hops=hops,
            received_ns=0,
            items=items,
            body=body,
            state=state,
            traces=found.traces if found and state is State.HELD else (),
        )

        def stored(chunk: Chunk, _entry: Entry) -> Iterator[None]:
            self.ledger.acknowledge(signal, items)
            if state is State.PENDING:
                self.forwarder.offer(chunk)
            yield

        return (await self.journal.append([entry], stored))[0]

    def counts(self, signal: Signal = Signal.TRACES) -> Counts:
        counts = self.ledger.snapshot()[signal]
        assert counts.is_balanced
        return counts


def _sender(signal: Signal, exporter: Exporter, clock: Clock) -> Sender:
    send = partial(exporter.send, signal)
    return Sender(signal, send, exporter.max_bytes, now=lambda: clock.now, uniform=max)


@asynccontextmanager
async def bench(
    path: Path, exporter: Exporter | None, limits: ForwarderLimits | None = None
) -> AsyncIterator[Bench]:
    journal = await open_journal(path)
    clock = Clock()
    ledger = Ledger(journal.held_items)
    senders = {} if exporter is None else {signal: _sender(signal, exporter, clock) for signal in Signal}
    forwarder = Forwarder(journal, ledger, senders, limits, clock.sleep)
    async with asyncio.TaskGroup() as group:
        group.create_task(forwarder.run())
        try:
            yield Bench(journal, ledger, forwarder, senders, clock)
        finally:
            await forwarder.drain(10)
    await journal.close()


async def test_a_body_is_forwarded_unchanged(tmp_path: Path) -> None:
    backend = MemoryExporter()
    async with bench(tmp_path, backend) as at:
        await at.store(many_spans(3), tenant="a", hops=("far",))
    (sent,) = backend.requests
    assert (sent.body, sent.tenant, sent.hops) == (many_spans(3), "a", ("far",))
    assert at.counts().forwarded == 3


async def test_forwarded_rows_are_not_forwarded_again_after_a_restart(tmp_path: Path) -> None:
    async with bench(tmp_path, MemoryExporter()) as at:
        await at.store(many_spans(3))
    backend = MemoryExporter()
    async with bench(tmp_path, backend) as at:
        at.forwarder.resume()
    assert backend.requests == []


async def test_small_neighbours_go_in_one_request(tmp_path: Path) -> None:
    backend = MemoryExporter()
    async with bench(tmp_path, backend, ForwarderLimits(max_in_flight=1)) as at:
        await asyncio.gather(*(at.store(request(span(n))) for n in range(1, 41)))
    assert len(backend.requests) < 20
    assert sorted(numbers_in(*(sent.body for sent in backend.requests))) == list(range(1, 41))
    assert at.counts().forwarded == 40


async def test_rows_that_came_another_way_go_apart(tmp_path: Path) -> None:
    backend = MemoryExporter()
    async with bench(tmp_path, backend, ForwarderLimits(max_in_flight=1)) as at:
        await asyncio.gather(*(at.store(request(span(n)), hops=(f"hop{n % 2}",)) for n in range(1, 9)))
    for sent in backend.requests:
        assert {f"hop{n % 2}" for n in numbers_in(sent.body)} == set(sent.hops)


@pytest.mark.parametrize("most", [2000, len(many_spans(100, payload=50)) - 1])
async def test_what_is_too_large_for_the_backend_goes_in_pieces(tmp_path: Path, most: int) -> None:
    backend = MemoryExporter(max_bytes=most)
    async with bench(tmp_path, backend) as at:
        await at.store(many_spans(100, payload=50))
    assert max(len(sent.body) for sent in backend.requests) <= most
    assert numbers_in(*(sent.body for sent in backend.requests)) == list(range(1, 101))
    assert at.counts().forwarded == 100


async def test_a_retryable_failure_is_tried_again_ever_later(tmp_path: Path) -> None:
    backend = MemoryExporter([TryLater(reason="busy")] * 10)
    async with bench(tmp_path, backend) as at:
        await at.store(many_spans(2))
        await backend.wait_for_requests(11)
    assert at.clock.sleeps == [0.5, 1, 2, 4, 8, 16, 30, 30, 30, 30]
    assert {sent.body for sent in backend.requests} == {many_spans(2)}
    assert at.counts().forwarded == 2


async def test_the_backends_retry_delay_is_honoured(tmp_path: Path) -> None:
    backend = MemoryExporter([TryLater(reason="busy", after_s=17.5)])
    async with bench(tmp_path, backend) as at:
        await at.store(many_spans(2))
    assert at.clock.sleeps == [17.5]


async def test_a_retry_delay_of_years_is_cut_to_an_hour(tmp_path: Path) -> None:
    backend = MemoryExporter([TryLater(reason="busy", after_s=1_900_000_000.0)])
    async with bench(tmp_path, backend) as at:
        await at.store(many_spans(2))
    assert at.clock.sleeps == [3600]


async def test_a_backend_that_asks_for_no_wait_is_not_asked_without_end(tmp_path: Path) -> None:
    """A ``RetryInfo`` without a delay, or a date in the past, asks for no delay."""
    backend = MemoryExporter([TryLater(reason="busy", after_s=0.0)] * 3)
    async with bench(tmp_path, backend) as at:
        await at.store(many_spans(2))
    assert at.clock.sleeps == [0.5, 1, 2]


async def test_one_bad_span_does_not_take_its_neighbours_along(tmp_path: Path) -> None:
    def judge(numbers: list[int]) -> SendOutcome:
        return Rejected(reason="bad") if 13 in numbers else Delivered()

    backend = Picky(judge)
    async with bench(tmp_path, backend) as at:
        await at.store(many_spans(1000))
    assert sorted(backend.taken) == [n for n in range(1, 1001) if n != 13]
    assert len(backend.sends) < 25
    assert (at.counts().forwarded, at.counts().rejected) == (999, 1)


async def test_nothing_accepted_is_sent_again_while_the_rest_is_retried(tmp_path: Path) -> None:
    answers: Iterator[SendOutcome] = iter(
        [Rejected(reason="bad"), Delivered(), TryLater(reason="busy"), Delivered()]
    )
    backend = Picky(lambda _numbers: next(answers))
    async with bench(tmp_path, backend) as at:
        await at.store(many_spans(4))
    assert backend.sends == [[1, 2, 3, 4], [1, 2], [3, 4], [3, 4]]
    assert at.counts().forwarded == 4


async def test_a_backend_that_refuses_everything_is_not_asked_about_every_span(tmp_path: Path) -> None:
    backend = Picky(lambda _numbers: Rejected(reason="wrong password"))
    async with bench(tmp_path, backend) as at:
        await at.store(many_spans(1000))
    assert len(backend.sends) < 60
    assert at.counts().rejected == 1000


async def test_partial_success_is_counted_and_not_sent_again(tmp_path: Path) -> None:
    backend = MemoryExporter([Delivered(rejected=2, message="too old")])
    async with bench(tmp_path, backend) as at:
        await at.store(many_spans(5))
    assert len(backend.requests) == 1
    assert (at.counts().forwarded, at.counts().rejected) == (3, 2)


async def test_a_signal_without_service_is_reported_once_and_dropped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    backend = MemoryExporter(otherwise=NoSuchService(reason="takes only traces"))
    async with bench(tmp_path, backend) as at:
        for _ in range(5):
            await at.store(metric_request([1]), signal=Signal.METRICS)
    assert len(backend.requests) == 1
    assert [record.message for record in caplog.records].count(
        "backend does not take this signal: its items are dropped"
    ) == 1
    assert (at.counts(Signal.METRICS).rejected, at.counts(Signal.METRICS).unsupported) == (0, 5)


@pytest.mark.parametrize(
    ("outcome", "said", "counted"),
    [
        pytest.param(
            TryLater(reason="connection refused to backend:4317", is_away=True),
            "backend away",
            Setback.AWAY,
            id="away",
        ),
        pytest.param(
            TryLater(reason="HTTP 503", after_s=5), "backend asked to wait", Setback.ASKED_TO_WAIT, id="asked"
        ),
        pytest.param(
            TryLater(reason="HTTP 503", after_s=0),
            "backend returns errors: requests are kept and retried",
            Setback.FAILING,
            id="failing",
        ),
    ],
)
async def test_an_unreachable_backend_is_distinguished_from_a_throttling_one(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    outcome: TryLater,
    said: str,
    counted: Setback,
) -> None:
    backend = MemoryExporter([outcome, outcome])
    async with bench(tmp_path, backend) as at:
        await at.store(many_spans(2))
    told = [record for record in caplog.records if record.levelname == "WARNING"]
    assert [record.message for record in told] == [said]  # once, however often it is tried
    assert told[0].__dict__["reason"] == outcome.reason
    assert told[0].__dict__.get("wait_s") == outcome.requested_wait_s
    assert at.senders[Signal.TRACES].setbacks == {counted: 2}


async def test_a_backend_that_returns_and_throttles_is_reported_as_both(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    backend = MemoryExporter([TryLater(reason="gone", is_away=True), TryLater(reason="busy", after_s=1)])
    async with bench(tmp_path, backend) as at:
        await at.store(many_spans(2))
    told = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert told == ["backend away", "backend asked to wait"]


async def test_a_tenant_that_the_backend_does_not_know_loses_nothing_of_others(tmp_path: Path) -> None:
    backend = MemoryExporter([NoSuchService(reason="404 no such tenant")])
    async with bench(tmp_path, backend) as at:
        await at.store(metric_request([1]), signal=Signal.METRICS, tenant="a")
        await backend.wait_for_requests(1)
        await at.store(metric_request([1]), signal=Signal.METRICS, tenant="b")
    assert (at.counts(Signal.METRICS).unsupported, at.counts(Signal.METRICS).forwarded) == (1, 1)


async def test_traces_wait_out_an_ingress_that_knows_no_such_path(tmp_path: Path) -> None:
    backend = MemoryExporter([NoSuchService(reason="404 page not found")] * 3)
    async with bench(tmp_path, backend) as at:
        await at.store(many_spans(2))
    assert len(backend.requests) == 4
    assert (at.counts().forwarded, at.counts().rejected) == (2, 0)


async def test_what_the_backend_took_before_it_takes_again(tmp_path: Path) -> None:
    backend = MemoryExporter([Delivered(), NoSuchService(reason="404 page not found")])
    async with bench(tmp_path, backend) as at:
        for _ in range(2):
            await at.store(metric_request([1]), signal=Signal.METRICS)
    assert (at.counts(Signal.METRICS).forwarded, at.counts(Signal.METRICS).rejected) == (2, 0)


async def test_a_signal_without_service_is_tried_again_later(tmp_path: Path) -> None:
    backend = MemoryExporter([NoSuchService(reason="not now")])
    async with bench(tmp_path, backend) as at:
        await at.store(metric_request([1]), signal=Signal.METRICS)
        await backend.wait_for_requests(1)
        at.clock.now += 1000
        await at.store(metric_request([1]), signal=Signal.METRICS)
    assert (at.counts(Signal.METRICS).unsupported, at.counts(Signal.METRICS).forwarded) == (1, 1)


async def test_with_no_backend_rows_are_kept(tmp_path: Path) -> None:
    async with bench(tmp_path, None) as at:
        await at.store(many_spans(3))
        assert at.counts().kept == 3
        assert at.counts().held == 0


async def test_what_a_process_left_is_taken_up_by_the_next(tmp_path: Path) -> None:
    journal = await open_journal(tmp_path)
    for n in range(1, 30):
        await journal.append(
            [
                Entry(
                    signal=Signal.TRACES,
                    tenant=NO_TENANT,
                    hops=("far",),
                    received_ns=0,
                    items=1,
                    body=request(span(n)),
                )
            ]
        )
    await journal.close()
    backend = MemoryExporter()
    async with bench(tmp_path, backend) as at:
        at.forwarder.resume()
        await at.store(request(span(30)), hops=("far",))
    assert sorted(numbers_in(*(sent.body for sent in backend.requests))) == list(range(1, 31))
    assert at.counts().received == 30
    assert at.counts().forwarded == 30


async def test_a_lane_that_falls_behind_reads_its_backlog_and_loses_and_doubles_nothing(
    tmp_path: Path,
) -> None:
    backend = MemoryExporter()
    limits = ForwarderLimits(max_in_flight=2, queue_memory_bytes=2000, batch_bytes=800)
    async with bench(tmp_path, backend, limits) as at:
        for first in range(1, 200, 20):
            await asyncio.gather(*(at.store(request(span(n))) for n in range(first, first + 20)))
    assert sorted(numbers_in(*(sent.body for sent in backend.requests))) == list(range(1, 201))
    assert at.counts().forwarded == 200


async def test_a_backlog_that_cannot_be_read_is_read_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example, all descriptors are in use: spans wait, and the service continues."""
    journal = await open_journal(tmp_path)
    entry = Entry(
        signal=Signal.TRACES, tenant=NO_TENANT, hops=(), received_ns=0, items=3, body=many_spans(3), traces=()
    )
    await journal.append([entry])
    await journal.close()

    backend = MemoryExporter()
    async with bench(tmp_path, backend) as at:
        refusals, read = 3, at.journal.read_pending

        async def read_later(*arguments: Any) -> Backlog:
            nonlocal refusals
            if refusals:
                refusals -= 1
                raise OSError(errno.EMFILE, "Too many open files")
            return await read(*arguments)

        monkeypatch.setattr(at.journal, "read_pending", read_later)
        at.forwarder.resume()
    assert at.clock.sleeps == [STORE_RETRY_S] * 3
    assert numbers_in(*(sent.body for sent in backend.requests)) == [1, 2, 3]


async def test_a_throttled_tenant_holds_up_only_itself(tmp_path: Path) -> None:
    gate = asyncio.Event()

    class Throttled(MemoryExporter):
        async def send(
            self, signal: Signal, body: bytes, tenant: Tenant, hops: tuple[str, ...]
        ) -> SendOutcome:
            if tenant == "slow":
                await gate.wait()
            return await super().send(signal, body, tenant, hops)

    backend = Throttled()
    limits = ForwarderLimits(memory_bytes=1000, queue_memory_bytes=1000)
    async with bench(tmp_path, backend, limits) as at:
        for n in range(1, 21):
            await at.store(request(span(n)), tenant="slow")
            await at.store(request(span(n)), tenant="quick")
        while len(backend.requests) < 20 and len(numbers_in(*(sent.body for sent in backend.requests))) < 20:
            await backend.wait_for_requests(len(backend.requests) + 1)
        assert {sent.tenant for sent in backend.requests} == {"quick"}
        assert at.counts().held == 20
        gate.set()
    assert at.counts().forwarded == 40


async def test_discarded_rows_are_not_sent_and_rows_in_flight_are_returned(tmp_path: Path) -> None:
    gate, begun = asyncio.Event(), asyncio.Event()

    class Waiting(MemoryExporter):
        async def send(
            self, signal: Signal, body: bytes, tenant: Tenant, hops: tuple[str, ...]
        ) -> SendOutcome:
            begun.set()
            await gate.wait()
            return await super().send(signal, body, tenant, hops)

    backend = Waiting()
    async with bench(tmp_path, backend) as at:
        first = await at.store(request(span(1)))
        await begun.wait()
        others = [await at.store(request(span(n))) for n in (2, 3)]
        dropped = at.forwarder.discard([first.seq, others[0].seq])
        assert dropped == {others[0].seq}
        at.journal.mark_done(others[:1])
        at.ledger.settle(Signal.TRACES, returned=1)
        gate.set()
    assert numbers_in(*(sent.body for sent in backend.requests)) == [1, 3]
    assert (at.counts().forwarded, at.counts().returned, at.counts().held) == (2, 1, 0)


async def test_released_rows_are_sent_though_later_ones_went_before(tmp_path: Path) -> None:
    backend = MemoryExporter()
    async with bench(tmp_path, backend) as at:
        await at.store(request(span(1, attributes=AGENT)), state=State.HELD)
        await at.store(request(span(2)))
        await backend.wait_for_requests(1)
        assert numbers_in(backend.requests[0].body) == [2]
        (key,) = at.journal._accounts.traces
        await at.journal.release_held(key)
        await backend.wait_for_requests(2)
    assert numbers_in(*(sent.body for sent in backend.requests)) == [2, 1]
    assert at.counts().forwarded == 2


async def test_a_drain_waits_for_a_row_that_came_right_after_its_queue_was_idle(tmp_path: Path) -> None:
    limits = ForwarderLimits(apart_s=0.2, batch_bytes=len(request(span(2))))
    offered = asyncio.Event()

    def judge(numbers: list[int]) -> SendOutcome:
        if numbers == [2]:
            time.sleep(2 * limits.apart_s)  # a busy event loop: the timer of the queue is overdue
            asyncio.get_running_loop().call_soon(offer)
        return Delivered()

    def offer() -> None:
        at.forwarder.offer(last)
        offered.set()

    backend = Picky(judge)
    async with bench(tmp_path, backend, limits) as at:
        last = await at.store(request(span(3, attributes=AGENT)), state=State.HELD)
        await at.store(request(span(1)))
        await at.store(request(span(2)))
        await offered.wait()
        await at.forwarder.drain(60)
    assert backend.taken == [1, 2, 3]


async def test_draining_stops_at_the_deadline_and_leaves_the_rest_in_the_journal(tmp_path: Path) -> None:
    class Silent(MemoryExporter):
        async def send(
            self, signal: Signal, body: bytes, tenant: Tenant, hops: tuple[str, ...]
        ) -> SendOutcome:
            await super().send(signal, body, tenant, hops)
            await asyncio.Event().wait()
            raise AssertionError

    async with bench(tmp_path, Silent()) as at:
        await at.store(many_spans(3))
        await at.forwarder.drain(0.01)
        assert at.counts().held == 3
    journal = await open_journal(tmp_path)
    assert journal.waiting[Queue(Signal.TRACES, NO_TENANT)].items == 3
    await journal.close()


class SlowBackend(MemoryExporter):
    """Answers when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.may_answer = asyncio.Event()

    async def send(self, signal: Signal, body: bytes, tenant: Tenant, hops: tuple[str, ...]) -> SendOutcome:
        outcome = await super().send(signal, body, tenant, hops)
        await self.may_answer.wait()
        return outcome


async def test_small_rows_wait_for_company_while_a_request_is_under_way(tmp_path: Path) -> None:
    backend = SlowBackend()
    async with bench(tmp_path, backend) as at:
        for number in range(1, 6):
            await at.store(request(span(number)))
        await backend.wait_for_requests(1)
        assert [numbers_in(sent.body) for sent in backend.requests] == [[1]]
        backend.may_answer.set()
        await backend.wait_for_requests(2)
    assert [numbers_in(sent.body) for sent in backend.requests] == [[1], [2, 3, 4, 5]]


async def test_a_full_request_does_not_wait_for_the_one_in_flight(tmp_path: Path) -> None:
    backend = SlowBackend()
    async with bench(tmp_path, backend, ForwarderLimits(batch_bytes=1)) as at:
        for number in range(1, 4):
            await at.store(request(span(number)))
        await backend.wait_for_requests(3)
        backend.may_answer.set()
    assert numbers_in(*(sent.body for sent in backend.requests)) == [1, 2, 3]
