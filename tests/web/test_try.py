"""Try it: a file is analysed for the browser that sent it, within bounds; invalid files are reported."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import re
import threading
from dataclasses import replace
from functools import partial
from threading import Event
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import CookieJar, FormData
from aiohttp.test_utils import TestClient, TestServer
from aiohttp.web import Application, Request
from hypothesis import given, settings
from hypothesis import strategies as st
from yarl import URL

from analyzer.analyses.analyst import RunAnalyst
from analyzer.analyses.models.scripted import ScriptedModel
from analyzer.analyses.opinions import LocalOpinions
from analyzer.inquiry.errors import AnalyzerError
from analyzer.methods.attribution import Attributor
from analyzer.methods.choice import Choice, Offer
from analyzer.recordings.file_bytes import unpack
from analyzer.recordings.uploads import MAX_UNPACKED, read_runs
from analyzer.web.app import make_app
from analyzer.web.pages.try_page import MAX_UPLOAD, MOST_FILES, MOST_REFERENCE
from analyzer.web.requested_analyses import Asked, JobLimits, Jobs, JobState, TooBusy
from collector_processor.otlp import NO_TENANT, Tenant
from collector_processor.rebuild.redaction import ALL_KINDS, Cleaner, make_redactor
from semconv.model import Trajectory
from semconv.record import replace as with_changes
from tests.runs import failed_tool, run, step
from tests.shown import fixtures
from tests.web.stage import Stage, read_here

Client = TestClient[Request, Application]
OURS = {"Sec-Fetch-Site": "same-origin"}
LOG = {
    "history": [
        {"role": "user", "name": "planner", "content": "add 2 and 2"},
        {"role": "assistant", "name": "clerk", "content": "2 + 2 = 5"},
    ],
    "question": "2 + 2?",
}
RUN = run(step("planner", "go"), failed_tool("clerk"), step("writer", "sorry, I could not"), task="t")


def form(data: bytes, **fields: str) -> FormData:
    sent = FormData()
    sent.add_field("file", io.BytesIO(data), filename=fields.pop("name", "run.json"))
    for name, value in {"method": "signals", **fields}.items():
        sent.add_field(name, value)
    return sent


async def body_of(client: Client, path: str) -> str:
    async with client.get(path) as answer:
        return await answer.text()


async def ended(client: Client, path: str) -> str:
    async with asyncio.timeout(300):
        while True:
            async with client.get(f"{path}/state") as answer:
                if (await answer.json())["over"]:
                    break
            await asyncio.sleep(0.02)
    async with client.get(path) as answer:
        return await answer.text()


async def sent(client: Client, data: bytes, **fields: str) -> str:
    async with client.post("/try", data=form(data, **fields), headers=OURS, allow_redirects=False) as answer:
        assert answer.status == 303, await answer.text()
        return answer.headers["Location"]


async def test_a_conversation_is_analysed(client: Client) -> None:
    page = await ended(client, await sent(client, json.dumps(LOG).encode()))
    assert '<svg class="picture"' in page
    assert "broke it at" in page or "No agent can be blamed" in page


async def test_a_form_without_a_method_leaves_the_choice_to_us(client: Client) -> None:
    page = await ended(client, await sent(client, json.dumps(LOG).encode(), method=""))
    assert '<svg class="picture"' in page


async def test_a_packed_trace_is_analysed(client: Client) -> None:
    path = next(path for path in fixtures() if path.name.startswith("own_instrument"))
    page = await ended(client, await sent(client, path.read_bytes(), failed="yes"))
    assert '<svg class="picture"' in page


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"{}", "expected OTLP"),
        (b"not a file", "expected OTLP"),
        (b"\x1f\x8bbroken", "broken gzip"),
        (b'{"resourceSpans": []}', "holds no run"),
        (b"[" * 100_000, ""),
    ],
)
async def test_a_file_without_a_run_is_reported(client: Client, data: bytes, said: str) -> None:
    page = await ended(client, await sent(client, data, name="<script>alert(1)</script>"))
    assert 'role="alert"' in page
    assert said in page
    assert "<script>alert" not in page


async def test_each_browser_sees_only_its_own(stage: Stage) -> None:
    server = TestServer(make_app(stage.parts()))
    async with TestClient(server, cookie_jar=CookieJar(unsafe=True)) as one:
        path = await sent(one, json.dumps(LOG).encode())
        await ended(one, path)
        stranger = TestClient(server, cookie_jar=CookieJar(unsafe=True))
        await sent(stranger, json.dumps(LOG).encode())
        for asked in (path, f"{path}/state"):
            async with stranger.get(asked) as answer:
                assert answer.status == 404
        async with stranger.get("/try") as answer:
            assert path not in await answer.text()
        async with one.get("/try") as answer:
            assert path in await answer.text()
        await stranger.session.close()


@pytest.mark.parametrize(
    ("fields", "data", "status", "said"),
    [
        ({}, b"", 400, "expected a file that is not empty"),
        ({}, b"x" * (MAX_UPLOAD + 1), 413, "too large: expected at most 8 MiB"),
        ({"method": "judge"}, b"{}", 400, "method: expected one of"),
        ({"method": "x" * 10_000}, b"{}", 413, "too large"),
        ({"reference": "x" * (MOST_REFERENCE + 1)}, b"{}", 400, "reference: expected at most"),
        ({"method": "<script>alert(1)</script>"}, b"{}", 400, "method: expected one of"),
    ],
)
async def test_errors_of_the_form_are_shown_above_it(
    client: Client, fields: dict[str, str], data: bytes, status: int, said: str
) -> None:
    browser = OURS | {"Accept": "text/html"}
    async with client.post("/try", data=form(data, **fields), headers=browser) as answer:
        page = await answer.text()
        assert answer.status == status
    assert re.search(rf'role="alert">{re.escape(said)}', page)
    assert 'id="drop"' in page
    assert 'href="/try"' in page
    assert "<script>alert" not in page


async def test_a_body_that_is_not_a_form_is_refused(client: Client) -> None:
    async with client.post("/try", data=b"{}", headers=OURS | {"Content-Type": "application/json"}) as answer:
        assert answer.status == 415
    broken = OURS | {"Content-Type": "multipart/form-data; boundary=x"}
    async with client.post("/try", data=b"--x\r\nnonsense", headers=broken) as answer:
        assert answer.status == 400


async def test_no_file_unpacks_without_bound() -> None:
    with pytest.raises(Exception, match="unpacks to more than"):
        unpack(gzip.compress(b"\0" * (MAX_UNPACKED + 1), 9), MAX_UNPACKED)
    two = gzip.compress(b"\0" * (MAX_UNPACKED // 2 + 1), 9)
    with pytest.raises(Exception, match="unpacks to more than"):
        unpack(two + two, MAX_UNPACKED)
    assert unpack(gzip.compress(b"a") + gzip.compress(b"b"), MAX_UNPACKED) == b"ab"


async def test_a_kept_run_is_analysed_again_by_another_method(stage: Stage, client: Client) -> None:
    await stage.add(RUN, "shop")
    before = stage.verdicts.starting_with("", None, 5)
    data = {"method": "signals"}
    async with client.post("/runs/run-1/again", data=data, headers=OURS, allow_redirects=False) as answer:
        path = answer.headers["Location"]
    page = await ended(client, path)
    assert "run run-1" in page
    assert "A second opinion" in page
    assert 'href="/runs/run-1"' in page
    assert stage.verdicts.starting_with("", None, 5) == before  # an opinion is no verdict


async def test_a_run_without_a_finding_lists_the_checks_and_offers_it_failed(
    stage: Stage, client: Client
) -> None:
    fine = run(
        step("planner", "go"), step("writer", "The ferry is late."), task="t", output="The ferry is late."
    )
    found = await RunAnalyst(attributor=Attributor()).analyse(fine)
    await stage.add(fine, "shop", found.attribution)
    async with client.get("/runs/run-1") as answer:
        page = await answer.text()
    assert "<dt>What was checked</dt>" in page
    assert "<li>The final answer was not compared with the tools&#39; results: none is recorded.</li>" in page
    button = page.partition("<button>It failed</button>")[0].rpartition("<form")[2]
    data = dict(re.findall(r'name="(\w+)" value="(\w+)"', button))
    assert data == {"method": "auto", "failed": "yes"}
    async with client.post("/runs/run-1/again", data=data, headers=OURS, allow_redirects=False) as answer:
        judged = await ended(client, answer.headers["Location"])
    assert "No sign of failure" not in judged
    assert "writer" in judged


SECRET = "AKIA" + "Q7" * 8


@pytest.mark.parametrize("sees", [True, False])
async def test_a_method_sees_the_expected_answer_only_if_a_person_says_so(
    stage: Stage,
    sees: bool,
) -> None:
    await stage.add(RUN, "shop")
    pages = stage.parts().pages
    model = ScriptedModel(replies=["{}"] * 50, name="m")
    jobs = Jobs(LocalOpinions(analyst=RunAnalyst(attributor=Attributor(model=model))), read_here)
    async with TestClient(
        TestServer(make_app(stage.parts(pages=replace(pages, jobs=jobs)))), cookie_jar=CookieJar(unsafe=True)
    ) as client:
        shown = {"with_reference": "yes"} if sees else {}
        chosen = {"method": "all-at-once", "reference": " <b>42 crates", **shown}
        page = await ended(client, await sent(client, json.dumps(LOG).encode(), failed="yes", **chosen))
        assert "<b>42 crates" not in page
        assert '<h2>The expected answer</h2><pre tabindex="0">&lt;b&gt;42 crates</pre>' in page
        assert ("method all-at-once+reference" in page) is sees
        async with client.post(
            "/runs/run-1/again", data=chosen, headers=OURS, allow_redirects=False
        ) as answer:
            await ended(client, answer.headers["Location"])
        told = [str(prompt) for prompt in model.prompts]
        assert told
        assert {"42 crates" in text for text in told} == {sees}
        chosen["reference"] = "x" * (MOST_REFERENCE + 1)
        async with client.post("/runs/run-1/again", data=chosen, headers=OURS) as answer:
            assert (answer.status, "reference: expected at most" in await answer.text()) == (400, True)


async def test_a_refused_second_opinion_is_told_on_the_runs_page(stage: Stage, client: Client) -> None:
    odd = "a/b <i>&é"
    await stage.add(with_changes(RUN, run_id=odd), "shop")
    path = f"/runs/{quote(odd, safe='')}"
    data, headers = {"method": "no-such"}, OURS | {"Accept": "text/html"}
    async with client.post(URL(f"{path}/again", encoded=True), data=data, headers=headers) as answer:
        page = await answer.text()
        assert answer.status == 400
    told = page.partition('<h2 id="again">')[2].partition("<form")[0]
    assert re.search(r'role="alert">method: expected', told), told
    assert 'id="step-0"' in page
    link = URL(f"{path}/again?step=1", encoded=True)
    async with client.get(link, allow_redirects=False) as answer:
        assert (answer.status, URL(answer.headers["Location"]).path_qs) == (
            303,
            URL(f"{path}?step=1").path_qs,
        )
    async with client.post("/runs/none/again", data=data, headers=headers) as answer:
        assert (answer.status, "no such run" in await answer.text()) == (404, True)
    async with client.post(URL(f"{path}/again", encoded=True), data=data, headers=OURS) as answer:
        assert (answer.status, answer.content_type) == (400, "text/plain")


def test_an_expected_answer_is_cleaned_like_the_run() -> None:
    clean = Cleaner(make_redactor(ALL_KINDS, ()))
    (found,) = read_runs([json.dumps(LOG).encode()], clean, reference=f"it is {SECRET}")
    assert found.reference is not None
    assert SECRET not in found.reference


async def test_a_run_whose_answer_is_not_the_expected_one_has_failed(client: Client) -> None:
    path = next(path for path in fixtures() if path.name == "ag2_native-sound.json.gz")
    for reference, passes in (("", True), ("an answer that the run does not give", False)):
        page = await ended(client, await sent(client, path.read_bytes(), reference=reference))
        assert ("Nothing broke" in page or "No sign of failure" in page) is passes


async def test_an_error_is_a_page_for_a_browser_and_a_sentence_for_a_program(client: Client) -> None:
    for path in ("/runs/%3Cb%3Enone", "/issues/none", "/no-such-page"):
        async with client.get(path, headers={"Accept": "text/html,*/*"}) as answer:
            page = await answer.text()
            assert (answer.status, answer.content_type, 'role="alert"' in page) == (404, "text/html", True)
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        async with client.get(path) as answer:
            assert (answer.status, answer.content_type) == (404, "text/plain")


async def test_files_are_read_together_with_their_logs(client: Client) -> None:
    whole = next(
        text for one in fixtures() if "resourceLogs" in (text := gzip.decompress(one.read_bytes()).decode())
    )
    parts = [json.loads(line) for line in whole.splitlines() if line.strip()]
    traces = {"resourceSpans": [one for part in parts for one in part.get("resourceSpans", [])]}
    logs = {"resourceLogs": [one for part in parts for one in part.get("resourceLogs", [])]}
    several = FormData({"method": "signals", "failed": "yes"})
    for name, document in (("run.json", traces), ("run.logs.json", logs)):
        several.add_field("file", json.dumps(document).encode(), filename=name)
    async with client.post("/try", data=several, headers=OURS, allow_redirects=False) as answer:
        assert answer.status == 303, await answer.text()
        page = await ended(client, answer.headers["Location"])
    assert '<svg class="picture"' in page
    assert "run.json, run.logs.json" in page


async def test_of_several_files_the_readable_ones_are_analysed_and_the_others_named(client: Client) -> None:
    several = FormData({"method": "signals"})
    for name, data in (("a.json", json.dumps(LOG).encode()), ("b.txt", b"<i>hello"), ("c.json", b"{")):
        several.add_field("file", data, filename=name)
    async with client.post("/try", data=several, headers=OURS, allow_redirects=False) as answer:
        page = await ended(client, answer.headers["Location"])
    assert '<svg class="picture"' in page
    assert "Left out file 2 of 3: XML or HTML, not JSON" in page
    assert "Left out file 3 of 3: broken JSON" in page


async def test_a_file_that_cannot_be_unpacked_leaves_the_others_to_be_analysed(client: Client) -> None:
    several = FormData({"method": "signals"})
    for data in (b"PK\x03\x04", gzip.compress(b"a")[:-4], b"PAR1", json.dumps(LOG).encode()):
        several.add_field("file", data, filename="a")
    async with client.post("/try", data=several, headers=OURS, allow_redirects=False) as answer:
        page = await ended(client, answer.headers["Location"])
    assert '<svg class="picture"' in page
    for told in ("1 of 4: a zip archive", "2 of 4: broken gzip", "3 of 4: Parquet is read by the command"):
        assert f"Left out file {told}" in page


async def test_too_many_files_are_refused(client: Client) -> None:
    many = FormData({"method": "signals"})
    for number in range(MOST_FILES + 1):
        many.add_field("file", b"{}", filename=f"{number}")
    async with client.post("/try", data=many, headers=OURS) as answer:
        assert (answer.status, "at most" in await answer.text()) == (400, True)


ASKED = asyncio.Event()


class Slow(LocalOpinions):
    """Analyses that end only if they are cancelled."""

    async def ask(self, _trajectory: Trajectory, _choice: Choice, called: Any, _earned: Any = None) -> Any:
        called(1, 0.5)
        called(0, -0.25)
        ASKED.set()
        await asyncio.Event().wait()


async def test_a_jobs_page_shows_its_time_and_cost_and_cancels_it(stage: Stage) -> None:
    pages, now = stage.parts().pages, [10.0]
    jobs = Jobs(Slow(analyst=RunAnalyst(attributor=Attributor())), read_here, clock=lambda: now[0])
    async with TestClient(
        TestServer(make_app(stage.parts(pages=replace(pages, jobs=jobs)))), cookie_jar=CookieJar(unsafe=True)
    ) as client:
        path = await sent(client, json.dumps(LOG).encode())
        job = jobs._all.get(path.rpartition("/")[2])
        assert job is not None
        await ASKED.wait()
        now[0] = 22.5
        state = json.loads(await body_of(client, f"{path}/state"))
        assert (state["calls"], state["cost_usd"], state["elapsed_s"]) == (1, 0.25, 12.5)
        assert state["spent"] == "12.5 s, 1 model call, $0.2500"
        shown = await body_of(client, path)
        assert state["spent"] in shown
        assert f'content="2;url={path}"' in shown, "an address with a fragment would not be loaded again"
        async with client.post(f"{path}/cancel", headers={"Origin": "http://evil.example"}) as answer:
            assert answer.status == 403
        async with client.post(f"{path}/cancel", headers=OURS) as answer:
            page = await answer.text()
        assert "Cancelled." in page
        now[0] = 99.0
        assert json.loads(await body_of(client, f"{path}/state"))["elapsed_s"] == 12.5
        await asyncio.gather(*jobs._tasks, return_exceptions=True)
        assert job.state is JobState.CANCELLED


def asked(load: Any, size: int = 1) -> Asked:
    return Asked(name="n", choice=Choice(method="signals", takes_as_failed=True), size=size, load=load)


async def settled(jobs: Jobs) -> None:
    await asyncio.wait_for(asyncio.gather(*jobs._tasks, return_exceptions=True), 60)


def jobs_with(**limits: int) -> Jobs:
    return Jobs(LocalOpinions(analyst=RunAnalyst(attributor=Attributor())), read_here, JobLimits(**limits))


async def test_the_page_with_the_form_loads_what_an_analysis_needs(stage: Stage) -> None:
    prepared, opened = asyncio.Event(), list[str]()

    async def prepare() -> None:
        opened.append("once")
        await prepared.wait()

    opinions = LocalOpinions(analyst=RunAnalyst(attributor=Attributor()))
    jobs = Jobs(opinions, read_here, prepare=prepare)
    pages = replace(stage.parts().pages, jobs=jobs)
    async with TestClient(TestServer(make_app(stage.parts(pages=pages)))) as client:
        for _ in range(2):
            async with client.get("/try") as answer:
                assert answer.status == 200, "the page does not wait for it"
        prepared.set()
        assert opened == ["once"]
        await jobs.close()


async def test_waiting_jobs_are_bounded() -> None:
    jobs = jobs_with(at_once=1, waiting=1, of_a_session=5)
    for _ in range(2):
        jobs.start("me", asked(lambda: [RUN]))
    with pytest.raises(TooBusy):
        jobs.start("me", asked(lambda: [RUN]))
    await settled(jobs)
    jobs.start("me", asked(lambda: [RUN]))
    await settled(jobs)
    assert {job.state for job in jobs.of("me")} == {JobState.DONE}


async def test_the_oldest_jobs_are_dropped_first() -> None:
    jobs = jobs_with(of_a_session=3, bytes=40_000)
    for _ in range(5):
        jobs.start("me", asked(lambda: [RUN], size=8_000))
        await settled(jobs)
    assert len(jobs.of("me")) == 3
    jobs.start("you", asked(lambda: [RUN], size=36_000))
    assert jobs.of("me") == []
    with pytest.raises(TooBusy):
        jobs.start("you", asked(lambda: [RUN], size=36_000))
    await settled(jobs)


async def test_a_deletion_drops_no_other_tenants_second_opinions() -> None:
    jobs = jobs_with(of_a_session=5)
    ours, theirs = Tenant("org=ours"), Tenant("org=theirs")
    for tenant in (ours, theirs):
        jobs.start("me", replace(asked(lambda: [RUN]), run_id="run-1", tenant=tenant))
    jobs.start("me", asked(lambda: [RUN]))
    await settled(jobs)
    jobs.forget(ours, "run-2")
    assert len(jobs.of("me")) == 3
    jobs.forget(ours, None)
    assert {job.asked.run_id: job.asked.tenant for job in jobs.of("me")} == {"run-1": theirs, "": NO_TENANT}


async def test_the_job_that_ended_first_is_dropped_first() -> None:
    """Not the one asked for first, whose result may be seconds old."""
    jobs, go_on = jobs_with(bytes=20_000), Event()

    def late() -> list[Trajectory]:
        assert go_on.wait(60)
        return [RUN]

    slow = jobs.start("me", asked(late, size=8_000))
    quick = jobs.start("me", asked(lambda: [RUN], size=8_000))
    jobs.cancel(quick)
    go_on.set()
    await settled(jobs)
    jobs.start("me", asked(lambda: [RUN], size=8_000))
    assert jobs.find("me", quick.id) is None
    assert jobs.find("me", slow.id) is slow
    await settled(jobs)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 24_000), st.sampled_from(["run", "cancel"])))
)
@settings(deadline=None, max_examples=25)
def test_the_memory_and_the_number_of_jobs_stay_bounded(story: list[tuple[str, int, str]]) -> None:
    """Whatever starts, grows while it is read, is cancelled, or makes room."""

    async def play() -> None:
        jobs = jobs_with(of_a_session=2, remembered=4, bytes=48_000)
        for owner, size, end in story:
            try:
                job = jobs.start(owner, asked(lambda: [RUN], size=size))
            except TooBusy:
                await settled(jobs)
                continue
            if end == "cancel":
                jobs.cancel(job)
                jobs.cancel(job)
            elif size % 2:
                await settled(jobs)
            bounded(jobs, "abc")
        await settled(jobs)
        bounded(jobs, "abc")
        assert all(job.is_over for owner in "abc" for job in jobs.of(owner))
        await jobs.close()

    asyncio.run(play())


def bounded(jobs: Jobs, owners: str) -> None:
    held = [job for owner in owners for job in jobs.of(owner)]
    assert sum(job.asked.size for job in held) <= 48_000
    assert all(len(jobs.of(owner)) <= 3 for owner in owners)  # two in progress, beside the last that ended
    assert all(jobs.find(job.owner, job.id) is job for job in held)


async def test_our_own_bug_ends_one_job_and_reveals_nothing() -> None:
    def broken() -> list[Trajectory]:
        raise KeyError("/secret/path")

    jobs = jobs_with()
    job = jobs.start("me", asked(broken))
    await settled(jobs)
    assert job.state is JobState.FAILED
    assert "secret" not in job.error


async def test_a_page_shows_one_state_of_an_analysis_throughout() -> None:
    """Otherwise one that ends meanwhile would be neither running nor shown, and never be read again."""
    jobs = jobs_with()
    job = jobs.start("me", asked(lambda: [RUN]))
    seen = job.as_of_now()
    await settled(jobs)
    assert job.is_over
    assert (seen.is_over, seen.found) == (False, [])


class Away(LocalOpinions):
    """An unreachable service."""

    async def offer(self) -> Offer:
        raise AnalyzerError("timeout")


async def test_without_an_analyzer_the_pages_say_so_and_show_the_rest(stage: Stage) -> None:
    await stage.add(RUN, "shop")
    pages = stage.parts().pages
    jobs = Jobs(Away(analyst=RunAnalyst(attributor=Attributor())), read_here)
    async with TestClient(TestServer(make_app(stage.parts(pages=replace(pages, jobs=jobs))))) as client:
        for path in ("/try", "/runs/run-1"):
            async with client.get(path) as answer:
                page = await answer.text()
                assert answer.status == 200
            assert "No analyzer answers at the moment (timeout)" in page
            assert ">Analyse<" not in page
        async with client.post("/try", data=form(b"{}"), headers=OURS) as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (503, "10")


async def test_a_model_is_chosen_from_those_the_operator_named_and_no_other(stage: Stage) -> None:
    await stage.add(RUN, "shop")
    pages = stage.parts().pages
    cheap = ScriptedModel(replies=["{}"] * 50, name="cheap")
    analyst = RunAnalyst(attributor=Attributor())
    jobs = Jobs(LocalOpinions(analyst=analyst, models={"cheap": cheap}), read_here)
    async with TestClient(
        TestServer(make_app(stage.parts(pages=replace(pages, jobs=jobs)))),
        cookie_jar=CookieJar(unsafe=True),
    ) as client:
        async with client.get("/runs/run-1") as answer:
            assert '<option value="cheap">' in await answer.text()
        for model in ("http://169.254.169.254/", "openai/gpt-9", "Cheap"):
            data = {"method": "judge", "model": model}
            async with client.post("/runs/run-1/again", data=data, headers=OURS) as answer:
                assert answer.status == 400
                assert "model: expected one of cheap" in await answer.text()
        data = {"method": "judge", "model": "cheap"}
        async with client.post("/runs/run-1/again", data=data, headers=OURS, allow_redirects=False) as answer:
            path = answer.headers["Location"]
        assert "judge with cheap" in await ended(client, path)
    assert cheap.prompts


async def test_a_file_is_read_to_its_end_before_the_next_even_if_its_job_timed_out() -> None:
    """Otherwise abandoned files take all threads of the service, and spans and verdicts wait for them."""
    jobs, begun, end = jobs_with(), list[int](), threading.Event()

    def read(number: int) -> list[Trajectory]:
        begun.append(number)
        end.wait(60)
        return [RUN]

    for number in range(3):
        jobs.start("me", replace(asked(partial(read, number)), timeout_s=0.01))
    await settled(jobs)
    assert {job.error for job in jobs.of("me")} == {"timed out after 0.01 seconds"}
    end.set()
    job = jobs.start("me", asked(lambda: [RUN]))
    await settled(jobs)
    assert (job.state, len(begun) <= 1) == (JobState.DONE, True), begun


async def test_the_unpacked_size_of_a_small_file_counts() -> None:
    large = run(step("planner", "x" * 10_000), task="t")
    jobs = jobs_with(bytes=25_000)
    for owner in ("me", "you", "them"):
        jobs.start(owner, asked(lambda: [large], size=1))
        await settled(jobs)
    assert [len(jobs.of(owner)) for owner in ("me", "you", "them")] == [0, 1, 1]
