"""What the slow lane has yet to read is bounded; anything beyond that is still analysed."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.analyses.arrivals import ARRIVAL_BYTES, NOTE_BYTES, Inbox
from analyzer.analyses.scheduler import Pipeline, PipelineLimits
from collector_processor.core.fair import FairTable
from collector_processor.otlp import NO_TENANT, Tenant, TraceKey
from collector_processor.wire.facts import MARKED_BIT, TraceArrival
from semconv.model import TraceId
from tests.factories import chat, workflow
from tests.otlp_requests import span_note
from tests.run_store import analyses_of
from tests.slow_lane import LIMITS, ScriptedAnalyst, SlowLane

TINY = ARRIVAL_BYTES + NOTE_BYTES


def arrival(number: int, notes: int = 1, tenant: Tenant = NO_TENANT) -> TraceArrival:
    return TraceArrival(
        seq=1_000_000 + number,
        key=TraceKey(tenant, TraceId(f"{number:032x}")),
        received_ns=1_700_000_000_000_000_000 + number,
        byte_count=100_000 + number,
        notes=tuple(span_note(span_id=one, bits=MARKED_BIT) for one in range(1, notes + 1)),
    )


def test_the_oldest_are_evicted_if_there_is_no_room() -> None:
    inbox = Inbox(2 * TINY)
    assert [inbox.put(arrival(number)) for number in (1, 2)] == [(), ()]
    assert inbox.put(arrival(3)) == (arrival(1),)
    assert inbox.take(10) == (arrival(2), arrival(3))
    assert (len(inbox), inbox.bytes) == (0, 0)


def test_one_that_is_too_large_for_all_of_it_waits_alone() -> None:
    inbox = Inbox(2 * TINY)
    inbox.put(arrival(1))
    assert inbox.put(arrival(2, notes=50)) == (arrival(1),)
    assert inbox.take(1) == (arrival(2, notes=50),)


def test_tenants_are_taken_in_turn() -> None:
    inbox, calm = Inbox(100 * TINY), Tenant("x=calm")
    for number in (1, 2, 3):
        inbox.put(arrival(number))
    inbox.put(arrival(4, tenant=calm))
    assert set(inbox.tenants) == {NO_TENANT, calm}
    assert [one.key.trace_id[-1] for one in inbox.take(3)] == ["1", "4", "2"]
    assert set(inbox.tenants) == {NO_TENANT}


@pytest.mark.parametrize("notes", [0, 1, 10, 1000])
def test_an_arrival_takes_no_more_memory_than_is_counted(notes: int) -> None:
    tracemalloc.start()
    try:
        kept = [arrival(number, notes) for number in range(1, 101)]
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < len(kept) * (ARRIVAL_BYTES + NOTE_BYTES * notes)


async def test_runs_that_find_no_room_are_analysed_all_the_same_and_once(tmp_path: Path) -> None:
    """The slow lane hears of twenty runs before its turn, and may delay one of them."""
    lane = SlowLane(path=tmp_path, analyst=ScriptedAnalyst(0))
    try:
        limits = PipelineLimits(assembler=LIMITS, max_inbox_bytes=2 * TINY)
        lane.pipeline = Pipeline(lane.examiner, limits, lambda: lane.now)
        names = [TraceId(f"{number:032x}") for number in range(1, 21)]
        for name in names:
            lane.receive(workflow(1, trace_id=name), chat(2, trace_id=name, agent_name="planner"))
        assert lane.pipeline.open_traces == len(names) - 1
        await lane.pass_time(LIMITS.root_grace_s)
        assert sorted(run.run_id for run in lane.analyst.asked) == names
        for name in names:  # a late log record, say: nothing that an analyst would be shown
            lane.receive(workflow(1, trace_id=name))
        await lane.pass_time(100 * LIMITS.root_grace_s)
        assert len(lane.analyst.asked) == len(names)
        analyses = {name: analyses_of(lane.store, TraceKey(NO_TENANT, name))[0] for name in names}
        assert analyses == dict.fromkeys(names, 1)
    finally:
        lane.close()


@given(
    most=st.integers(1, 8),
    changes=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4), st.booleans()), max_size=400),
)
def test_a_full_table_takes_the_oldest_item_of_the_owner_with_most(
    most: int, changes: list[tuple[int, int, bool]]
) -> None:
    """Of owners with as many, the one that put nothing for longest; against a search of all owners."""
    table: FairTable[int, int, int] = FairTable(most)
    kept: dict[int, dict[int, int]] = {}
    for number, (owner, key, is_put) in enumerate(changes):
        if not is_put:
            assert table.pop(owner, key) == kept.get(owner, {}).pop(key, None)
            kept = {one: items for one, items in kept.items() if items}
            continue
        items = kept.pop(owner, {})
        items.pop(key, None)
        kept[owner] = {**items, key: number}
        gone = table.put(owner, key, number)
        if sum(map(len, kept.values())) <= most:
            assert gone is None
            continue
        own = len(kept[owner])
        is_crowd = own > 1 and own * len(kept) > most
        crowd = owner if is_crowd else max(kept, key=lambda one: len(kept[one]))
        assert gone == (crowd, next(iter(kept[crowd])))
        del kept[crowd][gone[1]]
        kept = {one: items for one, items in kept.items() if items}
    assert len(table) == sum(map(len, kept.values()))


def test_a_full_table_does_not_go_through_all_owners() -> None:
    """Each arrival used to, with up to 10,000 of them."""
    hashed = 0

    class Counting(str):
        __slots__ = ()

        def __hash__(self) -> int:
            nonlocal hashed
            hashed += 1
            return super().__hash__()

    table: FairTable[Counting, int, int] = FairTable(1_000)
    for number in range(1_000):
        table.put(Counting(number), 0, number)
    hashed = 0
    for number in range(1_000, 1_100):
        assert table.put(Counting(number), 0, number) == (str(number - 1_000), 0)
    assert hashed < 100 * 40
