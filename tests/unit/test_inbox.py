"""What the slow lane has yet to read is bounded; anything beyond that is still analysed."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from collector_processor.otlp import NO_TENANT, Signal, Tenant, TraceKey
from collector_processor.pipeline.limits import PipelineLimits
from collector_processor.pipeline.queues import ARRIVAL_BYTES, NOTE_BYTES, Inbox
from collector_processor.pipeline.scheduler import Pipeline
from collector_processor.wire.facts import MARKED_BIT, SpanNote, TraceArrival
from semconv.model import TraceId
from tests.factories import chat, workflow
from tests.run_store import analyses_of
from tests.slow_lane import LIMITS, ScriptedAnalyst, SlowLane

TINY = ARRIVAL_BYTES + NOTE_BYTES


def arrival(number: int, notes: int = 1, tenant: Tenant = NO_TENANT) -> TraceArrival:
    return TraceArrival(
        seq=1_000_000 + number,
        signal=Signal.TRACES,
        key=TraceKey(tenant, TraceId(f"{number:032x}")),
        received_ns=1_700_000_000_000_000_000 + number,
        byte_count=100_000 + number,
        notes=tuple(SpanNote(span_id=one, bits=MARKED_BIT) for one in range(1, notes + 1)),
    )


def test_the_oldest_come_out_when_there_is_no_room() -> None:
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
