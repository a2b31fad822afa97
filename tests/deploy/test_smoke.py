"""The smoke script as a user runs it, against the shipped Collector configuration and real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.backends import install
from tests.backends.fixtures import insist_on
from tests.backends.processes import RunningJaeger
from tests.backends.supervise import HOST, free_ports, listens, running
from tests.bench.collector_kill import own_ports
from tests.e2e.line import StartLine

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
TOKEN: Final = "smoke-token"


def test_a_failing_run_is_blamed_through_the_shipped_collector(
    jaeger: RunningJaeger, start_line: StartLine, tmp_path: Path
) -> None:
    collector = insist_on("collector", install.collector_binary())
    line = start_line(forward_endpoint=jaeger.otlp_grpc_endpoint, token=TOKEN)
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
    log = tmp_path / "collector.log"
    with running("collector", command, log=log, is_ready=lambda: listens(grpc), environ=environ):
        done = subprocess.run(
            [str(DEPLOY / "smoke.sh"), f"http://{HOST}:{grpc}", line.web],
            env=environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=90,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "blamed: calculator" in done.stdout
    trace_id = done.stdout.strip().rpartition("/")[2]
    assert jaeger.query.trace(trace_id) is not None
