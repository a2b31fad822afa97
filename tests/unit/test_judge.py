from __future__ import annotations

import json
from typing import Any

import pytest

from analyzer.analyses.models.scripted import ScriptedModel
from analyzer.methods.judge import Judge
from semconv.model import Abstention, Blame, Evidence, Status, Trajectory, Verdict
from tests.inquiries import MARKER, attribute
from tests.runs import run, step, tool

RUN = run(
    step("planner", "Look it up."),
    step("researcher", "call lookup"),
    tool("researcher", "16 GPUs"),
    step("analyst", "16 x 10 x 3 = 450"),
    task="What does it cost?",
)


def answer(**changes: Any) -> str:
    fields: dict[str, Any] = {
        "reason": "the product is 480",
        "step": 3,
        "agent": "analyst",
        "mode": "wrong_computation",
        "fix": "compute 16 x 10 x 3 again",
        "evidence": [{"step": 3, "quote": "16 x 10  x 3 = 450"}],
        "ranking": [{"step": 3, "probability": 0.8}, {"step": 0, "probability": 0.1}],
    }
    return json.dumps(fields | changes)


async def judge(*replies: str, trajectory: Trajectory = RUN) -> tuple[Verdict, ScriptedModel]:
    model = ScriptedModel(replies=replies)
    inquest = await attribute(Judge(marker=MARKER, max_bytes=50_000), trajectory, model.complete)
    return inquest.attribution.verdict, model


async def blame(*replies: str) -> Blame:
    verdict, _ = await judge(*replies)
    assert isinstance(verdict, Blame), verdict
    return verdict


async def test_a_good_answer_is_the_verdict() -> None:
    verdict = await blame(answer())
    assert (verdict.agent, verdict.step, verdict.confidence) == ("analyst", 3, 0.8)
    assert verdict.mode == "wrong_computation"
    assert verdict.fix == "compute 16 x 10 x 3 again"
    assert verdict.evidence == (Evidence(step=3, quote="16 x 10  x 3 = 450"),)
    assert [(r.step, r.agent, r.probability) for r in verdict.ranking] == [
        (3, "analyst", 0.8),
        (0, "planner", 0.1),
    ]


@pytest.mark.parametrize("wrapped", ["```json\n{}\n```", "Sure! Here it is: {} Hope it helps.", "\n\n{}"])
async def test_json_is_found_in_what_models_wrap_around_it(wrapped: str) -> None:
    assert (await blame(wrapped.replace("{}", answer()))).step == 3


async def test_the_actor_of_the_step_is_blamed_and_the_contradiction_said() -> None:
    verdict = await blame(answer(agent="researcher"))
    assert verdict.agent == "analyst"
    assert "researcher" in verdict.reason
    assert verdict.confidence < 0.8


async def test_an_unknown_agent_is_reported() -> None:
    verdict = await blame(answer(agent="Santa"))
    assert verdict.agent == "analyst"
    assert "not an agent of this run" in verdict.reason


async def test_another_spelling_of_the_agent_does_not_contradict() -> None:
    verdict = await blame(answer(agent="The Analyst"))
    assert verdict.confidence == 0.8
    assert "named" not in verdict.reason


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        pytest.param("It was the analyst.", "no JSON object", id="prose"),
        pytest.param(answer()[:-60], "broken or cut off", id="cut off"),
        pytest.param(answer(step=99), "step 99 does not exist", id="no such step"),
        pytest.param(answer(step=-1), "step -1 does not exist", id="negative"),
        pytest.param(answer(step="4 or 12"), "step", id="no number"),
        pytest.param(answer(step=True), "step", id="truth value"),
        pytest.param(answer(step=None), "step", id="null"),
        pytest.param("", "no JSON object", id="empty"),
        pytest.param("[]", "no JSON object", id="a list"),
        pytest.param("{" * 5_000, "broken or cut off", id="deeply broken"),
        pytest.param('{"a":' * 3_000 + "1" + "}" * 3_000, "", id="deeply nested"),
    ],
)
async def test_an_unusable_answer_is_asked_for_once_more_with_what_was_wrong(bad: str, said: str) -> None:
    verdict, model = await judge(bad, answer())
    assert isinstance(verdict, Blame)
    assert len(model.prompts) == 2
    assert said in model.prompts[1].messages[-1].content
    assert model.prompts[1].response_schema == model.prompts[0].response_schema


async def test_two_unusable_answers_are_an_error_and_never_a_guess() -> None:
    verdict, model = await judge("prose", answer(step=99))
    assert isinstance(verdict, Abstention)
    assert verdict.status is Status.ERROR
    assert verdict.reason.startswith("unreadable reply")
    assert len(model.prompts) == 2


async def test_quotes_that_are_not_in_the_step_are_dropped_and_cost_confidence() -> None:
    some = await blame(answer(evidence=[{"step": 3, "quote": "= 450"}, {"step": 3, "quote": "invented"}]))
    assert [e.quote for e in some.evidence] == ["= 450"]
    assert some.confidence < 0.8


@pytest.mark.parametrize(
    "quotes",
    [
        pytest.param([], id="none"),
        pytest.param([{"step": 3, "quote": "invented"}], id="nowhere in the run"),
        pytest.param([{"step": 2, "quote": "= 450"}], id="of another step"),
        pytest.param([{"step": 77, "quote": "= 450"}], id="of no step"),
        pytest.param([{"step": 3, "quote": " . "}], id="empty"),
    ],
)
async def test_without_a_true_quote_no_agent_is_blamed(quotes: list[dict[str, Any]]) -> None:
    verdict, _ = await judge(answer(evidence=quotes))
    assert isinstance(verdict, Abstention)
    assert verdict.status is Status.UNDETERMINED
    assert "none of its quotes identifies a step of the run" in verdict.reason
    assert verdict.ranking[0].step == 3


THE = run(step("a", "the price is 4711 EUR"), step("b", "the sum"), step("c", "ok"), task="t")


@pytest.mark.parametrize(
    ("at", "quote", "counts"),
    [
        pytest.param(0, "the", False, id="short, and said by others"),
        pytest.param(0, "4711", True, id="short, and said by no other"),
        pytest.param(1, "the sum", True, id="short, and all that the step says"),
        pytest.param(0, "the price is 4711", True, id="long"),
        pytest.param(2, "ok", False, id="too short"),
    ],
)
async def test_a_quote_counts_only_if_it_identifies_its_step(at: int, quote: str, *, counts: bool) -> None:
    told = answer(step=at, agent="", evidence=[{"step": at, "quote": quote}])
    verdict, _ = await judge(told, trajectory=THE)
    assert isinstance(verdict, Blame) is counts


async def test_the_ranking_is_made_sound() -> None:
    wild = [
        {"step": 1, "probability": 0.9},
        {"step": 3, "probability": 0.6},
        {"step": 99, "probability": 0.5},
        {"step": 1, "probability": 0.9},
        "junk",
    ]
    verdict = await blame(answer(ranking=wild))
    assert [r.step for r in verdict.ranking] == [3, 1]
    assert sum(r.probability for r in verdict.ranking) <= 1
    assert verdict.confidence == 0.6


async def test_what_is_not_strictly_needed_may_be_missing() -> None:
    verdict = await blame('{"reason": "r", "step": 3, "evidence": [{"step": 3, "quote": "= 450"}]}')
    assert verdict.agent == "analyst"
    assert verdict.mode == "other"
    assert verdict.confidence == 0.5, "half, for no probability"


async def test_a_mode_of_the_models_own_is_other() -> None:
    assert (await blame(answer(mode="gremlins"))).mode == "other"
    assert (await blame(answer(mode=["x"]))).mode == "other"


async def test_the_prompt_shows_the_task_the_steps_and_a_schema() -> None:
    _, model = await judge(answer())
    (prompt,) = model.prompts
    text = prompt.messages[1].content
    assert "What does it cost?" in text
    assert "[3] analyst\n16 x 10 x 3 = 450" in text
    assert prompt.response_schema is not None
    assert set(prompt.response_schema.schema["required"]) == set(prompt.response_schema.schema["properties"])


async def test_a_run_without_steps_asks_nothing() -> None:
    verdict, model = await judge(trajectory=run())
    assert isinstance(verdict, Abstention)
    assert model.prompts == []
