"""The hourly budget: spent money counts, and calls in progress count with their maximum cost."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from analyzer.analyses.models.budget import HOUR_S, HourlyBudget, StoredSpending
from analyzer.inquiry.errors import ModelError, ModelFailure
from analyzer.inquiry.method import Prompt, Reply
from collector_processor.store.verdicts import RunStore

PROMPT = Prompt(messages=(), max_output_tokens=10)


@dataclass(slots=True)
class Priced:
    """A model with a given cost; waits for its gate, if it has one."""

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


async def at_once(call: Callable[..., Any], *args: object) -> Any:
    return call(*args)


@dataclass(slots=True)
class Disk:
    """Consecutive processes that share a store and a wall clock."""

    path: Path
    wall_s: float = 1e9

    async def process(self, model: Priced, *, usd: float = 1.0) -> HourlyBudget:
        """Start one; its monotonic clock starts anew, the wall clock continues."""
        began = self.wall_s
        budget = HourlyBudget(model=model, usd=usd, clock=lambda: self.wall_s - began)
        store = RunStore(self.path)
        await budget.keep_in(
            StoredSpending(rows=store.spending, in_db=at_once, wall_ns=lambda: int(self.wall_s * 1e9))
        )
        return budget


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "runs.sqlite")


async def test_a_process_that_dies_of_each_analysis_spends_no_more_than_one_that_lives(disk: Disk) -> None:
    """Killed while the model computes: the provider may have charged the call."""
    asked = 0
    for _ in range(10):
        model = Priced(usd=0.3, gate=asyncio.Event())
        budget = await disk.process(model)
        call = asyncio.create_task(budget.complete(PROMPT))
        for _ in range(5):
            await asyncio.sleep(0)
        asked += len(model.asked)
        call.cancel()  # all that a killed process leaves behind is on the disk already
        with suppress(asyncio.CancelledError, ModelError):
            await call
        disk.wall_s += 60
    assert asked == 3
    disk.wall_s += HOUR_S
    model = Priced(usd=0.3)
    await (await disk.process(model)).complete(PROMPT)
    assert len(model.asked) == 1


async def test_after_a_restart_a_call_counts_with_what_it_did_cost(disk: Disk) -> None:
    class Cheap(Priced):
        async def complete(self, prompt: Prompt) -> Reply:
            self.asked.append(prompt)
            return Reply(text="", cost_usd=0.1)

    budget = await disk.process(Cheap(usd=0.9))
    await budget.complete(PROMPT)
    assert (await disk.process(Cheap(usd=0.9))).spent_usd == pytest.approx(0.1)


async def test_a_clock_set_back_between_two_processes_frees_no_money(disk: Disk) -> None:
    await (await disk.process(Priced(usd=1.0))).complete(PROMPT)
    disk.wall_s -= 10 * 365 * 86_400
    with pytest.raises(ModelError, match="used up"):
        await (await disk.process(Priced(usd=1.0))).complete(PROMPT)
    disk.wall_s += HOUR_S + 1
    await (await disk.process(Priced(usd=1.0))).complete(PROMPT)


async def test_where_the_disk_takes_no_note_the_model_is_not_asked(disk: Disk) -> None:
    model = Priced(usd=0.1)
    budget = await disk.process(model)
    with closing(sqlite3.connect(disk.path)) as db:
        db.execute("DROP TABLE spending")
    with pytest.raises(ModelError, match="cannot be kept") as caught:
        await budget.complete(PROMPT)
    assert caught.value.kind is ModelFailure.OVER_BUDGET
    assert (model.asked, budget.refused, budget.spent_usd) == ([], 1, 0)


async def test_a_call_that_was_cut_short_may_have_been_charged() -> None:
    budget = HourlyBudget(model=Priced(usd=0.6, gate=asyncio.Event()), usd=1.0, clock=Clock())
    call = asyncio.create_task(budget.complete(PROMPT))
    await asyncio.sleep(0)
    call.cancel()
    with suppress(asyncio.CancelledError):
        await call
    assert budget.spent_usd == pytest.approx(0.6)
