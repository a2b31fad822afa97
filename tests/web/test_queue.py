"""The page and the API that ask for labels: one question at a time, some of them without the verdict."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from html import unescape
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from aiohttp.web import Application, Request

from analyzer.issues.labels.queue import is_blind, is_random
from analyzer.web.app import make_app
from analyzer.web.pages.queue_page import curve_of
from semconv.model import Blame, Proof, ProofDecision
from tests.security.test_hostile_text import HOSTILE, hostile_run
from tests.web.stage import Stage
from tests.web.test_pages import OURS, RUN, Page, blame

Client = TestClient[Request, Application]


def ids(*, random: bool, blind: bool, n: int = 12) -> list[str]:
    """Return ids of runs that are, or are not, random and blind."""
    found = (f"run-{number}" for number in range(50_000))
    return [each for each in found if (is_random(("", each)), is_blind(("", each))) == (random, blind)][:n]


SEEN = ids(random=False, blind=False)
BLIND = ids(random=False, blind=True)


@pytest.fixture
async def client(stage: Stage) -> AsyncIterator[Client]:
    async with TestClient(TestServer(make_app(stage.parts()))) as opened:
        yield opened


async def add(stage: Stage, run_id: str, confidence: float = 0.7, proof: Proof | None = None) -> None:
    run = replace(RUN, run_id=run_id)
    told = blame(run, 1, "a reason that nobody else gives")
    assert isinstance(told.verdict, Blame)
    ranking = (replace(told.verdict.ranking[0], probability=confidence),)
    verdict = replace(told.verdict, confidence=confidence, ranking=ranking)
    await stage.add(run, "shop", replace(told, verdict=verdict, proof=proof))


async def page(client: Client, path: str = "/queue") -> str:
    async with client.get(path, headers={"Accept": "text/html"}) as answer:
        assert answer.status == 200, await answer.text()
        text = await answer.text()
    Page(text)
    return unescape(text)


async def queue(client: Client, path: str = "/api/queue") -> Any:
    async with client.get(path) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.json()


async def test_the_most_doubtful_run_is_asked_about_first(client: Client, stage: Stage) -> None:
    await add(stage, SEEN[0], 0.95)
    await add(stage, SEEN[1], 0.3)
    found = await queue(client)
    assert [each["run_id"] for each in found["questions"]] == [SEEN[1], SEEN[0]]
    assert found["questions"][0]["agent"] == "clerk"
    assert (found["questions"][0]["why"], found["answered"]) == ("uncertain", 0)
    assert SEEN[1] in await page(client)
    assert SEEN[0] in await page(client, "/queue?skip=1")


async def test_an_answer_leads_to_the_next_question(client: Client, stage: Stage) -> None:
    await add(stage, SEEN[0], 0.95)
    await add(stage, SEEN[1], 0.3)
    form = {"answer": "step", "step": "2", "next": "queue"}
    async with client.post(
        f"/runs/{SEEN[1]}/label", data=form, headers=OURS, allow_redirects=False
    ) as answer:
        assert (answer.status, answer.headers["Location"]) == (303, "/queue?said=label")
    shown = await page(client)
    assert SEEN[0] in shown
    assert "1 of the newest failed runs has an answer" in shown
    assert (await queue(client))["answered"] == 1


async def test_a_blind_question_shows_nothing_of_the_verdict(client: Client, stage: Stage) -> None:
    await add(stage, BLIND[0])
    (question,) = (await queue(client))["questions"]
    assert question["blind"]
    assert [question[name] for name in ("status", "agent", "step", "confidence")] == [None] * 4
    shown = await page(client)
    assert "hidden until you answer" in shown
    assert "a reason that nobody else gives" not in shown
    assert 'value="right"' not in shown
    assert "decisive" not in shown
    assert f'href="/runs/{BLIND[0]}"' not in shown
    assert "TimeoutError: gone" in shown  # the run itself is there


async def test_a_shown_verdict_is_answered_by_one_button(client: Client, stage: Stage) -> None:
    await add(stage, SEEN[0])
    shown = await page(client)
    assert "a reason that nobody else gives" in shown
    assert 'value="right"' in shown
    assert 'name="next" value="queue"' in shown


async def test_an_experiment_answers_instead_of_a_person(client: Client, stage: Stage) -> None:
    proof = Proof(
        decision=ProofDecision.PROVED,
        step=1,
        span_id=None,
        effect=0.7,
        interval=(0.2, 0.9),
        trials=20,
        change="resample",
    )
    await add(stage, SEEN[0], proof=proof)
    found = await queue(client)
    assert (found["questions"], found["answered"], found["proved"]) == ([], 1, 1)
    assert "1 of them from an experiment" in await page(client)


async def test_a_refutation_answers_no_question(client: Client, stage: Stage) -> None:
    proof = Proof(
        decision=ProofDecision.REFUTED,
        step=2,
        span_id=None,
        effect=0.0,
        interval=(-0.3, 0.3),
        trials=20,
        change="resample",
    )
    await add(stage, SEEN[0], proof=proof)
    assert [each["run_id"] for each in (await queue(client))["questions"]] == [SEEN[0]]


async def test_a_verdict_that_is_damaged_on_disk_is_not_asked_about(client: Client, stage: Stage) -> None:
    await add(stage, SEEN[0])
    await add(stage, SEEN[1])
    with stage.verdicts.transaction():
        stage.verdicts._db.execute("UPDATE verdict SET status = 'attrib\x01ted' WHERE run_id = ?", (SEEN[0],))
        stage.verdicts._db.execute("UPDATE verdict SET document = '{[' WHERE run_id = ?", (SEEN[1],))
    assert [each["run_id"] for each in (await queue(client))["questions"]] == [SEEN[1]]
    assert SEEN[1] in await page(client)


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("run_id", [SEEN[0], BLIND[0]])
async def test_no_text_of_a_run_changes_the_page(
    client: Client, stage: Stage, name: str, run_id: str
) -> None:
    text = HOSTILE[name]
    hostile = replace(hostile_run(text), run_id=run_id, task=text, output=text)
    await stage.add(hostile, text or "x", blame(hostile, 2, reason=text))
    async with client.get("/queue") as answer:
        assert answer.status == 200
        assert "unsafe" not in answer.headers["Content-Security-Policy"]
        shown = Page(await answer.text())
    assert shown.tags.count("script") == 2
    assert not {name for name in shown.attributes if name.startswith("on") or name == "style"}
    assert {"img", "iframe", "object"}.isdisjoint(shown.tags)


async def test_an_empty_queue_says_so(client: Client) -> None:
    assert (await queue(client))["questions"] == []
    assert "Nothing to label" in await page(client)
    assert "No further run" in await page(client, "/queue?skip=3")


@pytest.mark.parametrize(
    "path", ["/queue?skip=-1", "/queue?skip=x", "/api/queue?limit=0", "/api/queue?limit=51"]
)
async def test_an_invalid_number_is_refused(client: Client, path: str) -> None:
    async with client.get(path) as answer:
        assert answer.status == 400


def test_the_learning_curve_ends_with_all_labels() -> None:
    line = {"subset": "total", "step_accuracy": 0.5, "step_accuracy_ci": [0.4, 0.6]}
    card = {"labels": 60, "learning_curve": [{"labels": 10, **line}], "in_distribution": [line]}
    assert [each["labels"] for each in curve_of(card)] == [10, 60]
    assert curve_of({}) == []
    assert curve_of({"learning_curve": [{"labels": 10}]}) == []


async def test_the_page_shows_the_learning_curve(stage: Stage) -> None:
    parts = stage.parts()
    assert parts.pages is not None
    line = {"subset": "total", "step_accuracy": 0.5, "step_accuracy_ci": [0.4, 0.6]}
    pages = replace(parts.pages, card={"labels": 60, "in_distribution": [line]})
    async with TestClient(TestServer(make_app(replace(parts, pages=pages)))) as client:
        assert "<td>60</td>" in await page(client)
