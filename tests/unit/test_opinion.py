"""Second opinions by the methods and models that the operator allows, within one hourly budget, in both
halves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import aiohttp
import pytest

from analyzer.executor.analyst import LocalOpinions, RunAnalyst
from analyzer.executor.codec import (
    PATH,
    read_choice,
    read_offer,
    write_choice,
    write_offer,
    write_run,
)
from analyzer.executor.composition import open_analyst, open_opinions
from analyzer.executor.models.budget import HourlyBudget
from analyzer.executor.models.scripted import ScriptedModel
from analyzer.executor.remote import AwayError, HttpAsk
from analyzer.inquiry.errors import AnalyzerError, ModelError
from analyzer.inquiry.method import DelegatingModel, Prompt, Reply
from analyzer.methods.attribution import Attributor
from analyzer.methods.choice import Choice, NotOffered, Offer
from analyzer.service.analyzer_server import AnalyzerRules, AnalyzerServer
from analyzer.service.open_remote import AWAY_S, FRESH_S, RemoteOpinions
from collector_processor.otlp import Address
from collector_processor.settings import load_settings
from semconv.model import Status
from tests.runs import failed_tool, run, step

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
    assert offer == Offer(methods=("auto", "signals"))
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


async def test_the_chosen_model_is_asked_and_its_calls_are_told() -> None:
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
async def analyzer(given: LocalOpinions | None) -> AsyncIterator[str]:
    """Serve an analyzer half."""
    analyst = RunAnalyst(attributor=Attributor())
    rules = AnalyzerRules(at_once=4, max_run_bytes=1 << 20)
    server = AnalyzerServer(analyst, Address(host="127.0.0.1", port=0), rules, opinions=given)
    port = await server.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await server.stop(0.0)


@asynccontextmanager
async def remote(url: str, clock: Clock | None = None) -> AsyncIterator[RemoteOpinions]:
    ask = HttpAsk(url, timeout_s=60.0)
    try:
        yield RemoteOpinions(ask, clock or Clock())
    finally:
        await ask.close()


async def test_an_analyzer_half_gives_opinions_like_this_process() -> None:
    own, other, calls = talker("own"), talker("other"), Calls()
    local = opinions(own, other=other)
    async with analyzer(local) as url, remote(url) as there:
        assert await there.offer() == await local.offer()
        by_signals = await there.ask(RUN, Choice(method="signals", takes_as_failed=True), calls)
        assert (by_signals.method, by_signals.status) == ("signals", Status.ATTRIBUTED)
        assert (len(own.prompts), len(other.prompts), calls.made) == (0, 0, 0)
        judged = await there.ask(RUN, Choice(method="judge", model="other", takes_as_failed=True), calls)
        assert (judged.method, judged.model, len(own.prompts)) == ("judge", "other", 0)
        assert calls.made == judged.effort.calls == len(other.prompts)


async def test_calls_and_dollars_of_another_process_are_told_while_it_works() -> None:
    second, seen = asyncio.Event(), asyncio.Event()
    model = talker("own")

    async def ask(prompt: Prompt) -> Reply:
        if model.prompts:
            await second.wait()
        return await model.complete(prompt)

    def called(number: int, usd: float) -> None:
        calls(number, usd)
        if calls.made == 2:
            seen.set()

    calls, choice = Calls(), Choice(method="step-by-step", takes_as_failed=True)
    slow = RunAnalyst(attributor=Attributor(model=DelegatingModel(model=model, ask=ask)))
    async with analyzer(LocalOpinions(analyst=slow)) as url, remote(url) as there, asyncio.timeout(60):
        asked = asyncio.create_task(there.ask(RUN, choice, called))
        await seen.wait()
        assert (calls.made, asked.done()) == (2, False)
        assert calls.usd == pytest.approx(0.02)
        second.set()
        effort = (await asked).effort
    assert calls.made == effort.calls
    assert calls.usd == pytest.approx(effort.cost_usd)


async def test_two_choices_about_one_run_are_two_questions() -> None:
    own, other = talker("own"), talker("other")
    async with analyzer(opinions(own, other=other)) as url, remote(url) as there:
        for model in ("", "other"):
            choice = Choice(method="judge", model=model, takes_as_failed=True)
            assert (await there.ask(RUN, choice, Calls())).model == (model or "own")


@pytest.mark.parametrize(
    "query", [{"method": "judge", "model": "http://169.254.169.254/"}, {"method": "random"}, {"method": ""}]
)
async def test_an_analyzer_refuses_what_it_does_not_offer(query: dict[str, str]) -> None:
    own = talker("own")
    async with (
        analyzer(opinions(own)) as url,
        aiohttp.ClientSession() as session,
        session.post(url + PATH, params=query, data=write_run(RUN)) as answer,
    ):
        assert answer.status == 400
        assert "expected one of" in await answer.text()
    assert len(own.prompts) == 0


async def test_one_that_offers_nothing_or_is_away_is_said_and_not_asked_for_every_page() -> None:
    clock = Clock()
    async with AsyncExitStack() as stack:
        async with analyzer(None) as url:
            there = await stack.enter_async_context(remote(url, clock))
            with pytest.raises(AwayError, match="HTTP 404"):
                await there.offer()
        with pytest.raises(AwayError, match="HTTP 404"):  # gone by now, and not asked
            await there.offer()
        clock.now = AWAY_S
        with pytest.raises(AwayError, match="Connector"):
            await there.offer()


async def test_an_offer_is_asked_for_again_when_it_is_old() -> None:
    clock = Clock()
    async with AsyncExitStack() as stack:
        async with analyzer(opinions()) as url:
            there = await stack.enter_async_context(remote(url, clock))
            first = await there.offer()
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
