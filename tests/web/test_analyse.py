"""POST /api/analyse: a trace in, verdicts or a job out; what is no trace is refused, within bounds."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
from dataclasses import replace

import pytest
import zstandard
from aiohttp.test_utils import TestClient, TestServer
from aiohttp.web import Application, Request

from analyzer.analyses.analyst import RunAnalyst
from analyzer.analyses.models.scripted import ScriptedModel
from analyzer.analyses.opinions import LocalOpinions
from analyzer.inquiry.method import DelegatingModel, Prompt, Reply
from analyzer.methods.attribution import Attributor
from analyzer.methods.choice import Choice
from analyzer.web.app import make_app
from analyzer.web.pages.try_page import MAX_UPLOAD
from analyzer.web.requested_analyses import Jobs
from semconv.model import Status
from tests.shown import fixtures
from tests.web.stage import Stage, read_here
from tests.web.test_openapi import checked
from tests.web.test_try import LOG, RUN

Client = TestClient[Request, Application]
JSON = {"Content-Type": "application/json"}


async def test_a_trace_is_judged_in_one_request(client: Client) -> None:
    data = next(path for path in fixtures() if path.name == "ag2_native-crash.json.gz").read_bytes()
    plain = gzip.decompress(data)
    packed = ((data, "application/gzip"), (zstandard.compress(plain), "application/zstd"))
    for body, kind in (*packed, (plain, "application/json")):
        async with client.post("/api/analyse", data=body, headers={"Content-Type": kind}) as answer:
            found = await answer.json()
            checked("/api/analyse", "post", answer.status, answer.content_type).validate(found)
        assert (answer.status, found["state"], len(found["verdicts"])) == (200, "done", 1)
        assert found["verdicts"][0]["status"] == "attributed"


async def test_a_conversation_is_judged_and_nothing_is_stored(stage: Stage, client: Client) -> None:
    async with client.post("/api/analyse?method=signals", data=json.dumps(LOG), headers=JSON) as answer:
        (verdict,) = (await answer.json())["verdicts"]
    assert (verdict["method"], verdict["agent"]) == ("signals", "clerk")
    assert stage.verdicts.starting_with("", None, 1) == []


@pytest.mark.parametrize(
    ("query", "sees"),
    [("reference=42", True), ("reference=42&with_reference=false", False), ("with_reference=true", False)],
)
async def test_the_request_decides_whether_the_method_sees_the_expected_answer(
    stage: Stage,
    query: str,
    sees: bool,
) -> None:
    model = ScriptedModel(replies=["{}"] * 9, name="m")
    pages = stage.parts().pages
    jobs = Jobs(LocalOpinions(analyst=RunAnalyst(attributor=Attributor(model=model))), read_here)
    async with TestClient(TestServer(make_app(stage.parts(pages=replace(pages, jobs=jobs))))) as client:
        path = f"/api/analyse?method=all-at-once&failed=true&{query}"
        async with client.post(path, data=json.dumps(LOG), headers=JSON) as answer:
            (verdict,) = (await answer.json())["verdicts"]
        async with client.post("/api/analyse?with_reference=1", data=b"{}", headers=JSON) as answer:
            assert (answer.status, "with_reference: expected true" in await answer.text()) == (400, True)
    assert ("right answer is: 42" in str(model.prompts[0])) is sees
    assert verdict["method"] == ("all-at-once+reference" if sees else "all-at-once")


async def test_a_caller_that_does_not_wait_gets_a_job_that_only_its_id_opens(client: Client) -> None:
    async with client.post("/api/analyse?wait_s=0", data=json.dumps(LOG), headers=JSON) as answer:
        assert answer.status == 202
        place, job = answer.headers["Location"], await answer.json()
        checked("/api/analyse", "post", 202, "application/json").validate(job)
    async with asyncio.timeout(120):
        while not job["over"]:
            await asyncio.sleep(0.02)
            async with client.get(place) as answer:
                job = await answer.json()
                checked("/api/analyse/{job_id}", "get", 200, "application/json").validate(job)
    assert job["verdicts"][0]["agent"] == "clerk"
    secret, _, job_id = place.rpartition("/")[2].partition(".")
    for wrong in (f"x{secret}.{job_id}", f".{job_id}", job_id, secret):
        assert (await client.get(f"/api/analyse/{wrong}")).status == 404
    assert (await client.get(f"/try/{job_id}")).status == 404


@pytest.mark.parametrize(
    ("query", "body", "status", "told"),
    [
        pytest.param("", b"", 400, "expected a trace", id="empty"),
        pytest.param("", b"{", 422, "broken JSON", id="broken"),
        pytest.param("", b'{"resourceSpans": []}', 422, "no run", id="no run"),
        pytest.param("", gzip.compress(b"0" * (60 << 20)), 422, "MiB", id="bomb"),
        pytest.param("?methd=signals", b"{}", 400, "unknown parameter", id="misspelt"),
        pytest.param("?method=judge", b"{}", 400, "expected", id="no model"),
        pytest.param("?model=gpt-expensive", b"{}", 400, "expected", id="another model"),
        pytest.param("?budget_usd=nan", b"{}", 400, "budget_usd", id="no budget"),
        pytest.param("?deadline_s=901", b"{}", 400, "deadline_s", id="too long"),
        pytest.param("?wait_s=-1", b"{}", 400, "wait_s", id="before"),
        pytest.param("?failed=maybe", b"{}", 400, "failed", id="no truth"),
        pytest.param("", b" " * (MAX_UPLOAD + 1), 413, "MiB", id="large"),
        pytest.param("", b"[" * 100_000, 422, "", id="nested"),
    ],
)
async def test_a_body_that_is_not_a_trace_is_refused(
    client: Client, query: str, body: bytes, status: int, told: str
) -> None:
    async with client.post(f"/api/analyse{query}", data=io.BytesIO(body), headers=JSON) as answer:
        text = await answer.text()
    assert (answer.status, told in text) == (status, True), text
    checked("/api/analyse", "post", status, "text/plain").validate(text)


async def test_a_body_that_contradicts_its_content_encoding_is_refused(client: Client) -> None:
    headers = {**JSON, "Content-Encoding": "gzip"}
    async with client.post("/api/analyse", data=io.BytesIO(b"no gzip"), headers=headers) as answer:
        assert (answer.status, "Content-Encoding" in await answer.text()) == (400, True)


async def test_another_sites_page_cannot_send_one(client: Client) -> None:
    for kind in ("text/plain", "multipart/form-data", "application/x-www-form-urlencoded"):
        async with client.post("/api/analyse", data=b"{}", headers={"Content-Type": kind}) as answer:
            assert answer.status == 415
    async with client.post(
        "/api/analyse", data=b"{}", headers={**JSON, "Sec-Fetch-Site": "cross-site"}
    ) as answer:
        assert answer.status == 403


async def test_an_analysis_ends_at_its_deadline(stage: Stage) -> None:
    async def never(_prompt: Prompt) -> Reply:
        await asyncio.Event().wait()
        raise AssertionError

    model = DelegatingModel(model=ScriptedModel(replies=[]), ask=never)
    analyst = RunAnalyst(attributor=Attributor(model=model))
    parts = stage.parts()
    parts = replace(parts, pages=replace(parts.pages, jobs=Jobs(LocalOpinions(analyst=analyst), read_here)))
    async with TestClient(TestServer(make_app(parts))) as client:
        path = "/api/analyse?method=judge&deadline_s=0.2"
        async with client.post(path, data=json.dumps(LOG), headers=JSON) as answer:
            assert (answer.status, await answer.text()) == (422, "timed out after 0.2 seconds\n")
    parts.pages.runs.close()


async def test_a_budget_bounds_the_calls_of_a_run() -> None:
    model = ScriptedModel(replies=["No"] * 9, cost_usd=0.3)
    opinions = LocalOpinions(analyst=RunAnalyst(attributor=Attributor(model=model, budget_usd=None)))
    choice = Choice(method="step-by-step", takes_as_failed=True, budget_usd=0.7)
    found = await opinions.ask(RUN, choice, lambda _calls, _usd: None)
    assert len(model.prompts) == 2
    assert (found.status, "budget" in (found.error or "")) == (Status.ERROR, True)
    assert (
        await opinions.ask(RUN, replace(choice, budget_usd=0.0), lambda _calls, _usd: None)
    ).status is Status.ERROR
    assert len(model.prompts) == 2
