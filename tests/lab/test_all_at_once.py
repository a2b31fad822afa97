from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from analyzer.analyses.models.scripted import ScriptedModel
from analyzer.inquiry.errors import UnknownMethod
from analyzer.lab.published import AllAtOnce
from analyzer.methods.attribution import Attributor
from analyzer.methods.free_text import read_answer
from semconv.model import Abstention, Blame, Status, Verdict
from tests.inquiries import attribute
from tests.runs import run, step

RUN = run(step("human", "count"), step("A", "one"), step("B", "two"), step("A", "three"), step("C", "four"))
RECORDED = Path(__file__).parents[3] / "shared" / "datasets" / "recorded_replies.dev.jsonl.gz"


def said(agent: str, at: object) -> str:
    return f"Agent Name: {agent}\nStep Number: {at}\nReason for Mistake: it miscounted"


async def ask(*replies: str, max_bytes: int = 50_000) -> tuple[Verdict, ScriptedModel]:
    model = ScriptedModel(replies=replies)
    inquest = await attribute(AllAtOnce(max_bytes=max_bytes), RUN, model.complete)
    return inquest.attribution.verdict, model


async def test_the_log_is_shown_as_in_the_paper_without_step_numbers() -> None:
    _, model = await ask(said("B", 2))
    text = model.prompts[0].messages[1].content
    assert "human: count\nA: one\nB: two\nA: three\nC: four" in text
    assert "right answer" not in text
    assert model.prompts[0].response_schema is None


async def test_an_answer_that_agrees_with_itself_is_the_verdict() -> None:
    verdict, _ = await ask(said("B", 2))
    assert isinstance(verdict, Blame)
    assert (verdict.agent, verdict.step, verdict.reason) == ("B", 2, "it miscounted.")


@pytest.mark.parametrize("bad", [said("A", 99), said("A", "4 or 12"), "I cannot tell.", ""])
async def test_an_unusable_reply_is_asked_for_again_and_the_second_is_an_error(bad: str) -> None:
    mended, model = await ask(bad, said("B", 2))
    assert isinstance(mended, Blame)
    assert len(model.prompts) == 2
    failed, _ = await ask(bad, bad)
    assert isinstance(failed, Abstention)
    assert failed.status is Status.ERROR
    assert "unreadable" in failed.reason


async def test_a_model_that_finds_no_mistake_leaves_the_run_undetermined() -> None:
    verdict, model = await ask("Agent Name: None\nStep Number: N/A\nReason for Mistake: all right")
    assert isinstance(verdict, Abstention)
    assert verdict.status is Status.UNDETERMINED
    assert len(model.prompts) == 1


@pytest.mark.skipif(not RECORDED.exists(), reason="the recorded replies are not beside the checkout")
def test_recorded_replies_of_real_models_are_read() -> None:
    """All except those that name no agent, or are no answers."""
    rows = [json.loads(line) for line in gzip.decompress(RECORDED.read_bytes()).splitlines()]
    answers = [read_answer(row["reply"]) for row in rows if row["kind"] == "all_at_once"]
    told = Counter(
        "read" if a.agent and a.step is not None else "nobody" if a.says_none else "not read" for a in answers
    )
    assert sum(told.values()) == 184
    assert told["nobody"] == 2
    assert told["not read"] == 3, "three replies say only that there is no prediction"


def published(name: str, *replies: str) -> tuple[Attributor, ScriptedModel]:
    model = ScriptedModel(replies=replies)
    return Attributor(method=f"{name}@published", model=model), model


async def test_the_published_form_keeps_a_contradiction_and_sets_no_temperature() -> None:
    attributor, model = published("all-at-once", said("A", 4))
    verdict = (await attributor(RUN)).verdict
    assert isinstance(verdict, Blame)
    assert (verdict.agent, verdict.step) == ("A", 4)
    (prompt,) = model.prompts
    assert prompt.temperature is None
    assert "step 0" not in prompt.messages[1].content


@pytest.mark.parametrize("name", ["all-at-once", "step-by-step", "binary-search", "hybrid"])
async def test_the_published_form_does_not_ask_again_after_an_unreadable_reply(name: str) -> None:
    attributor, model = published(name, "I cannot tell.", said("A", 4))
    found = await attributor(RUN)
    assert (found.status, len(model.prompts), found.method) == (Status.ERROR, 1, f"{name}@published")


@pytest.mark.parametrize("name", ["judge@published", "all-at-once@paper", "all-at-once@", "@published"])
def test_only_the_reference_methods_are_published(name: str) -> None:
    with pytest.raises(UnknownMethod):
        Attributor(method=name, model=ScriptedModel(replies=()))
