"""The bare proxy: the minimum cost of Python's libraries; stores nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.ingest.subjects.running import Running, announcing


@contextmanager
def passthrough(protocol: str, backend: str, folder: Path) -> Iterator[Running]:
    """Acknowledges requests once the backend has acknowledged them."""
    del folder
    command = [sys.executable, "-m", "benchmarks.ingest.passthrough", protocol, backend]
    with announcing(command) as (process, line):
        yield Running(pid=process.pid, endpoint=line)
