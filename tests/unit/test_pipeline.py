"""The slow lane's shell: the order of examinations, the time of holds, and resuming after a restart."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collector_processor.core.disk import STORE_RETRY_S
from collector_processor.core.records import StoredVerdict
from collector_processor.otlp import NO_TENANT, Signal, TraceKey
from collector_processor.rebuild.decode import decode
from collector_processor.rebuild.encode import encode_logs
from semconv.model import Event, Link, LogRecord, SpanId, TraceId
from tests.factories import TRACE, agent, chat, workflow
from tests.otlp_requests import log_request, record
from tests.slow_lane import LIMITS, Say, ScriptedAnalyst, SlowLane, written_names

OTHER = TraceId("b" * 32)
KEY = TraceKey(NO_TENANT, TRACE)
GRACE = LIMITS.root_grace_s
BLAMED = ["planner: decisive error", "failure: planner"]
Open = Callable[..., SlowLane]


@pytest.fixture
def slow_lane(tmp_path: Path) -> Iterator[Open]:
    opened: list[SlowLane] = []

    def open_lane(*answers: Say, **limits: Any) -> SlowLane:
        opened.append(SlowLane(path=tmp_path, analyst=ScriptedAnalyst(*answers), **limits))
        return opened[-1]

    yield open_lane
    for lane in opened:
        lane.close()


def verdict(lane: SlowLane, run_id: str = TRACE) -> StoredVerdict:
    found = lane.store.current(NO_TENANT, run_id)
    assert found is not None
    return found


def reason(found: StoredVerdict) -> str:
    return str(json.loads(found.document)["reason"])


async def test_a_run_whose_top_ended_gets_a_verdict_and_carriers(slow_lane: Open) -> None:
    lane = slow_lane(0)
    lane.receive(agent(2, "planner"), chat(3, parent=2, answer="4"))
    lane.receive(workflow(1))
    await lane.pass_time(GRACE - 0.1)
    assert lane.analyst.asked == []
    await lane.pass_time(0.1)
    assert (verdict(lane).status, verdict(lane).version, verdict(lane).agent) == ("attributed", 1, "planner")
    assert written_names(lane.written()) == BLAMED
    assert lane.wakes == 1


async def test_a_trace_is_examined_once_at_a_time_and_again_for_what_came_meanwhile(slow_lane: Open) -> None:
    lane = slow_lane(0)
    lane.receive(workflow(1), chat(2, answer="4", agent_name="planner"))
    lane.analyst.may_answer.clear()
    await lane.pipeline.turn()
    lane.now += GRACE
    await lane.pipeline.turn()
    await lane.analyst.was_asked.wait()
    lane.receive(chat(3, answer="5", agent_name="writer"))
    await lane.pipeline.turn()
    lane.now += 4 * GRACE
    await lane.pipeline.turn()
    assert lane.pipeline.under_way == 1
    assert len(lane.analyst.asked) == 1
    lane.analyst.may_answer.set()
    await lane.pipeline.settle()
    await lane.pass_time(4 * GRACE)
    assert [len(asked.steps) for asked in lane.analyst.asked] == [1, 2]
    assert lane.analyst.most_running == 1
    assert written_names(lane.written()) == BLAMED  # the second found the same, and is not written again


async def test_no_more_runs_are_examined_at_once_than_allowed(slow_lane: Open) -> None:
    lane = slow_lane(0, concurrency=2)
    for number in range(5):
        lane.receive(
            workflow(1, trace_id=TraceId(f"{number + 1:032x}")),
            chat(2, trace_id=TraceId(f"{number + 1:032x}")),
        )
    lane.analyst.may_answer.clear()
    await lane.pipeline.turn()
    lane.now += GRACE
    await lane.pipeline.turn()
    assert lane.pipeline.under_way == 5
    lane.analyst.may_answer.set()
    await lane.pipeline.settle()
    assert len(lane.analyst.asked) == 5
    assert lane.analyst.most_running <= 2


async def test_a_late_span_reopens_the_trace_and_a_changed_verdict_withdraws_the_old(slow_lane: Open) -> None:
    lane = slow_lane(0, 1)
    lane.receive(workflow(1), chat(2, answer="4", agent_name="planner"))
    await lane.pass_time(GRACE)
    lane.receive(chat(3, answer="5", agent_name="writer"))
    await lane.pass_time(1.9 * GRACE)
    assert len(lane.analyst.asked) == 1
    await lane.pass_time(10 * GRACE)
    assert written_names(lane.written()) == [
        *BLAMED,
        "writer: decisive error",
        "failure: writer, replaces verdict 1",
        *["withdrawn: planner → writer"] * 2,
    ]
    assert (verdict(lane).version, verdict(lane).agent) == (2, "writer")


async def test_the_last_span_decides_however_many_came_before(slow_lane: Open) -> None:
    lane = slow_lane(0, hold_max_s=20)
    lane.receive(workflow(1), chat(2, answer="4", agent_name="planner"))
    for number in range(3, 8):
        await lane.pass_time(LIMITS.max_silence_s)
        lane.receive(chat(number, answer="more", agent_name="writer"))
    await lane.pass_time(LIMITS.max_silence_s)
    assert [len(asked.steps) for asked in lane.analyst.asked] == [1, 2, 3, 4, 5, 6]
    assert lane.source.held[KEY] == set()
    assert [seq for seq, _ in lane.source.sent] == [1]  # the rest was never held


async def test_an_idle_trace_with_no_top_gets_a_provisional_verdict_for_the_page_only(
    slow_lane: Open,
) -> None:
    lane = slow_lane(0)
    lane.receive(chat(2, answer="4", agent_name="planner"))
    await lane.pass_time(LIMITS.idle_close_s)
    assert (len(lane.analyst.glances), lane.analyst.asked) == (1, [])
    assert verdict(lane).is_provisional
    assert (lane.written(), lane.store.outbox(Signal.LOGS)) == ([], [])
    lane.receive(workflow(1))
    await lane.pass_time(GRACE)
    assert (verdict(lane).is_provisional, verdict(lane).version) == (False, 1)
    assert written_names(lane.written()) == BLAMED


async def test_an_analyst_that_fails_is_an_error_verdict_and_holds_up_nothing(slow_lane: Open) -> None:
    lane = slow_lane(RuntimeError("boom"), hold_max_s=20)
    arrival = lane.receive(workflow(1), chat(2, answer="4", agent_name="planner"))
    await lane.pass_time(GRACE)
    assert (verdict(lane).status, reason(verdict(lane))) == ("error", "internal error: RuntimeError")
    assert lane.source.sent == [(arrival.seq, lane.source.rows[KEY][arrival.seq])]
    assert lane.written() == []


async def test_what_is_held_goes_on_with_the_verdict_on_the_originals(slow_lane: Open) -> None:
    lane = slow_lane(0, hold_max_s=20)
    lane.receive(chat(2, answer="4", agent_name="planner"))
    lane.receive(workflow(1))
    await lane.pass_time(GRACE)
    (_, first), (_, second) = lane.source.sent
    (blamed,), (root,) = decode(first).spans, decode(second).spans
    assert blamed.attributes["blamespan.failure.decisive"] is True
    assert root.attributes["blamespan.run.step.count"] == 1
    assert lane.written() == []
    assert lane.store.rewrites() == []
    late = lane.receive(chat(3, answer="5", agent_name="writer"))
    assert not late.is_held


async def test_what_is_held_goes_on_as_it_is_after_hold_max_and_the_verdict_comes_late(
    slow_lane: Open,
) -> None:
    lane = slow_lane(0, hold_max_s=20)
    first = lane.receive(workflow(1), chat(2, answer="4", agent_name="planner"))
    lane.analyst.may_answer.clear()
    await lane.pipeline.turn()
    lane.now += GRACE
    await lane.pipeline.turn()
    await lane.analyst.was_asked.wait()
    lane.now += 20 - GRACE
    await lane.pipeline.turn()
    assert lane.source.sent == [(first.seq, lane.source.rows[KEY][first.seq])]
    lane.analyst.may_answer.set()
    await lane.pipeline.settle()
    assert written_names(lane.written()) == BLAMED
    assert len(lane.source.sent) == 1


async def test_a_restart_resumes_a_trace_that_was_not_complete(slow_lane: Open) -> None:
    lane = slow_lane(0)
    lane.receive(workflow(1), chat(2, answer="4", agent_name="planner"))
    await lane.pass_time(GRACE / 2)
    after = await lane.restarted()
    await after.pass_time(GRACE)
    assert written_names(after.written()) == BLAMED
    after.close()


async def test_a_restart_in_late_mode_lets_go_of_what_was_held(slow_lane: Open) -> None:
    lane = slow_lane(0, hold_max_s=20)
    lane.receive(workflow(1), chat(2, answer="4", agent_name="planner"))
    await lane.pipeline.turn()
    lane.hold_max_s = None
    after = await lane.restarted()
    assert [seq for seq, _ in lane.source.sent] == [1]
    await after.pass_time(GRACE)
    assert written_names(after.written()) == BLAMED
    after.close()


async def test_a_restart_does_not_ask_again_about_what_has_its_verdict(slow_lane: Open) -> None:
    lane = slow_lane(0)
    lane.receive(workflow(1), chat(2, answer="4", agent_name="planner"))
    lane.pipeline.feed(lane.source.store(log_request(record(trace=int(TRACE, 16))), signal=Signal.LOGS))
    await lane.pass_time(GRACE)
    after = await lane.restarted()
    await after.pass_time(10 * GRACE)
    assert (len(lane.analyst.asked), after.pipeline.open_traces) == (1, 0)
    after.close()


async def test_log_records_that_come_late_are_read_too(slow_lane: Open) -> None:
    lane = slow_lane(0)
    lane.receive(workflow(1), chat(2, agent_name="planner"))
    await lane.pass_time(GRACE)
    said = json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": "five"}]}])
    event = Event(
        name="gen_ai.client.inference.operation.details", attributes={"gen_ai.output.messages": said}
    )
    late = LogRecord(trace_id=TRACE, span_id=SpanId(f"{2:016x}"), event=event)
    lane.pipeline.feed(lane.source.store(encode_logs([late]), signal=Signal.LOGS))
    await lane.pass_time(4 * GRACE)
    assert [asked.steps[0].output for asked in lane.analyst.asked] == ["", "five"]


async def test_a_crash_before_the_rewriting_sends_the_bytes_that_were_committed(slow_lane: Open) -> None:
    lane = slow_lane(0, "I say something else this time", hold_max_s=20)
    lane.receive(workflow(1), chat(2, answer="4", agent_name="planner"))
    await lane.reach_rewriting()
    committed = lane.store.rewrites()
    after = await lane.restarted()
    assert lane.source.sent == committed
    assert after.store.rewrites() == []
    await after.pass_time(100)
    assert (len(lane.analyst.asked), verdict(after).version, after.written()) == (1, 1, [])
    after.close()


async def test_a_crash_after_the_verdict_lets_the_rest_of_the_trace_go_on(slow_lane: Open) -> None:
    lane = slow_lane("no step to blame", hold_max_s=20)
    lane.receive(workflow(1))
    unchanged = lane.receive(chat(2, answer="4", agent_name="planner"))
    await lane.reach_rewriting()
    after = await lane.restarted()
    assert sorted(seq for seq, _ in lane.source.sent) == [1, 2]
    assert (unchanged.seq, lane.source.rows[KEY][unchanged.seq]) in lane.source.sent
    after.close()


async def test_a_held_run_that_passed_goes_on_as_it_came(slow_lane: Open) -> None:
    lane = slow_lane(None, hold_max_s=20)
    arrival = lane.receive(workflow(1), chat(2, answer="4", agent_name="planner"))
    body = lane.source.rows[KEY][arrival.seq]
    await lane.pass_time(GRACE)
    assert verdict(lane).status == "no_failure"
    assert lane.source.sent == [(arrival.seq, body)]


async def test_a_shutdown_lets_go_of_what_is_held(slow_lane: Open) -> None:
    lane = slow_lane(0, hold_max_s=20)
    arrival = lane.receive(chat(2, answer="4", agent_name="planner"))
    await lane.pipeline.turn()
    await lane.pipeline.drain(1)
    assert [seq for seq, _ in lane.source.sent] == [arrival.seq]


async def test_a_shutdown_lets_go_of_what_was_taken_a_moment_before(slow_lane: Open) -> None:
    lane = slow_lane(0, hold_max_s=20)
    arrival = lane.receive(chat(2, answer="4", agent_name="planner"))
    await lane.pipeline.drain(1)  # not looked up yet
    assert [seq for seq, _ in lane.source.sent] == [arrival.seq]


async def test_a_shutdown_waits_for_what_is_being_let_go_already(slow_lane: Open) -> None:
    lane = slow_lane(0, hold_max_s=20)
    arrival = lane.receive(chat(2, answer="4", agent_name="planner"))
    await lane.pipeline.turn()
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def slow_disk() -> None:
        begun.set()
        await may_end.wait()

    lane.source.before_release = slow_disk
    lane.now += 20
    turning = asyncio.create_task(lane.pipeline.turn())
    await begun.wait()
    turning.cancel()
    asyncio.get_running_loop().call_later(0.05, may_end.set)
    await lane.pipeline.drain(60)
    assert [seq for seq, _ in lane.source.sent] == [arrival.seq]


async def test_a_shutdown_lets_go_of_what_waits_for_a_commit(slow_lane: Open) -> None:
    lane = slow_lane(0, hold_max_s=20)
    lane.receive(workflow(1), chat(2, answer="4", agent_name="planner"))
    await lane.reach_rewriting()
    committed = lane.store.rewrites()
    lane.source.before_rewrite = None  # the disk answers again
    await lane.pipeline.drain(0)
    assert lane.source.sent == committed
    assert lane.store.rewrites() == []


async def test_a_replacement_that_a_shutdown_cannot_carry_out_waits_for_the_next_start(
    slow_lane: Open,
) -> None:
    lane = slow_lane(0, hold_max_s=20, rewrites_max_s=0.01)
    lane.receive(workflow(1), chat(2, answer="4", agent_name="planner"))
    await lane.reach_rewriting()
    committed = lane.store.rewrites()
    await lane.pipeline.drain(0)
    assert lane.source.sent == []
    after = await lane.restarted()
    assert lane.source.sent == committed
    after.close()


async def test_a_shutdown_asks_again_for_replacements_that_the_disk_does_not_read(slow_lane: Open) -> None:
    lane = slow_lane(0, hold_max_s=20)
    lane.receive(workflow(1), chat(2, answer="4", agent_name="planner"))
    await lane.reach_rewriting()
    committed = lane.store.rewrites()
    lane.source.before_rewrite = None
    lane.store.rewrites_unread = 2
    await lane.pipeline.drain(0)
    assert (lane.source.sent, lane.pauses) == (committed, [STORE_RETRY_S] * 2)


async def test_a_shutdown_waits_only_so_long_for_a_disk_that_lets_nothing_go(
    slow_lane: Open, caplog: pytest.LogCaptureFixture
) -> None:
    lane = slow_lane(0, hold_max_s=20, releases_max_s=0.01)
    lane.receive(chat(2, answer="4", agent_name="planner"))

    async def never() -> None:
        await asyncio.Event().wait()

    lane.source.before_release = never
    async with asyncio.timeout(60):
        await lane.pipeline.drain(1)
    assert lane.source.sent == []
    assert caplog.messages == ["stopped before all held spans were released: the next start releases them"]
    lane.source.before_release = None
    after = await lane.restarted()
    await after.pipeline.drain(1)
    assert len(lane.source.sent) == 1
    after.close()


@pytest.mark.parametrize("end", ["overdue", "shutdown", "restart in late mode"])
async def test_what_is_let_go_of_at_the_same_time_waits_for_one_commit(slow_lane: Open, end: str) -> None:
    """One commit each would take 50 ms: a minute for a thousand traces, with all receivers closed."""
    lane = slow_lane(0, hold_max_s=20)
    names = [TraceId(f"{number:032x}") for number in range(1, 41)]
    for name in names:
        lane.receive(chat(2, trace_id=name))
    await lane.pipeline.turn()
    all_there = asyncio.Barrier(len(names))

    async def together() -> None:
        await all_there.wait()

    lane.source.before_release = together
    async with asyncio.timeout(60):
        if end == "overdue":
            lane.now += 20
            await lane.pipeline.turn()
        elif end == "shutdown":
            await lane.pipeline.drain(1)
        else:
            lane.hold_max_s = None
            (await lane.restarted()).close()
    assert len(lane.source.sent) == len(names)


async def test_an_evicted_trace_is_an_error_and_says_why(
    slow_lane: Open, caplog: pytest.LogCaptureFixture
) -> None:
    lane = slow_lane(0)
    lane.receive(chat(2, answer="4", agent_name="planner"))
    await lane.pipeline.turn()
    lane.evict(TRACE)
    await lane.pass_time(10_000)
    assert verdict(lane).status == "error"
    assert reason(verdict(lane)).startswith("evicted")
    assert (lane.analyst.asked, lane.written()) == ([], [])
    assert caplog.messages == ["traces evicted before their analysis"]


async def test_a_verdict_waits_for_file_descriptors(slow_lane: Open) -> None:
    lane = slow_lane(0)
    lane.receive(workflow(1), chat(2, answer="4", agent_name="planner"))
    lane.source.read_refusals = 3
    await lane.pass_time(GRACE)
    assert (verdict(lane).status, len(lane.analyst.asked)) == ("attributed", 1)
    assert lane.pauses == [STORE_RETRY_S] * 3


async def test_held_spans_wait_for_no_file_descriptors_and_the_blame_follows_late(slow_lane: Open) -> None:
    lane = slow_lane(0, hold_max_s=20)
    arrival = lane.receive(workflow(1), chat(2, answer="4", agent_name="planner"))
    lane.analyst.may_answer.clear()
    await lane.pipeline.turn()
    lane.now += GRACE
    await lane.pipeline.turn()
    await lane.analyst.was_asked.wait()
    lane.source.read_refusals = 1  # of the rows to be rewritten
    lane.analyst.may_answer.set()
    await lane.pipeline.settle()
    assert [seq for seq, _ in lane.source.sent] == [arrival.seq]
    assert len(lane.pauses) == 1
    assert (verdict(lane).status, written_names(lane.written())) == ("attributed", BLAMED)


async def test_a_disk_that_reads_nothing_for_a_while_ends_no_lane(slow_lane: Open) -> None:
    """The examination reads the number of earlier analyses again."""
    lane = slow_lane(0)
    lane.store.read_refusals = 2
    lane.receive(workflow(1), chat(2, answer="4", agent_name="planner"))
    await lane.pass_time(5 * GRACE)
    await lane.pass_time(5 * GRACE)
    assert verdict(lane).status == "attributed"


async def test_that_an_examination_failed_is_said_when_there_are_file_descriptors(slow_lane: Open) -> None:
    lane = slow_lane(ValueError("a fault of ours"))
    lane.receive(workflow(1), chat(2, answer="4", agent_name="planner"))
    lane.analyst.may_answer.clear()
    await lane.pipeline.turn()
    lane.now += GRACE
    await lane.pipeline.turn()
    await lane.analyst.was_asked.wait()
    lane.source.read_refusals = 2
    lane.analyst.may_answer.set()
    await lane.pipeline.settle()
    assert reason(verdict(lane)) == "internal error: ValueError"
    assert len(lane.pauses) == 2


async def test_that_a_trace_was_evicted_is_said_when_the_disk_reads_again(slow_lane: Open) -> None:
    lane = slow_lane(0)
    lane.receive(chat(2, answer="4", agent_name="planner"))
    await lane.pipeline.turn()
    lane.store.read_refusals = 2
    lane.evict(TRACE)
    await lane.pipeline.settle()
    assert reason(verdict(lane)).startswith("evicted")
    assert len(lane.pauses) == 2


async def test_the_trace_that_waits_longest_for_a_free_place_tells_its_age(slow_lane: Open) -> None:
    lane = slow_lane(0, concurrency=1)
    lane.analyst.may_answer.clear()
    lane.receive(workflow(1), chat(2, answer="4", agent_name="planner"))
    await lane.pipeline.turn()
    lane.now += GRACE
    await lane.pipeline.turn()
    await lane.analyst.was_asked.wait()
    assert lane.pipeline.oldest_actionable_s == 0
    lane.receive(workflow(1, trace_id=OTHER), chat(2, trace_id=OTHER))
    await lane.pipeline.turn()
    lane.now += GRACE
    await lane.pipeline.turn()
    lane.now += 7
    assert lane.pipeline.oldest_actionable_s == pytest.approx(7)
    lane.evict(OTHER)
    assert lane.pipeline.oldest_actionable_s == 0
    lane.analyst.may_answer.set()
    await lane.pipeline.settle()
    assert lane.pipeline.oldest_actionable_s == 0


async def test_a_trace_evicted_while_it_waits_for_a_free_place_is_an_error_too(slow_lane: Open) -> None:
    lane = slow_lane(0, concurrency=1)
    lane.analyst.may_answer.clear()
    lane.receive(workflow(1), chat(2, answer="4", agent_name="planner"))
    lane.receive(workflow(1, trace_id=OTHER), chat(2, trace_id=OTHER))
    await lane.pipeline.turn()
    lane.now += GRACE
    await lane.pipeline.turn()
    await lane.analyst.was_asked.wait()
    lane.evict(OTHER)
    lane.analyst.may_answer.set()
    await lane.pipeline.settle()
    assert (verdict(lane).status, verdict(lane, OTHER).status) == ("attributed", "error")


async def test_an_open_trace_that_is_evicted_before_a_glance_at_it_counts_once(slow_lane: Open) -> None:
    lane = slow_lane(0, concurrency=1)
    lane.analyst.may_answer.clear()
    lane.receive(chat(2, trace_id=OTHER))
    await lane.pipeline.turn()
    lane.now += LIMITS.idle_close_s - GRACE
    lane.receive(workflow(1), chat(2, answer="4", agent_name="planner"))
    await lane.pipeline.turn()
    lane.now += GRACE
    await lane.pipeline.turn()
    await lane.analyst.was_asked.wait()
    lane.evict(OTHER)
    assert lane.pipeline.evictions == 1
    lane.analyst.may_answer.set()
    await lane.pipeline.settle()


async def test_what_waits_for_a_free_place_waits_only_while_its_spans_are_kept(slow_lane: Open) -> None:
    """If analyses are slower than runs, the queue would grow without bound."""
    lane = slow_lane(0, concurrency=1)
    lane.analyst.may_answer.clear()
    names = [TraceId(f"{number:032x}") for number in range(1, 41)]
    for name in names:
        lane.receive(workflow(1, trace_id=name), chat(2, trace_id=name))
    await lane.pipeline.turn()
    lane.now += GRACE
    await lane.pipeline.turn()
    await lane.analyst.was_asked.wait()
    assert lane.pipeline.under_way == 40
    for name in names[1:38]:
        lane.evict(name)
    assert lane.pipeline.under_way == 3
    lane.analyst.may_answer.set()
    await lane.pipeline.settle()
    said = [verdict(lane, name).status for name in names]
    assert said == ["attributed", *["error"] * 37, "attributed", "attributed"]
    assert len(lane.analyst.asked) == 3
    assert lane.store.commits == 4  # what is evicted in a flood shares one


async def test_a_shutdown_begins_no_examination_that_waited_for_a_free_place(slow_lane: Open) -> None:
    lane = slow_lane(0, concurrency=1)
    lane.analyst.may_answer.clear()
    for name in (TRACE, OTHER):
        lane.receive(workflow(1, trace_id=name), chat(2, trace_id=name))
    await lane.pipeline.turn()
    lane.now += GRACE
    await lane.pipeline.turn()
    await lane.analyst.was_asked.wait()
    await lane.pipeline.drain(0)
    assert len(lane.analyst.asked) == 1


def lose(lane: SlowLane, *trace_ids: TraceId) -> None:
    """Let another process have these traces, as a rebalance of Kafka's partitions does."""
    keys = [TraceKey(NO_TENANT, one) for one in trace_ids]
    lane.owns = lambda key: key not in keys
    lane.pipeline.abandon(keys)
    for key in keys:
        lane.source.forget(key)


@pytest.mark.parametrize(
    "is_looked_up", [pytest.param(False, id="unread"), pytest.param(True, id="looked up")]
)
async def test_half_a_trace_whose_root_goes_to_another_process_is_not_opened(
    slow_lane: Open, *, is_looked_up: bool
) -> None:
    """Its parents never arrive here: it would stay open for ten minutes, or 75."""
    lane = slow_lane(0)
    lane.receive(chat(3, parent=2, answer="4"))
    turn = asyncio.create_task(lane.pipeline.turn())
    if is_looked_up:
        await asyncio.sleep(0)
        assert lane.pipeline.is_unsettled(KEY)
    lose(lane, TRACE)
    await turn
    assert lane.pipeline.open_traces == 0
    assert not lane.pipeline.is_unsettled(KEY)


async def test_a_trace_that_comes_back_is_judged_once(slow_lane: Open) -> None:
    """The partition went away and came back: its records are read again from the trace's beginning."""
    lane = slow_lane(0)
    lane.receive(chat(3, parent=2, answer="4"))
    lose(lane, TRACE)
    await lane.pipeline.turn()
    lose(lane)
    for _ in range(2):  # once more while the first reading waits in the inbox
        lane.receive(agent(2, "planner"), chat(3, parent=2, answer="4"))
    lane.receive(workflow(1))
    await lane.pass_time(GRACE)
    await lane.pass_time(10_000)
    assert (verdict(lane).version, len(lane.announced), lane.pipeline.open_traces) == (1, 1, 0)


async def test_linked_traces_that_go_to_another_process_while_they_are_read_are_not_opened_again(
    slow_lane: Open,
) -> None:
    lane = slow_lane(0)
    lane.source.read_refusals = 1
    lane.on_pause = lambda _: lose(lane, TRACE, OTHER)
    lane.receive(workflow(1, trace_id=OTHER), chat(2, trace_id=OTHER))
    lane.receive(workflow(1, links=[linked(1)]), chat(2))
    await lane.pass_time(GRACE)
    await lane.pipeline.turn()
    assert (lane.pipeline.open_traces, lane.pipeline.under_way) == (0, 0)
    assert lane.store.current(NO_TENANT, TRACE) is None, "the other process judges it"


async def test_a_verdict_stands_when_its_trace_is_evicted_later(slow_lane: Open) -> None:
    lane = slow_lane(0)
    lane.receive(workflow(1), chat(2, answer="4", agent_name="planner"))
    await lane.pass_time(GRACE)
    lane.receive(chat(3, answer="5"))
    await lane.pipeline.turn()
    lane.evict(TRACE)
    await lane.pass_time(100)
    assert (verdict(lane).status, verdict(lane).version) == ("attributed", 1)


async def test_a_span_later_than_the_retention_changes_no_verdict(
    slow_lane: Open, caplog: pytest.LogCaptureFixture
) -> None:
    lane = slow_lane(0, 0)
    lane.receive(workflow(1), chat(2, answer="4", agent_name="planner"))
    await lane.pass_time(GRACE)
    lane.evict(TRACE)
    lane.receive(chat(3, answer="5", agent_name="writer"))
    await lane.pass_time(100)
    assert (len(lane.analyst.asked), verdict(lane).agent, verdict(lane).version) == (1, "planner", 1)
    assert caplog.messages == []


class TestParentsThatNeverArrive:
    async def test_are_learned_by_name_and_not_waited_for_after_a_restart(self, slow_lane: Open) -> None:
        lane = slow_lane(0)
        lane.receive(agent(2, "planner", parent=1), chat(3, parent=2, answer="4"))
        await lane.pass_time(LIMITS.max_silence_s)
        assert verdict(lane).status == "attributed"
        assert [(one.name, one.service) for one in lane.store.absent.all()] == [
            ("invoke_agent planner", "test")
        ]
        after = await lane.restarted()
        after.receive(agent(2, "planner", parent=1, trace_id=OTHER), chat(3, parent=2, trace_id=OTHER))
        await after.pass_time(LIMITS.idle_close_s)
        assert not verdict(after, OTHER).is_provisional
        after.close()

    async def test_are_named_without_the_secrets_in_their_names(self, slow_lane: Open) -> None:
        lane = slow_lane(0)
        asked = replace(agent(2, "planner", parent=1), name="GET /plan?api_key=sk-a1b2c3d4e5f6g7h8i9j0k1l2")
        lane.receive(asked, chat(3, parent=2, answer="4"))
        await lane.pass_time(LIMITS.max_silence_s)
        assert [one.name for one in lane.store.absent.all()] == ["GET /plan?api_key=[key]"]

    async def test_are_waited_for_again_once_one_arrived(self, slow_lane: Open) -> None:
        lane = slow_lane(0)
        lane.receive(agent(2, "planner", parent=1), chat(3, parent=2, answer="4"))
        await lane.pass_time(LIMITS.max_silence_s)
        lane.receive(workflow(1))
        await lane.pass_time(100)
        assert lane.store.absent.all() == []


class TestRunsOfSeveralTraces:
    async def test_runs_that_link_to_the_same_trace_of_a_cron_job_are_runs_by_themselves(
        self, slow_lane: Open
    ) -> None:
        lane = slow_lane(0)
        runs = [TraceId(f"{number:032x}") for number in range(100, 109)]
        for trace_id in runs:
            lane.receive(
                workflow(1, trace_id=trace_id, links=[linked(1, OTHER)]),
                chat(2, trace_id=trace_id, answer="4"),
            )
        await lane.pass_time(GRACE)
        assert [verdict(lane, run).status for run in runs] == ["attributed"] * 9

    async def test_linked_traces_get_one_verdict_when_the_last_of_them_is_over(self, slow_lane: Open) -> None:
        lane = slow_lane(0)
        lane.receive(workflow(1), chat(2, answer="4", agent_name="planner"))
        lane.receive(
            chat(9, parent=8, trace_id=OTHER, agent_name="writer", start=500, links=[linked(1, TRACE)])
        )
        await lane.pass_time(30)
        assert lane.analyst.asked == []
        lane.receive(agent(8, "writer", parent=None, trace_id=OTHER, start=400))
        await lane.pass_time(GRACE)
        (asked,) = lane.analyst.asked
        assert asked.agents == ("planner", "writer")
        await lane.pass_time(1000)
        assert (len(lane.analyst.asked), verdict(lane).version) == (1, 1)

    async def test_a_run_waits_for_its_open_siblings(self, slow_lane: Open) -> None:
        lane = slow_lane(0)
        lane.receive(chat(9, parent=8, trace_id=OTHER, agent_name="writer", start=500))
        lane.receive(workflow(1, links=[linked(9)]), chat(2, answer="4", agent_name="planner"))
        await lane.pass_time(GRACE)
        assert lane.analyst.asked == []
        lane.receive(agent(8, "writer", parent=None, trace_id=OTHER, start=400))
        await lane.pass_time(GRACE)
        (asked,) = lane.analyst.asked
        assert [step.agent for step in asked.steps] == ["planner", "writer"]
        await lane.pass_time(100)
        assert (len(lane.analyst.asked), written_names(lane.written())) == (1, BLAMED)

    async def test_traces_of_one_run_that_end_together_get_one_verdict(self, slow_lane: Open) -> None:
        lane = slow_lane(0, 1)
        lane.analyst.may_answer.clear()
        lane.receive(workflow(1, links=[linked(9)]), chat(2, answer="4", agent_name="planner"))
        lane.receive(
            agent(8, "writer", parent=None, trace_id=OTHER, start=400, links=[linked(1, TRACE)]),
            chat(9, parent=8, trace_id=OTHER, agent_name="writer", start=500),
        )
        await lane.pipeline.turn()
        lane.now += GRACE
        await lane.pipeline.turn()
        await lane.analyst.was_asked.wait()
        lane.analyst.may_answer.set()
        await lane.pass_time(100)
        assert written_names(lane.written()) == BLAMED
        assert verdict(lane).version == 1

    async def test_a_linked_trace_is_judged_by_itself_if_the_other_is_evicted_meanwhile(
        self, slow_lane: Open
    ) -> None:
        lane = slow_lane(0, concurrency=1)
        lane.analyst.may_answer.clear()
        busy = TraceId("d" * 32)
        lane.receive(workflow(1, trace_id=busy), chat(2, trace_id=busy, answer="4"))
        lane.receive(workflow(1, links=[linked(8)]), chat(2, answer="4", agent_name="planner"))
        lane.receive(agent(8, "writer", parent=None, trace_id=OTHER), chat(9, parent=8, trace_id=OTHER))
        await lane.pipeline.turn()
        lane.now += GRACE
        await lane.pipeline.turn()
        lane.source.forget(KEY)  # unlike ``evict``: the pipeline is told too late
        lane.analyst.may_answer.set()
        await lane.pipeline.settle()
        for _ in range(3):
            await lane.pass_time(LIMITS.idle_close_s)
        assert {verdict(lane).status, verdict(lane, OTHER).status} == {"error", "attributed"}

    @pytest.mark.parametrize("gone", [TRACE, OTHER])
    async def test_a_linked_trace_is_judged_by_itself_if_the_other_is_evicted_before_their_turn(
        self, slow_lane: Open, gone: TraceId
    ) -> None:
        lane = slow_lane(0, concurrency=1)
        lane.analyst.may_answer.clear()
        busy = TraceId(f"{1:032x}")
        lane.receive(workflow(1, trace_id=busy), chat(2, trace_id=busy, answer="4"))
        lane.receive(workflow(1, links=[linked(8)]), chat(2, answer="4", agent_name="planner"))
        lane.receive(agent(8, "writer", parent=None, trace_id=OTHER), chat(9, parent=8, trace_id=OTHER))
        await lane.pipeline.turn()
        lane.now += GRACE
        await lane.pipeline.turn()
        await lane.analyst.was_asked.wait()
        lane.evict(gone)
        lane.analyst.may_answer.set()
        await lane.pipeline.settle()
        for _ in range(3):
            await lane.pass_time(LIMITS.idle_close_s)
        left = OTHER if gone == TRACE else TRACE
        assert (verdict(lane, gone).status, verdict(lane, left).status) == ("error", "attributed")

    async def test_a_linked_trace_is_judged_though_the_one_it_waited_with_is_evicted(
        self, slow_lane: Open
    ) -> None:
        """Both wait for a third one that began while they were read and does not link to them."""
        lane = slow_lane(0)
        third = TraceId("e" * 32)
        lane.receive(workflow(1, links=[linked(8), linked(4, third)]), chat(2, answer="4"))
        lane.receive(agent(8, "writer", parent=None, trace_id=OTHER), chat(9, parent=8, trace_id=OTHER))
        await lane.pipeline.turn()
        lane.now += LIMITS.idle_close_s
        (*_, both) = lane.pipeline._assembler.take_ready(lane.now)
        lane.receive(chat(5, parent=4, trace_id=third))
        await lane.pipeline._absorb()
        lane.pipeline._begin(both)
        await lane.pipeline.settle()
        lane.evict(both.key.trace_id)
        lane.receive(agent(4, "critic", parent=None, trace_id=third))
        for _ in range(6):
            await lane.pass_time(LIMITS.idle_close_s)
        ((told,),) = lane.store.identities(both.along).values()
        assert verdict(lane, told.run_id).status == "attributed"

    async def test_an_analyst_that_fails_is_an_error_of_every_trace_of_the_run(self, slow_lane: Open) -> None:
        lane = slow_lane(RuntimeError("boom"))
        lane.receive(workflow(1, links=[linked(8)]), chat(2, answer="4", agent_name="planner"))
        lane.receive(agent(8, "writer", parent=None, trace_id=OTHER), chat(9, parent=8, trace_id=OTHER))
        await lane.pass_time(GRACE)
        assert [verdict(lane).status, verdict(lane, OTHER).status] == ["error", "error"]

    async def test_a_sibling_that_is_evicted_is_not_waited_for(self, slow_lane: Open) -> None:
        lane = slow_lane(0)
        lane.receive(chat(9, parent=8, trace_id=OTHER, agent_name="writer"))
        lane.receive(workflow(1, links=[linked(9)]), chat(2, answer="4", agent_name="planner"))
        await lane.pass_time(GRACE)
        lane.evict(OTHER)
        await lane.pass_time(4 * GRACE)
        assert verdict(lane).status == "attributed"
        assert verdict(lane, OTHER).status == "error"

    async def test_a_trace_evicted_while_it_waits_for_a_sibling_is_an_error(self, slow_lane: Open) -> None:
        lane = slow_lane(0)
        lane.receive(chat(9, parent=8, trace_id=OTHER, agent_name="writer"))
        lane.receive(workflow(1, links=[linked(9)]), chat(2, answer="4", agent_name="planner"))
        await lane.pass_time(GRACE)
        lane.evict(TRACE)
        await lane.pass_time(4 * GRACE)
        assert verdict(lane).status == "error"

    async def test_a_sibling_that_is_no_agents_is_not_waited_for(self, slow_lane: Open) -> None:
        lane = slow_lane(0)
        lane.receive(workflow(1, links=[linked(9)]), chat(2, answer="4", agent_name="planner"))
        async with asyncio.timeout(30):
            await lane.pass_time(GRACE)
        assert verdict(lane).status == "attributed"

    async def test_a_siblings_held_spans_go_on_with_the_verdict(self, slow_lane: Open) -> None:
        lane = slow_lane(1, hold_max_s=20)
        lane.receive(chat(9, parent=8, trace_id=OTHER, agent_name="writer", start=500))
        lane.receive(workflow(1, links=[linked(9)]), chat(2, answer="4", agent_name="planner"))
        await lane.pass_time(GRACE)
        lane.receive(agent(8, "writer", parent=None, trace_id=OTHER, start=400))
        await lane.pass_time(GRACE)
        assert sorted(seq for seq, _ in lane.source.sent) == [1, 2, 3]
        sent = [span for _, body in lane.source.sent for span in decode(body).spans]
        blamed = [span.span_id for span in sent if "blamespan.failure.decisive" in span.attributes]
        assert blamed == [SpanId(f"{9:016x}")]


def linked(number: int, trace_id: TraceId = OTHER) -> Link:
    return Link(trace_id=trace_id, span_id=SpanId(f"{number:016x}"))
