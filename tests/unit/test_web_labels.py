"""Labels over HTTP: accepted from authorised clients, refused from other sites' pages, never half applied."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from aiohttp.web import Application, Request
from prometheus_client.registry import CollectorRegistry

from analyzer.issues.labels.labelling import AcceptedLabel
from analyzer.issues.labels.run_label import Label, LabelKind, LabelRefused, Statement, as_label
from analyzer.web.api import read_statement
from analyzer.web.app import WebParts, make_app
from analyzer.web.front import Labels
from analyzer.web.probes import Probes
from collector_processor.core.disk import StoreError
from collector_processor.core.records import StoredVerdict
from collector_processor.otlp import Tenant
from tests.runs import run, step, tool
from tests.unit.test_web import pages
from tests.verdicts import stored

RUN = run(step("planner"), tool("clerk", "1,450"), step("analyst", "14,500"))
OTHER = Tenant("x-scope-orgid=b")
JSON = {"Content-Type": "application/json"}
Asked = TestClient[Request, Application]


@dataclass(slots=True)
class Memory:
    """Accepts labels as the service does, in memory."""

    given: list[Label] = field(default_factory=list)
    error: Exception | None = None

    async def find(self, run_id: str) -> Sequence[StoredVerdict]:
        found = {
            "run-1": [stored()],
            "shared": [stored(run_id="shared"), stored(run_id="shared", tenant=OTHER)],
        }
        return found.get(run_id, [])

    async def give(self, verdict: StoredVerdict, statement: Statement) -> AcceptedLabel:
        if self.error:
            raise self.error
        label = as_label(statement, verdict, RUN, 9)
        self.given.insert(0, label)
        return AcceptedLabel(label=label, obstacle=None, trace_obstacle=None)

    async def of(self, tenant: Tenant, run_id: str) -> Sequence[Label]:
        return [label for label in self.given if (label.tenant, label.run_id) == (tenant, run_id)]

    def parts(self) -> WebParts:
        return WebParts(
            probe=Probes(is_ready=lambda: True, metrics=CollectorRegistry()),
            pages=pages(),
            find=self.find,
            labels=Labels(give=self.give, of=self.of),
            tenant_header_names=("x-scope-orgid",),
        )


@pytest.fixture
def memory() -> Memory:
    return Memory()


@pytest.fixture
async def client(memory: Memory) -> AsyncIterator[Asked]:
    async with TestClient(TestServer(make_app(memory.parts()))) as opened:
        yield opened


async def test_a_label_is_taken_and_shown_with_the_run(client: Asked, memory: Memory) -> None:
    answer = await client.post("/api/runs/run-1/label", json={"agent": "analyst", "step": 2})
    given = await answer.json()
    assert answer.status == 200
    assert (given["label"], given["agent"], given["step"], given["can_be_learned"]) == (
        "corrected",
        "analyst",
        2,
        True,
    )
    await client.post("/api/runs/run-1/label", json={"failed": False})
    shown = await (await client.get("/api/runs/run-1")).json()
    assert shown["label"]["label"] == "not_a_failure"
    assert [one["label"] for one in shown["earlier_labels"]] == ["corrected"]
    assert len(memory.given) == 2


async def test_a_reason_and_the_signed_in_user_are_kept(client: Asked, memory: Memory) -> None:
    said = {"step": 2, "why": "it swapped two digits"}
    await client.post("/api/runs/run-1/label", json=said, headers={"X-Forwarded-User": "ada"})
    await client.post("/api/runs/run-1/confirm", json={"why": "yes"})
    shown = await (await client.get("/api/runs/run-1")).json()
    told = [(one["why"], one["author"]) for one in (shown["label"], *shown["earlier_labels"])]
    assert told == [("yes", None), ("it swapped two digits", "ada")]
    too_long = await client.post("/api/runs/run-1/confirm", json={"why": "x" * 1_001})
    assert (too_long.status, "at most 1,000" in await too_long.text()) == (422, True)
    for path in ("confirm", "reject", "label"):
        refused = await client.post(f"/api/runs/run-1/{path}", json={"failed": False, "why": 7})
        assert refused.status == 400
    assert len(memory.given) == 2


@pytest.mark.parametrize(("verb", "kind"), [("confirm", "confirmed"), ("reject", "rejected")])
async def test_a_verdict_is_confirmed_or_rejected(client: Asked, verb: str, kind: str) -> None:
    answer = await client.post(f"/api/runs/run-1/{verb}", headers=JSON)
    assert (answer.status, (await answer.json())["label"]) == (200, kind)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "HERE"}, 200),
        ({"Origin": "HERE", "Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://["}, 403),
        ({"Origin": ""}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content-Type": "multipart/form-data; boundary=x"}, 415),
        ({"Host": "evil.example"}, 401),
    ],
)
@pytest.mark.parametrize("verb", ["label", "confirm", "reject"])
async def test_another_sites_page_cannot_label(
    client: Asked, memory: Memory, verb: str, headers: dict[str, str], status: int
) -> None:
    here = f"http://127.0.0.1:{client.port}"
    sent = {**JSON, **{name: value.replace("HERE", here) for name, value in headers.items()}}
    body = b'{"step": 2}' if verb == "label" else b""
    answer = await client.post(f"/api/runs/run-1/{verb}", data=body, headers=sent)
    assert answer.status == status
    assert len(memory.given) == (status == 200)


async def test_a_preflight_request_is_not_allowed(client: Asked) -> None:
    asked = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    answer = await client.options("/api/runs/run-1/label", headers=asked)
    assert answer.status == 403
    assert not [name for name in answer.headers if name.lower().startswith("access-control-")]


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}])
async def test_a_configured_token_is_required(memory: Memory, headers: dict[str, str]) -> None:
    parts = replace(memory.parts(), token="s3cret")
    async with TestClient(TestServer(make_app(parts))) as client:
        answer = await client.post("/api/runs/run-1/confirm", headers={**JSON, **headers})
        assert answer.status == 401
        allowed = {**JSON, "Authorization": "Bearer s3cret"}
        assert (await client.post("/api/runs/run-1/confirm", headers=allowed)).status == 200
    assert len(memory.given) == 1


async def test_a_run_of_two_tenants_is_labelled_for_the_one_that_asks(client: Asked, memory: Memory) -> None:
    assert (await client.post("/api/runs/shared/confirm", headers=JSON)).status == 409
    asked = {**JSON, "X-Scope-OrgID": "b"}
    assert (await client.post("/api/runs/shared/confirm", headers=asked)).status == 200
    assert [label.tenant for label in memory.given] == [OTHER]
    stranger = {**JSON, "X-Scope-OrgID": "c"}
    assert (await client.post("/api/runs/run-1/confirm", headers=stranger)).status == 404


async def test_a_label_that_does_not_fit_is_refused_with_valid_values(client: Asked, memory: Memory) -> None:
    answer = await client.post("/api/runs/run-1/label", json={"agent": "<b>writer</b>"})
    assert answer.status == 422
    assert "its agents are planner, clerk, analyst" in await answer.text()
    assert answer.content_type == "text/plain"
    assert memory.given == []


BROKEN: list[Any] = [
    [],
    {},
    "x",
    None,
    {"agent": 3},
    {"step": "2"},
    {"step": True},
    {"step": 2.5},
    {"failed": True},
    {"failed": "no"},
    {"failed": False, "step": 2},
    {"step": 2, "sure": True},
]


@pytest.mark.parametrize("document", BROKEN)
def test_an_invalid_label_is_refused(document: object) -> None:
    with pytest.raises(ValueError, match="expected"):
        read_statement(document)


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 50_000, b"7", b'{"step": "2"}'])
async def test_a_body_that_is_not_a_label_is_reported(client: Asked, memory: Memory, body: bytes) -> None:
    answer = await client.post("/api/runs/run-1/label", data=body, headers=JSON)
    assert (answer.status, memory.given) == (400, [])
    assert "expected" in await answer.text()


async def test_a_body_of_megabytes_is_not_read(client: Asked) -> None:
    body = io.BytesIO(b'{"agent": "' + b"a" * (2 << 20) + b'"}')
    assert (await client.post("/api/runs/run-1/label", data=body, headers=JSON)).status == 413


@pytest.mark.parametrize(
    ("error", "status"),
    [(StoreError("the label store cannot write: disk full"), 503), (LabelRefused("no"), 422)],
)
async def test_the_answer_says_why_a_label_is_not_stored(
    client: Asked, memory: Memory, error: Exception, status: int
) -> None:
    memory.error = error
    answer = await client.post("/api/runs/run-1/confirm", headers=JSON)
    assert (answer.status, await answer.text()) == (status, f"{error}\n")


def test_the_words_of_a_label_are_read() -> None:
    read: Callable[[Any], Statement] = read_statement
    assert read({"failed": False}) == Statement(kind=LabelKind.NOT_A_FAILURE)
    assert read({"step": 2, "agent": None}) == Statement(kind=LabelKind.CORRECTED, step=2)
    assert read({"step": 2, "why": "x"}) == Statement(kind=LabelKind.CORRECTED, step=2, why="x")
    assert read({"agent": "a", "failed": True}) == Statement(kind=LabelKind.CORRECTED, agent="a")
