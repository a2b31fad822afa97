from __future__ import annotations

import gzip
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.analyses.models.scripted import ScriptedModel
from analyzer.inquiry.method import Prompt, Reply
from analyzer.lab.evaluation.dataset import read_dataset
from analyzer.lab.published import BinarySearch
from analyzer.methods.attribution import Attributor
from analyzer.methods.registry import registered
from semconv.model import Abstention, Attribution, Blame, Status, Trajectory
from tests.inquiries import attribute
from tests.runs import run, step

RUN = run(
    step("human", "count"),
    step("A", "one"),
    step("B", "two"),
    step("A", "three"),
    step("C", "four"),
    task="count to five",
    reference="five",
)
NO = "1. No.\n2. Reason: fine"
YES = "1. Yes.\n2. Reason: it skipped one"


async def ask(method: str, *replies: str, trajectory: Trajectory = RUN) -> tuple[Attribution, ScriptedModel]:
    model = ScriptedModel(replies=replies)
    return await Attributor(method=method, model=model)(trajectory), model


def shown(prompt: Prompt) -> str:
    return "\n".join(message.content for message in prompt.messages)


async def test_step_by_step_shows_a_growing_numbered_log_and_stops_at_the_first_yes() -> None:
    attribution, model = await ask("step-by-step", NO, NO, YES)
    verdict = attribution.verdict
    assert isinstance(verdict, Blame)
    assert (verdict.agent, verdict.step, verdict.reason) == ("B", 2, "it skipped one.")
    assert len(model.prompts) == 3
    assert "Step 0 - human: count\nStep 1 - A: one\n" in shown(model.prompts[1])
    assert "two" not in shown(model.prompts[1])
    assert "Step 2 - B: two" in shown(model.prompts[2])


async def test_step_by_step_that_finds_nothing_is_undetermined_and_blames_no_last_step() -> None:
    attribution, model = await ask("step-by-step", *[NO] * 5)
    assert attribution.status is Status.UNDETERMINED
    assert len(model.prompts) == 5


@pytest.mark.parametrize("method", ["step-by-step", "binary-search", "hybrid"])
async def test_an_unreadable_reply_is_asked_for_again_and_the_second_is_an_error(method: str) -> None:
    attribution, model = await ask(method, "who knows", "who knows")
    assert attribution.status is Status.ERROR
    assert "unreadable" in attribution.verdict.reason
    assert "who knows" in attribution.verdict.reason
    assert len(model.prompts) == 2


async def test_a_corrected_second_reply_is_used() -> None:
    attribution, _ = await ask("step-by-step", "who knows", "yes")
    verdict = attribution.verdict
    assert isinstance(verdict, Blame)
    assert verdict.step == 0


async def test_binary_search_shows_only_what_is_left_without_numbers() -> None:
    attribution, model = await ask("binary-search", "lower half", "upper half")
    verdict = attribution.verdict
    assert isinstance(verdict, Blame)
    assert (verdict.agent, verdict.step) == ("A", 3)
    assert "human: count\nA: one\nB: two\n" in shown(model.prompts[0])
    assert "human: count" not in shown(model.prompts[1])
    assert "A: three" in shown(model.prompts[1])


async def test_hybrid_asks_only_of_the_steps_of_the_agent_that_all_at_once_names() -> None:
    named = "Agent Name: A\nStep Number: 1\nReason for Mistake: x"
    attribution, model = await ask("hybrid", named, NO, YES)
    verdict = attribution.verdict
    assert isinstance(verdict, Blame)
    assert (verdict.agent, verdict.step) == ("A", 3)
    assert len(model.prompts) == 3
    assert "Step 2 - B: two" in shown(model.prompts[2])


async def test_hybrid_keeps_the_agent_if_no_step_of_it_is_found_wrong_and_says_so() -> None:
    named = "Agent Name: A\nStep Number: 1\nReason for Mistake: x"
    attribution, _ = await ask("hybrid", named, NO, NO)
    verdict = attribution.verdict
    assert isinstance(verdict, Blame)
    assert (verdict.agent, verdict.step) == ("A", 1)
    assert "found no mistake of A's" in verdict.reason


@pytest.mark.parametrize("method", ["all-at-once", "step-by-step", "binary-search", "hybrid"])
async def test_the_right_answer_is_shown_only_with_reference(method: str) -> None:
    for with_reference in (True, False):
        model = ScriptedModel(replies=["?"])
        await Attributor(method=method, model=model, with_reference=with_reference)(RUN)
        assert ("right answer is: five" in shown(model.prompts[0])) is with_reference


@pytest.mark.parametrize("method", ["all-at-once", "step-by-step", "binary-search"])
async def test_a_log_that_is_too_long_is_folded_and_the_verdict_says_so(method: str) -> None:
    built = registered(method).build(20, "")
    long = run(step("A", "x" * 500), step("B", "y" * 500))
    model = ScriptedModel(replies=[NO, "lower half"])
    inquest = await attribute(built, long, model.complete)
    assert model.prompts[0].truncated
    assert inquest.attribution.truncated
    assert inquest.attribution.coverage < 1


async def test_step_by_step_folds_what_came_before_and_not_the_step_in_question() -> None:
    long = run(step("A", "x" * 500), step("B", "the newest"))
    model = ScriptedModel(replies=[NO, NO])
    await attribute(registered("step-by-step").build(100, ""), long, model.complete)
    assert "x" * 101 not in shown(model.prompts[1])
    assert "Step 1 - B: the newest\n" in shown(model.prompts[1])


def oracle_of_halves(prompt: Prompt, wanted: str) -> str:
    """An honest oracle: finds the text in one of the two given halves."""
    upper, lower = re.split(r"The lower half of the segment", prompt.messages[1].content)
    assert (wanted in upper) != (wanted in lower)
    return "upper half" if wanted in upper else "lower half"


@given(st.integers(1, 700).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n - 1))))
async def test_an_honest_oracle_leads_binary_search_to_any_step_in_log2_n_questions(
    case: tuple[int, int],
) -> None:
    n, wrong = case
    trajectory = run(*(step("A", "THE MISTAKE" if i == wrong else "fine") for i in range(n)))
    asked = 0

    async def oracle(prompt: Prompt) -> Reply:
        nonlocal asked
        asked += 1
        return Reply(text=oracle_of_halves(prompt, "THE MISTAKE"))

    method = BinarySearch(max_bytes=1_000_000)
    verdict = (await attribute(method, trajectory, oracle)).attribution.verdict
    assert isinstance(verdict, Blame)
    assert verdict.step == wrong
    assert asked <= math.ceil(math.log2(n))


@given(st.integers(1, 40).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n - 1))))
async def test_an_honest_oracle_leads_step_by_step_to_any_step(case: tuple[int, int]) -> None:
    n, wrong = case
    trajectory = run(*(step("A", "THE MISTAKE" if i == wrong else "fine") for i in range(n)))

    async def oracle(prompt: Prompt) -> Reply:
        return Reply(text=YES if "THE MISTAKE" in prompt.messages[1].content else NO)

    method = registered("step-by-step").build(1_000_000, "")
    inquest = await attribute(method, trajectory, oracle)
    verdict = inquest.attribution.verdict
    assert isinstance(verdict, Blame)
    assert verdict.step == wrong
    assert inquest.attribution.effort.calls == wrong + 1


async def test_a_single_step_needs_no_question_in_binary_search() -> None:
    attribution, model = await ask("binary-search", trajectory=run(step("A", "x")))
    assert isinstance(attribution.verdict, Blame)
    assert not model.prompts


async def test_all_at_once_without_an_agent_leaves_hybrid_undetermined() -> None:
    attribution, _ = await ask("hybrid", "Agent Name: None\nStep Number: N/A\nReason for Mistake: all right")
    assert isinstance(attribution.verdict, Abstention)
    assert attribution.status is Status.UNDETERMINED


DATASETS = Path(__file__).parents[3] / "shared" / "datasets"
beside_the_checkout = pytest.mark.skipif(
    not DATASETS.exists(), reason="the recorded replies are not beside the checkout"
)


def recorded(kind: str) -> dict[str, list[dict[str, Any]]]:
    """Replies of one kind by log, in order."""
    packed = (DATASETS / "recorded_replies.dev.jsonl.gz").read_bytes()
    rows = [json.loads(line) for line in gzip.decompress(packed).splitlines()]
    by_log: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if row["kind"] == kind:
            by_log.setdefault(row["log"], []).append(row)
    return by_log


@beside_the_checkout
async def test_recorded_binary_searches_are_followed_to_where_they_led() -> None:
    """The same halves as in the reference code: segments are inclusive, the middle is in the upper half."""
    runs = {r.trajectory.run_id: r.trajectory for r in read_dataset(DATASETS / "who_and_when.dev.jsonl.gz")}
    searches = recorded("binary_search")
    assert len(searches) > 50
    for name, asked in searches.items():
        attribution, model = await ask(
            "binary-search", *(row["reply"] for row in asked), trajectory=runs[name]
        )
        last = asked[-1]
        middle = (last["start"] + last["end"]) // 2
        verdict = attribution.verdict
        assert isinstance(verdict, Blame)
        assert len(model.prompts) == len(asked)
        ends = (last["start"], middle) if last["reply"] == "upper half" else (middle + 1, last["end"])
        assert ends == (verdict.step, verdict.step), name


@beside_the_checkout
async def test_recorded_walks_step_by_step_end_at_their_first_yes() -> None:
    runs = {r.trajectory.run_id: r.trajectory for r in read_dataset(DATASETS / "who_and_when.dev.jsonl.gz")}
    for name, asked in recorded("step_by_step").items():
        attribution, _ = await ask("step-by-step", *(row["reply"] for row in asked), trajectory=runs[name])
        first = next((row["step"] for row in asked if row["reply"].startswith("1. Yes")), None)
        verdict = attribution.verdict
        assert (verdict.step if isinstance(verdict, Blame) else None) == first, name
        assert first is not None or attribution.status is Status.UNDETERMINED
