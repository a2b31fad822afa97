"""An analysis by another process: runs and answers arrive as they were, and answers are checked."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

import pytest

from analyzer.analyses.analyst import RunAnalyst
from analyzer.analyses.codec import (
    read_answer,
    read_earned,
    read_progress,
    read_run,
    write_answer,
    write_earned,
    write_run,
)
from analyzer.analyses.job_client import ANALYZER, JobAnalyst
from analyzer.inquiry.errors import UnreadableInput
from analyzer.methods.attribution import Attributor
from analyzer.service.replicas import Announcer
from collector_processor.core.analysis import Earned, TrackRecord
from semconv.model import (
    Abstention,
    Attribution,
    Blame,
    Evidence,
    Pooled,
    Ranked,
    SpanId,
    SpanStatus,
    Status,
    Step,
    StepKind,
    TraceId,
    Trajectory,
)
from tests.unit.test_job_worker import Store, store, until_rows

__all__ = ["store"]

LOCAL: Final = RunAnalyst(attributor=Attributor())
FAILED: Final = Trajectory(
    run_id="a" * 32,
    task="add up <b>“42”</b>\x00",
    output="43",
    steps=(
        Step(index=0, agent="planner", kind=StepKind.LLM, output="ask the calculator", tools="add"),
        Step(
            index=1,
            agent="calculator",
            kind=StepKind.TOOL,
            trace_id=TraceId("a" * 32),
            span_id=SpanId("b" * 16),
            status=SpanStatus.ERROR,
            error="overflow",
            start_ns=1,
            end_ns=2**63,
            causes=(0,),
        ),
    ),
    root_status=SpanStatus.ERROR,
    root_error="overflow",
    warnings=("a clock was wrong",),
)
BLAME: Final = Blame(
    agent="calculator",
    step=1,
    reason="it overflowed",
    confidence=0.75,
    evidence=(Evidence(step=1, quote="overflow"),),
    ranking=(Ranked(step=1, agent="calculator", probability=0.75),),
)


POOLED: Final = Pooled(
    step=1,
    agent="calculator",
    own_step=0,
    own_agent="planner",
    weight=0.25,
    accuracy=0.2,
    right=1,
    labelled=4,
)
EARNED: Final[Earned] = {"provider/large": TrackRecord(labelled=4.5, right=2, won=1, lost=1)}


def attribution(verdict: Blame | Abstention = BLAME) -> Attribution:
    return Attribution(run_id=FAILED.run_id, verdict=verdict, method="judge", model="scripted")


def test_a_run_arrives_as_it_was() -> None:
    assert read_run(write_run(FAILED)) == FAILED


@pytest.mark.parametrize(
    "verdict", [BLAME, Abstention(status=Status.UNDETERMINED, reason="two look alike", ranking=BLAME.ranking)]
)
def test_an_attribution_arrives_as_it_was(verdict: Blame | Abstention) -> None:
    assert read_answer(write_answer(attribution(verdict)), FAILED) == attribution(verdict)


def test_what_was_pooled_arrives_as_it_was() -> None:
    told = replace(attribution(), pooled=POOLED)
    assert read_answer(write_answer(told), FAILED) == told


def test_what_models_have_earned_arrives_as_it_was() -> None:
    assert read_earned(write_earned(EARNED)) == EARNED
    assert write_earned({}) == {}
    assert read_earned({}) == {}


def test_many_models_and_long_names_leave_room_in_the_address() -> None:
    many = {f"model {n}": TrackRecord(labelled=n) for n in range(100)} | {
        "x" * 9_000: TrackRecord(labelled=1e3)
    }
    assert list(read_earned(write_earned(many))) == [f"model {n}" for n in range(99, 91, -1)]


@pytest.mark.parametrize(
    "told",
    [
        "",
        "[]",
        '{"m": 1}',
        '{"m": {"labelled": -1}}',
        '{"m": {"labelled": 1, "right": 2}}',
        '{"m": {"labelled": 2, "right": 1, "won": 2}}',
        '{"m": {"labelled": "NaN"}}',
        '{"m": {"labelled": 1e300}}',
        "[" * 100_000,
    ],
)
def test_a_record_that_cannot_be_is_refused(told: str) -> None:
    with pytest.raises(UnreadableInput):
        read_earned({"earned": told})


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"run_id": 1, "steps": []}', b"\xff", b"[" * 100_000])
def test_input_that_is_not_a_run_is_refused_without_quoting_it(body: bytes) -> None:
    with pytest.raises(UnreadableInput, match="expected a run as JSON"):
        read_run(body)


@pytest.mark.parametrize(
    "told",
    [
        pytest.param(replace(attribution(), run_id="b" * 32), id="another run"),
        pytest.param(
            replace(attribution(), pooled=replace(POOLED, step=2)), id="a model's step there is not"
        ),
        pytest.param(
            replace(attribution(), pooled=replace(POOLED, right=5.0)), id="right more than labelled"
        ),
        pytest.param(replace(attribution(), pooled=replace(POOLED, weight=1.5)), id="more than full weight"),
        pytest.param(attribution(replace(BLAME, step=2)), id="a step there is not"),
        pytest.param(attribution(replace(BLAME, step=-1)), id="a step before the first"),
        pytest.param(attribution(replace(BLAME, confidence=1.5)), id="more than certain"),
        pytest.param(
            attribution(replace(BLAME, status=Status.SUSPECTED, failed_probability=1.5)),
            id="more than certainly failed",
        ),
        pytest.param(attribution(replace(BLAME, failed_probability=0.9)), id="perhaps failed, but blamed"),
        pytest.param(
            attribution(replace(BLAME, evidence=(Evidence(step=9, quote=""),))), id="evidence elsewhere"
        ),
    ],
)
def test_an_attribution_that_cannot_be_of_this_run_is_not_believed(told: Attribution) -> None:
    with pytest.raises(UnreadableInput):
        read_answer(write_answer(told), FAILED)


@pytest.mark.parametrize(
    "told",
    [b"no JSON", b'{"calls":-1}', b'{"calls":1e99}', b'{"cost_usd":NaN}', b'{"cost_usd":-1}', b"[" * 99_999],
)
def test_invalid_progress_is_refused(told: bytes) -> None:
    with pytest.raises(UnreadableInput, match="expected progress"):
        read_progress(told)


@pytest.mark.parametrize("body", [b"", b"<html>", b"{}"], ids=["none", "page", "empty"])
async def test_after_an_invalid_attribution_signals_decide_and_say_so(store: Store, body: bytes) -> None:
    await Announcer(store.replicas, store.thread.run, ANALYZER, {}).announce()
    asked = asyncio.create_task(JobAnalyst(ask=store.client(), local=LOCAL).analyse(FAILED))
    await until_rows(store, 1)
    job = await store.thread.run(store.jobs.claim, 60.0)
    assert job is not None
    await store.thread.run(store.jobs.answer, job, body)
    analysis = await asked
    assert analysis.attribution.method == "signals"
    assert (analysis.attribution.fallback or "").startswith("signals, because the analyzer failed: ")
    assert '"fallback": "signals, because' in analysis.document


async def test_a_run_that_went_well_is_not_sent(store: Store) -> None:
    await Announcer(store.replicas, store.thread.run, ANALYZER, {}).announce()
    well = replace(FAILED, steps=FAILED.steps[:1], root_status=SpanStatus.OK, root_error="")
    analysis = await JobAnalyst(ask=store.client(), local=LOCAL).analyse(well)
    assert analysis.attribution.status is Status.NO_FAILURE
    assert await store.rows("SELECT id FROM job") == []
