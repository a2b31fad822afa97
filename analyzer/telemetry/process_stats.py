"""Uptime, memory and CPU time of this process, as the operating system reports them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import Final

from prometheus_client.metrics_core import Metric as Family

from analyzer import metric_table as table
from analyzer.families import gauge, sums

_STATM: Final = Path("/proc/self/statm")
"""Linux only; on other systems the memory metric is missing."""
_RESIDENT: Final = 1
"""Its second number: resident pages."""


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

    monotonic: Callable[[], float] = time.monotonic
    cpu_s: Callable[[], float] = time.process_time
    memory: Callable[[], int | None] = resident_bytes
    started: float = field(default_factory=time.monotonic)
    """By ``monotonic``."""

    def collect(self) -> Iterator[Family]:
        """Yield the families of the process and of its build."""
        yield gauge(table.BUILD_INFO, [((version("blamespan"), python_version()), 1)])
        yield sums(table.UPTIME, [((), self.monotonic() - self.started)])
        yield sums(table.CPU, [((), self.cpu_s())])
        memory = self.memory()
        yield gauge(table.MEMORY, [] if memory is None else [((), memory)])
