"""The Go Collector, with its queue on disk and in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.ingest.subjects.running import Running
from tests.backends.install import collector_binary
from tests.backends.processes import Forwarding, start_collector


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
