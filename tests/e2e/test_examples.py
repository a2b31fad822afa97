"""The examples work: a run is retried from the blamed step with the fix, and succeeds."""

from __future__ import annotations

import asyncio
import json
import os
import runpy
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.line import environment
from tests.e2e.model_server import Scripted, serve

EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "retry_with_fix.py"
BIN: Final = Path(sys.executable).parent

pytestmark = pytest.mark.skipif(not (BIN / "blamespan").exists(), reason="the command is not installed")


QUOTES = {2: "12 * 35 + 30 * 14 = 820", 3: "Together they cost 820."}


def judged(step: int, agent: str, fix: str) -> Scripted:
    answer = {
        "reason": "the sum is wrong",
        "step": step,
        "agent": agent,
        "mode": "wrong_computation",
        "fix": fix,
        "evidence": [{"step": step, "quote": QUOTES[step]}],
        "ranking": [{"step": step, "probability": 0.9}],
    }
    return Scripted(text=json.dumps(answer))


async def retry(folder: Path, url: str | None) -> tuple[int | None, str, str]:
    model = {"model": "openai/scripted", "method": "judge"} if url else {}
    variables = environment(
        data_dir=str(folder),
        OPENAI_API_BASE=url or "",
        OPENAI_API_KEY="none",
        LITELLM_LOCAL_MODEL_COST_MAP="True",
        PATH=f"{BIN}{os.pathsep}{os.environ['PATH']}",
        **model,
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(EXAMPLE),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=variables,
        cwd=folder,
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def test_a_team_that_gets_the_fix_succeeds_at_the_second_attempt(tmp_path: Path) -> None:
    async with serve(judged(2, "clerk", "Work the sum out with the calculator.")) as server:
        code, out, err = await retry(tmp_path, server.url)
    assert (code, len(server.received)) == (0, 1), err
    assert "attempt 1: Together they cost 820." in out
    assert "step 2, clerk: the sum is wrong" in out
    assert "fix: Work the sum out with the calculator." in out
    assert "attempt 2: Together they cost 840." in out


async def test_a_fix_for_the_wrong_agent_does_not_help_and_the_team_gives_up(tmp_path: Path) -> None:
    async with serve(judged(3, "writer", "Write more clearly.")) as server:
        code, out, err = await retry(tmp_path, server.url)
    assert (code, len(server.received)) == (1, 3)
    assert out.count("820") >= 3
    assert "could not be helped" in err


async def test_without_a_model_the_fix_for_this_kind_of_failure_is_tried(tmp_path: Path) -> None:
    code, out, err = await retry(tmp_path, None)
    assert (code, err) == (0, "")
    assert "fix: Give clerk a calculator tool" in out
    assert "attempt 2: Together they cost 840." in out


@pytest.mark.parametrize(
    ("protocol", "package"), [("", "grpc"), ("grpc", "grpc"), ("http/protobuf", "http")], ids=str
)
def test_the_instrumented_agents_speak_what_opentelemetrys_variable_says(
    protocol: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    exporter = runpy.run_path(str(EXAMPLE.with_name("instrumented_agents.py")))["exporter"]()
    exporter.shutdown()
    assert f".proto.{package}." in type(exporter).__module__
