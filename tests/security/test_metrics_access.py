"""Metrics name all tenants' services and agents, so a request with a tenant's header never gets them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client.registry import CollectorRegistry

from analyzer.analyses.composition import open_analyst
from analyzer.service.halves import AnalyzerHalf
from analyzer.web.guard import GuardRules, guarding
from analyzer.web.probes import Probes
from collector_processor.settings import load_settings
from tests.unit.test_web import PARTS, Ask, OneFailure, ask

__all__ = ["ask"]

REGISTRY = CollectorRegistry()
REGISTRY.register(OneFailure())
TENANTS = replace(
    PARTS,
    probe=Probes(is_ready=lambda: True, metrics=REGISTRY),
    token="s3cret",
    tenant_header_names=("x-scope-orgid",),
)
OWN = replace(TENANTS, metrics_token="operator")


def bearer(token: str, **headers: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}", **headers}


async def test_a_request_for_one_tenant_never_gets_the_names_of_all(ask: Ask) -> None:
    for parts, token in ((TENANTS, "s3cret"), (OWN, "operator")):
        client = await ask(parts)
        refused = await client.get("/metrics", headers=bearer(token, **{"X-Scope-OrgID": "b"}))
        assert refused.status == 403
        assert "shop" not in await refused.text()
        assert (await client.get("/metrics", headers=bearer(token))).status == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param(bearer("s3cret"), 401, id="the tenants' token"),
        pytest.param({}, 401, id="none"),
        pytest.param(bearer("operator"), 200, id="its own"),
        pytest.param({"x-blamespan-token": "operator"}, 200, id="its own in the other header"),
    ],
)
async def test_metrics_with_a_token_of_their_own_accept_no_other(
    ask: Ask, headers: dict[str, str], status: int
) -> None:
    client = await ask(OWN)
    assert (await client.get("/metrics", headers=headers)).status == status


async def test_the_metrics_token_is_accepted_for_metrics_only(ask: Ask) -> None:
    client = await ask(OWN)
    assert (await client.get("/api/runs", headers=bearer("operator"))).status == 401
    assert (await client.get("/api/runs", headers=bearer("s3cret"))).status == 200


async def test_the_metrics_token_is_required_on_loopback_too(ask: Ask) -> None:
    client = await ask(replace(OWN, token=None))
    assert (await client.get("/metrics")).status == 401
    assert (await client.get("/api/runs")).status == 200


@pytest.mark.parametrize(("metrics_token", "status"), [(None, 200), ("operator", 401)])
async def test_a_signed_in_browser_does_not_get_the_metrics(metrics_token: str | None, status: int) -> None:
    async def handler(_request: web.Request) -> web.Response:
        return web.Response(text="names")

    rules = GuardRules(token="s3cret", metrics_token=metrics_token, is_signed_in=lambda _request: True)
    app = web.Application(middlewares=[guarding(rules)])
    app.add_routes([web.get("/metrics", handler)])
    async with TestClient(TestServer(app)) as client:
        assert (await client.get("/metrics")).status == status


@asynccontextmanager
async def analyzer(tmp_path: Path) -> AsyncIterator[str]:
    settings = load_settings(
        {}, data_dir=tmp_path, web_listen="127.0.0.1:0", token="s3cret", metrics_token="operator"
    )
    server = AnalyzerHalf(settings, open_analyst(settings)).server()
    port = await server.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await server.stop()


async def test_an_analyzer_asks_for_the_same_token(tmp_path: Path) -> None:
    async with analyzer(tmp_path) as url, aiohttp.ClientSession() as session:
        for token, status in (("s3cret", 401), ("operator", 200)):
            async with session.get(f"{url}/metrics", headers=bearer(token)) as answer:
                assert answer.status == status
