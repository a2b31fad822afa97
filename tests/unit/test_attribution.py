from __future__ import annotations

import json
from dataclasses import replace

import pytest

from analyzer.analyses.models.scripted import ScriptedModel
from analyzer.inquiry.errors import ModelError, ModelFailure, ModelNeeded, UnknownMethod
from analyzer.inquiry.verdict import to_json
from analyzer.methods.attribution import Attributor
from collector_processor.rebuild.redaction import redact
from semconv.model import Blame, Status
from tests.runs import run, step

RUN = run(step("a", "plan"), step("b", "5 + 5 = 11"), step("c", "so 11"), task="add", reference="10")


def judged(at: int = 1, agent: str = "b") -> str:
    quote = {1: "= 11", 3: "3 3 3"}[at]
    return json.dumps(
        {"reason": "wrong sum", "step": at, "agent": agent, "evidence": [{"step": at, "quote": quote}]}
    )


async def test_auto_without_a_model_is_signals() -> None:
    found = await Attributor()(RUN)
    assert (found.method, found.model, found.fallback) == ("signals", None, None)
    assert found.effort.calls == 0
    assert found.effort.cost_usd == 0.0


async def test_auto_with_a_model_pools_its_verdict_with_the_signals() -> None:
    found = await Attributor(model=ScriptedModel(replies=[judged()], name="m"))(RUN)
    assert (found.method, found.model, found.fallback) == ("judge+signals", "m", None)
    assert found.effort.calls == 1


@pytest.mark.parametrize(
    "replies",
    [
        pytest.param([ModelError("gone", kind=ModelFailure.CONNECTION)], id="model away"),
        pytest.param(["prose", "more prose"], id="unreadable twice"),
    ],
)
async def test_auto_falls_back_on_signals_and_says_so(replies: list[str | ModelError]) -> None:
    found = await Attributor(model=ScriptedModel(replies=replies, name="m"))(RUN)
    assert found.status is Status.ATTRIBUTED
    assert (found.method, found.model) == ("signals", None)
    assert found.fallback is not None
    assert found.fallback.startswith("signals")
    assert found.effort.calls == len(replies)


async def test_a_judge_that_was_asked_for_by_name_never_gives_way() -> None:
    model = ScriptedModel(replies=[ModelError("gone", kind=ModelFailure.CONNECTION)])
    found = await Attributor(method="judge", model=model)(RUN)
    assert found.status is Status.ERROR
    assert found.fallback is None
    assert found.error is not None
    assert "gone" in found.error


async def test_the_budget_ends_a_run_honestly() -> None:
    model = ScriptedModel(replies=[judged()], cost_usd=2.0)
    found = await Attributor(method="judge", model=model, budget_usd=0.5)(RUN)
    assert found.status is Status.ERROR
    assert model.prompts == []
    assert (await Attributor(method="judge", model=model, budget_usd=None)(RUN)).status is Status.ATTRIBUTED


async def test_the_right_answer_is_shown_only_when_allowed() -> None:
    hidden, shown = ScriptedModel(replies=[judged()]), ScriptedModel(replies=[judged()])
    secret = replace(RUN, reference="the-secret-answer")
    await Attributor(method="judge", model=hidden)(secret)
    await Attributor(method="judge", model=shown, with_reference=True)(secret)
    assert "the-secret-answer" not in str(hidden.prompts)
    assert "the-secret-answer" in str(shown.prompts)


def test_a_run_without_its_right_answer_is_one_object_for_all_who_read_it() -> None:
    seen = Attributor().seen(RUN)
    assert seen.reference is None
    assert Attributor().seen(seen) is seen


async def test_a_prompt_that_was_too_long_is_asked_again_with_less() -> None:
    long = run(*(step(f"agent{n % 3}", f"{n} " * 4_000) for n in range(30)), task="t")
    too_long = ModelError("context", kind=ModelFailure.CONTEXT_TOO_LONG)
    model = ScriptedModel(replies=[too_long, judged(3, "agent0")], context_tokens=100_000)
    found = await Attributor(method="judge", model=model)(long)
    first, second = (len(str(prompt.messages)) for prompt in model.prompts)
    assert second < 0.6 * first
    assert found.status is Status.ATTRIBUTED
    assert found.effort.calls == 2
    assert found.truncated
    assert found.coverage < 0.7


async def test_a_doubtful_blame_is_undetermined_with_its_ranking_kept() -> None:
    sure = await Attributor()(RUN)
    assert isinstance(sure.verdict, Blame)
    found = await Attributor(least_confidence=0.99)(RUN)
    assert found.status is Status.UNDETERMINED
    assert found.verdict.ranking == sure.verdict.ranking
    assert f"step {sure.verdict.step} of {sure.verdict.agent} is the best candidate" in found.verdict.reason
    assert sure.verdict.reason in found.verdict.reason
    assert Attributor(least_confidence=0.99).at_once(RUN).status is Status.UNDETERMINED


async def test_a_judges_doubtful_blame_is_undetermined_too() -> None:
    model = ScriptedModel(replies=[judged()], name="m")
    found = await Attributor(model=model, least_confidence=0.99)(RUN)
    assert (found.status, found.method) == (Status.UNDETERMINED, "judge+signals")


async def test_unknown_methods_and_missing_models_are_said_at_once() -> None:
    with pytest.raises(UnknownMethod, match="signals"):
        Attributor(method="oracle")
    with pytest.raises(ModelNeeded):
        Attributor(method="judge")


async def test_a_run_without_steps_is_an_error_with_or_without_a_model() -> None:
    empty = run()
    model = ScriptedModel(replies=[])
    assert (await Attributor()(empty)).status is Status.ERROR
    assert (await Attributor(model=model)(empty)).status is Status.ERROR
    assert model.prompts == []


def test_at_once_is_signals_whatever_the_method() -> None:
    model = ScriptedModel(replies=[])
    found = Attributor(model=model).at_once(RUN)
    assert isinstance(found.verdict, Blame)
    assert found.method == "signals"
    assert model.prompts == []


KEY = "sk-ant-abcdefghijklmnopqrstuvwxyz012345"


@pytest.mark.parametrize("method", ["judge", "auto"])
async def test_a_key_that_the_model_repeats_reaches_no_prose_of_the_verdict(method: str) -> None:
    """The run's own redaction missed it: there it was split, and the model joined the parts."""
    told = {
        "reason": f"it printed {KEY}",
        "step": 1,
        "agent": f"b {KEY}",
        "fix": f"revoke {KEY}",
        "evidence": [{"step": 1, "quote": f"5 + 5 = 11 {KEY}"}],
    }
    shown = run(step("a", "plan"), step("b", f"5 + 5 = 11 {KEY}"), task="add")
    model = ScriptedModel(replies=[json.dumps(told)])
    found = await Attributor(method=method, model=model, clean=redact)(shown)
    assert isinstance(found.verdict, Blame)
    assert found.verdict.evidence
    assert KEY not in json.dumps(to_json(found, shown))


async def test_a_key_in_an_unreadable_reply_reaches_no_error() -> None:
    model = ScriptedModel(replies=[f"no: {KEY}"] * 2)
    found = await Attributor(model=model, clean=redact)(RUN)
    assert found.fallback is not None
    assert "unreadable" in found.fallback
    assert KEY not in json.dumps(to_json(found, RUN))


async def test_a_judge_without_a_true_quote_gives_way_to_signals() -> None:
    told = json.dumps({"reason": "it is", "step": 0, "evidence": [{"step": 0, "quote": "made up"}]})
    found = await Attributor(model=ScriptedModel(replies=[told]))(RUN)
    assert isinstance(found.verdict, Blame)
    assert found.verdict.step == 1
    assert found.fallback is not None
    assert "none of its quotes identifies a step of the run" in found.fallback
