"""Configuration for all tests.

Shares one Jaeger for the session. No test fails for being slow: Hypothesis would by default fail an example
that takes over 200 ms, which happens on a busy machine.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

from tests.backends.fixtures import collector_factory, jaeger
from tests.new_stores import migrations, quick_stores

__all__ = ["collector_factory", "jaeger", "migrations", "quick_stores"]

LEFT_TO_WHOLE: Final = frozenset({"backends", "deploy", "e2e", "frameworks", "lab"})
"""Folders that ``make test-whole`` alone runs: their tests start processes, or are about ``analyzer/lab``."""
_STARTS: Final = frozenset({"subprocess.Popen", "os.posix_spawn", "os.fork", "os.exec", "os.system"})

HEAVIEST: Final = (
    *("e2e/test_pin", "e2e/test_postgresql", "deploy/test_prometheus_live", "e2e/test_bench_model"),
    *("e2e/test_experiment", "e2e/test_bad_disk", "e2e/test_stalls_paths", "e2e/test_stalls_commands"),
    *("frameworks/test_programs", "e2e/test_run_command", "frameworks/test_live", "e2e/test_pages_process"),
    *("e2e/test_rolling_upgrade", "e2e/test_scores", "e2e/test_pytest_plugin", "e2e/test_kafka"),
    *("e2e/test_kafka_disturbed", "e2e/test_accessibility", "e2e/test_browser", "e2e/test_shared_store"),
    *("e2e/test_stalls", "e2e/test_api_attacked", "e2e/test_budget_kills", "e2e/test_skills"),
    *("e2e/test_mcp_run_tools", "e2e/test_hostile", "deploy/test_alert_scenarios", "e2e/test_faults_model"),
    *("deploy/test_prometheus_rules", "e2e/test_kafka_guarded", "frameworks/test_mcp", "e2e/test_backtest"),
)
"""Files of minutes, which start first: a worker that starts one at the end keeps the others waiting."""

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", unhurried)
settings.register_profile("quick", unhurried, max_examples=20)
settings.load_profile("quick")

_running: list[str] = []
"""The test that runs now, if it may start no process."""
_started: list[str] = []
"""What such tests started."""


def _note_processes(event: str, arguments: tuple[object, ...]) -> None:
    if _running and event in _STARTS and arguments[:1] != ("uname",):  # Python's own, for its platform's name
        _started.append(f"{event} {arguments[:2]}")


sys.addaudithook(_note_processes)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Leave tests of some folders, and those over a real PostgreSQL, to ``make test-whole``."""
    folder = item.path.relative_to(Path(__file__).parent).parts[0]
    over = getattr(item, "callspec", None)
    is_over_server = over is not None and "postgresql" in over.params.values()
    if folder in LEFT_TO_WHOLE or is_over_server or "server" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.whole)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the heaviest files first, after the random order of all others was drawn."""
    first = {f"{name}.py": place for place, name in enumerate(HEAVIEST)}
    items.sort(key=lambda item: first.get("/".join(item.path.parts[-2:]), len(first)))


@pytest.fixture(autouse=True)
def starts_no_process(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test of ``make test`` that starts a process: each takes seconds."""
    if request.node.get_closest_marker("whole"):
        yield
        return
    _running.append(request.node.nodeid)
    yield
    _running.clear()
    started, _started[:] = tuple(_started), ()
    assert not started, "a test that starts a process belongs in tests/e2e, or is marked `whole`"
