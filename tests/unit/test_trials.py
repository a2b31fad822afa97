"""Trials of experiments are not production runs; only ids issued by the store make a run a trial."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from analyzer.analyses.codec import read_prepared, write_prepared
from analyzer.analyses.examine import Done, Examined, Glanced
from analyzer.analyses.load import Others
from analyzer.analyses.prepare import claimed_trials
from analyzer.analyses.prepared import Prepared, TraceBytes
from analyzer.experiment.kept_experiments import TrialIds
from collector_processor.assembly.assembler import Released
from collector_processor.otlp import NO_TENANT, Signal, Tenant, TraceKey
from collector_processor.rebuild.encode import encode
from collector_processor.store.verdicts import RunStore
from semconv.attributes import TRIAL
from semconv.model import Completion, Link, Resource, Span, SpanId, TraceId
from semconv.record import replace
from tests.factories import TRACE, chat, workflow
from tests.run_store import analyses_of
from tests.slow_lane import ScriptedAnalyst, SlowLane, preparing

ISSUED, OTHERS, EXPIRED, FORGED = "1" * 32, "2" * 32, "3" * 32, "4" * 32
SHOP = Tenant("x-tenant=shop")
KEY = TraceKey(NO_TENANT, TRACE)
SECOND = TraceId("b" * 32)
WALL_NS = 1000 * 10**9
"""Clock of the slow lane."""
LATE = 10**9


@pytest.fixture
async def lane(tmp_path: Path) -> AsyncIterator[SlowLane]:
    opened = SlowLane(path=tmp_path, analyst=ScriptedAnalyst(0))
    opened.store.trials.issue(NO_TENANT, ISSUED, WALL_NS + LATE, now_ns=0)
    opened.store.trials.issue(SHOP, OTHERS, WALL_NS + LATE, now_ns=0)
    opened.store.trials.issue(NO_TENANT, EXPIRED, WALL_NS, now_ns=0)
    yield opened
    opened.close()


def run(trial: str, trace_id: TraceId = TRACE, *, links: tuple[Link, ...] = ()) -> list[Span]:
    told = Resource(attributes={"service.name": "shop", TRIAL: trial})
    spans = [
        workflow(1, trace_id=trace_id, links=list(links)),
        chat(2, answer="4", agent_name="planner", trace_id=trace_id),
    ]
    return [replace(span, resource=told) for span in spans]


async def examine(
    lane: SlowLane, trace_id: TraceId = TRACE, completion: Completion = Completion.ROOT_ENDED
) -> Examined:
    key = TraceKey(NO_TENANT, trace_id)
    released = Released(key=key, completion=completion)
    return await lane.examiner.examine(
        released, others=Others(is_open=lambda _: False), claim=lambda _: False
    )


@pytest.mark.parametrize(
    "claimed",
    [FORGED, OTHERS, EXPIRED, "", "x" * 10_000, ISSUED.upper() + "0", f"{ISSUED}' OR '1'='1"],
    ids=["unknown", "another tenant's", "expired", "empty", "too long", "alike", "sql"],
)
async def test_a_forged_id_hides_nothing(lane: SlowLane, claimed: str) -> None:
    lane.source.store(encode(run(claimed)))
    await examine(lane)
    found = lane.store.current(NO_TENANT, TRACE)
    assert found is not None
    assert found.agent == "planner"
    assert lane.written()


async def test_a_trial_links_to_a_production_run_and_does_not_hide_it(lane: SlowLane) -> None:
    lane.source.store(encode([workflow(1, trace_id=SECOND), chat(2, agent_name="planner", trace_id=SECOND)]))
    await examine(lane, SECOND)
    lane.source.store(encode(run(ISSUED, links=(Link(trace_id=SECOND, span_id=SpanId("1" * 16)),))))
    await examine(lane)
    assert [verdict.run_id for verdict in lane.store.starting_with("", None, 10)] == [SECOND]


async def test_an_issued_trial_gets_no_verdict_and_writes_nothing(lane: SlowLane) -> None:
    lane.source.store(encode(run(ISSUED)))
    assert await examine(lane, completion=Completion.IDLE_OPEN) == Glanced(frozenset((KEY,)))
    assert await examine(lane) == Done(frozenset((KEY,)))
    assert lane.store.starting_with("", None, 10) == []
    assert lane.analyst.asked == []
    assert (lane.written(), lane.store.outbox(Signal.LOGS)) == ([], [])


async def test_held_spans_of_a_trial_go_on_unchanged(tmp_path: Path) -> None:
    lane = SlowLane(path=tmp_path, analyst=ScriptedAnalyst(0), hold_max_s=30)
    lane.store.trials.issue(NO_TENANT, ISSUED, 2 * WALL_NS, now_ns=0)
    arrival = lane.receive(*run(ISSUED))
    assert arrival.is_held
    body = lane.source.rows[KEY][arrival.seq]
    await lane.pass_time(10)
    assert lane.source.sent == [(arrival.seq, body)]
    assert (lane.store.starting_with("", None, 10), lane.written()) == ([], [])
    lane.close()


async def test_a_trial_whose_spans_are_evicted_afterwards_is_no_error(lane: SlowLane) -> None:
    lane.source.store(encode(run(ISSUED)))
    await examine(lane)
    assert analyses_of(lane.store, KEY) == (1, 1)
    lane.source.forget(KEY)
    await examine(lane)
    assert lane.store.starting_with("", None, 10) == []


async def test_an_id_on_the_span_counts_like_one_on_its_resource(lane: SlowLane) -> None:
    first, second = workflow(1), chat(2, answer="4", agent_name="planner")
    lane.source.store(encode([first, replace(second, attributes={**second.attributes, TRIAL: ISSUED})]))
    await examine(lane)
    assert lane.store.starting_with("", None, 10) == []


def test_a_run_with_a_trace_that_claims_nothing_is_no_trial() -> None:
    assert claimed_trials(run(ISSUED)) == {ISSUED}
    assert claimed_trials([*run(ISSUED), workflow(3, trace_id=SECOND)]) == frozenset()
    assert claimed_trials([*run(ISSUED), *run(FORGED, SECOND)]) == {ISSUED, FORGED}
    assert claimed_trials([]) == frozenset()


async def test_claims_come_back_from_a_worker_process(lane: SlowLane) -> None:
    sent = TraceBytes(key=KEY, completion=Completion.ROOT_ENDED, bodies=(encode(run(ISSUED)),))
    prepared: Prepared = await preparing(lane.analyst)(sent)
    again = read_prepared(write_prepared(prepared))
    assert again is not None
    assert [one.run.trials for one in again.runs] == [{ISSUED}]


async def test_issued_ids_are_known_to_the_store_until_they_expire(tmp_path: Path) -> None:
    with closing(RunStore(tmp_path / "runs.sqlite")) as store:
        trial = await TrialIds(issue=store.trials.issue, tenant=SHOP, timeout_s=600, now_ns=lambda: 5)()
        day = int(86_400e9)
        assert store.trials.issued(SHOP, {trial, FORGED}, day) == {trial}
        assert store.trials.issued(NO_TENANT, {trial}, 5) == frozenset()
        assert store.trials.issued(SHOP, {trial}, day + int(601e9)) == frozenset()


async def test_a_store_that_refuses_issues_no_id(tmp_path: Path) -> None:
    with closing(RunStore(tmp_path / "runs.sqlite")) as store:
        store._db.execute("PRAGMA query_only = ON")
        assert await TrialIds(issue=store.trials.issue, tenant=SHOP, timeout_s=600, now_ns=lambda: 5)() == ""
