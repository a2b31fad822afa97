"""An hour's money: what is spent is spent, and calls under way count with the most they may cost."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from analyzer.budget import HOUR_S, HourlyBudget
from analyzer.errors import ModelError, ModelFailure
from analyzer.method import Prompt, Reply

PROMPT = Prompt(messages=(), max_output_tokens=10)


@dataclass(slots=True)
class Priced:
    """A model that costs what it is told; waits for its gate, if it has one."""

    usd: float | None
    gate: asyncio.Event | None = None
    fails: bool = False
    name: str = "priced"
    context_tokens: int = 1000
    asked: list[Prompt] = field(default_factory=list)

    def price(self, _prompt: Prompt) -> float | None:
        return self.usd

    async def complete(self, prompt: Prompt) -> Reply:
        self.asked.append(prompt)
        if self.gate is not None:
            await self.gate.wait()
        if self.fails:
            raise ModelError("gone", kind=ModelFailure.CONNECTION)
        return Reply(text="", cost_usd=self.usd)


@dataclass(slots=True)
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


async def test_refuses_once_the_hour_is_spent_and_asks_again_an_hour_later() -> None:
    clock, model = Clock(), Priced(usd=0.4)
    budget = HourlyBudget(model=model, usd=1.0, clock=clock)
    await budget.complete(PROMPT)
    await budget.complete(PROMPT)
    with pytest.raises(ModelError) as caught:
        await budget.complete(PROMPT)
    assert caught.value.kind is ModelFailure.OVER_BUDGET
    assert len(model.asked) == 2
    clock.now = HOUR_S + 1
    await budget.complete(PROMPT)
    assert len(model.asked) == 3


async def test_calls_under_way_count() -> None:
    gate = asyncio.Event()
    budget = HourlyBudget(model=Priced(usd=0.6, gate=gate), usd=1.0, clock=Clock())
    first = asyncio.create_task(budget.complete(PROMPT))
    await asyncio.sleep(0)
    with pytest.raises(ModelError):
        await budget.complete(PROMPT)
    gate.set()
    await first


async def test_a_call_that_failed_may_have_been_charged() -> None:
    budget = HourlyBudget(model=Priced(usd=0.6, fails=True), usd=1.0, clock=Clock())
    for kind in (ModelFailure.CONNECTION, ModelFailure.OVER_BUDGET):
        with pytest.raises(ModelError) as caught:
            await budget.complete(PROMPT)
        assert caught.value.kind is kind


async def test_a_model_without_a_price_is_never_over_budget() -> None:
    budget = HourlyBudget(model=Priced(usd=None), usd=0.0, clock=Clock())
    for _ in range(3):
        await budget.complete(PROMPT)
    assert budget.spent_usd == 0
