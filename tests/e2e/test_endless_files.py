"""Files without an end, bombs and damaged Parquet, each read by a command of its own."""

from __future__ import annotations

import gzip
import resource
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.security.test_hostile_files import COMMANDS, HERE, MOST_TOLD, bomb

LEAST_MEMORY: Final = 4 << 30


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (LEAST_MEMORY, LEAST_MEMORY))


@pytest.fixture(scope="module")
def bombs() -> dict[str, bytes]:
    plain = bomb(3_000)
    return {"a bomb of 3,000 MiB": plain, "a bomb in a bomb": gzip.compress(plain)}


@pytest.mark.parametrize("command", ["steps", "bench"])
@pytest.mark.parametrize("name", ["an endless file", "a bomb of 3,000 MiB", "a bomb in a bomb"])
def test_endless_files_and_bombs_are_given_up_at_a_limit(
    name: str, command: str, bombs: dict[str, bytes], tmp_path: Path
) -> None:
    """The command has 4 GiB of address space: without a limit it would run out of it."""
    file = tmp_path / "hostile"
    if name == "an endless file":
        file = Path("/dev/zero")
    else:
        file.write_bytes(bombs[name])
    words = [str(file) if word == HERE else word for word in COMMANDS[command]]
    done = subprocess.run(
        [sys.executable, "-m", "analyzer", *words],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limited,
    )
    assert done.returncode in {1, 2}
    assert "Traceback" not in done.stderr
    assert len(done.stderr) < MOST_TOLD, done.stderr[:3_000]
    if name != "a bomb in a bomb":
        assert "more than 1024 MiB" in done.stderr or "larger than 1024 MiB" in done.stderr
