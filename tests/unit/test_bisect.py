from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.analyses.models.scripted import ScriptedModel
from analyzer.inquiry.method import Prompt, Reply
from analyzer.methods.bisect import Bisect, answered, blend, is_settled, most_questions, needed, split
from semconv.model import Abstention, Blame, Status, Trajectory, Verdict
from tests.inquiries import MARKER, attribute
from tests.oracles import PartOracle
from tests.runs import run, step

TRIALS = 150


def long_run(count: int) -> Trajectory:
    return run(*(step(f"agent{n % 3}", f"did thing {n}") for n in range(count)), task="do many things")


async def bisect(trajectory: Trajectory, oracle: PartOracle, error_rate: float) -> Blame:
    verdict = await verdict_of(trajectory, oracle, error_rate)
    assert isinstance(verdict, Blame), verdict
    return verdict


async def verdict_of(trajectory: Trajectory, oracle: PartOracle, error_rate: float) -> Verdict:
    oracle.quote = trajectory.steps[oracle.step].output
    method = Bisect(marker=MARKER, max_bytes=2_000, error_rate=error_rate)
    return (await attribute(method, trajectory, oracle)).attribution.verdict


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 140).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n - 1))))
async def test_an_honest_oracle_and_an_error_rate_of_0_find_any_step_in_log2_questions(
    case: tuple[int, int],
) -> None:
    count, blamed = case
    oracle = PartOracle(step=blamed)
    verdict = await bisect(long_run(count), oracle, error_rate=0)
    assert verdict.step == blamed
    assert oracle.questions <= needed(count)


@given(st.lists(st.floats(0.001, 1), min_size=2, max_size=100), st.integers(0, 99))
def test_no_belief_beforehand_can_make_certain_answers_take_longer(weights: list[float], place: int) -> None:
    sought, questions = place % len(weights), 0
    belief = blend(len(weights), list(enumerate(weights)), 0.999)
    while not is_settled(belief, 0.9, 0):
        first = split(belief, 0)
        belief = answered(belief, first, is_among=sought < first, error_rate=0)
        questions += 1
    assert belief[sought] == 1
    assert questions <= needed(len(weights))


@pytest.mark.whole
async def test_bisection_finds_the_step_nine_times_in_ten_despite_a_noisy_oracle() -> None:
    """At 64 steps, with a fifth of 31 answers false, no method can be right much more often than 90 %."""
    chance = random.Random(20_260_101)
    right = {64: 0, 80: 0, 128: 0}
    for count in right:
        trajectory = long_run(count)
        for _ in range(TRIALS):
            oracle = PartOracle(step=chance.randrange(count), lies=0.2, chance=chance)
            verdict = await verdict_of(trajectory, oracle, error_rate=0.2)
            right[count] += isinstance(verdict, Blame) and verdict.step == oracle.step
            assert oracle.questions < count / 2
    assert min(right.values()) >= 0.85 * TRIALS
    assert sum(right.values()) >= 0.9 * TRIALS * len(right)


async def test_signals_shorten_the_search_for_what_they_point_at() -> None:
    plain = [step(f"agent{n % 3}", f"did thing {n}") for n in range(64)]
    trajectory = run(*plain[:20], step("agent1", "so 16 x 10 x 3 = 450"), *plain[21:])
    hinted, blind = PartOracle(step=20), PartOracle(step=20)
    await bisect(trajectory, hinted, error_rate=0.2)
    await bisect(long_run(64), blind, error_rate=0.2)
    assert hinted.questions < blind.questions


async def test_the_verdict_says_how_sure_it_is_and_of_how_many_answers() -> None:
    verdict = await bisect(long_run(16), PartOracle(step=5), error_rate=0.2)
    assert verdict.step == 5
    assert verdict.agent == "agent2"
    assert verdict.confidence == 0.9
    assert "answers" in verdict.reason
    assert "20%" in verdict.reason


async def test_a_question_that_comes_up_again_is_turned_round_and_then_drawn_afresh() -> None:
    seen: dict[str, int] = {}

    async def contradicting_itself(prompt: Prompt) -> Reply:
        question = f"{prompt.messages[-1].content}{prompt.sample}"
        seen[question] = seen.get(question, 0) + 1
        return await oracle(prompt)

    oracle = PartOracle(step=0, lies=0.5, chance=random.Random(3))
    await attribute(Bisect(marker=MARKER, max_bytes=2_000), long_run(4), contradicting_itself)
    assert oracle.questions > 6
    assert set(seen.values()) == {1}


async def test_questions_end_however_an_oracle_answers() -> None:
    for count in (2, 10, 64, 150):
        oracle = PartOracle(step=0, lies=0.5, chance=random.Random(count))
        await verdict_of(long_run(count), oracle, error_rate=0.4)
        assert oracle.questions <= most_questions(count)


async def ask(*replies: str) -> tuple[Verdict, ScriptedModel]:
    model = ScriptedModel(replies=replies)
    method = Bisect(marker=MARKER, max_bytes=2_000, error_rate=0)
    inquest = await attribute(method, long_run(4), model.complete)
    return inquest.attribution.verdict, model


async def test_an_unreadable_answer_is_asked_for_once_more_and_then_is_an_error() -> None:
    quoted = '{"answer": "yes", "step": 0, "quote": "did thing 0"}'
    verdict, model = await ask("hm", quoted, "Yes.")
    assert isinstance(verdict, Blame)
    assert len(model.prompts) == 3
    verdict, _ = await ask("hm", "well")
    assert isinstance(verdict, Abstention)
    assert verdict.status is Status.ERROR


async def test_one_step_needs_no_question() -> None:
    verdict = await bisect(long_run(1), PartOracle(step=0), error_rate=0.2)
    assert (verdict.step, verdict.confidence) == (0, 0.9)


async def test_the_fix_is_what_was_said_of_the_step_that_is_blamed_and_costs_no_call() -> None:
    told = PartOracle(step=5, fix="check the sum")
    verdict = await bisect(long_run(16), told, error_rate=0)
    assert (verdict.step, verdict.fix) == (5, "check the sum")
    assert told.questions == needed(16)


async def test_a_fix_for_another_step_is_ignored_and_the_latest_counts() -> None:
    answers = [
        {"answer": "yes", "step": 0, "fix": "an early guess"},
        {"answer": "no", "step": 1, "quote": "did thing 1", "fix": " and for good "},
    ]
    verdict, _ = await ask(*map(json.dumps, answers))
    assert isinstance(verdict, Blame)
    assert (verdict.step, verdict.fix) == (1, "and for good")
    for odd in ({"step": 1, "fix": 7}, {"step": 1, "fix": " "}):
        verdict, _ = await ask(*(json.dumps(answer | odd) for answer in answers))
        assert isinstance(verdict, Blame)
        assert (verdict.step, verdict.fix) == (1, "")


@pytest.mark.parametrize(
    "odd",
    [
        *({"step": step} for step in (0, True, None, 99)),
        *({"quote": quote} for quote in ("never said", 7, "")),
    ],
)
async def test_a_step_that_no_answer_quotes_truly_is_not_blamed(odd: dict[str, Any]) -> None:
    """``did thing 0`` stands in the run, but not in the step that is left."""
    told = {"step": 1, "quote": "did thing 0"} | odd
    verdict, _ = await ask(json.dumps({"answer": "yes", **told}), json.dumps({"answer": "no", **told}))
    assert isinstance(verdict, Abstention)
    assert verdict.status is Status.UNDETERMINED
    assert verdict.ranking[0].step == 1


async def test_a_model_that_says_only_yes_or_no_is_not_paid_to_the_end() -> None:
    model = ScriptedModel(replies=("yes",) * 31)
    inquest = await attribute(Bisect(marker=MARKER, max_bytes=2_000), long_run(16), model.complete)
    verdict = inquest.attribution.verdict
    assert isinstance(verdict, Abstention)
    assert verdict.status is Status.UNDETERMINED
    assert len(model.prompts) == 4


async def test_a_step_without_text_is_blamed_with_half_the_confidence_at_most() -> None:
    silent = run(step("a", "did thing 0"), step("b", ""))
    inquest = await attribute(Bisect(marker=MARKER, max_bytes=2_000), silent, PartOracle(step=1))
    verdict = inquest.attribution.verdict
    assert isinstance(verdict, Blame)
    assert (verdict.step, verdict.confidence) == (1, 0.5)


@pytest.mark.parametrize("rate", [-0.1, 0.5, 1.0])
def test_answers_worth_nothing_are_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="error rate"):
        Bisect(marker=MARKER, max_bytes=100, error_rate=rate)
