"""Runs are read over a backend's API: which page is asked for next, and what answers end it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from analyzer.cli.main import run
from analyzer.pulling import BACKENDS
from analyzer.pulling.backend import Ask, Backend, Conversation, Found, PullFailed, Wanted
from analyzer.pulling.client import Pulled, checked_url, pull
from analyzer.pulling.langfuse import LANGFUSE, pull_langfuse
from analyzer.pulling.langsmith import LANGSMITH, pull_langsmith
from analyzer.pulling.mlflow import MLFLOW, pull_mlflow
from analyzer.pulling.phoenix import PHOENIX, pull_phoenix
from analyzer.recordings.recording import read_as
from collector_processor.rebuild.stages import rebuild
from tests.backend_exports import EXAMPLES

PAST_NS = 1_790_000_000_123_456_789
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def played(talk: Conversation, answers: Iterable[Any]) -> tuple[list[Ask], list[Found]]:
    """Return what a backend asks for when it gets these answers, and what it finds."""
    asked, found = list[Ask](), list[Found]()
    given, answer = iter(answers), None
    try:
        while True:
            said = talk.send(answer)
            if isinstance(said, Ask):
                asked.append(said)
                answer = next(given)
            else:
                found.append(said)
                answer = None
    except StopIteration:
        return asked, found


def traces(*names: str, following: str | None = None) -> dict[str, Any]:
    return {"data": [{"trace_id": name, "project_id": "P1"} for name in names], "next_cursor": following}


def spans(*names: str, following: str | None = None) -> dict[str, Any]:
    return {"data": [{"id": name} for name in names], "next_cursor": following}


def infos(*names: str, following: str = "") -> dict[str, Any]:
    return {"traces": [{"trace_id": name} for name in names], "next_page_token": following}


def test_phoenix_reads_all_pages_of_traces_and_of_their_spans() -> None:
    first_page = [traces("a", "b", following="t2"), spans("1", following="s2"), spans("2")]
    answers = [*first_page, traces("c"), spans("3")]
    asked, found = played(pull_phoenix(Wanted(project="my shop/eu", since_ns=PAST_NS, limit=50)), answers)
    first = dict(asked[0].query)
    assert asked[0].path == "v1/projects/my%20shop%2Feu/traces"
    assert (first["start_time"], first["limit"]) == ("2026-09-21T14:13:20.123Z", "50")
    assert [dict(ask.query).get("cursor") for ask in asked] == [None, None, "s2", "t2", None]
    assert [value for name, value in asked[1].query if name == "trace_id"] == ["a", "b"]
    assert [one["id"] for each in found for one in each.records] == ["1", "2", "3"]
    assert found[0].links["a"] == "projects/P1/traces/a"


def test_no_more_runs_are_read_than_asked_for() -> None:
    asked, _ = played(pull_phoenix(Wanted(limit=2)), [traces("a", "b", "c", following="t2"), spans("1")])
    assert [value for name, value in asked[-1].query if name == "trace_id"] == ["a", "b"]
    answers = [infos("tr-a", "tr-b", following="t2"), {"traces": [{"spans": [{}]}]}]
    asked, _ = played(pull_mlflow(Wanted(limit=1)), answers)
    assert asked[-1].query == [("trace_ids", "tr-a")]


def test_mlflow_finds_the_experiment_by_name_then_its_pages() -> None:
    answers = [
        {"experiment": {"experiment_id": "7"}},
        infos("tr-a", following="t2"),
        {"traces": [{"trace_info": {}, "spans": [{}]}]},
        infos("tr-b"),
        {},
    ]
    asked, found = played(pull_mlflow(Wanted(project="shop", since_ns=PAST_NS, limit=9)), answers)
    assert asked[0].query == [("experiment_name", "shop")]
    bodies = [ask.body for ask in asked if ask.body is not None]
    assert [body.get("page_token") for body in bodies] == [None, "t2"]
    assert bodies[0]["locations"][0]["mlflow_experiment"] == {"experiment_id": "7"}
    assert bodies[0]["filter"] == "trace.timestamp_ms >= 1790000000123"
    assert found[0].links == {"a": "#/experiments/7/traces?selectedEvaluationId=tr-a"}
    assert len(found) == 1, "a trace whose spans are not in the store is not found"


TRACE = "0af7651916cd43dd8448eb211c80319c"
RUN = "0af76519-16cd-43dd-8448-eb211c80319c"


def steps_of(backend: Backend, found: Iterable[Found]) -> list[tuple[str, str]]:
    """Return trace id and output of each step of the runs that were found."""
    recordings = [read_as(backend.file_format, each.records) for each in found]
    runs = rebuild([request for each in recordings for request in each.traces])
    return [(str(step.trace_id), step.output) for run in runs for step in run.trajectory.steps]


def observation(name: str, kind: str = "SPAN", **more: Any) -> dict[str, Any]:
    times = {"startTime": "2026-11-29T07:00:00.000Z", "endTime": "2026-11-29T07:00:01.000Z"}
    return {"id": name, "traceId": TRACE, "projectId": "p 1", "type": kind, "name": name, **times, **more}


def listing(*found: Any, following: str | None = None) -> dict[str, Any]:
    return {"data": list(found), "meta": {"cursor": following}}


def test_langfuse_reads_the_newest_traces_and_all_their_observations() -> None:
    call = {"input": "2+2?", "output": "4", "model": "m", "parentObservationId": "top"}
    answers = [
        listing(observation("top"), following="r2"),
        listing(observation("top"), following="o2"),
        listing(observation("call", "GENERATION", **call)),
        listing(),
    ]
    asked, found = played(pull_langfuse(Wanted(since_ns=PAST_NS, limit=9)), answers)
    assert {ask.path for ask in asked} == {"api/public/v2/observations"}
    first = dict(asked[0].query)
    assert (first["isRootObservation"], first["fromStartTime"]) == ("true", "2026-09-21T14:13:20.123Z")
    assert [dict(ask.query).get("traceId") for ask in asked] == [None, TRACE, TRACE, None]
    assert [dict(ask.query).get("cursor") for ask in asked] == [None, None, "o2", "r2"]
    assert found[0].links == {TRACE: f"project/p%201/traces/{TRACE}"}
    assert steps_of(LANGFUSE, found) == [(TRACE, "4")]
    with pytest.raises(PullFailed, match="leave out --project"):
        played(pull_langfuse(Wanted(project="shop", limit=9)), [])


def smith_run(name: str, **more: Any) -> dict[str, Any]:
    times = {"start_time": "2026-11-29T07:00:00.000000", "end_time": "2026-11-29T07:00:01.000000"}
    return {"id": name, "trace_id": RUN, "name": "shop", "run_type": "chain", "inputs": {}, **times, **more}


def test_langsmith_finds_the_project_by_name_then_all_runs_of_its_traces() -> None:
    messages = {"messages": [{"role": "user", "content": "2+2?"}]}
    said = {"choices": [{"message": {"role": "assistant", "content": "4"}}]}
    call = smith_run(
        "0af76519-16cd-43dd-8448-eb211c80319d",
        run_type="llm", parent_run_id=RUN, inputs=messages, outputs=said, dotted_order="1.2",
    )  # fmt: skip
    top = smith_run(RUN, app_path="/o/1/projects/p/2/r/3", dotted_order="1")
    answers: list[Any] = [
        [{"id": "s1"}],
        {"runs": [top], "cursors": {"next": "c2"}},
        {"runs": [top], "cursors": {"next": "r2"}},
        {"runs": [call], "cursors": {"next": None}},
        {"runs": [], "cursors": {}},
    ]
    asked, found = played(pull_langsmith(Wanted(project="shop", since_ns=PAST_NS, limit=200)), answers)
    assert (asked[0].path, asked[0].query[0]) == ("sessions", ("name", "shop"))
    bodies = [ask.body for ask in asked if ask.body is not None]
    pages = [(body.get("trace"), body.get("cursor")) for body in bodies]
    assert pages == [(None, None), (RUN, None), (RUN, "r2"), (None, "c2")]
    assert {body["limit"] for body in bodies} == {100}
    assert (bodies[0]["is_root"], bodies[0]["start_time"]) == (True, "2026-09-21T14:13:20.123Z")
    assert steps_of(LANGSMITH, found) == [(TRACE, "4")]
    (link,) = found[0].links.values()
    urls = [LANGSMITH.page_url(url, link) for url in ("https://eu.api.smith.langchain.com", "https://h/api")]
    assert urls == ["https://eu.smith.langchain.com/o/1/projects/p/2/r/3", "https://h/o/1/projects/p/2/r/3"]
    with pytest.raises(PullFailed, match="no project is called 'shop'"):
        played(pull_langsmith(Wanted(project="shop", limit=9)), [[]])


PAGE = [traces("a", following="x"), spans("1")]


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param([*PAGE, traces("b", following="x"), spans("2")], id="cursor"),
        pytest.param([*PAGE, traces("a", following="y")], id="same page"),
        pytest.param([traces(following="x")], id="empty page"),
        pytest.param([traces("a"), spans("1", following="x"), spans("1", following="y")], id="same spans"),
    ],
)
def test_pages_that_never_end_are_told(answers: list[Any]) -> None:
    with pytest.raises(PullFailed, match="do not end"):
        played(pull_phoenix(Wanted(limit=10)), answers)


@pytest.mark.parametrize(
    "answer",
    [
        *(None, [], 7, {"data": {}}, {"data": [1]}, {"data": [{}]}, {"data": [{"trace_id": 5}]}),
        *(traces("\ud800"), traces("a" * 3_000), {"data": [{"trace_id": "a", "project_id": "\ud800"}]}),
    ],
)
def test_answers_of_another_shape_are_told(answer: Any) -> None:
    with pytest.raises(PullFailed, match="unexpected answer"):
        played(pull_phoenix(Wanted(limit=10)), [answer])
    with pytest.raises(PullFailed, match="unexpected answer"):
        played(pull_phoenix(Wanted(limit=10)), [traces("a", following="\ud800"), spans("1")])


@pytest.mark.parametrize(
    "url",
    ["localhost:6006", "ftp://host", "http://", "http://me:secret@host", "http://host?a=b", "http://h:99999"],
)
def test_an_address_that_is_none_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ValueError, match="expected http") as refused:
        checked_url(url)
    assert "secret" not in str(refused.value)


def test_credentials_are_read_from_each_backends_own_variables() -> None:
    assert PHOENIX.credentials({"PHOENIX_API_KEY": "k"}) == {"Authorization": "Bearer k"}
    assert MLFLOW.credentials({"MLFLOW_TRACKING_TOKEN": "k"}) == {"Authorization": "Bearer k"}
    user = {"MLFLOW_TRACKING_USERNAME": "me", "MLFLOW_TRACKING_PASSWORD": "s"}
    assert MLFLOW.credentials({**user, "MLFLOW_TRACKING_TOKEN": "k"}) == {"Authorization": "Basic bWU6cw=="}
    assert LANGFUSE.credentials({"LANGFUSE_PUBLIC_KEY": "me"}) == {}, "a public key alone is none"
    keys = {"LANGFUSE_PUBLIC_KEY": "me", "LANGFUSE_SECRET_KEY": "s"}
    assert LANGFUSE.credentials(keys) == {"Authorization": "Basic bWU6cw=="}
    own = {"LANGSMITH_API_KEY": "k", "LANGSMITH_WORKSPACE_ID": "w"}
    assert LANGSMITH.credentials(own) == {"x-api-key": "k", "X-Tenant-Id": "w"}
    assert [one.credentials({}) for one in BACKENDS.values()] == [{}] * len(BACKENDS)


@asynccontextmanager
async def served(handler: Handler) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    async with TestServer(app) as server:
        yield str(server.make_url("")).rstrip("/")


def answering(status: int, body: bytes, headers: Mapping[str, str] | None = None) -> Handler:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, body=body, headers=headers)

    return answer


async def pulled_from(
    handler: Handler, backend: Backend = PHOENIX, headers: Mapping[str, str] | None = None
) -> Pulled:
    async with served(handler) as url:
        return await pull(backend, Wanted(limit=10), url, headers or {})


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        pytest.param(401, b"", "asks for credentials", id="no key"),
        pytest.param(404, b"Project with name x not found", "404: Project with name x", id="no project"),
        pytest.param(404, b'{"message": "no experiment"}', "404: no experiment", id="no experiment"),
        pytest.param(500, b"<html>secret stack</html>", "HTTP 500$", id="a page as refusal"),
        pytest.param(200, b"<!doctype html><html>", "answers with a web page", id="html"),
        pytest.param(200, b"plain", "answers with no JSON", id="text"),
        pytest.param(200, b"\xff\xfe", "answers with no JSON", id="bytes"),
        pytest.param(200, b"[" * 200_000, "answers with no JSON", id="deep"),
        pytest.param(200, b"9" * 10_000, "answers with no JSON", id="long number"),
        pytest.param(200, b"[]", "unexpected answer", id="other JSON"),
    ],
)
async def test_each_wrong_answer_is_one_sentence(status: int, body: bytes, told: str) -> None:
    pulled = await pulled_from(answering(status, body))
    assert pulled.error is not None
    assert not pulled.found
    with pytest.raises(PullFailed, match=told):
        raise pulled.error


async def test_credentials_reach_the_backend_and_no_other_host() -> None:
    seen = list[str]()

    async def other(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization", ""))
        return web.json_response(traces())

    async with served(other) as elsewhere:
        redirect = answering(307, b"", {"Location": f"{elsewhere}/x"})
        moved = await pulled_from(redirect, headers={"Authorization": "k"})
        assert moved.error is not None
        assert f"redirects to {elsewhere}" in str(moved.error)
        assert not seen
    assert (await pulled_from(other, headers={"Authorization": "k"})).error is None
    assert seen == ["k"]
    refused = await pulled_from(answering(403, b""), headers={"Authorization": "top secret"})
    assert "refuses these credentials" in str(refused.error)
    assert "top secret" not in str(refused.error)


async def test_a_busy_backend_is_asked_again_but_not_for_ever() -> None:
    times = list[str]()

    async def busy_twice(request: web.Request) -> web.Response:
        times.append(request.path)
        if len(times) < 3:
            return web.Response(status=(429, 503)[len(times) - 1], headers={"Retry-After": "0"})
        return web.json_response(traces())

    assert (await pulled_from(busy_twice)).error is None
    assert len(times) == 3
    always = await pulled_from(answering(429, b"", {"Retry-After": "0"}))
    assert "busy: HTTP 429 4 times" in str(always.error)


async def test_what_was_read_before_an_error_is_kept() -> None:
    async def breaks(request: web.Request) -> web.Response:
        if request.path.endswith("/spans"):
            return web.json_response(spans("1"))
        if "cursor" in request.query:
            return web.Response(status=500)
        return web.json_response(traces("a", following="t2"))

    pulled = await pulled_from(breaks)
    assert [one["id"] for each in pulled.found for one in each.records] == ["1"]
    assert "HTTP 500" in str(pulled.error)


async def test_searches_are_sent_as_json() -> None:
    bodies = list[Any]()

    async def search(request: web.Request) -> web.Response:
        bodies.append((request.method, request.path, json.loads(await request.read())))
        return web.json_response({})

    assert (await pulled_from(search, MLFLOW)).error is None
    [(method, path, body)] = bodies
    assert (method, path, body["max_results"]) == ("POST", "/api/3.0/mlflow/traces/search", 10)


async def test_as_json_each_run_names_its_page(capsys: pytest.CaptureFixture[str]) -> None:
    spans_of = (EXAMPLES / "phoenix-spans.json").read_bytes()
    trace = json.loads(spans_of)["data"][0]["context"]["trace_id"]

    async def phoenix(request: web.Request) -> web.Response:
        if request.path.endswith("/spans"):
            return web.Response(body=spans_of, content_type="application/json")
        return web.json_response(traces(trace))

    async with served(phoenix) as url:
        code = await asyncio.to_thread(run, ["pull", "phoenix", "--url", url, "--format", "json"])
    (printed,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (code, printed["file"]) == (0, f"{url}/projects/P1/traces/{trace}")
