"""Second opinions by the methods and models that the operator allows, within one hourly budget, in both
halves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from analyzer.analyses.analyst import RunAnalyst
from analyzer.analyses.codec import read_choice, read_offer, write_choice, write_offer
from analyzer.analyses.composition import open_analyst, open_opinions
from analyzer.analyses.job_client import (
    ANALYZER,
    AWAY_S,
    FRESH_S,
    NO_ANALYZER,
    OFFER,
    AwayError,
    JobOpinions,
)
from analyzer.analyses.models.budget import HourlyBudget
from analyzer.analyses.models.scripted import ScriptedModel
from analyzer.analyses.opinions import LocalOpinions
from analyzer.inquiry.errors import AnalyzerError, ModelError
from analyzer.inquiry.method import Prompt
from analyzer.methods.attribution import Attributor
from analyzer.methods.choice import Called, Choice, NotOffered, Offer
from analyzer.service.job_worker import JobWorker
from analyzer.service.replicas import Announcer
from collector_processor.core.analysis import Earned
from collector_processor.settings import load_settings
from semconv.model import Attribution, Status, Trajectory
from tests.runs import failed_tool, run, step
from tests.unit.test_job_worker import Store, shortly, store

__all__ = ["store"]

RUN = run(step("planner", "go"), failed_tool("clerk"), step("writer", "sorry, I could not"), task="t")


def talker(name: str) -> ScriptedModel:
    """Return a model with one answer and a price."""
    return ScriptedModel(name=name, replies=["{}"] * 99, cost_usd=0.01)


@dataclass(slots=True)
class Calls:
    """Count calls and dollars."""

    made: int = 0
    usd: float = 0.0

    def __call__(self, calls: int, usd: float) -> None:
        self.made += calls
        self.usd += usd


@dataclass(slots=True)
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def opinions(own: ScriptedModel | None = None, **others: ScriptedModel) -> LocalOpinions:
    return LocalOpinions(analyst=RunAnalyst(attributor=Attributor(model=own)), models=others)


async def test_without_a_model_only_methods_that_need_none_are_offered() -> None:
    offer = await opinions().offer()
    assert offer == Offer(methods=("auto", "signals"), model="", models=())
    offer = await opinions(talker("own"), other=talker("other")).offer()
    assert (offer.model, offer.models) == ("own", ("other",))
    assert {"judge", "verify", "signals"} <= set(offer.methods)
    assert not {"random", "constant", "ranker"} & set(offer.methods)


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (Choice(method="random"), "method: expected one of"),
        (Choice(method="no-such"), "method: expected one of"),
        (Choice(method="judge", model="openai/gpt-9"), "model: expected one of other"),
        (Choice(method="judge", model="own"), "model: expected one of other"),
        (Choice(method="judge", model="http://169.254.169.254/latest"), "model: expected"),
        (Choice(method="judge"), "judge asks a model: choose one"),
    ],
)
async def test_what_was_not_offered_is_refused_before_anybody_is_asked(choice: Choice, said: str) -> None:
    other = talker("other")
    with pytest.raises(NotOffered, match=said):
        await opinions(other=other).ask(RUN, choice, Calls())
    assert len(other.prompts) == 0


async def test_the_chosen_model_is_asked_and_its_calls_are_reported() -> None:
    own, other, calls = talker("own"), talker("other"), Calls()
    choice = Choice(method="judge", model="other", takes_as_failed=True)
    attribution = await opinions(own, other=other).ask(RUN, choice, calls)
    assert (len(own.prompts), len(other.prompts)) == (0, calls.made)
    assert calls.made > 0
    assert attribution.model == "other"


async def test_all_models_spend_the_same_hours_money() -> None:
    own, other = talker("own"), talker("other")
    budget = HourlyBudget(model=own, usd=0.02, clock=Clock())
    lent = budget.lend(other)
    prompt = Prompt(messages=(), max_output_tokens=1)
    await budget.complete(prompt)
    await lent.complete(prompt)
    assert (budget.spent_usd, lent.name) == (0.02, "other")
    for model in (budget, lent):
        with pytest.raises(ModelError, match="used up"):
            await model.complete(prompt)
    assert (len(own.prompts), len(other.prompts)) == (1, 1)


async def test_the_settings_name_the_models_that_may_be_chosen() -> None:
    settings = load_settings({"BLAMESPAN_MODEL": "a/usual, a/cheap, a/dear ,"})
    offer = await open_opinions(settings, open_analyst(settings)).offer()
    assert (offer.model, offer.models) == ("a/usual", ("a/cheap", "a/dear"))
    assert (await open_opinions(load_settings({}), open_analyst(load_settings({}))).offer()).models == ()


@asynccontextmanager
async def analyzer(store: Store, given: LocalOpinions, lease_s: float = 3600.0) -> AsyncIterator[None]:
    """Run an analyzer half over the store."""

    async def analyse(
        trajectory: Trajectory, choice: Choice | None, earned: Earned, called: Called
    ) -> Attribution:
        assert choice is not None
        return await given.ask(trajectory, choice, called, earned)

    worker = JobWorker(store.jobs, store.thread, analyse, at_once=4, pause=shortly, lease_s=lease_s)
    announcer = await announced(store, await given.offer())
    task = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        await worker.stop(0.0)
        await task
        await announcer.leave()


async def announced(store: Store, offer: Offer) -> Announcer:
    announcer = Announcer(store.replicas, store.thread.run, ANALYZER, {OFFER: write_offer(offer).decode()})
    await announcer.announce()
    return announcer


async def test_an_analyzer_half_gives_opinions_like_this_process(store: Store) -> None:
    own, other, calls = talker("own"), talker("other"), Calls()
    local, there = opinions(own, other=other), JobOpinions(store.client())
    async with analyzer(store, local):
        assert await there.offer() == await local.offer()
        by_signals = await there.ask(RUN, Choice(method="signals", takes_as_failed=True), calls)
        assert (by_signals.method, by_signals.status) == ("signals", Status.ATTRIBUTED)
        assert (len(own.prompts), len(other.prompts), calls.made) == (0, 0, 0)
        judged = await there.ask(RUN, Choice(method="judge", model="other", takes_as_failed=True), calls)
        assert (judged.method, judged.model, len(own.prompts)) == ("judge", "other", 0)
        assert calls.made == judged.effort.calls == len(other.prompts)
        assert calls.usd == pytest.approx(judged.effort.cost_usd)


async def test_two_choices_about_one_run_are_two_questions(store: Store) -> None:
    own, other = talker("own"), talker("other")
    async with analyzer(store, opinions(own, other=other)):
        for model in ("", "other"):
            choice = Choice(method="judge", model=model, takes_as_failed=True)
            attribution = await JobOpinions(store.client()).ask(RUN, choice, Calls())
            assert attribution.model == (model or "own")


@pytest.mark.parametrize(
    "choice",
    [Choice(method="judge", model="http://169.254.169.254/"), Choice(method="random"), Choice(method="")],
)
async def test_an_analyzer_answers_no_choice_that_it_does_not_offer(store: Store, choice: Choice) -> None:
    own = talker("own")
    async with analyzer(store, opinions(own), lease_s=-1.0):
        with pytest.raises(AwayError):
            await JobOpinions(store.client()).ask(RUN, choice, Calls())
    assert len(own.prompts) == 0


async def test_a_missing_analyzer_is_reported_and_not_looked_up_for_every_page(store: Store) -> None:
    clock = Clock()
    there = JobOpinions(store.client(), clock)
    with pytest.raises(AwayError, match=NO_ANALYZER):
        await there.offer()
    await announced(store, await opinions().offer())
    with pytest.raises(AwayError, match=NO_ANALYZER):  # not asked again yet
        await there.offer()
    clock.now = AWAY_S
    assert await there.offer() == await opinions().offer()


async def test_an_offer_is_asked_for_again_when_it_is_old(store: Store) -> None:
    clock = Clock()
    there = JobOpinions(store.client(), clock)
    announcer = await announced(store, await opinions().offer())
    first = await there.offer()
    await announcer.leave()
    clock.now = FRESH_S - 1
    assert await there.offer() == first
    clock.now = FRESH_S
    with pytest.raises(AwayError):
        await there.offer()


def test_choice_and_offer_come_through_as_they_were() -> None:
    for choice in (
        None,
        Choice(),
        Choice(with_reference=True),
        Choice(method="judge", model="a/b c&d=é", takes_as_failed=True),
    ):
        assert read_choice(write_choice(choice)) == choice
    offer = Offer(methods=("auto", "é"), model="m", models=("n",))
    assert read_offer(write_offer(offer)) == offer
    with pytest.raises(AnalyzerError):
        read_offer(b"{")
