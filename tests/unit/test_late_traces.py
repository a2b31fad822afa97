"""Late and duplicate spans: the number of analyses is bounded, and a run keeps its id."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from analyzer.analyses.load import MAX_ANALYSES
from collector_processor.otlp import NO_TENANT, TraceKey
from collector_processor.rebuild.decode import decode
from collector_processor.rebuild.encode import encode
from collector_processor.rebuild.runs import keep_run_ids
from collector_processor.rebuild.stages import rebuild
from semconv.model import Link, Span, SpanId, Trace, TraceId
from tests.factories import TRACE, agent, chat, span, workflow
from tests.run_store import analyses_of
from tests.slow_lane import LIMITS, Say, ScriptedAnalyst, SlowLane, written_names

GRACE = LIMITS.root_grace_s
KEY = TraceKey(NO_TENANT, TRACE)
ROOT_NAME = "invoke_workflow"
BLAMED = ["planner: decisive error", "failure: planner"]
Open = Callable[..., SlowLane]


@pytest.fixture
def slow_lane(tmp_path: Path) -> Iterator[Open]:
    opened: list[SlowLane] = []

    def open_lane(*answers: Say, hold_max_s: float | None = None) -> SlowLane:
        opened.append(SlowLane(path=tmp_path, analyst=ScriptedAnalyst(*answers), hold_max_s=hold_max_s))
        return opened[-1]

    yield open_lane
    for lane in opened:
        lane.close()


def trace_id(number: int) -> TraceId:
    return TraceId(f"{number + 1:032x}")


def part(number: int, *, start: float | None = None) -> tuple[Span, ...]:
    """One trace of a run in which every trace links to the first."""
    begins = 1000.0 * (number + 1) if start is None else start
    links = [Link(trace_id=trace_id(0), span_id=SpanId(f"{1:016x}"))] if number else []
    return (
        agent(1, f"agent{number}", parent=None, trace_id=trace_id(number), links=links, start=begins),
        chat(2, parent=1, answer=f"said {number}", trace_id=trace_id(number), start=begins + 1),
    )


def versions(lane: SlowLane) -> dict[str, int]:
    return {found.run_id: found.version for found in lane.store.starting_with("", None, 100)}


class TestWhatComesTwice:
    @pytest.mark.parametrize("hold_max_s", [pytest.param(None, id="late"), pytest.param(20, id="hold")])
    async def test_a_request_that_is_sent_again_costs_no_second_analysis(
        self, slow_lane: Open, hold_max_s: float | None
    ) -> None:
        """A client without an answer sends a request again: often the last one, with the root."""
        lane = slow_lane(0, 1, hold_max_s=hold_max_s)
        lane.receive(chat(2, answer="4", agent_name="planner"), chat(3, answer="5", agent_name="writer"))
        lane.receive(workflow(1))
        await lane.pass_time(GRACE)
        lane.receive(workflow(1))
        lane.receive(chat(2, answer="4", agent_name="planner"), chat(3, answer="5", agent_name="writer"))
        await lane.pass_time(1000)
        assert (len(lane.analyst.asked), versions(lane)) == (1, {TRACE: 1})
        assert analyses_of(lane.store, next(iter(lane.source.rows))) == (1, 4)

    async def test_nor_does_it_after_a_restart(self, slow_lane: Open) -> None:
        lane = slow_lane(0, 1)
        lane.receive(workflow(1), chat(2, answer="4", agent_name="planner"))
        await lane.pass_time(GRACE)
        after = await lane.restarted()
        after.receive(workflow(1), chat(2, answer="4", agent_name="planner"))
        await after.pass_time(1000)
        assert (len(lane.analyst.asked), versions(after)) == (1, {TRACE: 1})
        after.close()

    async def test_it_takes_none_of_the_analyses_that_news_may_need(self, slow_lane: Open) -> None:
        lane = slow_lane(0)
        lane.receive(workflow(1), chat(2, answer="4", agent_name="planner"))
        for _ in range(5):
            await lane.pass_time(1000)
            lane.receive(workflow(1))
        await lane.pass_time(1000)
        lane.receive(chat(3, answer="5", agent_name="writer"))
        await lane.pass_time(1000)
        assert [len(asked.steps) for asked in lane.analyst.asked] == [1, 2]


class TestRunsThatGrowByTraces:
    async def test_a_run_that_was_analysed_three_times_takes_no_more_traces(self, slow_lane: Open) -> None:
        """Each trace that links to it later gets its own verdict."""
        lane = slow_lane(0)
        for number in range(6):
            lane.receive(*part(number))
            await lane.pass_time(LIMITS.max_silence_s)
            await lane.pass_time(LIMITS.max_silence_s)
        assert [len(asked.agents) for asked in lane.analyst.asked] == [1, 2, 3, 1, 1, 1]
        assert set(versions(lane)) == {trace_id(number) for number in (0, 3, 4, 5)}
        assert lane.pipeline.open_traces == 0

    async def test_traces_that_follow_quickly_are_analysed_together_once_it_is_quiet(
        self, slow_lane: Open
    ) -> None:
        lane = slow_lane(0)
        for number in range(10):
            lane.receive(*part(number))
            await lane.pass_time(GRACE + 1)
        assert [len(asked.agents) for asked in lane.analyst.asked] == [1]
        for _ in range(3):
            await lane.pass_time(LIMITS.idle_close_s)
        assert [len(asked.agents) for asked in lane.analyst.asked] == [1, 10]

    async def test_a_trace_that_links_to_two_judged_runs_joins_one_and_leaves_the_other_as_it_is(
        self, slow_lane: Open
    ) -> None:
        """If merged, a run would be counted twice, and one run's verdict would stay in its trace."""
        lane = slow_lane(0)
        for number in range(2):
            one = replace(part(number)[0], links=())
            lane.receive(one, *part(number)[1:])
            await lane.pass_time(GRACE)
        links = [Link(trace_id=trace_id(number), span_id=SpanId(f"{1:016x}")) for number in range(2)]
        both = agent(1, "agent2", parent=None, trace_id=trace_id(2), links=links, start=3000)
        lane.receive(both, chat(2, parent=1, answer="said 2", trace_id=trace_id(2), start=3001))
        for _ in range(3):
            await lane.pass_time(LIMITS.idle_close_s)
        assert [asked.agents for asked in lane.analyst.asked] == [
            ("agent0",),
            ("agent1",),
            ("agent0", "agent2"),
        ]
        assert versions(lane) == {trace_id(0): 1, trace_id(1): 1}

    async def test_judged_runs_that_late_spans_link_stay_two(self, slow_lane: Open) -> None:
        lane = slow_lane(0)
        for number in range(2):
            lane.receive(replace(part(number)[0], links=()), *part(number)[1:])
            await lane.pass_time(GRACE)
        late = [Link(trace_id=trace_id(0), span_id=SpanId(f"{1:016x}"))]
        lane.receive(chat(3, parent=1, answer="late", trace_id=trace_id(0), start=1005))
        lane.receive(chat(4, parent=1, answer="late", trace_id=trace_id(1), start=2005, links=late))
        for _ in range(4):
            await lane.pass_time(LIMITS.idle_close_s)
        assert set(versions(lane)) == {trace_id(0), trace_id(1)}
        assert [len(asked.steps) for asked in lane.analyst.asked] == [1, 1, 2, 2]

    async def test_each_turn_of_a_long_conversation_is_judged_soon(self, slow_lane: Open) -> None:
        """Every turn links to the previous one."""
        lane = slow_lane(0)
        for number in range(40):
            links = [Link(trace_id=trace_id(number - 1), span_id=SpanId(f"{1:016x}"))] if number else []
            turn = agent(1, f"agent{number}", parent=None, trace_id=trace_id(number), links=links)
            lane.receive(turn, chat(2, parent=1, answer=f"said {number}", trace_id=trace_id(number)))
            await lane.pass_time(2 * LIMITS.idle_close_s)
            await lane.pass_time(2 * LIMITS.idle_close_s)
            assert any(f"agent{number}" in asked.agents for asked in lane.analyst.asked), number

    async def test_a_restart_forgets_no_analysis_of_the_run(self, slow_lane: Open) -> None:
        lane = slow_lane(0)
        for number in range(3):
            lane.receive(*part(number))
            await lane.pass_time(LIMITS.max_silence_s)
            await lane.pass_time(LIMITS.max_silence_s)
        after = await lane.restarted()
        after.receive(*part(3))
        await after.pass_time(LIMITS.max_silence_s)
        assert [len(asked.agents) for asked in lane.analyst.asked] == [1, 2, 3, 1]
        after.close()

    async def test_a_trace_that_changes_each_hour_is_analysed_a_bounded_number_of_times(
        self, slow_lane: Open
    ) -> None:
        lane = slow_lane(0, hold_max_s=20)
        lane.receive(workflow(1), chat(2, answer="4", agent_name="planner"))
        for number in range(3, MAX_ANALYSES + 6):
            await lane.pass_time(LIMITS.max_silence_s)
            lane.receive(chat(number, answer=f"more {number}", agent_name="writer"))
        await lane.pass_time(LIMITS.max_silence_s)
        assert len(lane.analyst.asked) == MAX_ANALYSES
        assert lane.source.held[KEY] == set()

    async def test_a_trace_that_begins_before_the_others_leaves_the_run_its_id(self, slow_lane: Open) -> None:
        """The earlier verdict stays in its place, and is superseded there."""
        lane = slow_lane(0, 1)
        lane.receive(*part(0))
        await lane.pass_time(GRACE)
        lane.receive(*part(1, start=5))
        await lane.pass_time(100)
        await lane.pass_time(100)
        assert [asked.run_id for asked in lane.analyst.asked] == [trace_id(0)] * 2
        assert [asked.agents for asked in lane.analyst.asked] == [("agent0",), ("agent1", "agent0")]
        assert list(versions(lane)) == [trace_id(0)]


class TestIds:
    def test_a_run_that_is_new_goes_by_its_own_id(self) -> None:
        assert keep_run_ids(runs(part(3)), {}) == (trace_id(3),)

    def test_a_run_keeps_its_own_id_though_its_traces_had_others_too(self) -> None:
        given = {str(trace_id(number)): frozenset((trace_id(number),)) for number in (0, 1)}
        assert keep_run_ids(runs(part(0), part(1)), given) == (trace_id(0),)

    def test_of_a_trace_that_turns_out_to_be_two_runs_the_first_keeps_the_id(self) -> None:
        two = runs((workflow(1), chat(2, parent=1)), (workflow(3, start=500), chat(4, parent=3, start=600)))
        given = {str(TRACE): frozenset((TRACE,))}
        first, second = keep_run_ids(two, given)
        assert (first, second) == (TRACE, f"{TRACE}:{3:016x}")
        assert keep_run_ids(two, dict.fromkeys((first, second), frozenset((TRACE,)))) == (first, second)

    def test_no_two_runs_get_one_id(self) -> None:
        two = [Trace(spans=(span(1),), run_id="a"), Trace(spans=(span(2),), run_id="b")]
        given = {"old": frozenset((TRACE,))}
        assert keep_run_ids(two, given) == ("old", "b")


def runs(*requests: tuple[Span, ...]) -> list[Trace]:
    return [run.trace for run in rebuild([encode(spans) for spans in requests])]


class TestReplacementsThatTheDiskRefuses:
    async def test_the_originals_go_on_and_the_blame_follows_late(self, slow_lane: Open) -> None:
        lane = slow_lane(0, hold_max_s=20)
        lane.receive(chat(2, answer="4", agent_name="planner"), workflow(1))
        lane.source.rewrite_refusals = 1
        await lane.pass_time(GRACE)
        ((_, sent),) = lane.source.sent
        assert all("blamespan.failure.id" not in one.attributes for one in decode(sent).spans)
        assert written_names(lane.written()) == BLAMED
        assert (versions(lane), lane.store.rewrites(), lane.source.held[KEY]) == ({TRACE: 1}, [], set())

    async def test_what_could_be_replaced_is_not_said_twice(self, slow_lane: Open) -> None:
        lane = slow_lane(0, hold_max_s=20)
        lane.receive(chat(2, answer="4", agent_name="planner"))
        lane.receive(workflow(1))
        lane.source.rewrite_refusals = 1  # the chat's; the root's is taken
        await lane.pass_time(GRACE)
        assert written_names(lane.written()) == BLAMED[:1]
        sent = [one for _, body in lane.source.sent for one in decode(body).spans]
        assert [one.name for one in sent if "blamespan.failure.id" in one.attributes] == [ROOT_NAME]

    async def test_a_crash_before_the_replacement_and_a_full_disk_after_it_lose_no_blame(
        self, slow_lane: Open
    ) -> None:
        lane = slow_lane(0, hold_max_s=20)
        lane.receive(chat(2, answer="4", agent_name="planner"), workflow(1))
        await lane.reach_rewriting()
        lane.source.rewrite_refusals = 1
        after = await lane.restarted()
        assert [seq for seq, _ in after.source.sent] == [1]
        assert written_names(after.written()) == BLAMED
        after.close()
