"""Phoenix, a store for traces of agents, with SQLite: the cost of storing spans in Python."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.ingest import install
from benchmarks.ingest.subjects.running import Running
from tests.backends.supervise import HOST, free_ports, listens
from tests.backends.supervise import running as running_server

_OURS: Final = ("OTEL_", "PHOENIX_")


@contextmanager
def phoenix(protocol: str, backend: str, folder: Path) -> Iterator[Running]:
    """It stores spans and forwards none; its database is queried for the number of spans."""
    del backend
    http, grpc = free_ports(2)
    environ = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)} | {
        "PHOENIX_WORKING_DIR": str(folder),
        "PHOENIX_HOST": HOST,
        "PHOENIX_PORT": str(http),
        "PHOENIX_GRPC_PORT": str(grpc),
        "PHOENIX_TELEMETRY_ENABLED": "false",
    }

    def is_ready() -> bool:
        return listens(grpc) and listens(http)

    log = folder / "phoenix.log"
    command = [str(install.program("phoenix")), "-m", "phoenix.server.main", "serve"]
    with running_server("phoenix", command, log=log, is_ready=is_ready, environ=environ) as server:
        yield Running(
            pid=server.process.pid,
            endpoint=f"http://{HOST}:{grpc if protocol == 'grpc' else http}",
            stored_spans=partial(_count, folder / "phoenix.db"),
        )


def _count(database: Path) -> int:
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=10)) as db:
        return int(db.execute("SELECT count(*) FROM spans").fetchone()[0])
