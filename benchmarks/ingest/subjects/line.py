"""blamespan: durable before it acknowledges."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.ingest.subjects.running import Running
from tests.e2e.line import starting


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
