from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from analyzer.errors import ModelError, ModelFailure, UnreadableInput
from analyzer.method import Message, Prompt, Reply, ResponseSchema
from analyzer.reply_cache import CachedModel, open_cache, place_of_models
from analyzer.scripted import ScriptedModel

PROMPT = Prompt(messages=(Message(role="user", content="who?"),), max_output_tokens=100)


async def ask(directory: Path, model: ScriptedModel, prompt: Prompt = PROMPT, place: str = "") -> Reply:
    with open_cache(directory) as cache:
        return await CachedModel(model=model, cache=cache, place=place).complete(prompt)


async def test_what_was_answered_is_not_asked_again_and_keeps_its_cost(tmp_path: Path) -> None:
    first = Reply(text="A \ud800", input_tokens=7, output_tokens=3, cost_usd=0.25)
    model = ScriptedModel(replies=[first])
    assert await ask(tmp_path / "new", model) == first
    kept = await ask(tmp_path / "new", model)
    assert kept == replace(first, text="A ?")
    assert len(model.prompts) == 1


async def test_an_unknown_cost_stays_unknown(tmp_path: Path) -> None:
    model = ScriptedModel(replies=[Reply(text="A", cost_usd=None)])
    await ask(tmp_path, model)
    assert (await ask(tmp_path, model)).cost_usd is None


@pytest.mark.parametrize(
    "other",
    [
        replace(PROMPT, messages=(Message(role="user", content="what?"),)),
        replace(PROMPT, messages=(Message(role="system", content="who?"),)),
        replace(PROMPT, max_output_tokens=101),
        replace(PROMPT, response_schema=ResponseSchema(name="x", schema={"type": "object"})),
        replace(PROMPT, sample=1),
    ],
)
async def test_another_question_is_asked(tmp_path: Path, other: Prompt) -> None:
    model = ScriptedModel(replies=["one", "two"])
    await ask(tmp_path, model)
    assert (await ask(tmp_path, model, other)).text == "two"


async def test_another_model_or_place_is_asked(tmp_path: Path) -> None:
    for name, place in (("m", ""), ("n", ""), ("m", "http://elsewhere")):
        model = ScriptedModel(replies=["x"], name=name)
        await ask(tmp_path, model, place=place)
        assert len(model.prompts) == 1


async def test_what_only_describes_the_prompt_does_not_matter(tmp_path: Path) -> None:
    model = ScriptedModel(replies=["one"])
    await ask(tmp_path, model)
    assert (await ask(tmp_path, model, replace(PROMPT, truncated=True, coverage=0.5))).text == "one"


async def test_a_failure_is_not_kept(tmp_path: Path) -> None:
    model = ScriptedModel(replies=[ModelError("gone", kind=ModelFailure.CONNECTION), "back"])
    with pytest.raises(ModelError):
        await ask(tmp_path, model)
    assert (await ask(tmp_path, model)).text == "back"


def test_a_file_that_is_no_cache_is_left_alone_and_said(tmp_path: Path) -> None:
    (tmp_path / "replies.sqlite3").write_text("my diary, not a database, " * 100)
    with pytest.raises(UnreadableInput, match="expected a cache"), open_cache(tmp_path):
        pass
    assert (tmp_path / "replies.sqlite3").read_text().startswith("my diary")


async def test_it_counts_what_it_answered(tmp_path: Path) -> None:
    model = ScriptedModel(replies=["one"])
    with open_cache(tmp_path) as cache:
        cached = CachedModel(model=model, cache=cache)
        await cached.complete(PROMPT)
        await cached.complete(PROMPT)
        assert (cache.found, cache.missed) == (1, 1)
        assert (cached.name, cached.context_tokens) == (model.name, model.context_tokens)
        assert cached.price(PROMPT) == 0.0


def test_the_place_is_the_base_urls_of_the_environment() -> None:
    found = place_of_models(
        {"OPENAI_API_BASE": "http://a", "OTHER": "x", "OPENAI_BASE_URL": "", "X_BASE_URL": "b"}
    )
    assert found == "OPENAI_API_BASE=http://a X_BASE_URL=b"
