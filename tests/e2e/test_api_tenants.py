"""Every endpoint of the API, attacked by schemathesis with ids that exist: one's own, and another tenant's.

With one's own ids every endpoint is reached. With another tenant's ids each answer is the one for an id that
never existed, and nothing of the other tenant's changes. An analysis belongs to whoever knows its id, which
holds a secret; a tenant's header makes no difference.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import pytest

from collector_processor.rebuild.encode import encode
from semconv.model import TraceId
from tests.backends.supervise import wait_until
from tests.deploy.shifts import spans_of
from tests.e2e.line import Line, starting
from tests.e2e.test_api_attacked import BREAKS, FITS, attacked, operations
from tests.e2e.test_stalls_paths import ASKED
from tests.e2e.traffic import send

HEADER: Final = "x-scope-orgid"
RED: Final = {HEADER: "red"}
BLUE: Final = {HEADER: "blue"}
JSON: Final = {"Content-Type": "application/json"}
OUTCOMES: Final = (True, True, False)
"""Whether each run of a tenant fails; the first one is labelled."""
COMPARED: Final = "/api/compare"
BODIES: Final = {"/opinions": {"method": "signals"}, "/label": {"agent": "planner"}}
"""Valid bodies where most generated ones are refused before the run is looked for."""
READS: Final = [one for one in ASKED if one.route.startswith("GET ") and "{" in one.route]
OF_A_SECRET: Final = "{job_id}"


def ask(line: Line, path: str, headers: Mapping[str, str], body: bytes | None = None, **more: str) -> Any:
    asked = Request(line.web + path, body, {**headers, **more})
    with build_opener(ProxyHandler({})).open(asked, timeout=300) as answer:
        return json.loads(answer.read())


def runs_of(line: Line, headers: Mapping[str, str]) -> list[dict[str, Any]]:
    return [one for one in ask(line, "/api/runs", headers)["runs"] if not one["provisional"]]


def work_as(line: Line, headers: Mapping[str, str]) -> list[TraceId]:
    """Let a tenant's agents work until there are verdicts, an issue and a label."""
    made, worker = [], f"{headers[HEADER]} clerk"
    for is_failure in OUTCOMES:
        spans = spans_of("planner", worker, failing=worker if is_failure else None)
        send(line, encode(spans), headers=headers)
        made.append(spans[0].trace_id)
    wait_until(lambda: len(runs_of(line, headers)) == len(OUTCOMES), what="the verdicts")
    wait_until(lambda: ask(line, "/api/issues", headers)["issues"], what="an issue")
    ask(line, f"/api/runs/{made[0]}/confirm", headers, b"{}", **JSON)
    return made


@pytest.fixture
def line(tmp_path: Any) -> Iterator[Line]:
    """A service with runs, labels and issues of two tenants."""
    with starting(tmp_path) as start:
        opened = start(root_grace=100)
        work_as(opened, RED)
        work_as(opened, BLUE)
        yield opened
        assert opened.server.process.poll() is None, opened.server.tail()
        said = opened.server.log.read_text(errors="replace")
        assert "Traceback" not in said, said[said.index("Traceback") - 500 :][:3000]


def names_of(line: Line, headers: Mapping[str, str]) -> dict[str, str]:
    """Return ids of a tenant's failed run, which is compared with the one that passed, issue and analysis."""
    run = next(one for one in runs_of(line, headers) if one["status"] == "attributed")
    issue = ask(line, "/api/issues", headers)["issues"][0]
    trace = encode(spans_of("planner", "clerk", failing="clerk"))
    job = ask(line, "/api/analyse", headers, trace, **{"Content-Type": "application/x-protobuf"})
    return {"run_id": run["run_id"], "issue_id": issue["id"], "job_id": job["id"]}


def everything(line: Line, headers: Mapping[str, str]) -> dict[str, Any]:
    """Return all that a tenant has, with its labels."""
    runs = runs_of(line, headers)
    return {
        "runs": runs,
        "each": [ask(line, f"/api/runs/{one['run_id']}", headers) for one in runs],
        "issues": ask(line, "/api/issues", headers)["issues"],
        "workflows": [
            ask(line, f"/api/workflow?service={one['service']}&workflow={one['workflow']}", headers)
            for one in ask(line, "/api/workflows", headers)["workflows"]
        ],
    }


def of_ids(line: Line) -> list[Any]:
    """Return the operations on an id; deletions last."""
    found = [one for one in operations(line) if "{" in one.path or one.path == COMPARED]
    return sorted(found, key=lambda one: str(one.method).upper() == "DELETE")


def filled(operation: Any, names: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments that give a generated request these ids."""
    if operation.path == COMPARED:
        return {"query": {"a": names["run_id"]}}
    known = {name: value for name, value in names.items() if f"{{{name}}}" in operation.path}
    assert known, operation.path
    body = next((sent for end, sent in BODIES.items() if operation.path.endswith(end)), None)
    return {"path_parameters": known} | ({} if body is None else {"body": body})


def test_every_endpoint_is_reached_with_ones_own_ids(line: Line) -> None:
    names = names_of(line, RED)
    for operation in of_ids(line):
        for mode in (BREAKS, FITS):
            statuses = attacked(line, operation, mode, RED | JSON, **filled(operation, names))
        assert 200 in statuses, (operation.label, statuses)


def test_another_tenants_ids_are_unknown_everywhere(line: Line) -> None:
    names, before = names_of(line, RED), everything(line, RED)
    assert len(before["runs"]) == len(OUTCOMES)
    assert before["issues"]
    assert [one["tenant"] for one in before["workflows"]] == [f"{HEADER}=red"]
    assert any(one["label"] for one in before["each"]), before["each"][0]
    for operation in of_ids(line):
        if OF_A_SECRET in operation.path:
            continue
        statuses = attacked(line, operation, FITS, BLUE | JSON, **filled(operation, names))
        assert set(statuses) == {404}, (operation.label, statuses)
    with pytest.raises(HTTPError, match="404"):
        ask(line, f"/api/compare?a={runs_of(line, BLUE)[0]['run_id']}&b={names['run_id']}", BLUE)
    asked = Request(f"{line.web}/api/runs?all=yes", headers=BLUE, method="DELETE")
    with build_opener(ProxyHandler({})).open(asked, timeout=300) as answer:
        assert json.loads(answer.read())["deleted"] == len(OUTCOMES)
    assert everything(line, RED) == before


def status_of(line: Line, path: str, headers: Mapping[str, str]) -> int:
    try:
        with build_opener(ProxyHandler({})).open(
            Request(line.web + path, headers=headers), timeout=300
        ) as answer:
            return int(answer.status)
    except HTTPError as error:
        with error:
            return error.code


def test_another_tenants_ids_are_unknown_on_every_page(line: Line) -> None:
    names = names_of(line, RED)
    routes = {
        one.route.removeprefix("GET ") for one in ASKED if one.route.startswith("GET ") and "{" in one.route
    }
    paths = [route.format(**names, step=0) for route in sorted(routes)]
    paths += [f"{page}?a={names['run_id']}" for page in ("/compare", "/api/compare")]
    assert len(paths) > 10
    assert {path: status_of(line, path, RED) for path in paths} == dict.fromkeys(paths, 200)
    assert {path: status_of(line, path, BLUE) for path in paths} == dict.fromkeys(paths, 404)
