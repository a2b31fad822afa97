"""The API's description covers every route except pages, and real answers match it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp.test_utils import TestClient, TestServer
from aiohttp.web import Application, Request
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from analyzer.history.run_diff import compare_runs
from analyzer.inquiry.verdict import to_json
from analyzer.inquiry.whole_run import whole_steps
from analyzer.issues.beside_verdicts import AnalysedRun
from analyzer.issues.issue_store import DAY_NS, IssueStore
from analyzer.issues.labels.run_label import LabelKind
from analyzer.issues.recurrence import IssueState
from analyzer.recordings.read_files import read_recording
from analyzer.web.api import MAX_MUTE_S
from analyzer.web.app import make_app, openapi
from analyzer.web.reads.issue_reads import IssueReader, WorkflowReader
from analyzer.web.reads.run_query import FILTERS, MAX_LISTED, Sort
from collector_processor.core.analysis import Analysis
from collector_processor.core.disk import RUNS
from collector_processor.core.records import Commit
from collector_processor.otlp import NO_TENANT, Signal, Tenant
from collector_processor.rebuild.kept_spans import SpanKeeper
from collector_processor.rebuild.redaction import make_redactor
from collector_processor.rebuild.stages import rebuild
from collector_processor.store.database.connection import open_database
from collector_processor.store.small_tables import PackedSpans
from semconv.model import Status
from tests.issues import Bench, opened_issue_reader
from tests.runs import run, step
from tests.shown import fixtures
from tests.web.stage import NOW_NS, Stage, close_parts
from tests.web.test_pages import RUN, blame
from tests.workflows import RULE, Place, keep_runs

Client = TestClient[Request, Application]
FOR_PEOPLE = {
    "/", "/runs", "/runs/{run_id}", "/runs/{run_id}/report.html", "/runs/{run_id}/run.json",
    "/runs/{run_id}/steps/{step}", "/runs/{run_id}/steps/{step}/span.json",
    "/runs/{run_id}/label", "/runs/{run_id}/again", "/issues", "/issues/{issue_id}",
    "/issues/{issue_id}/resolve",
    "/issues/{issue_id}/mute", "/try", "/try/{job_id}", "/try/{job_id}/state", "/try/{job_id}/cancel",
    "/health", "/sign-in",
    "/sign-out", "/static/{name}", "/compare", "/queue", "/workflows", "/workflow",
}  # fmt: skip
"""Pages, their forms, and the pages' own requests: they may change between versions."""
JSON = {"Content-Type": "application/json"}
OPENAPI_URI = "urn:openapi"


def strict(schema: Any) -> Any:
    """Return the schemas with undeclared properties forbidden."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    told = {name: strict(one) for name, one in schema.items()}
    return {"additionalProperties": False, **told} if "properties" in schema else told


REGISTRY: Registry[Any] = Registry().with_resource(
    OPENAPI_URI, Resource.from_contents(strict(openapi()), default_specification=DRAFT202012)
)


def checked(path: str, verb: str, status: int, content_type: str) -> Draft202012Validator:
    """Return the validator of an operation's answer; the description must have it."""
    operation = openapi()["paths"][path][verb]
    assert content_type in operation["responses"][str(status)]["content"], (path, status, content_type)
    words = ("paths", path, verb, "responses", str(status), "content", content_type, "schema")
    place = "/".join(word.replace("~", "~0").replace("/", "~1") for word in words)
    place = place.replace("{", "%7B").replace("}", "%7D")
    return Draft202012Validator({"$ref": f"{OPENAPI_URI}#/{place}"}, registry=REGISTRY)


@pytest.fixture
def bench(stage: Stage) -> Bench:
    opened = Bench(folder=stage.folder, place=stage.verdicts._db)
    stage.verdicts.also = opened.beside.write
    return opened


@pytest.fixture
async def desk(bench: Bench) -> AsyncIterator[IssueReader]:
    with opened_issue_reader(bench, lambda: NOW_NS) as opened:
        yield opened


@pytest.fixture
async def api(stage: Stage, desk: IssueReader) -> AsyncIterator[Client]:
    parts = stage.parts()
    parts = replace(parts, pages=replace(parts.pages, issues=desk))
    async with TestClient(TestServer(make_app(parts))) as opened:
        yield opened
    close_parts(parts)


async def asked(client: Client, verb: str, path: str, body: object = None, **names: str) -> Any:
    """Send a request, check the answer against the description, and return it."""
    address = path.split("?", maxsplit=1)[0]
    sent = None if verb == "get" else json.dumps(body)
    headers = {} if sent is None else JSON
    async with client.request(verb, path.format(**names), data=sent, headers=headers) as answer:
        validator = checked(address, verb, answer.status, answer.content_type)
        is_json = answer.content_type == "application/json"
        found = json.loads(await answer.text(), parse_constant=no_number) if is_json else await answer.text()
        validator.validate(found)
        return found


def no_number(word: str) -> None:
    """``Infinity`` and ``NaN`` are not JSON."""
    raise AssertionError(word)


def described() -> Iterator[tuple[str, str]]:
    for path, item in openapi()["paths"].items():
        yield from ((path, verb) for verb in item if verb != "parameters")


async def test_every_route_is_described_or_a_page_and_every_described_route_is_served(
    api: Client,
) -> None:
    served = {
        (route.resource.canonical, route.method.lower())
        for route in api.server.app.router.routes()  # type: ignore[attr-defined]
        if route.resource is not None and route.method != "HEAD"
    }
    assert {(path, verb) for path, verb in served if path not in FOR_PEOPLE} == set(described())
    assert {path for path, _ in served} >= FOR_PEOPLE


def test_the_description_is_sound() -> None:
    names: list[str] = []
    for path, verb in described():
        item = openapi()["paths"][path]
        operation = item[verb]
        stated = [*item.get("parameters", ()), *operation.get("parameters", ())]
        in_path = {one["name"] for one in stated if one["in"] == "path"}
        assert in_path == {part[1:-1] for part in path.split("/") if part.startswith("{")}, path
        assert operation["summary"]
        for response in operation["responses"].values():
            assert response["description"]
            for content in response.get("content", {}).values():
                Draft202012Validator.check_schema(content["schema"])
        names += [word for word in json.dumps(operation).split('"') if word.startswith("#/")]
    schemas = openapi()["components"]["schemas"]
    names += [word for word in json.dumps(schemas).split('"') if word.startswith("#/")]
    assert {name.rpartition("/")[2] for name in names} == set(schemas)


def test_values_and_bounds_of_the_description_are_those_of_the_code() -> None:
    document = openapi()
    fields = {name: schema["properties"] for name, schema in document["components"]["schemas"].items()}
    assert fields["ListedRun"]["status"]["enum"] == list(Status)
    assert fields["Label"]["label"]["enum"] == list(LabelKind)
    assert fields["Issue"]["state"]["enum"] == list(IssueState)
    listed = {one["name"]: one["schema"] for one in document["paths"]["/api/runs"]["get"]["parameters"]}
    assert (list(listed["sort"]["enum"]), sorted(listed)) == (list(Sort), sorted(FILTERS))
    asked = document["paths"]["/api/issues"]["get"]["parameters"]
    assert [one["schema"].get("maximum") for one in asked] == [MAX_LISTED, None, None, None]
    muting = document["paths"]["/api/issues/{issue_id}/mute"]["post"]["requestBody"]
    assert muting["content"]["application/json"]["schema"]["properties"]["for_s"]["maximum"] == MAX_MUTE_S


def test_a_described_object_requires_all_of_its_keys() -> None:
    listed = [schema for schema in records(openapi()) if "required" in schema]
    assert [one["description"] for one in listed if set(one["required"]) != set(one["properties"])] == []
    assert len(listed) > len(openapi()["components"]["schemas"])


def records(node: Any) -> Iterator[dict[str, Any]]:
    """Yield the schemas of all described objects."""
    if isinstance(node, dict):
        if "properties" in node and "description" in node:
            yield node
        for one in node.values():
            yield from records(one)
    elif isinstance(node, list):
        for one in node:
            yield from records(one)


async def test_real_answers_of_runs_and_labels_are_as_described(stage: Stage, api: Client) -> None:
    await stage.add(RUN, "shop", blame(RUN, 2))
    assert len((await asked(api, "get", "/api/runs"))["runs"]) == 1
    await asked(api, "get", "/api/queue")
    await asked(api, "get", "/api/queue?limit=0")
    run = {"run_id": "run-1"}
    await asked(api, "get", "/api/runs/{run_id}", **run)
    await asked(api, "post", "/api/runs/{run_id}/confirm", **run)
    await asked(api, "post", "/api/runs/{run_id}/reject", **run)
    await asked(api, "post", "/api/runs/{run_id}/label", {"step": 1}, **run)
    await asked(api, "post", "/api/runs/{run_id}/label", {"failed": False}, **run)
    found = await asked(api, "get", "/api/runs/{run_id}", **run)
    assert found["label"]["label"] == "not_a_failure"
    assert len(found["earlier_labels"]) == 3


async def test_real_answers_of_steps_are_as_described(stage: Stage, api: Client) -> None:
    await stage.add(RUN, "shop", blame(RUN, 2))
    run = {"run_id": "run-1"}
    found = await asked(api, "get", "/api/runs/{run_id}/steps", **run)
    assert [(step["agent"], step["output"]) for step in found["steps"]] == [
        (step.agent, step.output) for step in RUN.steps
    ]
    assert (found["total"], found["is_whole"], found["task"]) == (3, False, "how much?")
    part = await asked(api, "get", "/api/runs/{run_id}/steps?from=1&limit=1", **run)
    assert ([step["index"] for step in part["steps"]], part["total"]) == ([1], 3)
    assert "expected" in await asked(api, "get", "/api/runs/{run_id}/steps?from=x", **run)
    assert "no such run" in await asked(api, "get", "/api/runs/{run_id}/steps", run_id="none")


async def test_versions_are_as_described_and_each_can_be_asked_for(stage: Stage, api: Client) -> None:
    await stage.add(RUN, "shop", blame(RUN, 2))
    (first,) = stage.verdicts.find("run-1")
    wicked = json.dumps({**json.loads(first.document), "reason": "<script>", "model": "other", "step": 0})
    newer = replace(first, version=2, failure_id="f2", step=0, document=wicked)
    damaged = replace(first, version=3, failure_id="f3", document="{")
    for one in (newer, damaged):
        stage.verdicts.commit(Commit(analysed=(), verdicts=(one,)))
    path = "/api/runs/{run_id}"
    found = await asked(api, "get", path, run_id="run-1")
    told = [(one["version"], one["status"], one["step"], one["model"]) for one in found["versions"]]
    assert told == [(3, "error", None, None), (2, "attributed", 0, "other"), (1, "attributed", 2, "m")]
    for number, blamed in ((1, 2), (2, 0), (3, None)):
        one = await asked(api, "get", f"{path}?version={number}", run_id="run-1")
        assert (one["version"], one["step"], len(one["versions"])) == (number, blamed, 3)
    assert "no such version" in await asked(api, "get", f"{path}?version=4", run_id="run-1")
    for wrong in ("0", "x", "-1", "9" * 30):
        assert "version: expected" in await asked(api, "get", f"{path}?version={wrong}", run_id="run-1")
    async with api.get("/runs/run-1/run.json") as answer:
        assert (await answer.json())["versions"] == found["versions"]


async def test_a_comparison_is_as_described_and_that_of_the_command(stage: Stage, api: Client) -> None:
    wicked = replace(RUN, run_id="<i>&b=", steps=RUN.steps[:2], task="</script><img src=x>")
    for one in (RUN, wicked):
        await stage.add(one, "shop", blame(one, 1))
    path = "/api/compare"
    found = await asked(api, "get", f"{path}?a=run-1&b={quote(wicked.run_id)}")
    ours, theirs = (whole_steps(one, lambda run: run) for one in (RUN, wicked))
    assert found == json.loads(json.dumps(compare_runs(ours, theirs).to_json()))
    assert (found["right"], found["same_task"], found["first_divergence"]) == (wicked.run_id, False, 2)
    assert "no passing run" in await asked(api, "get", f"{path}?a=run-1")
    assert "no such run" in await asked(api, "get", f"{path}?a=run-1&b=none")
    for wrong in ("", "?b=run-1", "?a=run-1&c=run-1", "?a="):
        assert "expected ?a=RUN" in await asked(api, "get", f"{path}{wrong}")
    long = run(*(step("a", "x") for _ in range(2_001)), run_id="long")
    await stage.add(long, "shop", blame(long, 0))
    assert "too long" in await asked(api, "get", f"{path}?a=long&b=long")


async def test_whole_steps_are_as_described(stage: Stage, api: Client) -> None:
    path = next(path for path in fixtures() if path.name == "agno_openlit.json.gz")
    recording = read_recording(path.read_bytes())
    bodies, logs = recording.bodies(Signal.TRACES), recording.bodies(Signal.LOGS)
    (run,) = rebuild(bodies, logs)
    name = await stage.add(run.trajectory, "shop")
    parts = [(run.trace.spans, make_redactor((), ()).for_run())]
    (packed,) = SpanKeeper(redactor=make_redactor((), ())).pack(bodies, logs, parts, [True])
    assert packed is not None
    kept = PackedSpans(tenant=NO_TENANT, run_id=name, is_failure=True, packed=packed)
    stage.verdicts.spans.keep_all([kept], NOW_NS)
    found = await asked(api, "get", "/api/runs/{run_id}/steps", run_id=name)
    calls = [step for step in found["steps"] if step["kind"] == "llm"]
    assert found["is_whole"]
    assert all(
        step["model"] == "gpt-4.1-mini" and step["input_tokens"] and step["messages"] for step in calls
    )
    async with api.get(f"/runs/{name}/run.json") as answer:
        assert (await answer.json())["run"] == found


async def test_the_list_pages_by_its_cursor_and_its_filters_combine(stage: Stage, api: Client) -> None:
    for number in range(5):
        one = replace(RUN, run_id=f"run-{number}", task="fly to Freiburg" if number % 2 else "stay")
        await stage.add(one, "shop", blame(one, number % 3))
    path = "/api/runs?limit=2&q=freiburg"
    first = await asked(api, "get", path)
    assert [run["run_id"] for run in first["runs"]] == ["run-3", "run-1"]
    first = await asked(api, "get", "/api/runs?limit=2&sort=oldest")
    second = await asked(api, "get", f"/api/runs?limit=2&sort=oldest&after={first['next']}")
    assert [run["run_id"] for page in (first, second) for run in page["runs"]] == [
        f"run-{n}" for n in range(4)
    ]
    for path, expected in {
        "agent=analyst": ["run-2"], "status=no_failure,error": [], "min_confidence=0.9": [],
        "max_confidence=0.7&q=run-4": ["run-4"], "since=2026-01-01T00:00:00Z&q=run-0": ["run-0"],
        "until=2020-01-01T00:00:00Z": [],
    }.items():  # fmt: skip
        assert [
            run["run_id"] for run in (await asked(api, "get", f"/api/runs?{path}"))["runs"]
        ] == expected, path
    assert "unknown filter" in await asked(api, "get", "/api/runs?agnet=clerk")


async def test_real_answers_of_issues_are_as_described(stage: Stage, bench: Bench, api: Client) -> None:
    for number in range(3):
        one = replace(RUN, run_id=f"run-{number}")
        told = blame(one, 2)
        analysis = Analysis(attribution=told, document=json.dumps(to_json(told, one)))
        noted = bench.noted(NO_TENANT, one, analysis)
        bench.beside.add(AnalysedRun(noted=noted, packed=None))
        await stage.add(one, "shop", told)
    (issue,) = (await asked(api, "get", "/api/issues"))["issues"]
    assert (issue["count"], issue["share"]["blamed"]) == (3, 3)
    name = {"issue_id": issue["id"]}
    fix = await asked(api, "get", "/api/issues/{issue_id}/fix", **name)
    assert (fix["since"], fix["workflows"]) == (None, [])
    await asked(api, "post", "/api/issues/{issue_id}/mute", {"for_s": 60}, **name)
    await asked(api, "post", "/api/issues/{issue_id}/resolve", **name)
    assert (await asked(api, "get", "/api/issues"))["issues"][0]["state"] == "resolved"


WORKFLOW = Place(start_ns=NOW_NS - DAY_NS, service="a/b?c=<d>&", workflow="")


async def test_real_answers_of_workflows_are_as_described(stage: Stage, api: Client) -> None:
    assert await asked(api, "get", "/api/workflows") == {"workflows": []}
    names = keep_runs(stage.verdicts._db, WORKFLOW, ["passed"] * 40 + ["failed"])
    later = replace(WORKFLOW, start_ns=NOW_NS - DAY_NS // 2)
    keep_runs(stage.verdicts._db, later, ["failed", "passed"] * 12, prefix="new", release="2.0")
    (listed,) = (await asked(api, "get", "/api/workflows"))["workflows"]
    assert (listed["passed"], listed["newest_version"]["is_alarm"], len(listed["changes"])) == (52, True, 1)
    path = f"/api/workflow?service={quote(WORKFLOW.service)}&workflow="
    found = await asked(api, "get", path)
    assert {name: found[name] for name in listed} == listed
    rule = next(one for one in found["always"] if one["rule"] == RULE)
    assert (rule["kept_by"][0], found["mined_runs"]) == ("new-023", 12)
    assert not set(names) & set(rule["kept_by"]), "an earlier version's"


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/api/workflows?service=shop", "expected no filter"),
        ("/api/workflow", "expected ?service=NAME"),
        ("/api/workflow?service=shop", "expected ?service=NAME"),
        ("/api/workflow?service=shop&workflow=a&workflow=b", "expected ?service=NAME"),
        ("/api/workflow?service=shop&workflow=refunds&tenant=other", "expected ?service=NAME"),
        ("/api/workflow?service=shop&workflow=%00%1b[31m", "no such workflow"),
        ("/api/workflow?service=%ED%A0%80&workflow=%FF", "no such workflow"),
        ("/api/workflow?service=shop&workflow=" + "x" * 4_000, "no such workflow"),
    ],
)
async def test_a_workflow_is_asked_for_by_both_names_alone(api: Client, path: str, told: str) -> None:
    assert told in await asked(api, "get", path)


async def test_a_workflow_of_several_tenants_needs_one_and_a_deleted_run_is_gone(stage: Stage) -> None:
    ours, theirs = Tenant("x-scope-orgid=shop"), Tenant("x-scope-orgid=bank")
    for tenant in (ours, theirs):
        keep_runs(stage.verdicts._db, replace(WORKFLOW, tenant=tenant), ["passed"] * 12, prefix=tenant[-4:])
    parts = stage.parts(tenant_header_names=("x-scope-orgid",))
    path = f"/api/workflow?service={quote(WORKFLOW.service)}&workflow="
    header = {"X-Scope-OrgID": "shop"}
    async with TestClient(TestServer(make_app(parts))) as api:
        assert "several tenants" in await asked(api, "get", path)
        assert len((await asked(api, "get", "/api/workflows"))["workflows"]) == 2
        async with api.get("/api/workflows", headers=header) as answer:
            assert [one["tenant"] for one in (await answer.json())["workflows"]] == [ours]
        kept = []
        for _ in range(2):
            async with api.get(path, headers=header) as answer:
                found = await answer.json()
            assert "bank" not in json.dumps(found)
            kept.append(found["always"][0]["kept_by"])
            async with api.delete("/api/runs/shop-011", headers={**header, **JSON}) as answer:
                assert answer.status in {200, 404}
        assert ("shop-011" in kept[0], "shop-011" in kept[1]) == (True, False)
    close_parts(parts)


async def test_an_unfair_sample_is_a_conflict(stage: Stage) -> None:
    store = IssueStore(open_database(stage.folder / RUNS).connect())
    reader = WorkflowReader(store, stage.now_ns, is_fair_sample=False)
    parts = stage.parts(workflows=reader)
    async with TestClient(TestServer(make_app(parts))) as api:
        for path in ("/api/workflows", "/api/workflow?service=shop&workflow=refunds"):
            assert "over-represented" in await asked(api, "get", path)
    close_parts(parts)


@pytest.mark.parametrize(
    ("verb", "path", "body", "told"),
    [
        ("get", "/api/runs/{run_id}", None, "no such run"),
        ("post", "/api/runs/{run_id}/label", {"step": "x"}, "expected"),
        ("post", "/api/runs/{run_id}/confirm", None, "no such run"),
        ("post", "/api/issues/{issue_id}/mute", {"for_s": -1}, "expected"),
        ("post", "/api/issues/{issue_id}/resolve", None, "no such issue"),
    ],
)
async def test_refusals_are_as_described(api: Client, verb: str, path: str, body: object, told: str) -> None:
    assert told in await asked(api, verb, path, body, run_id="none", issue_id="none")


@pytest.mark.parametrize("path", ["/api/runs", "/api/issues"])
@pytest.mark.parametrize("limit", ["0", "501", "x", "-1", "٣", "9" * 5_000])
async def test_an_invalid_limit_is_refused(api: Client, path: str, limit: str) -> None:
    async with api.get(path, params={"limit": limit}) as answer:
        assert answer.status == 400


@pytest.mark.parametrize(
    ("verb", "path"),
    [
        ("get", "/api/issues?agnet=clerk"),
        ("get", "/api/workflows?limit=5"),
        ("get", "/api/workflow?service=shop&workflow=refunds&agent=clerk"),
        ("delete", "/api/runs?all=yes&agent=clerk"),
        ("delete", "/api/runs?all=yes&tenant=x"),
    ],
)
async def test_an_unknown_filter_is_refused(stage: Stage, api: Client, verb: str, path: str) -> None:
    await stage.add(RUN, "shop", blame(RUN, 2))
    runs = await asked(api, "get", "/api/runs")
    assert runs["runs"]
    async with api.request(verb, path) as answer:
        assert answer.status == 400
        assert "expected" in await answer.text()
    assert await asked(api, "get", "/api/runs") == runs


async def test_the_open_routes_are_as_described(api: Client) -> None:
    for path in ("/healthz", "/readyz", "/metrics", "/api/openapi.json"):
        await asked(api, "get", path)
