from __future__ import annotations

import json
from dataclasses import replace

import pytest

from analyzer.analyses.models.scripted import ScriptedModel
from analyzer.history.elements import elements_of, pack
from analyzer.history.known_runs import KnownRun, KnownRuns
from analyzer.history.spectrum import Said
from analyzer.methods.attribution import Attributor
from analyzer.methods.history import MOST_CONFIDENT
from semconv.model import Blame, Status, Trajectory
from tests.runs import run, step, tool

GOOD = run(step("planner", "plan"), step("buyer", "price 3"), step("writer", "it is 3"), task="price?")
BAD = run(
    step("planner", "plan"),
    step("buyer", "price 3"),
    tool("buyer", "paid", "pay"),
    step("writer", "it is 4"),
    task="price?",
    run_id="bad",
)


def past(*runs: tuple[Said, Trajectory], version: str = "v") -> KnownRuns:
    return KnownRuns.of(
        KnownRun(
            run_id=f"r{number}",
            service="",
            workflow="",
            version=version,
            said=said,
            elements=pack(elements_of(each)),
        )
        for number, (said, each) in enumerate([*runs])
    )


def known() -> KnownRuns:
    runs = past(*[(Said.PASSED, GOOD)] * 20, *[(Said.FAILED, BAD)] * 3).runs
    own = replace(runs["r0"], run_id="bad", said=Said.FAILED, elements=pack(elements_of(BAD)))
    return KnownRuns(runs={**runs, "bad": own})


async def test_history_names_the_step_that_only_failing_runs_have() -> None:
    found = await Attributor(method="history", past=known())(BAD)
    blame = found.verdict
    assert isinstance(blame, Blame)
    assert (found.method, blame.step, blame.agent) == ("history", 2, "buyer")
    assert blame.confidence <= MOST_CONFIDENT
    assert "buyer calls pay" in blame.reason
    assert "as 4 runs that failed and 0 that passed" in blame.reason


async def test_history_abstains_if_no_step_is_special() -> None:
    like = replace(GOOD, run_id="bad")
    runs = {**known().runs, "bad": replace(known().runs["r0"], run_id="bad", said=Said.FAILED)}
    found = await Attributor(method="history", past=KnownRuns(runs=runs))(like)
    assert found.status is Status.UNDETERMINED
    assert "No step distinguishes this run" in found.verdict.reason


@pytest.mark.parametrize("none", [None, KnownRuns(runs={})])
async def test_history_without_other_runs_says_what_is_missing(none: KnownRuns | None) -> None:
    found = await Attributor(method="history", past=none)(BAD)
    assert found.status is Status.ERROR
    assert "no other run of this workflow is known" in (found.error or "")


async def test_auto_pools_signals_with_the_history() -> None:
    alone = await Attributor()(BAD)
    assert isinstance(alone.verdict, Blame)
    assert alone.verdict.step != 2
    found = await Attributor(past=known())(BAD)
    assert isinstance(found.verdict, Blame)
    assert (found.method, found.verdict.step) == ("signals+history", 2)
    assert f"without other runs: step {alone.verdict.step}" in found.verdict.reason
    assert Attributor(past=known()).at_once(BAD).verdict == found.verdict
    assert sum(each.probability for each in found.verdict.ranking) <= 1.0001


async def test_a_verdict_stays_as_it_is_if_the_history_says_nothing() -> None:
    runs = past(*[(Said.UNSAID, GOOD)] * 50)
    alone, found = await Attributor()(BAD), await Attributor(past=runs)(BAD)
    assert (found.method, found.verdict) == ("signals", alone.verdict)


async def test_the_method_signals_does_not_use_the_history() -> None:
    found = await Attributor(method="signals", past=known())(BAD)
    assert found.method == "signals"
    assert Attributor(method="signals", past=known()).at_once(BAD).method == "signals"


async def test_the_judge_is_pooled_too() -> None:
    said = {"reason": "sums wrong", "step": 3, "agent": "writer", "evidence": [{"step": 3, "quote": "is 4"}]}
    found = await Attributor(model=ScriptedModel(replies=[json.dumps(said)], name="m"), past=known())(BAD)
    assert found.method == "judge+signals+history"
    assert isinstance(found.verdict, Blame)
    assert found.verdict.step == 2
    assert "sums wrong" in found.verdict.reason
