"""Fixtures for all tests of the whole service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.line import StartLine, starting


@pytest.fixture
def start_line(tmp_path: Path) -> Iterator[StartLine]:
    """Yield a function that starts services on the test's data directory; they end with the test."""
    with starting(tmp_path) as start:
        yield start
