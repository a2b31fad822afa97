"""Runs pulled from a real Phoenix and a real MLflow get the verdicts that their files get."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal
from urllib.request import Request, urlopen

import pytest

from analyzer.cli.main import run
from analyzer.recordings.read_files import read_recording
from benchmarks.accuracy.right_runs import __main__ as right_runs
from collector_processor.otlp import Signal
from tests.backends.fixtures import insist_on
from tests.backends.install import python_of
from tests.backends.processes import phoenix_serving
from tests.backends.supervise import HOST, free_ports, listens, running

PROJECT: Final = "pulled"
RUNS: Final = 60
PATIENCE_S: Final = 60.0
_ACCURACY: Final = Path(right_runs.__file__).parent.parent
_GAP_NS: Final = 1_000_000
"""Between steps: Phoenix keeps microseconds, and steps that touch would begin when the one before ends."""


def files(folder: Path) -> Sequence[Path]:
    """Write right and silently wrong runs as OTLP/JSON, with ids of their own, begun within the last day."""
    lines: list[str] = []
    for kind in ("right_runs", "silent_runs"):
        packed = sorted((_ACCURACY / kind).glob("*.jsonl.gz"))
        found = [line for path in packed for line in gzip.decompress(path.read_bytes()).decode().splitlines()]
        lines += found[:: max(1, len(found) // (RUNS // 2))][: RUNS // 2]
    now_ns = time.time_ns()
    return [
        _file(folder / f"{at:03}.json", json.loads(line), now_ns - at * 10**9)
        for at, line in enumerate(lines)
    ]


def _file(path: Path, one: Mapping[str, Any], end_ns: int) -> Path:
    spans = list(right_runs.spans_of(one))
    late_ns = end_ns - max(int(span["endTimeUnixNano"]) for span in spans)
    trace = _id(f"{path.stem} {end_ns}", 32)
    for span in spans:
        span["traceId"] = trace
        span["spanId"] = _id(f"{trace} {span['spanId']}", 16)
        if span.get("parentSpanId"):
            span["parentSpanId"] = _id(f"{trace} {span['parentSpanId']}", 16)
        span["startTimeUnixNano"] = str(int(span["startTimeUnixNano"]) + late_ns)
        span["endTimeUnixNano"] = str(int(span["endTimeUnixNano"]) + late_ns - _GAP_NS)
    names = {"service.name": "pulled", "openinference.project.name": PROJECT}
    resource = {"attributes": [{"key": key, "value": {"stringValue": name}} for key, name in names.items()]}
    request = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans}]}]}
    path.write_text(json.dumps(request))
    return path


def _id(text: str, digits: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:digits]


def posted(url: str, body: bytes, **headers: str) -> bytes:
    request = Request(
        url,
        data=body,
        method="POST",
        headers={name.replace("_", "-"): text for name, text in headers.items()},
    )
    with urlopen(request, timeout=PATIENCE_S) as answer:
        return bytes(answer.read())


def verdicts(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """Return the verdict on each run, without what differs at each judgement."""
    assert run([*arguments, "--format", "json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    kept = ("status", "agent", "step", "span_id", "reason", "confidence", "ranking")
    return {one["trace_id"]: [one[name] for name in kept] for one in found}


@contextmanager
def phoenix(folder: Path, **more: str) -> Iterator[str]:
    python = insist_on("phoenix", python_of("phoenix"))
    with phoenix_serving(python, folder, **more) as url:
        yield url


@contextmanager
def mlflow(folder: Path) -> Iterator[str]:
    python = insist_on("mlflow", python_of("mlflow"))
    [port] = free_ports(1)
    store = ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", str(folder)]
    command = [
        str(python),
        "-m",
        "mlflow",
        "server",
        "--host",
        HOST,
        "--port",
        str(port),
        "--workers",
        "1",
        *store,
    ]
    # Without jobs, five further processes, each of which imports all of MLflow.
    own = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with running("mlflow", command, log=folder / "log", is_ready=lambda: listens(port), environ=own):
        yield f"http://{HOST}:{port}"


@pytest.mark.parametrize("name", ["phoenix", "mlflow"])
def test_a_pulled_run_gets_the_verdict_of_its_file(
    name: Literal["phoenix", "mlflow"], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = files(tmp_path)
    with {"phoenix": phoenix, "mlflow": mlflow}[name](tmp_path) as url:
        more: dict[str, str] = {}
        if name == "mlflow":
            made = posted(
                f"{url}/api/2.0/mlflow/experiments/create",
                json.dumps({"name": PROJECT}).encode(),
                Content_Type="application/json",
            )
            more["x_mlflow_experiment_id"] = json.loads(made)["experiment_id"]
        for path in recorded:
            for body in read_recording(path.read_bytes()).bodies(Signal.TRACES):
                posted(f"{url}/v1/traces", body, Content_Type="application/x-protobuf", **more)
        asked = ("pull", name, "--url", url, "--project", PROJECT, "--since", "1d", "--limit", "1000")
        of_files = verdicts(capsys, "attribute", *map(str, recorded))
        pulled = _when_stored(capsys, asked, len(recorded))
        assert run([*asked[:-1], "3"]) == 0
        assert "3 runs: " in capsys.readouterr().out
        assert run(["pull", name, "--url", url, "--project", "absent"]) == 1
        assert "HTTP 404" in capsys.readouterr().err
    assert len(of_files) == RUNS
    assert pulled == of_files


def _when_stored(capsys: pytest.CaptureFixture[str], asked: Sequence[str], number: int) -> dict[str, Any]:
    """Pull until the backend has all runs: Phoenix answers before it has stored what it was sent."""
    end_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < end_s:
        time.sleep(2)
        if run([*asked, "--format", "json"]) == 0 and len(capsys.readouterr().out.splitlines()) == number:
            return verdicts(capsys, *asked)
    pytest.fail(f"{number} runs were sent and are not stored within {PATIENCE_S} s")
