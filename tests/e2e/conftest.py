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


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """Yield a broker for the tests of a module: it takes 5 s of CPU to start."""
    folder = tmp_path_factory.mktemp("broker") / "kafka"
    with start_kafka(insist_on("kafka", install.kafka_binary()), folder) as running:
        yield running


@pytest.fixture
def kafka(broker: KafkaBroker) -> KafkaBroker:
    """Return the broker with empty topics, and a group of the test's own."""
    broker.renew()
    return broker
