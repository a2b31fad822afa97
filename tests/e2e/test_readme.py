"""The README's lines work as they are pasted into a shell, with the extras that they name."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from collector_processor.otlp import Signal
from tests.backends.supervise import free_ports, wait_until
from tests.e2e.backend import Backend, grpc_backend
from tests.e2e.line import environment
from tests.e2e.spans import carriers, placed
from tests.e2e.test_run_command import serving
from tests.e2e.test_without_models import PROGRAM
from tools.markdown_blocks import ROOT, blocks

UNPREPARED: Final = """
import json, os, sys
from urllib.request import Request, urlopen
def ask(instructions, text):
    messages = [{"role": "system", "content": instructions}, {"role": "user", "content": text}]
    asked = json.dumps({"model": "m", "messages": messages}).encode()
    headers = {"Content-Type": "application/json", "Authorization": "Bearer none"}
    request = Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", asked, headers)
    return json.load(urlopen(request))["choices"][0]["message"]["content"]
print(sys.prefix)
print(ask("You are the analyst.", "Sales were 1,200, 1,450 and 980 units. How many units in total?"))
"""
SHELL: Final = [block.text for block in blocks(ROOT / "README.md") if block.language == "sh"]
LONGEST_S: Final = 600


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what the installation reads: building in the checkout itself would leave files there."""
    place = tmp_path / "checkout"
    for name in ("semconv", "collector_processor", "analyzer", "requirements"):
        shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, place)
    return place


def test_there_is_one_block_for_a_program_and_one_for_a_backend() -> None:
    assert [("blamespan run" in text, "blamespan serve" in text) for text in SHELL] == [
        (True, False),
        (False, True),
    ]


def test_the_installation_judges_a_program_that_is_not_instrumented(checkout: Path, tmp_path: Path) -> None:
    (checkout / "my_agents.py").write_text(UNPREPARED)
    with serving() as provider:
        ended = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", SHELL[0]],
            cwd=checkout, env=environment(HOME=str(tmp_path), OPENAI_BASE_URL=provider, COLUMNS="100"),
            capture_output=True, text=True, timeout=LONGEST_S, check=False,
        )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3_000:]
    assert "3,530 units" in ended.stdout
    assert str(tmp_path / "blamespan") not in ended.stdout, (
        "the program ran in our environment, not in its own"
    )
    assert "analyst, at step" in ended.stderr


def test_the_service_runs_between_agents_and_their_backend(tmp_path: Path) -> None:
    grpc, http, page = free_ports(3)
    ours = [line for line in SHELL[1].splitlines() if "OTEL_EXPORTER" not in line]
    theirs = [line for line in SHELL[1].splitlines() if "OTEL_EXPORTER" in line]
    with grpc_backend() as backend:
        ports = {"4318": str(http)}
        script = "\n".join(ours).replace("http://jaeger:4317", backend.url)
        script = script.replace(
            "blamespan serve", f"exec blamespan serve --grpc {grpc} --http {http} --page {page}"
        )
        environ = environment(data_dir=str(tmp_path / "data"), PATH=in_path())
        for name in ("BLAMESPAN_OTLP_GRPC_LISTEN", "BLAMESPAN_OTLP_HTTP_LISTEN", "BLAMESPAN_WEB_LISTEN"):
            del environ[name]
        with subprocess.Popen(["bash", "-c", script], env=environ, stderr=subprocess.DEVNULL) as service:
            try:
                wait_until(lambda: is_open(http) or None, what="the service")
                agents = f"{replaced(theirs[0], ports)}\nexec {sys.executable} -c '{over_http(PROGRAM)}'"
                texts = environment(OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT="true")
                subprocess.run(["bash", "-c", agents], env=texts, check=True, timeout=LONGEST_S)
                names = wait_until(lambda: added(backend), what="the verdict in the backend")
            finally:
                service.terminate()
    assert names == ["suspected: analyst (wrong computation)"] * 2


def is_open(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def added(backend: Backend) -> list[str]:
    """Return the names of the spans that carry a verdict."""
    spans = [one for request in backend.of(Signal.TRACES) for one in placed(request.body)]
    return [one.span.name for one in carriers(spans)]


def over_http(program: str) -> str:
    return program.replace("otlp.proto.grpc", "otlp.proto.http")


def in_path() -> str:
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


def replaced(text: str, ports: dict[str, str]) -> str:
    """Return a block with free ports: others' tests use the usual ones."""
    return re.sub(r"\b\d{4,5}\b", lambda found: ports.get(found[0], found[0]), text)
