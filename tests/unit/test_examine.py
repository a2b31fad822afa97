"""One examination: what it loads, what it keeps in memory, and what it commits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from analyzer.analyses.early import EarlyWarning
from analyzer.analyses.examine import Awaits, Done, Examined
from analyzer.analyses.load import Others
from analyzer.analyses.prepared import MAX_KEYS, Changed, Open
from collector_processor.assembly.assembler import Released
from collector_processor.core.analysis import Analysis
from collector_processor.core.disk import STORE_RETRY_S
from collector_processor.otlp import NO_TENANT, Signal, Tenant, TraceKey
from collector_processor.rebuild.decode import decode, decode_logs
from collector_processor.rebuild.encode import encode
from semconv.model import Completion, Link, SpanId, TraceId
from tests.factories import TRACE, agent, chat, span, workflow
from tests.otlp_requests import log_request, record
from tests.run_store import analyses_of, joined
from tests.slow_lane import ScriptedAnalyst, SlowLane, written_names

KEY = TraceKey(NO_TENANT, TRACE)
OTHER = TraceKey(NO_TENANT, TraceId("b" * 32))
ENDED = Released(key=KEY, completion=Completion.ROOT_ENDED)
NEVER_HEARD_OF = TraceKey(NO_TENANT, TraceId("c" * 32))


@pytest.fixture
async def lane(tmp_path: Path) -> AsyncIterator[SlowLane]:
    opened = SlowLane(path=tmp_path, analyst=ScriptedAnalyst(0))
    yield opened
    opened.close()


def store_run(lane: SlowLane, *, is_held: bool = False) -> None:
    lane.source.store(encode([workflow(1), chat(2, answer="4", agent_name="planner")]), is_held=is_held)


async def examine(
    lane: SlowLane,
    released: Released = ENDED,
    *,
    still_open: tuple[TraceKey, ...] = (),
    claims: tuple[TraceKey, ...] = (),
) -> Examined:
    return await lane.examiner.examine(
        released, others=Others(is_open=still_open.__contains__), claim=claims.__contains__
    )


async def test_the_verdict_and_its_bytes_are_committed_in_one(lane: SlowLane) -> None:
    store_run(lane)
    assert await examine(lane) == Done(frozenset((KEY,)))
    found = lane.store.current(NO_TENANT, TRACE)
    assert found is not None
    (carriers,), (log,) = lane.store.outbox(Signal.TRACES), lane.store.outbox(Signal.LOGS)
    ids = {carrier.attributes["blamespan.failure.id"] for carrier in decode(carriers.body).spans}
    assert ids == {found.failure_id}
    assert [entry.event.name for entry in decode_logs(log.body)] == ["gen_ai.evaluation.result"] * 2
    assert (analyses_of(lane.store, KEY), lane.wakes) == ((1, 1), 1)


async def test_what_was_analysed_is_not_analysed_again_without_anything_new(lane: SlowLane) -> None:
    store_run(lane)
    await examine(lane)
    assert await examine(lane) == Done(frozenset((KEY,)))
    assert len(lane.analyst.asked) == 1


async def test_a_run_that_did_its_task_gets_no_span_and_one_evaluation(lane: SlowLane) -> None:
    lane.analyst.answers = [None]
    store_run(lane)
    await examine(lane)
    assert lane.written() == []
    (log,) = lane.store.outbox(Signal.LOGS)
    (entry,) = decode_logs(log.body)
    assert entry.event.attributes["gen_ai.evaluation.name"] == "task_success"


async def test_the_log_records_of_the_trace_are_part_of_the_run(lane: SlowLane) -> None:
    store_run(lane)
    lane.source.store(log_request(record(trace=int(TRACE, 16))), signal=Signal.LOGS)
    await examine(lane)
    assert analyses_of(lane.store, KEY) == (1, 2)


async def test_a_trace_that_nothing_is_left_of_is_an_error_once(lane: SlowLane) -> None:
    assert await examine(lane) == Done(frozenset((KEY,)))
    await examine(lane)
    found = lane.store.current(NO_TENANT, TRACE)
    assert found is not None
    assert (found.status, found.version) == ("error", 1)
    assert lane.written() == []


async def test_log_records_without_spans_are_no_run(lane: SlowLane) -> None:
    lane.source.store(log_request(record(trace=int(TRACE, 16))), signal=Signal.LOGS)
    await examine(lane, Released(key=KEY, completion=Completion.IDLE_OPEN))
    await examine(lane)
    assert lane.store.starting_with("", None, 10) == []


async def test_bytes_that_cannot_be_decoded_leave_no_verdict_and_are_not_read_again(lane: SlowLane) -> None:
    store_run(lane)
    lane.source.rows[KEY][1] = b"\xff\xff"
    assert await examine(lane) == Done(frozenset((KEY,)))
    found = lane.store.current(NO_TENANT, TRACE)
    assert found is not None
    assert found.status == "error"


@pytest.mark.parametrize("links", [1, 3 * MAX_KEYS])
async def test_links_to_unknown_traces_are_looked_up_once(lane: SlowLane, links: int) -> None:
    unknown = [
        Link(trace_id=TraceId(f"{number + 1:032x}"), span_id=SpanId("1" * 16)) for number in range(links)
    ]
    lane.source.store(encode([workflow(1, links=unknown), chat(2, answer="4", agent_name="planner")]))
    async with asyncio.timeout(60):
        await examine(lane)
    assert written_names(lane.written()) == ["planner: decisive error", "failure: planner"]
    assert joined(lane.store, NEVER_HEARD_OF, [f"trace:{TRACE}"]) == {TRACE}


async def test_a_chain_of_links_is_followed(lane: SlowLane) -> None:
    chain = [TraceId(f"{number:032x}") for number in range(1, 6)]
    for number, trace_id in enumerate(chain):
        links = [Link(trace_id=chain[number - 1], span_id=SpanId("0" * 15 + "1"))] if number else []
        lane.source.store(
            encode([agent(1, f"a{number}", parent=None, trace_id=trace_id, links=links, start=number)])
        )
    await examine(lane, Released(key=TraceKey(NO_TENANT, chain[-1]), completion=Completion.ROOT_ENDED))
    (asked,) = lane.analyst.asked
    assert asked.agents == ("a0", "a1", "a2", "a3", "a4")
    assert [analyses_of(lane.store, TraceKey(NO_TENANT, trace_id))[0] for trace_id in chain] == [1] * 5


async def test_a_provisional_verdict_ends_with_the_run_that_its_trace_joins(lane: SlowLane) -> None:
    child = agent(5, "writer", parent=6, trace_id=OTHER.trace_id, start=50)
    lane.source.store(encode([child]))  # its parent will link it to the first trace
    await examine(lane, Released(key=OTHER, completion=Completion.IDLE_OPEN))
    assert [one.run_id for one in lane.store.starting_with("", None, 10)] == [OTHER.trace_id]
    links = [Link(trace_id=TRACE, span_id=SpanId("1" * 16))]
    lane.source.store(encode([workflow(6, trace_id=OTHER.trace_id, links=links, start=40)]))
    store_run(lane)
    await examine(lane, Released(key=OTHER, completion=Completion.ROOT_ENDED))
    assert [(one.run_id, one.is_provisional) for one in lane.store.starting_with("", None, 10)] == [
        (TRACE, False)
    ]


class _WarnedWhileItEnds(EarlyWarning):
    """Warns of each run, while its trace joins another one."""

    def __init__(self) -> None:
        """Warn in the lane that is set afterwards."""
        self.lane: SlowLane

    async def warn(self, _tenant: Tenant, one: Open) -> Analysis:
        links = [Link(trace_id=TRACE, span_id=SpanId("1" * 16))]
        self.lane.source.store(encode([workflow(6, trace_id=OTHER.trace_id, links=links, start=40)]))
        store_run(self.lane)
        await examine(self.lane, Released(key=OTHER, completion=Completion.ROOT_ENDED))
        return one.analysis

    def end(self, _tenant: Tenant, _one: Changed) -> None:
        """Note nothing."""


async def test_an_early_look_leaves_no_verdict_on_a_trace_that_joined_a_run_meanwhile(tmp_path: Path) -> None:
    early = _WarnedWhileItEnds()
    early.lane = lane = SlowLane(path=tmp_path, analyst=ScriptedAnalyst(), early=early)
    lane.source.store(encode([agent(5, "writer", parent=6, trace_id=OTHER.trace_id, start=50)]))
    await lane.examiner.look_early(OTHER, Others(is_open=lambda _: False))
    assert [(one.run_id, one.is_provisional) for one in lane.store.starting_with("", None, 10)] == [
        (TRACE, False)
    ]
    lane.close()


async def test_an_open_sibling_is_awaited_and_nothing_is_committed(lane: SlowLane) -> None:
    lane.source.store(
        encode([workflow(1, links=[Link(trace_id=OTHER.trace_id, span_id=SpanId("1" * 16))]), chat(2)])
    )
    assert await examine(lane, still_open=(OTHER,)) == Awaits(frozenset((OTHER,)))
    assert (lane.analyst.asked, analyses_of(lane.store, KEY)) == ([], (0, -1))


async def test_of_two_examinations_of_the_same_spans_one_has_the_word(lane: SlowLane) -> None:
    lane.analyst.answers = [0, 1]
    lane.source.store(
        encode([workflow(1), chat(2, answer="4", agent_name="planner"), chat(3, agent_name="writer")])
    )
    await asyncio.gather(examine(lane), examine(lane))
    either = [[f"{who}: decisive error", f"failure: {who}"] for who in ("planner", "writer")]
    assert written_names(lane.written()) in either
    assert analyses_of(lane.store, KEY)[0] == 1


async def test_only_claimed_rows_are_rewritten(lane: SlowLane) -> None:
    store_run(lane, is_held=True)
    await examine(lane)
    assert lane.source.sent == []
    assert written_names(lane.written()) == ["planner: decisive error", "failure: planner"]


async def test_claimed_rows_are_rewritten_and_the_replacements_forgotten(lane: SlowLane) -> None:
    store_run(lane, is_held=True)
    await examine(lane, claims=(KEY,))
    ((_, body),) = lane.source.sent
    assert [len(one.attributes) > 5 for one in decode(body).spans] == [True, True]
    assert (lane.written(), lane.store.rewrites()) == ([], [])


async def test_plain_spans_that_were_joined_to_nothing_are_no_run_and_the_trace_is_done(
    lane: SlowLane,
) -> None:
    lane.source.store(encode([span(1)]))
    assert await examine(lane) == Done(frozenset((KEY,)))
    assert (lane.analyst.asked, lane.written()) == ([], [])


async def test_a_verdict_waits_for_a_full_disk_and_the_model_is_not_asked_again(lane: SlowLane) -> None:
    store_run(lane)
    lane.store.refusals = 3
    assert await examine(lane) == Done(frozenset((KEY,)))
    assert lane.pauses == [STORE_RETRY_S] * 3
    assert len(lane.analyst.asked) == 1
    assert analyses_of(lane.store, KEY) == (1, 1)


async def test_the_model_is_not_asked_again_where_nothing_can_be_read_either(lane: SlowLane) -> None:
    store_run(lane)
    lane.store.refusals = 1

    def unreadable(_: float) -> None:
        lane.on_pause = lambda _: None
        lane.source.read_refusals = 3

    lane.on_pause = unreadable
    assert await examine(lane) == Done(frozenset((KEY,)))
    assert (len(lane.pauses), len(lane.analyst.asked)) == (4, 1)


async def test_while_the_verdict_waits_for_the_disk_new_spans_are_not_passed_over(lane: SlowLane) -> None:
    store_run(lane)
    lane.store.refusals = 1

    def more(_: float) -> None:
        lane.source.store(encode([chat(3, answer="5", agent_name="writer")]))

    lane.on_pause = more
    await examine(lane)
    assert [len(asked.steps) for asked in lane.analyst.asked] == [1, 2]
    assert analyses_of(lane.store, KEY) == (1, 2)


async def test_spans_that_make_room_while_their_verdict_waits_for_the_disk_are_judged(lane: SlowLane) -> None:
    store_run(lane)
    lane.store.refusals = 1
    lane.on_pause = lambda _: lane.source.rows.clear()
    assert await examine(lane) == Done(frozenset((KEY,)))
    found = lane.store.current(NO_TENANT, TRACE)
    assert found is not None
    assert (found.agent, len(lane.analyst.asked)) == ("planner", 1)


async def test_held_spans_do_not_wait_for_a_full_disk(lane: SlowLane) -> None:
    """They are forwarded unchanged, once; the blame follows late."""
    store_run(lane, is_held=True)
    lane.store.refusals = 2
    await examine(lane, claims=(KEY,))
    ((_, body),) = lane.source.sent
    assert [len(one.attributes) > 5 for one in decode(body).spans] == [False, False]
    assert written_names(lane.written()) == ["planner: decisive error", "failure: planner"]


async def test_giving_up_waits_for_a_full_disk_too(lane: SlowLane) -> None:
    lane.store.refusals = 2
    await lane.examiner.committer.give_up(KEY, "because")
    found = lane.store.current(NO_TENANT, TRACE)
    assert found is not None
    assert (found.status, len(lane.pauses)) == ("error", 2)


async def test_a_verdict_is_announced_once_it_is_durable(lane: SlowLane) -> None:
    lane.store.refusals = 1
    store_run(lane)
    await examine(lane)
    assert lane.announced == [lane.store.current(NO_TENANT, TRACE)]


async def test_a_trace_that_was_given_up_is_announced_once(lane: SlowLane) -> None:
    for _ in range(2):
        await lane.examiner.committer.give_up(KEY, "internal error")
    assert [verdict.status for verdict in lane.announced] == ["error"]


async def test_a_verdict_that_may_still_change_is_not_announced(lane: SlowLane) -> None:
    store_run(lane)
    await examine(lane, Released(key=KEY, completion=Completion.IDLE_OPEN))
    assert (lane.store.current(NO_TENANT, TRACE) is not None, lane.announced) == (True, [])
