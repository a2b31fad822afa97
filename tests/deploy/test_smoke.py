"""The smoke script, run as users do, against the shipped Collector configuration and real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.request import ProxyHandler, Request, build_opener

import pytest

from benchmarks.hostile.collector_kill import own_ports
from tests.backends import install
from tests.backends.fixtures import insist_on
from tests.backends.processes import RunningJaeger
from tests.backends.supervise import HOST, free_ports, listens, running
from tests.e2e.line import Line, StartLine

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
TOKEN: Final = "smoke-token"

Smoke: TypeAlias = Callable[..., str]


@pytest.fixture
def line(jaeger: RunningJaeger, start_line: StartLine) -> Line:
    return start_line(forward_endpoint=jaeger.otlp_grpc_endpoint, token=TOKEN)


@pytest.fixture
def smoke(line: Line, tmp_path: Path) -> Iterator[Smoke]:
    """Yield a function that runs the script and returns its output."""
    collector = insist_on("collector", install.collector_binary())
    grpc, http, *own = free_ports(5)
    environ = os.environ | {
        "BLAMESPAN_ENDPOINT": line.grpc.removeprefix("http://"),
        "BLAMESPAN_TOKEN": TOKEN,
        "COLLECTOR_GRPC_PORT": str(grpc),
        "COLLECTOR_HTTP_PORT": str(http),
        "COLLECTOR_QUEUE": str(tmp_path / "queue"),
        **own_ports(own),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }
    command = [
        str(collector),
        "--config",
        str(DEPLOY / "collector/agent.yaml"),
        "--set=service::telemetry::metrics::level=none",
    ]

    def run(*arguments: str) -> str:
        asked = [str(DEPLOY / "smoke.sh"), *arguments, f"http://{HOST}:{grpc}", line.web]
        done = subprocess.run(asked, env=environ, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    log = tmp_path / "collector.log"
    with running("collector", command, log=log, is_ready=lambda: listens(grpc), environ=environ):
        yield run


def test_a_passing_run_goes_all_the_way_and_leaves_no_issue(
    jaeger: RunningJaeger, line: Line, smoke: Smoke
) -> None:
    said = smoke()
    assert said.splitlines()[1].startswith("passed:")
    assert jaeger.query.trace(said.strip().rpartition("/")[2]) is not None
    assert issues(line) == []


def test_a_failing_run_is_blamed_and_its_issue_sends_no_notice(line: Line, smoke: Smoke) -> None:
    assert "blamed: calculator" in smoke("--blame")
    (found,) = issues(line)
    assert found["muted_until"]


def issues(line: Line) -> list[dict[str, Any]]:
    asked = Request(f"{line.web}/api/issues", headers={"Authorization": f"Bearer {TOKEN}"})
    with build_opener(ProxyHandler({})).open(asked, timeout=300) as answer:
        found: list[dict[str, Any]] = json.load(answer)["issues"]
        return found
