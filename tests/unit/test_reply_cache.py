from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from analyzer.analyses.models.reply_cache import CacheUnusable, _prepare, cached, open_cache, place_of_models
from analyzer.analyses.models.scripted import ScriptedModel
from analyzer.inquiry.errors import ModelError, ModelFailure, UnreadableInput
from analyzer.inquiry.method import Message, Prompt, Reply, ResponseSchema

PROMPT = Prompt(messages=(Message(role="user", content="who?"),), max_output_tokens=100)


def fail(message: str) -> None:
    raise AssertionError(message)


async def ask(directory: Path, model: ScriptedModel, prompt: Prompt = PROMPT, place: str = "") -> Reply:
    with open_cache(directory, fail) as cache:
        return await cached(model, cache, place).complete(prompt)


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


def test_a_file_that_is_not_a_cache_is_refused_and_left_unchanged(tmp_path: Path) -> None:
    (tmp_path / "replies.sqlite3").write_text("my diary, not a database, " * 100)
    with pytest.raises(UnreadableInput, match="expected a cache"), open_cache(tmp_path, fail):
        pass
    assert (tmp_path / "replies.sqlite3").read_text().startswith("my diary")


async def test_it_counts_what_it_answered(tmp_path: Path) -> None:
    model = ScriptedModel(replies=["one"])
    with open_cache(tmp_path, fail) as cache:
        asked = cached(model, cache)
        await asked.complete(PROMPT)
        await asked.complete(PROMPT)
        assert (cache.found, cache.missed) == (1, 1)
        assert (asked.name, asked.context_tokens) == (model.name, model.context_tokens)
        assert asked.price(PROMPT) == 0.0


async def test_a_full_disk_is_reported_once_and_every_prompt_is_answered(tmp_path: Path) -> None:
    told: list[str] = []
    model = ScriptedModel(replies=["x" * 100_000, "two", "three", "four"])
    with open_cache(tmp_path, told.append) as cache:
        asked = cached(model, cache)
        pages = cache.database.execute("PRAGMA page_count").fetchone()[0]
        cache.database.execute(f"PRAGMA max_page_count={pages}")
        assert len((await asked.complete(PROMPT)).text) == 100_000
        assert [(await asked.complete(PROMPT)).text for _ in range(3)] == ["two", "three", "four"]
    assert len(told) == 1
    assert "no longer kept" in told[0]


async def test_a_disk_that_can_no_longer_be_read_costs_only_what_was_kept(tmp_path: Path) -> None:
    told: list[str] = []
    with open_cache(tmp_path, told.append) as cache:
        cache.database.execute("DROP TABLE replies")
        asked = cached(ScriptedModel(replies=["one", "two"]), cache)
        assert [(await asked.complete(PROMPT)).text for _ in range(2)] == ["one", "two"]
    assert len(told) == 1


def test_an_unwritable_place_is_reported_before_any_model_call(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(CacheUnusable, match=r"replies cannot be kept there.*--no-cache"),
        open_cache(tmp_path / "file", fail),
    ):
        pass
    (tmp_path / "kept" / "replies.sqlite3").mkdir(parents=True)
    with pytest.raises(CacheUnusable, match="unable to open"), open_cache(tmp_path / "kept", fail):
        pass


def test_a_read_only_cache_is_reported_too(tmp_path: Path) -> None:
    with open_cache(tmp_path, fail) as cache:
        path = cache.database.execute("PRAGMA database_list").fetchone()[2]
    read_only = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    with pytest.raises(CacheUnusable, match="readonly"):
        _prepare(read_only, Path(path))
    read_only.close()


def test_the_place_is_the_base_urls_of_the_environment() -> None:
    found = place_of_models(
        {"OPENAI_API_BASE": "http://a", "OTHER": "x", "OPENAI_BASE_URL": "", "X_BASE_URL": "b"}
    )
    assert found == "OPENAI_API_BASE=http://a X_BASE_URL=b"
