"""A verdict that blames no step says what was checked and what could not be."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from analyzer.analyses.analyst import RunAnalyst, rules_version
from analyzer.methods.attribution import Attributor
from analyzer.signals.suspicion import MOST_STEPS
from semconv.model import ContentState, Outcome, Status, Step, Trajectory
from tests.runs import failed_tool, run, step, tool

GAUGE = tool("warden", "Gauge 4 reads 212 cm.", input='{"gauge": 4}', target="read_gauge")
SAID = "The river stands at 212 cm at gauge 4."
PASSED = run(GAUGE, step("warden", SAID), task="How high is the river?", output=SAID)
ANALYST = RunAnalyst(attributor=Attributor())
COMPARED = "The figures and claims of the final answer were compared with the tools' results."


async def checked(trajectory: Trajectory, analyst: RunAnalyst = ANALYST) -> str:
    analysis = await analyst.analyse(trajectory)
    told = analysis.attribution.checked
    assert json.loads(analysis.document)["checked"] == list(told)
    at_once = analyst.unasked(trajectory)
    assert at_once is not None
    assert at_once.attribution.checked == told
    return "\n".join(told)


async def test_a_run_that_shows_all_its_texts_was_checked_against_them() -> None:
    told = await checked(PASSED)
    assert "No error ended the run (2 steps read)." in told
    assert "The wording of the final answer was checked." in told
    assert COMPARED in told
    assert "not " not in told


def _gauges(number: int) -> list[Step]:
    read = ((f'{{"gauge": {at}}}', f"{GAUGE.output} ({at})") for at in range(number))
    return [replace(GAUGE, input=given, output=shown) for given, shown in read]


CUT = replace(GAUGE, output="Gauge 4 re", content=ContentState.TRUNCATED)
GEORGIAN = "მდინარის დონე მეოთხე სადგურზე დღეს უფრო მაღალია, ვიდრე გუშინ, და კვლავ იმატებს."


@pytest.mark.parametrize(
    ("trajectory", "told"),
    [
        (
            run(CUT, step("warden", SAID), output=SAID),
            "compared with the tools' results: the texts of step 0 are cut",
        ),
        (run(step("warden", SAID), output=SAID), "compared with the tools' results: none is recorded"),
        (run(GAUGE, step("warden", ""), output=""), "The final answer was not checked: none is recorded."),
        (run(GAUGE, step("warden", GEORGIAN), output=GEORGIAN), "no table of phrases covers Georgian script"),
        (replace(PASSED, complete=False), "not searched for contradictions: spans are missing"),
        (
            run(*_gauges(MOST_STEPS), step("warden", SAID), output=SAID),
            f"compared with the tools' results: the run has more than {MOST_STEPS} steps",
        ),
        (
            replace(PASSED, outcome=Outcome.SUCCESS),
            "not searched for mistakes: the run states its outcome: success",
        ),
    ],
    ids=["cut", "no results", "no answer", "language", "spans", "long", "stated"],
)
async def test_what_could_not_be_checked_is_said(trajectory: Trajectory, told: str) -> None:
    said = await checked(trajectory)
    assert told in said
    assert COMPARED not in said or "phrases" in told


async def test_a_search_that_is_turned_off_or_too_early_is_not_claimed() -> None:
    off = RunAnalyst(attributor=Attributor(), least_suspicion=None)
    assert "BLAMESPAN_SUSPECT_FALSE_ALARMS" in await checked(PASSED, off)
    glance = "\n".join(ANALYST.glance(PASSED).attribution.checked)
    assert "not searched for contradictions: it is still in progress" in glance


async def test_an_undetermined_verdict_says_what_may_have_hidden_the_mistake() -> None:
    steps = (CUT, failed_tool("warden"), step("warden", "I could not find out."))
    failed = run(*steps, outcome=Outcome.FAILURE, complete=False)
    unsure = RunAnalyst(attributor=Attributor(least_confidence=1.0))
    told = await checked(failed, unsure)
    assert "signals looked for the mistake (3 steps read)" in told
    assert "Spans of the run are missing" in told
    assert "The texts of step 0 are cut, redacted or not recorded." in told


async def test_every_verdict_of_an_analysis_names_the_rules_that_gave_it() -> None:
    for trajectory in (PASSED, replace(PASSED, outcome=Outcome.FAILURE)):
        assert (await ANALYST.analyse(trajectory)).attribution.rules == rules_version()
        assert ANALYST.glance(trajectory).attribution.rules == rules_version()


async def test_a_blame_and_an_unreadable_run_need_no_such_sentences() -> None:
    blamed = (await ANALYST.analyse(replace(PASSED, outcome=Outcome.FAILURE))).attribution
    assert (blamed.status, blamed.checked) == (Status.ATTRIBUTED, ())
    assert (await ANALYST.analyse(run())).attribution.checked == ()
