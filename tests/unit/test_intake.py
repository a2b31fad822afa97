from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from collector_processor.forwarding.ledger import Counts, Ledger
from collector_processor.journal import Disk, Journal, open_journal
from collector_processor.journal.chunks import Chunk, JournalLimits
from collector_processor.otlp import (
    NO_TENANT,
    Arrival,
    MalformedRequestError,
    Receipt,
    RefusedError,
    Signal,
    Tenant,
    TraceKey,
)
from collector_processor.receivers.intake import Intake, IntakeRules, LoopError
from collector_processor.wire.facts import TraceArrival
from tests.otlp_requests import (
    log_request,
    log_rows_of,
    many_spans,
    metric_request,
    numbers_in,
    record,
    request,
    rows_of,
    span,
    trace_name,
)

AGENT = {"gen_ai.operation.name": "invoke_agent"}
KEY = TraceKey(NO_TENANT, trace_name(1))


@dataclass
class Door:
    """An intake whose collaborators record their calls."""

    journal: Journal
    ledger: Ledger
    held: set[TraceKey] = field(default_factory=set)
    fed: list[TraceArrival] = field(default_factory=list)
    offered: list[Chunk] = field(default_factory=list)
    max_item_bytes: int = 1 << 20
    intake: Intake | None = None

    def offer(self, chunk: Chunk) -> None:
        self.offered.append(chunk)

    async def accept(
        self, body: bytes, *, signal: Signal = Signal.TRACES, tenant: str = "", hops: tuple[str, ...] = ()
    ) -> Receipt:
        rules = IntakeRules(
            instance_id="us",
            now_ns=lambda: 42,
            holds=self.held.__contains__,
            feed=self.fed.append,
            max_item_bytes={Signal.TRACES: self.max_item_bytes},
        )
        arrival = Arrival(signal=signal, body=body, tenant=Tenant(tenant), hops=hops)
        self.intake = self.intake or Intake(self.journal, self.ledger, self, rules)
        return await self.intake.accept(arrival)

    def counts(self, signal: Signal = Signal.TRACES) -> Counts:
        counts = self.ledger.snapshot()[signal]
        assert counts.is_balanced
        return counts


@asynccontextmanager
async def door(
    path: Path, limits: JournalLimits | None = None, disk: Disk | None = None
) -> AsyncIterator[Door]:
    journal = await open_journal(path, limits, disk)
    yield Door(journal, Ledger(journal.held_items))
    await journal.close()


async def test_ordinary_traffic_is_stored_whole_and_handed_on(tmp_path: Path) -> None:
    async with door(tmp_path) as at:
        assert await at.accept(many_spans(5), tenant="a", hops=("far",)) == Receipt()
        (chunk,) = at.offered
        assert (chunk.body, chunk.queue.tenant, chunk.hops, chunk.items) == (many_spans(5), "a", ("far",), 5)
        assert at.fed == []
        assert at.counts().acknowledged == 5


async def test_agent_traces_are_reported_to_the_slow_lane(tmp_path: Path) -> None:
    body = request(span(1, attributes=AGENT, parent=9), span(2, trace=2), span(3, trace=3, attributes=AGENT))
    async with door(tmp_path) as at:
        await at.accept(body)
        assert [arrival.key.trace_id for arrival in at.fed] == [trace_name(1), trace_name(3)]
        first = at.fed[0]
        assert (first.seq, first.received_ns, first.is_held) == (at.offered[0].seq, 42, False)
        assert [span_id for span_id, *_ in first.notes] == [1]
        assert at.offered[0].body == body


class FailsAfter(Disk):
    """A disk that fails after some flushes."""

    def __init__(self, flushes: int) -> None:
        self.left = flushes + 1  # and one for the next segment's number

    def flush(self, file: int) -> None:
        self.left -= 1
        if self.left < 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().flush(file)


async def test_a_request_stored_in_part_is_counted_as_what_became_of_its_spans(tmp_path: Path) -> None:
    body = request(*(span(1, trace=trace, attributes=AGENT) for trace in range(1, 12_001)))
    async with door(tmp_path, disk=FailsAfter(flushes=4)) as at:  # two create the segment
        at.max_item_bytes = 8 << 20
        with pytest.raises(RefusedError, match="Input/output"):
            await at.accept(body)
        counts = at.counts()
        assert (counts.received, counts.acknowledged, counts.refused) == (12_000, 8_000, 4_000)
        assert len(at.fed) == 8_000


async def test_later_spans_of_a_known_trace_are_reported_without_a_marker(tmp_path: Path) -> None:
    async with door(tmp_path) as at:
        await at.accept(request(span(1, attributes=AGENT, parent=9)))
        await at.accept(request(span(9)))
        await at.accept(request(span(9)), tenant="other")
        assert [[span_id for span_id, *_ in arrival.notes] for arrival in at.fed] == [[1], [9]]
        assert len(await rows_of(at.journal, KEY)) == 2


async def test_a_carrier_is_forwarded_and_never_reported(tmp_path: Path) -> None:
    async with door(tmp_path) as at:
        await at.accept(request(span(1, attributes=AGENT)))
        await at.accept(request(span(2, parent=1, attributes={"blamespan.carrier": True})))
        assert len(at.fed) == 1
        assert len(at.offered) == 2


async def test_logs_of_agent_traces_keep_them_awake(tmp_path: Path) -> None:
    async with door(tmp_path) as at:
        await at.accept(request(span(1, attributes=AGENT)))
        await at.accept(log_request(record(trace=1), record(trace=2)), signal=Signal.LOGS)
        assert [arrival.notes for arrival in at.fed[1:]] == [()]
        assert len(await log_rows_of(at.journal, KEY)) == 1
        assert at.counts(Signal.LOGS).held == 2


async def test_held_traces_wait_and_the_rest_is_forwarded(tmp_path: Path) -> None:
    body = request(
        span(1, attributes=AGENT), span(2, trace=2), span(3, parent=1), span(4, trace=4, attributes=AGENT)
    )
    async with door(tmp_path) as at:
        at.held.add(KEY)
        await at.accept(body)
        assert [numbers_in(chunk.body) for chunk in at.offered] == [[2, 4]]
        ((_, held),) = await at.journal.held_rows(KEY)
        assert numbers_in(held) == [1, 3]
        assert {arrival.key.trace_id: arrival.is_held for arrival in at.fed} == {
            trace_name(1): True,
            trace_name(4): False,
        }
        assert at.journal.commits == 1
        assert at.counts().held == 4


async def test_a_request_of_held_traces_only_leaves_no_rest(tmp_path: Path) -> None:
    async with door(tmp_path) as at:
        at.held.add(KEY)
        await at.accept(request(span(1, attributes=AGENT)))
        assert at.offered == []


async def test_invalid_spans_are_refused_and_their_neighbours_taken(tmp_path: Path) -> None:
    bad = span(2)
    bad.span_id = b"short"
    async with door(tmp_path) as at:
        receipt = await at.accept(request(span(1), bad, span(3)))
        assert receipt.rejected == 1
        assert "invalid" in receipt.message
        assert numbers_in(at.offered[0].body) == [1, 3]
        assert (at.counts().received, at.counts().refused) == (3, 1)


async def test_a_span_too_large_for_the_backend_is_refused_before_it_is_acknowledged(tmp_path: Path) -> None:
    async with door(tmp_path) as at:
        at.max_item_bytes = 1000
        receipt = await at.accept(request(span(1), span(2, attributes={"text": "x" * 2000}), span(3)))
        assert receipt.rejected == 1
        assert "1000 bytes" in receipt.message
        assert numbers_in(at.offered[0].body) == [1, 3]
        assert (at.counts().refused, at.counts().acknowledged) == (1, 2)


async def test_a_large_request_of_small_spans_is_taken(tmp_path: Path) -> None:
    async with door(tmp_path) as at:
        at.max_item_bytes = 1000
        assert (await at.accept(many_spans(100))).rejected == 0


async def test_our_own_hop_coming_back_is_refused_so_that_the_sender_may_keep_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with door(tmp_path) as at:
        for _ in range(2):
            with pytest.raises(LoopError, match="us") as refused:
                await at.accept(many_spans(1), hops=("far", "us"))
            assert refused.value.retry_after_s > 0
        assert [record.message for record in caplog.records] == [
            "forwarding loop: requests are refused until the endpoint is corrected"
        ]
        assert at.counts().refused == 2
        assert at.offered == []


async def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    async with door(tmp_path) as at:
        for signal in Signal:
            with pytest.raises(MalformedRequestError):
                await at.accept(b"\x0a\xff", signal=signal)
        assert at.ledger.malformed_requests == 3


async def test_a_request_with_nothing_in_it_is_accepted_and_not_stored(tmp_path: Path) -> None:
    async with door(tmp_path) as at:
        for signal in Signal:
            assert await at.accept(b"", signal=signal) == Receipt()
        assert at.journal.commits == 0


async def test_metrics_pass_by_data_point(tmp_path: Path) -> None:
    async with door(tmp_path) as at:
        await at.accept(metric_request([3, 4]), signal=Signal.METRICS)
        assert at.counts(Signal.METRICS).acknowledged == 7


async def test_a_full_journal_is_reported_and_counted(tmp_path: Path) -> None:
    async with door(tmp_path, JournalLimits(max_pending_bytes=10)) as at:
        with pytest.raises(RefusedError):
            await at.accept(many_spans(4))
        assert (at.counts().received, at.counts().refused) == (4, 4)
