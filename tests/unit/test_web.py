"""Health is open; all else requires the token, or this machine's name; answers are JSON."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import cast

import pytest
from aiohttp.test_utils import TestClient, TestServer
from aiohttp.web import Application, Request
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector, CollectorRegistry
from prometheus_client.samples import Exemplar

from analyzer.issues.labels.labelling import AcceptedLabel
from analyzer.issues.labels.run_label import Label, Statement
from analyzer.telemetry.metric_table import FAILURES
from analyzer.telemetry.verdict_counters import Counter
from analyzer.web.app import WebParts, make_app
from analyzer.web.front import Labels, Pages
from analyzer.web.probes import Probes
from analyzer.web.reads.archive import Analysed, RunArchive, Trend
from analyzer.web.reads.documents import RunPage, row_of
from analyzer.web.reads.run_query import RunQuery
from collector_processor.core.records import StoredVerdict
from collector_processor.otlp import Tenant
from tests.verdicts import stored

VERDICT = stored(
    version=2,
    agent="<b>calculator</b>",
    step=7,
    document='{"run_id": "run-1", "status": "attributed"}',
)


OTHER = replace(VERDICT, tenant=Tenant("x-scope-orgid=b"))


async def find(run_id: str) -> Sequence[StoredVerdict]:
    return {"run-1": [VERDICT], "shared": [VERDICT, OTHER]}.get(run_id, [])


async def give(_verdict: StoredVerdict, _said: Statement) -> AcceptedLabel:
    raise AssertionError("nobody labels here")


async def labels_of(_tenant: Tenant, _run_id: str) -> Sequence[Label]:
    return []


@dataclass(frozen=True, slots=True)
class Listed:
    """A list of runs without a store."""

    verdicts: tuple[StoredVerdict, ...] = ()

    async def page(self, query: RunQuery) -> RunPage:
        return RunPage(rows=tuple(map(row_of, self.verdicts[: query.limit])))

    async def versions(self, _tenant: Tenant, _run_id: str) -> Sequence[StoredVerdict]:
        return ()

    async def trend(self, _query: RunQuery, _now_ns: int) -> Trend:
        return Trend(width_ns=1)

    async def analyses_since(self, _since_ns: int, _most: int) -> Sequence[Analysed]:
        return ()

    async def newest(self) -> tuple[int, int]:
        return (0, 0)


def pages(*verdicts: StoredVerdict) -> Pages:
    """Return the parts of pages over a list."""
    return Pages(runs=cast("RunArchive", Listed(verdicts)), clean=lambda run: run, now_ns=time.time_ns)


PARTS = WebParts(
    probe=Probes(is_ready=lambda: True, metrics=CollectorRegistry()),
    pages=pages(VERDICT),
    find=find,
    labels=Labels(give=give, of=labels_of),
)

Asked = TestClient[Request, Application]
Ask = Callable[[WebParts], Awaitable[Asked]]


@pytest.fixture
async def ask() -> AsyncIterator[Ask]:
    clients: list[Asked] = []

    async def start(parts: WebParts) -> Asked:
        clients.append(TestClient(TestServer(make_app(parts))))
        await clients[-1].start_server()
        return clients[-1]

    yield start
    for client in clients:
        await client.close()


async def test_a_run_id_of_two_tenants_is_not_mixed(ask: Ask) -> None:
    client = await ask(replace(PARTS, tenant_header_names=("x-scope-orgid",)))
    assert (await client.get("/api/runs/shared")).status == 409
    found = await client.get("/api/runs/shared", headers={"X-Scope-OrgID": "b"})
    assert (await found.json())["tenant"] == "x-scope-orgid=b"
    assert (await client.get("/api/runs/shared", headers={"X-Scope-OrgID": "c"})).status == 404


async def test_readiness_turns_false_and_health_does_not(ask: Ask) -> None:
    client = await ask(replace(PARTS, probe=Probes(is_ready=lambda: False, metrics=CollectorRegistry())))
    assert (await client.get("/readyz")).status == 503
    assert (await client.get("/healthz")).status == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": "Bearer s3cret"}, 200),
        ({"Authorization": "bearer s3cret"}, 200),
        ({"Authorization": "s3cret"}, 401),
        ({"x-blamespan-token": "s3cret"}, 200),
        ({"x-blamespan-token": "sécret"}, 401),
    ],
)
async def test_a_token_guards_all_but_the_probes(ask: Ask, headers: dict[str, str], status: int) -> None:
    client = await ask(replace(PARTS, token="s3cret"))
    for path in ("/api/runs", "/metrics"):
        assert (await client.get(path, headers=headers)).status == status
    assert (await client.get("/readyz")).status == 200


async def test_another_sites_name_for_this_machine_is_refused(ask: Ask) -> None:
    client = await ask(PARTS)
    assert (await client.get("/api/runs", headers={"Host": "evil.example:8500"})).status == 401
    assert (await client.get("/api/runs", headers={"Host": "localhost:8500"})).status == 200


class OneFailure(Collector):
    """A counter with an exemplar."""

    def collect(self) -> Iterable[Family]:
        failures = Counter(FAILURES)
        mark = Exemplar({"trace_id": "a" * 32, "span_id": "b" * 16}, 1.0, 1.0)
        failures.add(("shop", 'the "<b>" agent\n', "loop"), 0.0, exemplar=mark)
        yield failures.family(0.0, 0.0)


@pytest.mark.parametrize(
    ("accept", "content_type", "exemplars"),
    [
        (
            "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5",
            "application/openmetrics-text",
            1,
        ),
        ("*/*", "text/plain", 0),
        ("", "text/plain", 0),
        (";;q=,application/openmetrics-text;version=x", "application/openmetrics-text", 1),
    ],
    ids=["Prometheus", "curl", "nothing", "nonsense"],
)
async def test_metrics_have_exemplars_where_openmetrics_is_asked_for(
    ask: Ask, accept: str, content_type: str, exemplars: int
) -> None:
    registry = CollectorRegistry()
    registry.register(OneFailure())
    client = await ask(replace(PARTS, probe=Probes(is_ready=lambda: True, metrics=registry)))
    answer = await client.get("/metrics", headers={"Accept": accept})
    assert (answer.status, answer.content_type) == (200, content_type)
    text = await answer.text()
    assert text.count('# {span_id="' + "b" * 16) == exemplars
    assert 'agent="the \\"<b>\\" agent\\n"' in text


@pytest.mark.parametrize(
    "document",
    [
        "",
        "{",
        "[1]",
        '{"status": "attributed", "evidence": [{"step": 1}]}',
        '{"status": 5}',
        '{"ranking": 1}',
    ],
)
async def test_a_damaged_verdict_is_answered_as_an_error_and_hides_no_other(ask: Ask, document: str) -> None:
    damaged = replace(VERDICT, document=document)
    client = await ask(replace(PARTS, pages=pages(damaged, VERDICT)))
    first, second = (await (await client.get("/api/runs")).json())["runs"]
    assert (first["run_id"], first["status"]) == ("run-1", "error")
    assert "damaged" in first["reason"]
    assert second["status"] == "attributed"
