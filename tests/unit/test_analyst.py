from __future__ import annotations

import json

from analyzer.analyses.analyst import RunAnalyst
from analyzer.analyses.models.scripted import ScriptedModel
from analyzer.inquiry.verdict import error_analysis
from analyzer.methods.attribution import Attributor
from analyzer.signals.triage import output_matching
from semconv.model import UNKNOWN_AGENT, Outcome, Status
from tests.runs import failed_tool, run, step

FAILED = run(step("a", "plan"), step("b", "call"), failed_tool("b"), outcome=Outcome.FAILURE)
FINE = run(step("a", "Paris."), output="Paris.")
JUDGED = '{"reason": "it gave up", "step": 1, "evidence": [{"step": 1, "quote": "call"}]}'


def analyst(*replies: str, **fields: object) -> tuple[RunAnalyst, ScriptedModel]:
    model = ScriptedModel(replies=replies)
    return RunAnalyst(attributor=Attributor(model=model), **fields), model  # type: ignore[arg-type]


async def test_a_run_that_did_not_fail_costs_nothing() -> None:
    with_model, model = analyst(JUDGED)
    found = await with_model.analyse(FINE)
    assert found.attribution.status is Status.NO_FAILURE
    assert model.prompts == []
    assert json.loads(found.document)["status"] == "no_failure"


async def test_a_run_that_failed_is_judged() -> None:
    with_model, model = analyst(JUDGED)
    found = await with_model.analyse(FAILED)
    assert (found.attribution.method, found.attribution.status) == ("judge+signals", Status.ATTRIBUTED)
    assert len(model.prompts) == 1
    assert json.loads(found.document)["agent"] == "b"


async def test_without_a_model_signals_answer() -> None:
    found = await RunAnalyst(attributor=Attributor()).analyse(FAILED)
    assert (found.attribution.method, found.attribution.status) == ("signals", Status.ATTRIBUTED)


async def test_a_trace_with_neither_agent_nor_workflow_never_goes_to_a_model() -> None:
    with_model, model = analyst(JUDGED)
    found = await with_model.analyse(run(step(UNKNOWN_AGENT, "x"), outcome=Outcome.FAILURE))
    assert model.prompts == []
    assert found.attribution.method == "signals"


async def test_a_model_that_is_gone_ends_in_a_verdict_that_says_so() -> None:
    without_script, _ = analyst()
    found = await without_script.analyse(FAILED)
    assert found.attribution.status is Status.ATTRIBUTED
    assert found.attribution.fallback is not None


def test_a_glance_asks_no_model() -> None:
    with_model, model = analyst(JUDGED)
    assert with_model.glance(FAILED).attribution.method == "signals"
    assert with_model.glance(FINE).attribution.status is Status.NO_FAILURE
    assert model.prompts == []


def test_an_error_verdict_has_its_reason() -> None:
    found = error_analysis(FAILED, "evicted")
    assert found.attribution.status is Status.ERROR
    assert json.loads(found.document)["error"] == "evicted"


async def test_the_users_rules_are_asked() -> None:
    with_rule, _ = analyst(JUDGED, rules=(output_matching("Paris"),))
    assert (await with_rule.analyse(FINE)).attribution.status is Status.ATTRIBUTED
