"""Two tenants share a service: one's storm, and one's run ids, are no concern of the other's."""

from __future__ import annotations

import json
from functools import partial
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from collector_processor.rebuild.encode import encode
from semconv.model import Span, TraceId
from tests.backends.supervise import wait_until
from tests.e2e.line import Line, StartLine
from tests.e2e.model_server import Scripted, serve
from tests.e2e.test_line_model import in_background, settings_for
from tests.factories import agent, chat, workflow

PLACES: Final = 8
STORM: Final = 30
HEADER: Final = "X-Scope-OrgID"
OWN: Final = {"red": "crimson", "blue": "azure"}
"""The agent of each tenant."""
REPLY: Final = json.dumps({"reason": "so", "step": 0, "evidence": [{"step": 0, "quote": "4"}]})


def run(trace_id: str, *, task: str, by: str = "planner", answer: str = "4") -> list[Span]:
    of = TraceId(trace_id)
    return [
        chat(3, parent=2, answer=answer, trace_id=of),
        agent(2, by, trace_id=of),
        workflow(1, task=task, error="wrong sum", trace_id=of),
    ]


def post(line: Line, tenant: str, *runs: list[Span]) -> None:
    body = encode([span for spans in runs for span in spans])
    headers = {"Content-Type": "application/x-protobuf", HEADER: tenant}
    with urlopen(Request(f"{line.http}/v1/traces", body, headers), timeout=300) as answer:
        assert answer.status == 200


def read(line: Line, path: str, tenant: str = "") -> str:
    headers = {HEADER: tenant} if tenant else {}
    with urlopen(Request(f"{line.web}{path}", headers=headers), timeout=300) as answer:
        return str(answer.read().decode())


def read_json(line: Line, path: str, tenant: str) -> Any:
    return json.loads(read(line, path, tenant))


def listed(line: Line, tenant: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = read_json(line, "/api/runs", tenant)["runs"]
    return [one for one in found if not one["provisional"]]


def is_found(line: Line, tenant: str) -> bool:
    return bool(read_json(line, "/api/runs?q=task", tenant)["runs"])


def has_issue(line: Line, tenant: str) -> bool:
    return bool(read_json(line, "/api/issues", tenant)["issues"])


def test_a_storm_whose_analyses_take_long_leaves_places_for_another_tenants_run(
    start_line: StartLine,
) -> None:
    """The model answers nobody until it was asked about the other tenant's run."""
    with in_background(serve(Scripted(text=REPLY))) as model:
        line = start_line(concurrency=PLACES, root_grace=100, method="judge", **settings_for(model))
        post(line, "calm", run("c" * 32, task="first calm"))
        wait_until(lambda: listed(line, "calm"), what="the first verdict", timeout_s=300)
        model.may_answer.clear()
        before, most = len(model.received), PLACES - PLACES // 4
        post(
            line, "storm", *(run(f"{number:032x}", task=f"storm {number}") for number in range(1, STORM + 1))
        )
        wait_until(lambda: len(model.received) - before == most, what="the storm's analyses", timeout_s=100)
        post(line, "calm", run("d" * 32, task="second calm"))
        wait_until(lambda: len(model.received) - before > most, what="the other's analysis", timeout_s=100)
        asked = [json.dumps(one.body) for one in model.received[before:]]
        assert ["second calm" in one for one in asked] == [False] * most + [True]
        model.may_answer.set()
        wait_until(lambda: len(listed(line, "storm")) == STORM, what="the storm's verdicts", timeout_s=300)
        assert len(listed(line, "calm")) == 2


def test_two_tenants_with_one_run_id_see_each_their_own(start_line: StartLine) -> None:
    """One trace id, one session id and links between them join nothing across tenants."""
    shared = "e" * 32
    line = start_line(root_grace=100, precision=0)
    post(line, "red", run(shared, by="crimson", task="the task of crimson", answer="crimson"))
    post(line, "blue", run(shared, by="azure", task="the task of azure", answer="azure"))
    for tenant in OWN:
        wait_until(partial(listed, line, tenant), what="a verdict", timeout_s=300)
        wait_until(partial(has_issue, line, tenant), what="an issue", timeout_s=300)
        wait_until(partial(is_found, line, tenant), what="the searched text", timeout_s=300)
    paths = ["/api/runs", "/api/issues", "/runs", "/issues", "/api/runs?q=task"]
    paths += [f"/api/runs/{shared}{rest}" for rest in ("", "/steps")]
    paths += [f"/runs/{shared}{rest}" for rest in ("", "/run.json", "/report.html")]
    for path in paths:
        for tenant, own in OWN.items():
            said = read(line, path, tenant)
            (other,) = (word for word in OWN.values() if word != own)
            assert other not in said, (path, tenant)
            assert own in said, (path, tenant)
    assert read_json(line, "/api/runs?q=azure", "red")["runs"] == []
    name = "service=test&workflow=invoke_workflow"
    for tenant in OWN:
        (listed_one,) = read_json(line, "/api/workflows", tenant)["workflows"]
        for found in (listed_one, read_json(line, f"/api/workflow?{name}", tenant)):
            assert (found["tenant"], found["failed"]) == (f"{HEADER.lower()}={tenant}", 1)
    for path in (f"/api/runs/{shared}", f"/api/workflow?{name}"):
        with pytest.raises(HTTPError, match="409"):  # without a tenant: which of them?
            read(line, path)
