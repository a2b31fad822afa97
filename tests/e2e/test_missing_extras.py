"""A command whose extra is not installed names it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("library", "arguments"),
    [("pyarrow", ["runs", "export", "--parquet", "x"]), ("duckdb", ["runs", "query", "x", "SELECT 1"])],
)
def test_without_the_extra_a_command_names_it(library: str, arguments: list[str], tmp_path: Path) -> None:
    program = (
        f"import sys; sys.modules[{library!r}] = None;"
        f" from analyzer.cli.main import run; sys.exit(run({arguments!r}))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stderr.strip().endswith("it is in the extra history: pip install '.[server,history]'")
