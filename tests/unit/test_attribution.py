from __future__ import annotations

import json
from dataclasses import replace

import pytest

from analyzer.attribution import Attributor, attribute_trajectory
from analyzer.errors import ModelError, ModelFailure, ModelNeeded, UnknownMethod
from analyzer.scripted import ScriptedModel
from semconv.model import Blame, Status
from tests.runs import run, step

RUN = run(step("a", "plan"), step("b", "5 + 5 = 11"), step("c", "so 11"), task="add", reference="10")


def judged(at: int = 1, agent: str = "b") -> str:
    return json.dumps({"reason": "wrong sum", "step": at, "agent": agent, "ranking": []})


async def test_auto_without_a_model_is_signals() -> None:
    found = await attribute_trajectory(RUN)
    assert (found.method, found.model, found.fallback) == ("signals", None, None)
    assert found.effort.calls == 0
    assert found.effort.cost_usd == 0.0


async def test_auto_with_a_model_is_the_judge() -> None:
    found = await attribute_trajectory(RUN, model=ScriptedModel(replies=[judged()], name="m"))
    assert (found.method, found.model, found.fallback) == ("judge", "m", None)
    assert found.effort.calls == 1


@pytest.mark.parametrize(
    "replies",
    [
        pytest.param([ModelError("gone", kind=ModelFailure.CONNECTION)], id="model away"),
        pytest.param(["prose", "more prose"], id="unreadable twice"),
    ],
)
async def test_auto_falls_back_on_signals_and_says_so(replies: list[str | ModelError]) -> None:
    found = await attribute_trajectory(RUN, model=ScriptedModel(replies=replies, name="m"))
    assert found.status is Status.ATTRIBUTED
    assert (found.method, found.model) == ("judge", "m")
    assert found.fallback is not None
    assert found.fallback.startswith("signals")
    assert found.effort.calls == len(replies)


async def test_a_judge_that_was_asked_for_by_name_never_gives_way() -> None:
    model = ScriptedModel(replies=[ModelError("gone", kind=ModelFailure.CONNECTION)])
    found = await attribute_trajectory(RUN, method="judge", model=model)
    assert found.status is Status.ERROR
    assert found.fallback is None
    assert found.error is not None
    assert "gone" in found.error


async def test_the_budget_ends_a_run_honestly() -> None:
    model = ScriptedModel(replies=[judged()], cost_usd=2.0)
    found = await attribute_trajectory(RUN, method="judge", model=model, budget_usd=0.5)
    assert found.status is Status.ERROR
    assert model.prompts == []
    assert (
        await attribute_trajectory(RUN, method="judge", model=model, budget_usd=None)
    ).status is Status.ATTRIBUTED


async def test_the_right_answer_is_shown_only_when_allowed() -> None:
    hidden, shown = ScriptedModel(replies=[judged()]), ScriptedModel(replies=[judged()])
    secret = replace(RUN, reference="the-secret-answer")
    await attribute_trajectory(secret, method="judge", model=hidden)
    await attribute_trajectory(secret, method="judge", model=shown, with_reference=True)
    assert "the-secret-answer" not in str(hidden.prompts)
    assert "the-secret-answer" in str(shown.prompts)


async def test_a_prompt_that_was_too_long_is_asked_again_with_less() -> None:
    long = run(*(step(f"agent{n % 3}", f"{n} " * 4_000) for n in range(30)), task="t")
    too_long = ModelError("context", kind=ModelFailure.CONTEXT_TOO_LONG)
    model = ScriptedModel(replies=[too_long, judged(3, "agent0")], context_tokens=100_000)
    found = await attribute_trajectory(long, method="judge", model=model)
    first, second = (len(str(prompt.messages)) for prompt in model.prompts)
    assert second < 0.6 * first
    assert found.status is Status.ATTRIBUTED
    assert found.effort.calls == 2
    assert found.truncated
    assert found.coverage < 0.7


async def test_a_doubtful_blame_is_undetermined_with_its_ranking_kept() -> None:
    found = await Attributor(least_confidence=0.99)(RUN)
    assert found.status is Status.UNDETERMINED
    assert found.verdict.ranking


async def test_unknown_methods_and_missing_models_are_said_at_once() -> None:
    with pytest.raises(UnknownMethod, match="signals"):
        Attributor(method="oracle")
    with pytest.raises(ModelNeeded):
        Attributor(method="judge")


async def test_a_run_without_steps_is_an_error_with_or_without_a_model() -> None:
    empty = run()
    model = ScriptedModel(replies=[])
    assert (await attribute_trajectory(empty)).status is Status.ERROR
    assert (await attribute_trajectory(empty, model=model)).status is Status.ERROR
    assert model.prompts == []


def test_at_once_is_signals_whatever_the_method() -> None:
    model = ScriptedModel(replies=[])
    found = Attributor(model=model).at_once(RUN)
    assert isinstance(found.verdict, Blame)
    assert found.method == "signals"
    assert model.prompts == []
