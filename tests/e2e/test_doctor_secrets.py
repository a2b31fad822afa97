"""The doctor shows no secret."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from collector_processor.otlp.answers import RpcCode, failure
from tests.contract.backends import HttpReply, http_backend
from tests.security.test_secrets import HEADER, _leaks, environ


@pytest.mark.parametrize("output", ["json", "table"])
async def test_doctor_shows_no_secret(tmp_path: Path, output: str) -> None:
    quoted = failure(RpcCode.UNAUTHENTICATED, f"who is {HEADER}?")
    refusals = [HttpReply(status=401, body=quoted, headers={"Content-Type": "application/x-protobuf"})] * 9
    async with http_backend(*refusals) as backend:
        chosen = environ(backend.url, BLAMESPAN_MODEL="openai/scripted", BLAMESPAN_DATA_DIR=str(tmp_path))
        command = [sys.executable, "-m", "analyzer", "doctor", "--format", output]
        told = await asyncio.to_thread(
            subprocess.run, command, env=chosen, cwd=tmp_path, capture_output=True, text=True, check=False
        )
    assert "backend traces" in told.stdout
    assert _leaks(told.stdout + told.stderr) == []
