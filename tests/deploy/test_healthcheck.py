"""The image's health check asks without starting Python, and leaves what it cannot ask to ``doctor``."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.security.authority import issue
from tests.unit.test_health_command import serving

SCRIPT: Final = Path(__file__).parents[2] / "deploy" / "healthcheck.sh"
BY_DOCTOR: Final = 7


class Checked(NamedTuple):
    """How the script ended, and what it printed."""

    code: int
    said: str


async def check(folder: Path) -> Checked:
    """Run the script; the command ``blamespan`` only says how it was called."""
    stand_in = folder / "blamespan"
    stand_in.write_text(f'#!/bin/sh\necho "asked: $*"\nexit {BY_DOCTOR}\n')
    stand_in.chmod(0o755)
    process = await asyncio.create_subprocess_exec(
        "bash",
        str(SCRIPT),
        env=os.environ | {"PATH": f"{folder}:/usr/bin:/bin"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode is not None
    return Checked(process.returncode, said.decode().strip())


@pytest.mark.parametrize("listen", ["127.0.0.1", "0.0.0.0", "::1"])
async def test_a_service_that_is_ready_is_healthy_without_python(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, listen: str
) -> None:
    async with serving(monkeypatch, listen=listen):
        if listen == "::1":
            port = os.environ["BLAMESPAN_WEB_LISTEN"].rpartition(":")[2]
            monkeypatch.setenv("BLAMESPAN_WEB_LISTEN", f"[::1]:{port}")
        assert await check(tmp_path) == (0, "ready")


async def test_a_service_that_is_not_ready_or_away_is_left_to_doctor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with serving(monkeypatch, ready=False):
        assert await check(tmp_path) == (BY_DOCTOR, "asked: doctor --quick")
    assert await check(tmp_path) == (BY_DOCTOR, "asked: doctor --quick")


async def test_with_tls_doctor_asks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ours = issue(tmp_path / "ours")
    async with serving(monkeypatch, tls=ours.server()):
        assert await check(tmp_path) == (BY_DOCTOR, "asked: doctor --quick")


def test_the_image_has_the_script() -> None:
    lines = (SCRIPT.parent / "Dockerfile").read_text(encoding="utf-8").splitlines()
    (probe,) = (line for line in lines if line.startswith("HEALTHCHECK"))
    (copied,) = (line for line in lines if line.startswith("COPY") and "healthcheck" in line)
    assert probe.endswith('CMD ["blamespan-healthcheck"]')
    assert copied.endswith("deploy/healthcheck.sh /opt/blamespan/bin/blamespan-healthcheck")
    assert os.access(SCRIPT, os.X_OK)
