"""The real backends as pytest fixtures, for a ``conftest.py`` to import.

If a backend has not been built, the test is skipped with the command that builds it; with
``BLAMESPAN_REQUIRE_BACKENDS=true``, as in CI, it fails.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final, TypeAlias

import pytest

from tests.backends import install
from tests.backends.processes import (
    Forwarding,
    RunningCollector,
    RunningJaeger,
    start_collector,
    start_jaeger,
)

REQUIRE: Final = "BLAMESPAN_REQUIRE_BACKENDS"

NEEDS: Final = {"kafka": "Maven and Java", "phoenix": "uv", "mlflow": "uv"}

CollectorFactory: TypeAlias = Callable[[Forwarding], RunningCollector]


@pytest.fixture(scope="session")
def jaeger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningJaeger]:
    """Yield one Jaeger for the whole session: tests use different trace ids and services."""
    binary = insist_on("jaeger", install.jaeger_binary())
    with start_jaeger(binary, tmp_path_factory.mktemp("jaeger")) as running:
        yield running


@pytest.fixture
def collector_factory(tmp_path: Path) -> Iterator[CollectorFactory]:
    """Yield a function that starts Collectors; they end with the test."""
    binary = insist_on("collector", install.collector_binary())
    with ExitStack() as stack:
        started: list[RunningCollector] = []

        def start(forwarding: Forwarding) -> RunningCollector:
            name = f"collector-{len(started)}"
            started.append(stack.enter_context(start_collector(binary, tmp_path, forwarding, name=name)))
            return started[-1]

        yield start


def insist_on(name: install.BackendName, binary: Path | None) -> Path:
    """Return the binary; if it is missing, skip the test, or fail it where backends are required."""
    if binary is not None:
        return binary
    needs = NEEDS.get(name, "go")
    told = f"no real {name} here; `python -m tests.backends.install {name}` builds it (needs {needs})"
    if os.environ.get(REQUIRE) == "true":
        pytest.fail(told)
    pytest.skip(told)
