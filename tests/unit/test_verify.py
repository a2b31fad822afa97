from __future__ import annotations

import json
from typing import Any

from analyzer.analyses.models.scripted import ScriptedModel
from analyzer.inquiry.method import Reply
from analyzer.methods.verify import Criterion, Verify, read_rulings
from semconv.model import Abstention, Blame, Status, Trajectory, Verdict
from tests.inquiries import MARKER, attribute
from tests.runs import run, step, tool

RUN = run(
    step("planner", "Look up the price list."),
    step("clerk", "I take the list of 2023."),
    tool("clerk", "2023: 1,450 each"),
    step("analyst", "Ten cost 14,500."),
    step("writer", "The answer is 14,500."),
    task="What do ten cost today?",
)


def proposal(at: int, probability: float = 0.6, **changes: Any) -> str:
    fields = {
        "reason": f"step {at} is wrong",
        "step": at,
        "fix": f"do step {at} right",
        "mode": "wrong_tool_use",
        "evidence": [{"step": at, "quote": RUN.steps[at].output}],
        "ranking": [{"step": at, "probability": probability}],
    }
    return json.dumps(fields | changes)


def rulings(*holding: int, quote: bool = True, of: Trajectory = RUN) -> str:
    """Answers for every step of the run: the given ones hold, the others do not."""
    return json.dumps(
        {
            "answers": [
                {
                    "step": s.index,
                    "holds": s.index in holding,
                    "confidence": 0.9,
                    "why": f"because of {s.index}",
                    "quote": s.output if quote else "made up",
                    "instead": f"instead of {s.index}",
                }
                for s in of.steps
            ]
        }
    )


async def verify(*replies: str, trajectory: Trajectory = RUN) -> tuple[Verdict, ScriptedModel]:
    model = ScriptedModel(replies=replies)
    inquest = await attribute(Verify(marker=MARKER, max_bytes=50_000), trajectory, model.complete)
    return inquest.attribution.verdict, model


async def test_a_proposal_that_passes_all_three_criteria_is_the_verdict_after_four_calls() -> None:
    verdict, model = await verify(proposal(1), *[rulings(1)] * 3)
    assert isinstance(verdict, Blame)
    assert (verdict.step, verdict.agent, verdict.reason) == (1, "clerk", "step 1 is wrong.")
    assert verdict.fix == "do step 1 right"
    assert verdict.confidence > 0.9
    assert len(model.prompts) == 4
    asked = [prompt.messages[-1].content for prompt in model.prompts[1:]]
    assert all(criterion.value in text for criterion, text in zip(Criterion, asked, strict=True))
    assert all("step 1" in text.rpartition("each of")[2] for text in asked)


async def test_what_is_held_against_the_proposal_goes_back_and_another_may_win() -> None:
    first = [proposal(4), rulings(4), rulings(), rulings(4)]  # it is a fault that lasts, not the first
    verdict, model = await verify(*first, proposal(1), *[rulings(1)] * 3)
    assert isinstance(verdict, Blame)
    assert verdict.step == 1
    assert len(model.prompts) == 8
    again = model.prompts[4].messages[-1].content
    assert "step 4: first is doubted; because of 4" in again
    assert "step 4" not in model.prompts[5].messages[-1].content.rpartition("each of")[2], "heard already"


async def test_after_two_rounds_the_best_candidate_is_named_with_little_confidence() -> None:
    nothing = [rulings()] * 3
    verdict, model = await verify(proposal(4), *nothing, proposal(1), *nothing)
    assert isinstance(verdict, Blame)
    assert verdict.confidence < 0.2
    assert len(model.prompts) == 8


async def test_a_step_that_only_signals_propose_can_win_with_the_verifiers_words() -> None:
    wrong_sum = run(
        *RUN.steps[:3], step("analyst", "10 x 1450 = 15000"), step("writer", "It is 15000."), task=RUN.task
    )
    answers = [rulings(3, of=wrong_sum)] * 3
    verdict, _ = await verify(proposal(0, 0.3), *answers, trajectory=wrong_sum)
    assert isinstance(verdict, Blame)
    assert verdict.step == 3
    assert verdict.reason == "because of 3"
    assert verdict.fix == "instead of 3"


async def test_answers_whose_quotes_do_not_stand_weigh_less() -> None:
    sound, _ = await verify(proposal(1, 0.1), *[rulings(1)] * 3)
    hollow, _ = await verify(proposal(1, 0.1), *[rulings(1, quote=False)] * 3)
    assert isinstance(sound, Blame)
    assert isinstance(hollow, Blame)
    assert hollow.confidence < sound.confidence


async def test_unreadable_answers_are_repaired_once_and_then_an_error() -> None:
    verdict, model = await verify("no idea", proposal(1), "hm", *[rulings(1)] * 3)
    assert isinstance(verdict, Blame)
    assert len(model.prompts) == 6
    verdict, _ = await verify(proposal(1), "hm", "hm")
    assert isinstance(verdict, Abstention)
    assert verdict.status is Status.ERROR


async def test_an_unreadable_second_round_leaves_the_first_ones_verdict() -> None:
    first = [proposal(4), rulings(4), rulings(), rulings(4)]
    for second in (["hm", "hm"], [proposal(1), "hm", "hm"], [proposal(1), rulings(1), "hm", "hm"]):
        verdict, _ = await verify(*first, *second)
        assert isinstance(verdict, Blame)
        assert verdict.step == 4


async def test_a_verdict_needs_a_quote_of_the_step_that_it_blames() -> None:
    """The words stand in the run, but in another step: an attack could have put them there."""
    elsewhere = {"step": 1, "quote": RUN.steps[4].output, "holds": True, "confidence": 0.9}
    ruled = json.dumps({"answers": [elsewhere | {"step": step.index} for step in RUN.steps]})
    unquoted = json.loads(proposal(1)) | {"evidence": [{"step": 4, "quote": RUN.steps[4].output}]}
    verdict, _ = await verify(json.dumps(unquoted), *[ruled] * 3)
    assert isinstance(verdict, Abstention)
    assert verdict.status is Status.UNDETERMINED
    assert "stands in it" in verdict.reason


def test_rulings_must_speak_of_every_candidate_and_may_quote_any_step() -> None:
    said = Reply(text=rulings(1))
    assert isinstance(read_rulings(said, RUN, [1, 9]), str)
    later = json.dumps({"answers": [{"step": 1, "holds": False, "quote": "The answer is 14,500"}]})
    found = read_rulings(Reply(text=later), RUN, [1])
    assert not isinstance(found, str)
    assert found[1].evidence[0].step == 4
    assert found[1].probability < 0.5
