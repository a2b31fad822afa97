"""A process that is measured: where it takes OTLP, what it uses, and what of it has arrived."""

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
    """How many spans it has stored, if it is a store; else what it passes on is counted behind it."""

    def cpu_s(self) -> float:
        """Return the CPU time it used so far, over all its threads."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def rss_mib(self) -> float:
        """Return the memory it has now."""
        return self._status_mib("VmRSS")

    def peak_mib(self) -> float:
        """Return the most memory it had."""
        return self._status_mib("VmHWM")

    def _status_mib(self, what: str) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith(what))


Start: TypeAlias = Callable[[str, str, Path], AbstractContextManager[Running]]
"""Given the protocol, the backend's endpoint and a folder."""


@contextmanager
def announcing(command: list[str]) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a server that prints a line once it is there, and ends with its standard input."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.stdin.close()
            process.kill()
