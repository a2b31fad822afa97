"""A measured process: its OTLP endpoint, its resource use, and the data that left it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A process to send to."""

    pid: int
    endpoint: str
    stored_spans: Callable[[], int] | None = None
    """Returns the number of stored spans, if it is a store; otherwise the backend counts."""

    def cpu_s(self) -> float:
        """Return the CPU time used so far, over all threads."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def rss_mib(self) -> float:
        """Return its current memory."""
        return self._status_mib("VmRSS")

    def peak_mib(self) -> float:
        """Return its peak memory."""
        return self._status_mib("VmHWM")

    def _status_mib(self, what: str) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith(what))


Start: TypeAlias = Callable[[str, str, Path], AbstractContextManager[Running]]
"""Starts a process, given the protocol, the backend's endpoint and a folder."""


@contextmanager
def announcing(command: list[str]) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a server that prints a line when it is ready, and stops when its standard input closes."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.stdin.close()
            process.kill()
