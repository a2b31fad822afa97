from __future__ import annotations

from dataclasses import dataclass

import pytest

from analyzer.analyses.models.scripted import ScriptedModel
from analyzer.inquiry.errors import ModelError, ModelFailure
from analyzer.inquiry.method import Budget, Inquiry, Message, Prompt, Reply, answered
from semconv.model import Abstention, Blame, Status, Trajectory
from tests.inquiries import attribute
from tests.runs import run, step

TWO_STEPS = run(step("a", "x"), step("b", "y"))
BLAME = Blame(agent="b", step=1, reason="because", confidence=0.5)


def ask(coverage: float = 1.0) -> Prompt:
    return Prompt(
        messages=(Message(role="user", content="who?"),),
        max_output_tokens=10,
        truncated=coverage < 1,
        coverage=coverage,
    )


@dataclass(frozen=True, kw_only=True)
class Asks:
    """A method that asks several times, about different parts, and then blames step 1."""

    shares: tuple[float, ...] = (1.0,)
    name: str = "asks"

    def investigate(self, _trajectory: Trajectory) -> Inquiry:
        for share in self.shares:
            yield ask(share)
        return BLAME


def reply(cost_usd: float | None = 0.1) -> Reply:
    return Reply(text="b", input_tokens=100, output_tokens=7, cost_usd=cost_usd)


async def test_effort_is_counted_over_all_calls() -> None:
    model = ScriptedModel(replies=[reply(), reply()])
    inquest = await attribute(Asks(shares=(0.5, 0.25)), TWO_STEPS, model.complete, model="m")
    found = inquest.attribution
    assert found.verdict == BLAME
    assert (found.effort.calls, found.effort.input_tokens, found.effort.output_tokens) == (2, 200, 14)
    assert found.effort.cost_usd == 0.2
    assert (found.truncated, found.coverage) == (True, 0.5)
    assert found.error is None


async def test_one_unknown_price_makes_the_cost_unknown() -> None:
    model = ScriptedModel(replies=[reply(), reply(None)])
    inquest = await attribute(Asks(shares=(1, 1)), TWO_STEPS, model.complete)
    assert inquest.attribution.effort.cost_usd is None


async def test_the_budget_stops_before_the_call_that_would_exceed_it() -> None:
    model = ScriptedModel(replies=[reply(0.3), reply(0.3)])
    budget = Budget(usd=0.5)
    inquest = await attribute(Asks(shares=(1, 1)), TWO_STEPS, model.complete, budget=budget, price=0.3)
    found = inquest.attribution
    assert found.status is Status.ERROR
    assert found.error is not None
    assert "budget" in found.error
    assert len(model.prompts) == 1
    assert found.effort.cost_usd == 0.3


async def test_a_free_or_unpriced_call_is_never_too_dear() -> None:
    model = ScriptedModel(replies=[reply(None)])
    inquest = await attribute(Asks(), TWO_STEPS, model.complete, budget=Budget(usd=0.0))
    assert inquest.attribution.status is Status.ATTRIBUTED


async def test_a_model_that_fails_is_an_error_that_keeps_what_was_spent() -> None:
    failure = ModelError("gone", kind=ModelFailure.CONNECTION, retryable=True)
    model = ScriptedModel(replies=[reply(), failure])
    inquest = await attribute(Asks(shares=(1, 1)), TWO_STEPS, model.complete)
    assert inquest.failure is failure
    assert isinstance(inquest.attribution.verdict, Abstention)
    assert inquest.attribution.status is Status.ERROR
    assert inquest.attribution.effort.calls == 2
    assert inquest.attribution.effort.cost_usd == 0.1


async def test_a_call_that_timed_out_may_have_cost_something() -> None:
    model = ScriptedModel(replies=[ModelError("slow", kind=ModelFailure.TIMEOUT)])
    inquest = await attribute(Asks(), TWO_STEPS, model.complete)
    assert inquest.attribution.effort.cost_usd is None


def test_an_inquiry_that_asks_nothing_ends_at_once() -> None:
    inquiry = answered(BLAME)
    with pytest.raises(StopIteration) as finished:
        next(inquiry)
    assert finished.value.value is BLAME
