"""Fixtures: a stage for each test, and a client of its server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp.test_utils import TestClient, TestServer
from aiohttp.web import Application, Request

from analyzer.web.app import make_app
from tests.web.stage import Stage, close_parts, open_stage


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    opened = open_stage(tmp_path / "data")
    yield opened
    opened.verdicts.close()
    opened.labels.close()


@pytest.fixture
async def client(stage: Stage) -> AsyncIterator[TestClient[Request, Application]]:
    parts = stage.parts()
    async with TestClient(TestServer(make_app(parts))) as opened:
        yield opened
    close_parts(parts)
