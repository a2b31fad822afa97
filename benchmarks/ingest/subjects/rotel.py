"""rotel, a Collector in Rust, from its Python package: batches in memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.ingest import install
from benchmarks.ingest.subjects.running import Running
from tests.backends.supervise import HOST, free_ports, listens
from tests.backends.supervise import running as running_server

_OURS: Final = ("OTEL_", "ROTEL_")


@contextmanager
def rotel(protocol: str, backend: str, folder: Path) -> Iterator[Running]:
    """rotel with its defaults, except for a gRPC limit above our largest requests, and no compression."""
    grpc, http = free_ports(2)
    options = {
        "otlp-grpc-endpoint": f"{HOST}:{grpc}",
        "otlp-http-endpoint": f"{HOST}:{http}",
        "otlp-grpc-max-recv-msg-size-mib": "20",
        "exporter": "otlp",
        "otlp-exporter-endpoint": backend,
        "otlp-exporter-protocol": protocol,
        "otlp-exporter-compression": "none",
    }
    command = [
        str(install.program("rotel")),
        "start",
        *(f"--{name}={value}" for name, value in options.items()),
    ]
    environ = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}

    def is_ready() -> bool:
        return listens(grpc) and listens(http)

    log = folder / "rotel.log"
    with running_server("rotel", command, log=log, is_ready=is_ready, environ=environ) as server:
        port = grpc if protocol == "grpc" else http
        yield Running(pid=server.process.pid, endpoint=f"http://{HOST}:{port}")
