"""Fixtures for all tests of the whole service."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser

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
