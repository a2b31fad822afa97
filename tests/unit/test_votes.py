from __future__ import annotations

import json

import pytest

from analyzer.analyses.models.scripted import ScriptedModel
from analyzer.inquiry.errors import ModelError, ModelFailure, UnknownMethod
from analyzer.methods.attribution import Attributor
from analyzer.methods.judge import Judge
from analyzer.methods.pooling import Sampled, combine
from analyzer.methods.registry import registered
from semconv.model import Abstention, Blame, Ranked, Status, Verdict
from tests.inquiries import MARKER, attribute
from tests.runs import run, step

RUN = run(step("a", "first thing"), step("b", "second thing"), step("c", "third thing"), step("a", "fourth"))


def reply(at: int, probability: float = 0.6, fix: str = "mend it") -> str:
    return json.dumps(
        {
            "reason": f"because of {at}",
            "step": at,
            "fix": fix,
            "evidence": [{"step": at, "quote": RUN.steps[at].output}],
            "ranking": [{"step": at, "probability": probability}],
        }
    )


def vote(at: int, probability: float, **fields: str) -> Blame:
    agent = RUN.steps[at].agent
    ranking = (Ranked(step=at, agent=agent, probability=probability),)
    reason = fields.get("reason", "r")
    fix = fields.get("fix", "")
    return Blame(agent=agent, step=at, reason=reason, confidence=probability, fix=fix, ranking=ranking)


def pooled(*verdicts: Verdict) -> Blame:
    found = combine(verdicts, RUN)
    assert isinstance(found, Blame)
    return found


FAILED = Abstention(status=Status.ERROR, reason="unreadable reply")
UNSURE = Abstention(status=Status.UNDETERMINED, reason="cannot tell")


def test_agreement_outvotes_one_voter_that_is_sure() -> None:
    found = pooled(vote(0, 0.9), vote(2, 0.6, reason="weak"), vote(2, 0.7, reason="good", fix="do it"))
    assert (found.step, found.agent) == (2, "c")
    assert found.reason == "good. (2 of 3 votes name step 2)."
    assert found.fix == "do it"
    assert found.confidence == pytest.approx((0.6 + 0.7 + 0.1 / 3) / 3, abs=1e-3)
    assert 0.9 < sum(each.probability for each in found.ranking) <= 1.001


def test_undecided_votes_lower_the_confidence_and_failed_ones_are_only_mentioned() -> None:
    assert pooled(vote(1, 0.8), UNSURE).confidence == pytest.approx((0.8 + 0.25) / 2, abs=1e-3)
    found = pooled(vote(1, 0.8), FAILED)
    assert found.confidence == pytest.approx(0.8, abs=1e-3)
    assert "1 more failed" in found.reason


def test_without_a_blame_the_pooled_verdict_abstains() -> None:
    assert combine([FAILED, UNSURE], RUN) == UNSURE
    assert combine([FAILED, FAILED], RUN) == FAILED
    with pytest.raises(ValueError, match="at least one"):
        combine([], RUN)


async def test_samples_of_any_method_are_fresh_draws_and_pooled() -> None:
    model = ScriptedModel(replies=["junk", reply(1), reply(2), reply(2)])
    method = Sampled(method=Judge(marker=MARKER, max_bytes=9_999), samples=3)
    inquest = await attribute(method, RUN, model.complete)
    assert isinstance(inquest.attribution.verdict, Blame)
    assert inquest.attribution.verdict.step == 2
    assert inquest.attribution.method == "judge*3"
    assert [prompt.sample for prompt in model.prompts] == [0, 0, 1_000, 2_000]


async def test_a_model_that_is_gone_is_an_error_and_no_vote() -> None:
    gone = ScriptedModel(replies=[ModelError("gone", kind=ModelFailure.CONNECTION)])
    attribution = await Attributor(method="judge*2", model=gone)(RUN)
    assert attribution.status is Status.ERROR


@pytest.mark.parametrize("name", ["judge*", "judge*0", "judge*99", "judge*x", "signals*3", "nobody*3"])
def test_votes_that_make_no_sense_are_refused(name: str) -> None:
    with pytest.raises(UnknownMethod, match="expected one of"):
        registered(name)
