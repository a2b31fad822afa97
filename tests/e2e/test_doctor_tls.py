"""The doctor says whether a certificate can be used."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.line import environment
from tests.security.authority import Identity
from tests.security.test_tls import _other_key, ours

__all__ = ["ours"]


@pytest.mark.parametrize("is_spoiled", [False, True], ids=["sound", "spoiled"])
async def test_doctor_says_whether_the_certificate_can_be_used(
    ours: Identity, tmp_path: Path, *, is_spoiled: bool
) -> None:
    if is_spoiled:
        _other_key(ours)
    chosen = environment(
        tls_certificate=str(ours.certificate), tls_key=str(ours.key), data_dir=str(tmp_path / "data")
    )
    command = [sys.executable, "-m", "analyzer", "doctor", "--format", "json"]
    told = await asyncio.to_thread(
        subprocess.run, command, env=chosen, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    findings = {found["check"]: found for found in map(json.loads, told.stdout.splitlines())}
    assert findings["TLS"]["status"] == ("failed" if is_spoiled else "ok")
    assert told.returncode == (1 if is_spoiled else 0)
