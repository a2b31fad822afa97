"""Subjects of the measurement: processes that receive OTLP and forward it.

blamespan is durable before it acknowledges; the Go Collector has its queue on disk or in memory; the bare
proxy stores nothing and is the minimum cost of Python's libraries.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A program under load: its command, and the guarantee of its acknowledgement."""

    start: Start
    acknowledges: str


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


@contextmanager
def blamespan(protocol: str, backend: str, folder: Path) -> Iterator[Running]:
    """The service as run by ``serve``, with only the destination set."""
    with _serving(protocol, backend, folder, {}) as running:
        yield running


@contextmanager
def fast_lane(protocol: str, backend: str, folder: Path) -> Iterator[Running]:
    """The same with runs that stay open: the cost of agents' traces before any analysis."""
    open_ms = 3_600_000
    with _serving(protocol, backend, folder, {"root_grace": open_ms, "idle_close": open_ms}) as running:
        yield running


@contextmanager
def _serving(protocol: str, backend: str, folder: Path, settings: dict[str, str | int]) -> Iterator[Running]:
    with starting(folder) as start:
        line = start(
            forward_endpoint=backend,
            forward_protocol="grpc" if protocol == "grpc" else "http/protobuf",
            **settings,
        )
        yield Running(pid=line.server.process.pid, endpoint=line.grpc if protocol == "grpc" else line.http)


@contextmanager
def collector_durable(protocol: str, backend: str, folder: Path) -> Iterator[Running]:
    """The safest configuration: ``file_storage`` with ``fsync``, written before the acknowledgement."""
    with _collector(protocol, backend, folder, folder / "queue") as running:
        yield running


@contextmanager
def collector(protocol: str, backend: str, folder: Path) -> Iterator[Running]:
    """The usual configuration: its queue in memory."""
    with _collector(protocol, backend, folder, None) as running:
        yield running


@contextmanager
def _collector(protocol: str, backend: str, folder: Path, queue: Path | None) -> Iterator[Running]:
    binary = collector_binary()
    if binary is None:
        raise SystemExit("no Collector here: python -m tests.backends.install collector")
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
def passthrough(protocol: str, backend: str, folder: Path) -> Iterator[Running]:
    """Acknowledges requests once the backend has acknowledged them."""
    del folder
    command = [sys.executable, "-m", "benchmarks.ingest.passthrough", protocol, backend]
    with announcing(command) as (process, line):
        yield Running(pid=process.pid, endpoint=line)


SUBJECTS: Final[Mapping[str, Subject]] = {
    "blamespan": Subject(start=blamespan, acknowledges="on disk, flushed"),
    "fast lane": Subject(start=fast_lane, acknowledges="on disk, flushed"),
    "collector+fsync": Subject(start=collector_durable, acknowledges="on disk, flushed"),
    "collector": Subject(start=collector, acknowledges="in memory"),
    "passthrough": Subject(start=passthrough, acknowledges="at the backend"),
}
BASELINE: Final = "passthrough"
"""The reference for all others: the bare proxy."""
