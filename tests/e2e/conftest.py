"""Fixtures for all tests of the whole service."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from tests.backends import install
from tests.backends.fixtures import insist_on
from tests.backends.kafka_broker import KafkaBroker, start_kafka
from tests.backends.postgresql import PostgresServer, postgresql
from tests.e2e.line import StartLine, starting
from tests.web.browser import browsing


@pytest.fixture
def start_line(tmp_path: Path) -> Iterator[StartLine]:
    """Yield a function that starts services on the test's data directory; they end with the test."""
    with starting(tmp_path) as start:
        yield start


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """Yield one browser for all tests on pages; each opens contexts of its own."""
    async with browsing() as opened:
        yield opened


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """Yield a PostgreSQL; name it first in a test: services that still run when it ends wait 20 s for it."""
    with postgresql() as running:
        yield running


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[KafkaBroker]:
    """Yield a broker of the test's own that has its topics."""
    with start_kafka(insist_on("kafka", install.kafka_binary()), tmp_path / "kafka") as broker:
        broker.create()
        yield broker
