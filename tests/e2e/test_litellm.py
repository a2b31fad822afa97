"""The judge through litellm over HTTP: any behaviour of the server ends in a verdict or a clear error."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest

from analyzer.analyses.models.budget import HourlyBudget
from analyzer.analyses.models.completion import LiteLLM, Patience, _bundled_prices, _litellm, price_of
from analyzer.inquiry.errors import ModelFailure
from analyzer.inquiry.method import Message, Prompt
from analyzer.methods.attribution import Attributor
from semconv.markers import OWN_CALL_TRACE_PREFIX
from semconv.model import Attribution, Blame, Status
from tests.e2e.model_server import ModelServer, Scripted, serve
from tests.runs import run, step

RUN = run(*(step("AB"[n % 2], f"text {n}") for n in range(5)), task="do it")
GOOD = json.dumps(
    {
        "reason": "it went wrong here",
        "step": 3,
        "agent": "B",
        "mode": "bad_plan",
        "fix": "plan again",
        "evidence": [{"step": 3, "quote": "text 3"}],
        "ranking": [{"step": 3, "probability": 0.6}],
    }
)


def model(server: ModelServer, **patience: Any) -> LiteLLM:
    settings = {"timeout_s": 60.0, "attempts": 3, "first_wait_s": 0.01} | patience
    return LiteLLM(name="openai/local", api_base=server.url, api_key="none", patience=Patience(**settings))


@pytest.fixture(autouse=True, scope="module")
def _warm() -> None:
    """Call once before all tests: a process's first call spends seconds on imports."""
    asyncio.run(judge(Scripted(text=GOOD)))


async def judge(*script: Scripted, **patience: Any) -> tuple[Attribution, ModelServer]:
    async with serve(*script) as server:
        attribution = await Attributor(method="judge", model=model(server, **patience))(RUN)
    return attribution, server


async def test_good_json_is_a_verdict() -> None:
    found, server = await judge(Scripted(text=GOOD))
    assert isinstance(found.verdict, Blame)
    assert (found.verdict.agent, found.verdict.step) == ("B", 3)
    assert (found.effort.calls, found.effort.input_tokens, found.effort.output_tokens) == (1, 100, 20)
    assert found.effort.cost_usd is None, "nobody knows the price of a local model"
    (request,) = server.received
    assert request.body["response_format"]["json_schema"]["strict"] is True


async def test_our_model_call_is_distinguishable_from_the_agents_own() -> None:
    _, server = await judge(Scripted(text=GOOD))
    parent = server.received[0].headers["traceparent"]
    assert re.fullmatch(rf"00-{OWN_CALL_TRACE_PREFIX}[0-9a-f]{{16}}-[0-9a-f]{{16}}-00", parent)


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(Scripted(text=GOOD[:-30]), id="broken JSON"),
        pytest.param(Scripted(text=GOOD[:50], finish_reason="length"), id="cut off"),
    ],
)
async def test_a_bad_answer_is_asked_for_again_and_then_an_error(script: Scripted) -> None:
    mended, server = await judge(script, Scripted(text=GOOD))
    assert mended.status is Status.ATTRIBUTED
    assert len(server.received) == 2
    failed, server = await judge(script)
    assert failed.status is Status.ERROR
    assert failed.error is not None
    assert "unreadable reply" in failed.error
    assert len(server.received) == 2


async def test_a_429_is_waited_out_as_long_as_it_says() -> None:
    waits: list[float] = []

    async def note(seconds: float) -> None:
        waits.append(seconds)

    busy = Scripted(status=429, headers={"Retry-After": "17"})
    async with serve(busy, busy, Scripted(text=GOOD)) as server:
        patient = model(server)
        patient.sleep = note
        found = await Attributor(method="judge", model=patient)(RUN)
    assert found.status is Status.ATTRIBUTED
    assert waits == [17.0, 17.0]


@pytest.mark.parametrize(
    ("script", "kind", "requests"),
    [
        pytest.param(
            Scripted(status=429, headers={"Retry-After": "3600"}), "rate_limited", 1, id="429 for an hour"
        ),
        pytest.param(Scripted(status=500), "unavailable", 3, id="500"),
        pytest.param(Scripted(status=503, headers={"Retry-After": "0"}), "unavailable", 3, id="503"),
        pytest.param(Scripted(reset=True), "connection", 3, id="connection reset"),
        pytest.param(Scripted(status=401), "denied", 1, id="wrong key"),
        pytest.param(Scripted(text="x" * 2_000_000), "too_large", 1, id="2 MB"),
        pytest.param(Scripted(body=b"<html>"), "unavailable", 3, id="no JSON at all"),
        pytest.param(Scripted(body=b"{}"), "unavailable", 3, id="no choices"),
        pytest.param(Scripted(body=b'{"choices": [{}]}'), "unavailable", 3, id="a choice of nothing"),
    ],
)
async def test_a_server_that_fails_is_an_error_that_says_how(
    script: Scripted, kind: str, requests: int
) -> None:
    found, server = await judge(script)
    assert found.status is Status.ERROR
    assert found.error is not None
    assert f"({kind})" in found.error
    assert "Traceback" not in found.error
    assert len(server.received) == requests


async def test_no_answer_in_time_is_an_error() -> None:
    found, _ = await judge(Scripted(delay_s=5), timeout_s=0.2, attempts=1)
    assert found.status is Status.ERROR
    assert found.error is not None
    assert f"({ModelFailure.TIMEOUT})" in found.error
    assert found.effort.cost_usd is None


async def test_an_unreachable_model_is_an_error() -> None:
    async with serve(Scripted()) as server:
        pass
    found = await Attributor(method="judge", model=model(server))(RUN)
    assert found.error is not None
    assert "(connection)" in found.error


async def test_a_server_without_schemas_is_asked_in_words() -> None:
    refusal = Scripted(status=400, text="response_format is not supported")
    async with serve(refusal, Scripted(text=GOOD), Scripted(text=GOOD)) as server:
        attributor = Attributor(method="judge", model=model(server))
        found = await attributor(RUN)
        again = await attributor(RUN)
    assert found.status is again.status is Status.ATTRIBUTED
    assert ["response_format" in request.body for request in server.received] == [True, False, False]


async def test_a_context_that_is_too_small_is_tried_with_less_of_the_run() -> None:
    message = "This model's maximum context length is 4096 tokens."
    refusal = {
        "error": {"message": message, "code": "context_length_exceeded", "type": "invalid_request_error"}
    }
    found, server = await judge(Scripted(status=400, body=json.dumps(refusal).encode()), Scripted(text=GOOD))
    assert found.status is Status.ATTRIBUTED
    assert len(server.received) == 2


@pytest.mark.parametrize(
    "told", [None, {"prompt_tokens": 0}, {"prompt_tokens": -(10**6), "completion_tokens": -1}]
)
async def test_what_a_server_does_not_count_is_estimated_and_so_is_its_price(told: object) -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": "x" * 30}, "finish_reason": "stop"}
    body = json.dumps({"choices": [choice], "usage": told}).encode()
    prompt = Prompt(messages=(Message(role="user", content="y" * 3_000),), max_output_tokens=1_000)
    async with serve(Scripted(body=body)) as server:
        priced = replace(model(server), name="openai/gpt-4o")
        reply = await priced.complete(prompt)
        unpriced = await model(server).complete(prompt)
    assert (reply.input_tokens, reply.output_tokens) == (1_000, 10)
    assert reply.cost_usd is not None
    assert 0 < reply.cost_usd <= (priced.price(prompt) or 0.0)
    assert unpriced.cost_usd is None


async def test_half_a_character_in_a_reply_is_written_as_one_that_is_whole() -> None:
    half = "Agent Name: Writer\nStep Number: 1\nReason for Mistake: cut \ud83d"
    async with serve(Scripted(text=half)) as server:
        found = await Attributor(method="all-at-once", model=model(server))(RUN)
    assert isinstance(found.verdict, Blame)
    assert found.verdict.reason.encode().startswith(b"cut ")


async def test_all_at_once_reads_prose() -> None:
    prose = "**Agent Name:** B\n**Step Number:** 3\n**Reason for Mistake:** it went wrong"
    async with serve(Scripted(text=prose)) as server:
        found = await Attributor(method="all-at-once", model=model(server))(RUN)
    assert isinstance(found.verdict, Blame)
    assert found.verdict.step == 3
    assert "response_format" not in server.received[0].body


def test_a_listed_model_has_a_price_and_a_context_and_another_has_not() -> None:
    prompt = Prompt(messages=(Message(role="user", content="x" * 3_000),), max_output_tokens=1_000)
    listed, local = LiteLLM(name="gpt-4o"), LiteLLM(name="openai/local")
    price = listed.price(prompt)
    assert price is not None
    assert 0.001 < price < 0.1
    assert listed.context_tokens >= 100_000
    assert local.price(prompt) is None
    assert local.context_tokens == 32_000
    assert LiteLLM(name="openai/local", context_limit=8_192).context_tokens == 8_192


def claiming(**usage: int) -> Scripted:
    """Return a good answer with the given usage report."""
    message = {"role": "assistant", "content": GOOD}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    document = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    return Scripted(body=json.dumps(document | {"usage": usage}).encode())


ABSURD = claiming(prompt_tokens=10**9, completion_tokens=2 * 10**10, total_tokens=21 * 10**9)
"""Claims a cost of over 12 thousand dollars at the price of gpt-4o-mini."""


async def test_a_reply_that_claims_a_fortune_costs_no_more_than_its_request_could(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serve(ABSURD) as server:
        priced = replace(model(server), name="openai/gpt-4o-mini")
        budget = HourlyBudget(model=priced, usd=0.05, clock=time.monotonic)
        attributor = Attributor(method="judge", model=budget)
        found = [await attributor(RUN) for _ in range(3)]
    assert [one.status for one in found] == [Status.ATTRIBUTED] * 3, "the hour's budget is not spent"
    assert len(server.received) == 3
    (effort, *_) = (one.effort for one in found)
    assert effort.cost_usd is not None
    assert 0 < effort.cost_usd < 0.01
    assert effort.input_tokens + effort.output_tokens < 20_000
    assert budget.suspect == 3
    assert "more usage than the request could have" in caplog.text


async def test_a_reply_of_an_unlisted_model_cannot_claim_a_fortune_either() -> None:
    async with serve(ABSURD) as server:
        prompt = Prompt(messages=(Message(role="user", content="?"),), max_output_tokens=9)
        reply = await model(server).complete(prompt)
    assert reply.is_usage_suspect
    assert reply.input_tokens + reply.output_tokens < 2_000
    assert reply.cost_usd is None or reply.cost_usd < 3


@pytest.mark.parametrize(
    ("usage", "is_suspect"),
    [
        ({"prompt_tokens": 10, "completion_tokens": -5, "total_tokens": 5}, False),
        ({"prompt_tokens": -10, "completion_tokens": 10**12, "total_tokens": 5}, True),
        ({"prompt_tokens": 0, "completion_tokens": 10**12, "total_tokens": 5}, True),
        ({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}, False),
    ],
    ids=["less than no output", "less than no input", "no input", "nothing"],
)
async def test_no_reply_makes_its_call_free(usage: dict[str, int], *, is_suspect: bool) -> None:
    async with serve(claiming(**usage)) as server:
        prompt = Prompt(messages=(Message(role="user", content="?"),), max_output_tokens=900)
        priced = replace(model(server), name="openai/gpt-4o-mini")
        budget = HourlyBudget(model=priced, usd=1, clock=time.monotonic)
        reply = await budget.complete(prompt)
        most = budget.price(prompt)
    assert most is not None
    assert reply.cost_usd is not None
    assert most / 100 < reply.cost_usd == budget.spent_usd < 2 * most
    assert budget.suspect == is_suspect


async def test_an_honest_report_is_taken_as_it_is() -> None:
    honest = claiming(prompt_tokens=400, completion_tokens=60, total_tokens=460)
    async with serve(honest) as server:
        priced = replace(model(server), name="openai/gpt-4o-mini")
        found = await Attributor(method="judge", model=priced)(RUN)
    assert (found.effort.input_tokens, found.effort.output_tokens) == (400, 60)
    assert found.effort.cost_usd == pytest.approx(400 * 1.5e-7 + 60 * 6e-7)


def test_prices_are_those_of_litellm_and_known_without_its_import() -> None:
    listed = {name: entry for name, entry in _litellm().model_cost.items() if "input_cost_per_token" in entry}
    assert len(listed) > 1000
    bundled = _bundled_prices() or {}
    assert {name: bundled[name] for name in listed} == listed
    asked = "import sys; from analyzer.analyses.models.completion import price_of"
    asked += "; print(price_of('gpt-4o-mini', 1000, 10), 'litellm' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout
    assert said.split() == [str(price_of("gpt-4o-mini", 1000, 10)), "False"]


@pytest.fixture
def price_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield the place of the price list of a litellm that is not imported."""
    spec = ModuleSpec("litellm", None)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr("analyzer.analyses.models.completion.find_spec", lambda _: spec)
    _bundled_prices.cache_clear()
    yield tmp_path / "model_prices_and_context_window_backup.json"
    _bundled_prices.cache_clear()


@pytest.mark.parametrize(
    ("listed", "price"),
    [
        ('{"m": {"input_cost_per_token": 2, "output_cost_per_token": 3}}', 2003.0),
        ('{"m": {"input_cost_per_token": "2", "output_cost_per_token": 3}}', None),
        ('{"m": {"input_cost_per_token": 2}}', None),
        ('{"m": [2, 3]}', None),
        ('[{"m": 1}]', None),
        ('{"m": {', None),
        ("\xff", None),
        ("", None),
    ],
)
def test_prices_in_a_file_that_cannot_be_read_are_unknown(
    price_file: Path, listed: str, price: float | None
) -> None:
    price_file.write_text(listed, encoding="latin-1")
    assert price_of("provider/m", 1000, 1) == price_of("m", 1000, 1) == price


def test_the_import_of_litellm_freezes_nothing_in_a_callers_process() -> None:
    asked = "import gc; from analyzer.analyses.models.completion import _litellm; _litellm()"
    asked += "; print(gc.get_freeze_count(), gc.isenabled())"
    said = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["0", "True"]
