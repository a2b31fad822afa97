"""The scripts of ``docs/history.md`` for other engines, each run with its library against a real export.

``uv`` fetches the library that a script's first line names. Each script prints an agent and a number of steps
a line, which must be what ``blamespan query`` finds.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from analyzer.cli.archive.sql_query import query
from tools.markdown_blocks import DOCS, blocks

_MARK: Final = "# pip install "
_SQL: Final = "SELECT agent, count(*) FROM steps GROUP BY agent ORDER BY agent"


def engines() -> None:
    """Export the demo's run, and read it with each engine."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        _blamespan(folder, "demo", "--data-dir", "demo")
        _blamespan(folder, "export", "--parquet", "history", "--data-dir", "demo")
        with query(folder / "history", _SQL) as found:
            expected = [[str(cell) for cell in row] for row in found.rows]
        for library, script in scripts():
            printed = _run(folder, library, script)
            if printed != expected:
                raise SystemExit(f"{library} read {printed}, expected {expected}")
            print(f"{library}: {printed} as DuckDB")


def scripts() -> Iterator[tuple[str, str]]:
    """Yield the libraries and the scripts of the page."""
    for block in blocks(DOCS / "history.md"):
        if block.language == "python" and block.text.startswith(_MARK):
            yield block.text.partition("\n")[0].removeprefix(_MARK), block.text


def _run(folder: Path, library: str, script: str) -> list[list[str]]:
    command = ["uv", "run", "--no-project", "--quiet", "--with", library, "python", "-c", script]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, check=True)
    return [line.split() for line in done.stdout.splitlines() if line.strip()]


def _blamespan(folder: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "analyzer", *arguments]
    subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, check=True)
