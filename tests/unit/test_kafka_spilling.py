"""Spilling with a real journal and a real store: whoever dies when, the next owner has every span."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final, TypeAlias

import pytest

from collector_processor.core.disk import StoreError
from collector_processor.forwarding.ledger import Ledger
from collector_processor.journal import Journal, open_journal
from collector_processor.journal.chunks import Chunk
from collector_processor.journal.directory import Measure, Space, measure_space
from collector_processor.kafka.custody import NO_ROOM_S, Custody
from collector_processor.kafka.progress import Mark
from collector_processor.kafka.record_form import Place, Record
from collector_processor.kafka.spilling import MOST_BYTES, Spilling, pack
from collector_processor.otlp import NO_TENANT, Signal, Tenant, TraceKey
from collector_processor.receivers.intake import Intake, IntakeRules
from collector_processor.store.database.connection import StoreConnection, open_database
from collector_processor.store.small_tables import SpilledPartRows
from collector_processor.wire.facts import TraceArrival
from semconv.model import TraceId
from tests.otlp_requests import log_request, numbers_in, record, request, span, trace_name

SPANS: Final = Place("otlp_spans", 0)
LOGS: Final = Place("otlp_logs", 0)
SIGNALS: Final = {SPANS.topic: Signal.TRACES, LOGS.topic: Signal.LOGS}
TENANT: Final = "x-scope-orgid"
MINUTE_S: Final = 60.0
InDb: TypeAlias = Callable[..., Awaitable[Any]]


def agent(number: int, *, trace: int = 1) -> bytes:
    return request(span(number, trace=trace, attributes={"gen_ai.operation.name": "chat"}))


def key(trace: int = 1, tenant: Tenant = NO_TENANT) -> TraceKey:
    return TraceKey(tenant, TraceId(trace_name(trace)))


@dataclass(slots=True)
class Shared:
    """What outlives a processor: the store, the commits, the clock."""

    db: StoreConnection
    now_s: float = 0.0
    is_away: bool = False
    before_answer: Callable[[], None] = lambda: None
    """Called when a statement is done and its caller does not know yet."""
    committed: dict[Place, Mark] = field(default_factory=dict)

    suspended: asyncio.Event | None = None
    """Calls made while it is set reach the store when it is."""

    async def in_db(self, call: Callable[..., Any], *args: Any) -> Any:
        await asyncio.sleep(0)
        if self.suspended is not None:
            await self.suspended.wait()
        if self.is_away:
            raise StoreError("the server is away")
        answer = call(*args)
        self.before_answer()
        return answer

    @property
    def parts(self) -> int:
        count: int = self.db.execute("SELECT count(*) FROM spilled_part").fetchone()[0]
        return count


@dataclass(slots=True, kw_only=True)
class Owner:
    """A processor whose slow lane keeps every trace open until it is told otherwise."""

    shared: Shared
    journal: Journal
    custody: Custody
    spilling: Spilling
    open: set[TraceKey] = field(default_factory=set)
    offered: list[Chunk] = field(default_factory=list)

    def offer(self, chunk: Chunk) -> None:
        self.offered.append(chunk)

    def discard(self, seqs: Iterable[int]) -> frozenset[int]:
        return frozenset(seqs)

    def is_unsettled(self, key: TraceKey) -> bool:
        return key in self.open

    def abandon(self, keys: Iterable[TraceKey]) -> None:
        self.open.difference_update(keys)

    def feed(self, arrival: TraceArrival) -> None:
        self.open.add(arrival.key)

    async def take(self, *values: bytes, first: int = 0, place: Place = SPANS, tenant: str = "") -> None:
        """Read records and forward them."""
        headers = [(TENANT, tenant.encode())] if tenant else []
        for offset, value in enumerate(values, first):
            await self.custody.take([Record(place=place, offset=offset, headers=headers, value=value)])
        self.journal.mark_done(self.offered)
        self.offered.clear()

    async def take_at_once(self, *values: bytes, first: int = 0) -> None:
        """Read neighbouring records as one request, and forward it."""
        records = [Record(place=SPANS, offset=at, value=value) for at, value in enumerate(values, first)]
        await self.custody.take(records)
        self.journal.mark_done(self.offered)
        self.offered.clear()

    async def after_a_minute(self) -> None:
        self.shared.now_s += MINUTE_S
        await self.custody.spill()

    async def commit(self) -> Mark:
        self.shared.committed |= await self.custody.marks()
        return self.shared.committed[SPANS]

    async def numbers(self, one: TraceKey) -> list[int]:
        ((rows, _),) = await self.journal.read_whole([one])
        return sorted(numbers_in(*(body for _, body in rows)))


@pytest.fixture
def shared(tmp_path: Path) -> Iterable[Shared]:
    with closing(open_database(tmp_path / "store.db")) as database, closing(database.own()) as db:
        yield Shared(db)


@asynccontextmanager
async def owner(
    shared: Shared,
    folder: Path,
    most_bytes: int = MOST_BYTES,
    in_db: InDb | None = None,
    *,
    measure: Measure = measure_space,
    no_room_s: float = NO_ROOM_S,
) -> AsyncIterator[Owner]:
    journal = await open_journal(folder, measure=measure)

    async def pause(_s: float) -> None:
        await asyncio.sleep(0)

    def now_s() -> float:
        return shared.now_s

    custody = Custody(
        journal,
        SIGNALS,
        (TENANT,),
        folder / "aside",
        pause=pause,
        monotonic=now_s,
        no_room_s=no_room_s,
    )
    spilling = Spilling(
        SpilledPartRows(shared.db),
        in_db or shared.in_db,
        journal,
        SIGNALS,
        after_s=MINUTE_S,
        monotonic=now_s,
        wall_ns=lambda: int(shared.now_s * 1e9),
        most_bytes=most_bytes,
    )
    lanes = Owner(shared=shared, journal=journal, custody=custody, spilling=spilling)
    ledger = Ledger(journal.held_items)
    rules = IntakeRules(instance_id="us", now_ns=lambda: 42, feed=lanes.feed)
    custody.attach(Intake(journal, ledger, lanes, rules), lanes, ledger, lanes)
    custody.spilling = spilling
    marks = {place: shared.committed.get(place, Mark(offset=0)) for place in (LOGS, SPANS)}
    await custody.assigned(marks)
    try:
        yield lanes
    finally:
        await journal.close()


async def test_the_next_owner_has_the_spilled_part_and_reads_on_behind_it(
    shared: Shared, tmp_path: Path
) -> None:
    async with owner(shared, tmp_path / "a") as first:
        await first.take(agent(1), agent(2), agent(9, trace=2))
        await first.custody.spill()
        assert (shared.parts, (await first.commit()).offset) == (0, 0), "not for a minute yet"
        await first.after_a_minute()
        assert shared.parts == 3
        assert first.spilling.bytes > 0
        await first.take(agent(3), first=3)
        assert (await first.commit()).offset == 3
    async with owner(shared, tmp_path / "b") as second:
        assert await second.numbers(key(1)) == [1, 2]
        assert (await second.commit()).offset == 3, "what is in the store holds nothing back"
        await second.take(agent(3), first=3)
        assert await second.numbers(key(1)) == [1, 2, 3]
        assert await second.numbers(key(2)) == [9]
        assert not second.offered, "what was spilled was forwarded before"
        assert second.spilling.bytes == first.spilling.bytes
        second.open.discard(key(1))
        await second.custody.spill()
        assert shared.parts == 1, "only that of the other trace"


async def test_a_kill_between_spill_and_commit_leaves_each_record_once(
    shared: Shared, tmp_path: Path
) -> None:
    async with owner(shared, tmp_path / "a") as first:
        await first.take(agent(1), agent(2))
        await first.after_a_minute()
        assert shared.parts == 2
    async with owner(shared, tmp_path / "b") as second:
        assert shared.parts == 0, "Kafka has them"
        await second.take(agent(1), agent(2))
        assert await second.numbers(key()) == [1, 2]


async def test_a_kill_between_the_verdict_and_the_deletion_leaves_parts_that_the_next_owner_deletes(
    shared: Shared, tmp_path: Path
) -> None:
    async with owner(shared, tmp_path / "a") as first:
        await first.take(agent(1))
        await first.after_a_minute()
        await first.commit()
        first.open.clear()
    async with owner(shared, tmp_path / "b") as second:
        assert shared.parts == 1
        second.open.clear()  # its slow lane finds the verdict in the store
        await second.custody.spill()
        assert shared.parts == 0


async def test_a_rebalance_in_the_middle_of_a_spill_takes_nothing_from_the_next_owner(
    shared: Shared, tmp_path: Path
) -> None:
    async with owner(shared, tmp_path / "a") as first, owner(shared, tmp_path / "b") as second:
        await first.take(agent(1))
        await first.after_a_minute()
        await first.commit()
        await first.take(agent(2), first=1)
        is_written, goes_on = asyncio.Event(), asyncio.Event()
        plain = shared.in_db

        async def slow(call: Callable[..., Any], *args: Any) -> Any:
            answer = await plain(call, *args)
            is_written.set()
            await goes_on.wait()
            return answer

        first.spilling._in_db = slow  # type: ignore[misc] # the store answers after the rebalance
        shared.now_s += MINUTE_S
        spill = asyncio.create_task(first.custody.spill())
        await is_written.wait()
        shared.committed |= await first.custody.revoked([SPANS, LOGS])
        assert shared.committed[SPANS].offset == 1
        await second.custody.assigned(shared.committed)
        goes_on.set()
        await spill
        await second.take(agent(2), first=1)
        await first.custody.spill()
        assert shared.parts == 1, "the first part is still there for the owner after the next"
        assert await second.numbers(key()) == [1, 2]
        assert first.spilling.bytes == 0


async def test_a_process_that_was_suspended_deletes_nothing_of_its_successor(
    shared: Shared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was about to delete what lies behind the commit of its assignment."""
    monkeypatch.setattr("collector_processor.kafka.custody._RECALL_S", 0.0)
    goes_on = shared.suspended = asyncio.Event()
    async with owner(shared, tmp_path / "suspended"):
        await asyncio.sleep(0)
        shared.suspended = None
        async with owner(shared, tmp_path / "successor") as second:
            await second.take(agent(1), agent(2))
            await second.after_a_minute()
            assert (shared.parts, (await second.commit()).offset) == (2, 2)
        goes_on.set()
    async with owner(shared, tmp_path / "third") as third:
        assert await third.numbers(key()) == [1, 2]


async def test_late_writes_of_a_suspended_process_remove_no_record_of_its_successor(
    shared: Shared, tmp_path: Path
) -> None:
    """Both have a part that begins with the same record; the successor read more records at once."""
    async with owner(shared, tmp_path / "suspended") as first, owner(shared, tmp_path / "b") as second:
        await first.take(agent(1))
        await second.take_at_once(agent(1), agent(2), agent(3))
        await second.after_a_minute()
        await second.commit()
        await first.custody.spill()
        assert first.spilling.counts.spilled == 1
    async with owner(shared, tmp_path / "third") as third:
        assert await third.numbers(key()) == [1, 2, 3]


async def test_records_that_two_processes_wrote_in_different_parts_come_once(
    shared: Shared, tmp_path: Path
) -> None:
    async with owner(shared, tmp_path / "suspended") as first, owner(shared, tmp_path / "b") as second:
        await first.take_at_once(agent(1), agent(2), agent(3))
        await second.take(agent(1), agent(2), agent(3))
        await second.after_a_minute()
        await second.commit()
        await first.custody.spill()
        assert shared.parts == 3
    async with owner(shared, tmp_path / "third") as third:
        assert await third.numbers(key()) == [1, 2, 3]


async def test_large_parts_are_written_and_read_a_few_at_a_time(shared: Shared, tmp_path: Path) -> None:
    noise = Random(1)
    texts = [noise.randbytes(2 << 20).hex() for _ in range(10)]  # 4 MiB of text, 2 compressed
    bodies = [
        request(span(number, attributes={"gen_ai.operation.name": "chat", "text": text}))
        for number, text in enumerate(texts, 1)
    ]
    asked: list[int] = []

    async def counted(call: Callable[..., Any], *args: Any) -> Any:
        answer = await shared.in_db(call, *args)
        match call.__name__:
            case "keep":
                asked.append(len(args[0]))
            case "of":
                asked.append(len(answer))
        return answer

    async with owner(shared, tmp_path / "a", in_db=counted) as first:
        await first.take(*bodies)
        await first.after_a_minute()
        assert (max(asked), sum(asked), (await first.commit()).offset) == (2, 10, 10)
    asked.clear()
    async with owner(shared, tmp_path / "b", in_db=counted) as second:
        assert await second.numbers(key()) == list(range(1, 11))
        assert (max(asked), sum(asked)) == (4, 10)


async def test_without_the_store_nothing_is_spilled_and_the_commit_waits(
    shared: Shared, tmp_path: Path
) -> None:
    async with owner(shared, tmp_path / "a") as first:
        await first.take(agent(1))
        shared.is_away = True
        for _ in range(3):
            await first.after_a_minute()
            await first.take(request(span(7, trace=3)), first=1)
            assert (await first.commit()).offset == 0
        shared.is_away = False
        await first.custody.spill()
        assert (shared.parts, (await first.commit()).offset) == (1, 2)


async def test_no_trace_is_read_for_its_verdict_before_its_spilled_parts_are_here(
    shared: Shared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is away at the assignment: spans flow on, and the verdict waits."""
    monkeypatch.setattr("collector_processor.kafka.custody._RECALL_S", 0.0)
    async with owner(shared, tmp_path / "a") as first:
        await first.take(agent(1))
        await first.after_a_minute()
        await first.commit()
    shared.is_away = True
    async with owner(shared, tmp_path / "b") as second:
        await second.take(agent(2), first=1)
        reading = asyncio.create_task(second.numbers(key()))
        await asyncio.wait([reading], timeout=0.1)
        assert not reading.done()
        shared.is_away = False
        assert await reading == [1, 2]


async def test_verdicts_do_not_wait_for_ever_for_parts_that_a_full_journal_does_not_take(
    shared: Shared, tmp_path: Path
) -> None:
    """Its own runs used to wait until the disk had room; those with parts are analysed again then."""
    async with owner(shared, tmp_path / "a") as first:
        await first.take(agent(1))
        await first.after_a_minute()
        await first.commit()
    free = 0

    def measure(_: Path) -> Space:
        return Space(size=80 << 20, free=free)

    async with owner(shared, tmp_path / "b", measure=measure, no_room_s=0.01) as second:
        assert await second.numbers(key()) == []
        assert key() not in second.open
        free = 80 << 20
        async with asyncio.timeout(60):
            while key() not in second.open:  # noqa: ASYNC110 - the slow lane has no event for it
                await asyncio.sleep(0.01)
        assert await second.numbers(key()) == [1]


async def test_a_damaged_part_is_counted_and_the_others_come(shared: Shared, tmp_path: Path) -> None:
    async with owner(shared, tmp_path / "a") as first:
        await first.take(agent(1), agent(2), agent(3), agent(4))
        await first.after_a_minute()
        await first.commit()
    shared.db.execute("UPDATE spilled_part SET packed = ? WHERE first_offset = 1", (b"\0",))
    shared.db.execute(
        "UPDATE spilled_part SET packed = ? WHERE first_offset = 2",
        (pack(b"\xff not OTLP"),),
    )
    async with owner(shared, tmp_path / "b") as second:
        assert await second.numbers(key()) == [1, 4]
        assert (second.spilling.counts.damaged, second.spilling.counts.recalled) == (2, 2)


async def test_tenants_with_the_same_trace_id_keep_their_own_spans(shared: Shared, tmp_path: Path) -> None:
    async with owner(shared, tmp_path / "a") as first:
        await first.take(agent(1), tenant="red")
        await first.take(agent(2), first=1, tenant="blue")
        await first.after_a_minute()
        await first.commit()
        tenants = {one.tenant for one in first.open}
    async with owner(shared, tmp_path / "b") as second:
        assert second.open == first.open
        found = [await second.numbers(key(1, tenant)) for tenant in sorted(tenants)]
        assert sorted(found) == [[1], [2]]
        assert sum(map(len, found)) == 2


async def test_at_the_bound_of_bytes_in_the_store_the_commit_waits(shared: Shared, tmp_path: Path) -> None:
    async with owner(shared, tmp_path / "a", most_bytes=1) as first:
        await first.take(agent(1), agent(2, trace=2))
        await first.after_a_minute()
        await first.take(agent(3, trace=3), first=2)
        await first.after_a_minute()
        assert shared.parts == 2
        assert (await first.commit()).offset == 2
        first.open -= {key(1), key(2)}
        await first.custody.spill()
        assert (shared.parts, (await first.commit()).offset) == (1, 3)


async def test_very_many_open_traces_are_written_in_several_transactions(
    shared: Shared, tmp_path: Path
) -> None:
    count = 300
    async with owner(shared, tmp_path / "a") as first:
        await first.take(*(agent(1, trace=number) for number in range(1, count + 1)))
        await first.after_a_minute()
        assert (shared.parts, (await first.commit()).offset) == (count, count)
    async with owner(shared, tmp_path / "b") as second:
        assert len(second.open) == count


async def test_log_records_of_a_spilled_trace_come_too(shared: Shared, tmp_path: Path) -> None:
    async with owner(shared, tmp_path / "a") as first:
        await first.take(agent(1))
        await first.take(log_request(record(trace=1)), place=LOGS)
        await first.after_a_minute()
        await first.commit()
        assert (shared.parts, shared.committed[LOGS].offset) == (2, 1)
    async with owner(shared, tmp_path / "b") as second:
        ((spans, logs),) = await second.journal.read_whole([key()])
        assert (len(spans), len(logs)) == (1, 1)


async def test_a_record_that_fills_several_rows_is_spilled_whole(shared: Shared, tmp_path: Path) -> None:
    """A large record with several traces is split; the trace's pieces have one place in the topic."""
    wide = {"gen_ai.operation.name": "chat", "text": "x" * 3_000}
    spans = [span(number, trace=1 + number % 2, attributes=wide) for number in range(1, 801)]
    async with owner(shared, tmp_path / "a") as first:
        await first.take(request(*spans))
        ((rows, _),) = await first.journal.read_whole([key()])
        assert len(rows) > 1
        await first.after_a_minute()
        assert (shared.parts, (await first.commit()).offset) == (2, 1)
    async with owner(shared, tmp_path / "b") as second:
        assert await second.numbers(key(1)) == list(range(2, 801, 2))
        assert await second.numbers(key(2)) == list(range(1, 801, 2))
