"""Uptime, memory and CPU time of this process, as the operating system reports them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import Final

from prometheus_client.metrics_core import Metric as Family

from analyzer.telemetry import metric_table as table

_STATM: Final = Path("/proc/self/statm")
"""Linux only; other systems do not show the memory metric."""
_RESIDENT: Final = 1
"""Index of the number of resident pages in that file."""


def resident_bytes() -> int | None:
    """Return the resident memory of this process in bytes; ``None`` if the system does not report it."""
    try:
        pages = int(_STATM.read_text(encoding="ascii").split()[_RESIDENT])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStats:
    """Metrics of this process, read at each scrape; child processes are not included."""

    build: tuple[str, str] = field(default_factory=lambda: (version("blamespan"), python_version()))
    """Versions of blamespan and Python; read from files, so not at each scrape."""
    started: float = field(default_factory=time.monotonic)
    """Start time by ``time.monotonic``."""

    def collect(self) -> Iterator[Family]:
        """Yield the families of the process and of its build."""
        yield table.BUILD_INFO.family([(self.build, 1)])
        yield table.UPTIME.single(time.monotonic() - self.started)
        yield table.CPU.single(time.process_time())
        memory = resident_bytes()
        yield table.MEMORY.family([] if memory is None else [((), memory)])
