"""What is measured: a process that takes OTLP and passes it on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from tests.backends.install import collector_binary
from tests.backends.processes import Forwarding, start_collector
from tests.e2e.line import starting

_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A process to send to."""

    pid: int
    endpoint: str

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


Subject: TypeAlias = Callable[[str, str, Path], AbstractContextManager[Running]]
"""Given the protocol, the backend's endpoint and a folder."""


@contextmanager
def blamespan(protocol: str, backend: str, folder: Path) -> Iterator[Running]:
    """Durable before it acknowledges."""
    with starting(folder) as start:
        line = start(
            forward_endpoint=backend,
            forward_protocol="grpc" if protocol == "grpc" else "http/protobuf",
            max_age=600_000,
        )
        yield Running(pid=line.server.process.pid, endpoint=line.grpc if protocol == "grpc" else line.http)


@contextmanager
def passthrough(protocol: str, backend: str, folder: Path) -> Iterator[Running]:
    """Keeps nothing: the floor of Python's libraries."""
    del folder
    command = [sys.executable, "-m", "tests.bench.ingest.passthrough", protocol, backend]
    with announcing(command) as (process, line):
        yield Running(pid=process.pid, endpoint=line)


@contextmanager
def collector_durable(protocol: str, backend: str, folder: Path) -> Iterator[Running]:
    """The Collector as safe as it gets: its queue on disk, flushed before it acknowledges."""
    with _collector(protocol, backend, folder, folder / "queue") as running:
        yield running


@contextmanager
def collector(protocol: str, backend: str, folder: Path) -> Iterator[Running]:
    """The Collector as most run it: its queue in memory."""
    with _collector(protocol, backend, folder, None) as running:
        yield running


@contextmanager
def _collector(protocol: str, backend: str, folder: Path, queue: Path | None) -> Iterator[Running]:
    binary = collector_binary()
    if binary is None:
        raise SystemExit("no Collector here: make backends")
    forwarding = Forwarding(
        endpoint=backend,
        protocol="grpc" if protocol == "grpc" else "http/protobuf",
        compression="none",
        queue_folder=queue,
        is_batching=False,
    )
    with start_collector(binary, folder, forwarding) as running:
        endpoint = running.otlp_grpc_endpoint if protocol == "grpc" else running.otlp_http_endpoint
        yield Running(pid=running.server.process.pid, endpoint=endpoint)


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


SUBJECTS: Final[dict[str, Subject]] = {
    "blamespan": blamespan,
    "collector+fsync": collector_durable,
    "collector": collector,
    "passthrough": passthrough,
}
