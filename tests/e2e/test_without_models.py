"""What works in an environment of the extra ``server`` alone: no litellm, and nothing that it brings."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.line import StartLine, environment
from tests.e2e.traffic import play_demo, send

ROOT: Final = Path(__file__).parents[2]
INSTALL: Final = "litellm is not installed; it is in the extra models: pip install '.[models]'"
PROGRAM: Final = """
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from semconv.instrument import agent, llm, run
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
with run("sales", task="How many units?", tracer_provider=provider) as this:
    with agent("analyst"), llm("m") as call:
        call.output("1,200 + 1,450 + 980 = 3,530.")
    this.output("1,200 + 1,450 + 980 = 3,530.")
provider.shutdown()
"""
Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the interpreter of an environment made as ``make demo`` makes it."""
    venv = tmp_path_factory.mktemp("server") / "venv"
    pins = [f"requirements/{name}.txt" for name in ("server", "build")]
    made = str(venv / "bin" / "python")
    for command in (
        ["tools/environment.sh", sys.executable, str(venv), *pins],
        [made, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "-e", "."],
    ):
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=600)
    return made


@pytest.fixture
def blamespan(python: str, tmp_path: Path) -> Command:
    def call(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [python, "-m", "analyzer", *words], cwd=tmp_path, env=environment(**variables),
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip

    return call


def test_the_environment_has_no_model_library(python: str) -> None:
    code = "from importlib.util import find_spec; print([*filter(find_spec, ('litellm', 'openai', 'httpx'))])"
    ended = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.strip() == "[]"


def test_demo_names_the_agent(blamespan: Command) -> None:
    ended = blamespan("demo", "--format", "json")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["agent"] == "calculator"


def test_run_judges_a_program_and_attribute_its_recording(
    blamespan: Command, python: str, tmp_path: Path
) -> None:
    (tmp_path / "report.py").write_text(PROGRAM)
    ended = blamespan("run", "--save", "run.json", "--format", "json", "--", python, "report.py")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["agent"] == "analyst"
    again = blamespan("attribute", "run.json", "--format", "json")
    assert json.loads(again.stdout)["agent"] == "analyst"


def test_serve_writes_the_verdict(
    start_line: StartLine, python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", python)
    line = start_line(PYTHONNOUSERSITE="1")  # a variable of Python's own: a new process, not a forked one
    played = play_demo()
    send(line, played.body)
    assert line.verdict(played.trace_id)["agent"] == "calculator"


@pytest.mark.parametrize("words", [["serve"], ["attribute", "run.json"], ["doctor"]])
def test_a_model_without_litellm_is_refused_with_the_line_to_type(
    blamespan: Command, words: list[str], tmp_path: Path
) -> None:
    (tmp_path / "run.json").write_text("{}")
    ended = blamespan(*words, model="gpt-4o", data_dir=str(tmp_path / "data"))
    assert ended.returncode != 0
    assert INSTALL in " ".join((ended.stdout + ended.stderr).split())
    assert "Traceback" not in ended.stderr
