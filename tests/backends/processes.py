"""The real Jaeger, Collector and Phoenix as context managers, on free ports of loopback.

Knows their configuration files; the processes themselves are ``supervise``'s.
A configuration is written as JSON, which is YAML too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from tests.backends.jaeger_query import JaegerQuery
from tests.backends.supervise import HOST, Server, free_ports, listens, running

Protocol: TypeAlias = Literal["grpc", "http/protobuf"]
Signal: TypeAlias = Literal["traces", "logs", "metrics"]
Compression: TypeAlias = Literal[
    "none", "gzip", "zstd", "snappy", "x-snappy-framed", "zlib", "deflate", "lz4"
]
Config: TypeAlias = dict[str, Any]

BATCH_TIMEOUT: Final = "20ms"
FIRST_RETRY: Final = "100ms"  # 5 s by default: a test that restarts a backend would wait
LAST_RETRY: Final = "1s"
NO_SELF_METRICS: Final[Config] = {"metrics": {"level": "none"}}  # else port 8888, fixed


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningJaeger:
    """A Jaeger that answers on all its ports; it accepts only traces."""

    server: Server
    otlp_grpc_port: int
    otlp_http_port: int
    query_port: int

    @property
    def otlp_grpc_endpoint(self) -> str:
        """The OTLP/gRPC endpoint, without TLS."""
        return f"http://{HOST}:{self.otlp_grpc_port}"

    @property
    def otlp_http_endpoint(self) -> str:
        """The OTLP/HTTP endpoint; a client adds ``/v1/traces``."""
        return f"http://{HOST}:{self.otlp_http_port}"

    @property
    def query(self) -> JaegerQuery:
        """Its query API."""
        return JaegerQuery(base_url=f"http://{HOST}:{self.query_port}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningCollector:
    """A Collector that answers on both its ports; ``server.kill()`` crashes it."""

    server: Server
    otlp_grpc_port: int
    otlp_http_port: int

    @property
    def otlp_grpc_endpoint(self) -> str:
        """The OTLP/gRPC endpoint, without TLS."""
        return f"http://{HOST}:{self.otlp_grpc_port}"

    @property
    def otlp_http_endpoint(self) -> str:
        """The OTLP/HTTP endpoint; a client adds ``/v1/traces``."""
        return f"http://{HOST}:{self.otlp_http_port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Forwarding:
    """Where a Collector sends what it receives.

    ``endpoint`` is a URL; for HTTP the Collector adds ``/v1/traces`` and so on.
    With ``queue_folder`` (one a Collector) its queue is on disk and outlives it.
    """

    endpoint: str
    protocol: Protocol = "grpc"
    signals: tuple[Signal, ...] = ("traces",)
    headers: tuple[tuple[str, str], ...] = ()
    compression: Compression = "gzip"
    queue_folder: Path | None = None
    is_batching: bool = True


@contextmanager
def start_jaeger(binary: Path, folder: Path) -> Iterator[RunningJaeger]:
    """Run an all-in-one Jaeger in memory; configuration and log are written to ``folder``."""
    grpc, http, query, query_grpc = free_ports(4)
    command = _command(binary, folder, "jaeger", _jaeger_config(grpc, http, query, query_grpc))
    client = JaegerQuery(base_url=f"http://{HOST}:{query}")

    def is_ready() -> bool:
        return listens(grpc) and listens(http) and client.services() is not None

    with running("jaeger", command, log=folder / "jaeger.log", is_ready=is_ready) as server:
        yield RunningJaeger(server=server, otlp_grpc_port=grpc, otlp_http_port=http, query_port=query)


@contextmanager
def start_collector(
    binary: Path, folder: Path, forwarding: Forwarding, *, name: str = "collector"
) -> Iterator[RunningCollector]:
    """Run a Collector; configuration and log are written to ``folder`` under ``name``."""
    grpc, http = free_ports(2)
    command = _command(binary, folder, name, _collector_config(grpc, http, forwarding))

    def is_ready() -> bool:
        return listens(grpc) and listens(http)

    with running(name, command, log=folder / f"{name}.log", is_ready=is_ready) as server:
        yield RunningCollector(server=server, otlp_grpc_port=grpc, otlp_http_port=http)


def _command(binary: Path, folder: Path, name: str, config: Config) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps(config, indent=2))
    return [str(binary), "--config", str(path)]


def _jaeger_config(grpc: int, http: int, query: int, query_grpc: int) -> Config:
    # No batch processor, which the built-in all-in-one has: an answer to an
    # export then means stored, so that "Jaeger has nothing more" can be tested.
    return {
        "extensions": {
            "jaeger_storage": {"backends": {"memory": {"memory": {"max_traces": 100_000}}}},
            "jaeger_query": {
                "storage": {"traces": "memory"},
                "enable_tracing": False,  # else it sends its own spans to localhost:4317
                "http": {"endpoint": f"{HOST}:{query}"},
                "grpc": {"endpoint": f"{HOST}:{query_grpc}"},
            },
        },
        "receivers": {"otlp": _otlp_receiver(grpc, http)},
        "exporters": {"jaeger_storage_exporter": {"trace_storage": "memory"}},
        "service": {
            "extensions": ["jaeger_storage", "jaeger_query"],
            "telemetry": NO_SELF_METRICS,
            "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["jaeger_storage_exporter"]}},
        },
    }


def _collector_config(grpc: int, http: int, forwarding: Forwarding) -> Config:
    exporter = "otlp_grpc" if forwarding.protocol == "grpc" else "otlp_http"
    batch = ["batch"] if forwarding.is_batching else []
    pipeline = {"receivers": ["otlp"], "processors": batch, "exporters": [exporter]}
    config: Config = {
        "receivers": {"otlp": _otlp_receiver(grpc, http)},
        "processors": {"batch": {"timeout": BATCH_TIMEOUT}},
        "exporters": {exporter: _exporter(forwarding)},
        "service": {
            "telemetry": NO_SELF_METRICS,
            "pipelines": dict.fromkeys(forwarding.signals, pipeline),
        },
    }
    if forwarding.queue_folder is not None:
        config["extensions"] = {"file_storage": _file_storage(forwarding.queue_folder)}
        config["service"]["extensions"] = ["file_storage"]
    return config


def _otlp_receiver(grpc: int, http: int) -> Config:
    return {
        "protocols": {
            "grpc": {"endpoint": f"{HOST}:{grpc}"},
            "http": {"endpoint": f"{HOST}:{http}"},
        }
    }


def _exporter(forwarding: Forwarding) -> Config:
    queue: Config = {"enabled": True}
    if forwarding.queue_folder is not None:
        queue["storage"] = "file_storage"
    return {
        "endpoint": forwarding.endpoint,
        "tls": {"insecure": forwarding.endpoint.startswith("http://")},
        "headers": dict(forwarding.headers),
        "compression": forwarding.compression,
        "sending_queue": queue,
        "retry_on_failure": {"initial_interval": FIRST_RETRY, "max_interval": LAST_RETRY},
    }


def _file_storage(folder: Path) -> Config:
    # fsync is off by default: the queue would not outlive the machine.
    return {"directory": str(folder), "create_directory": True, "fsync": True}


@contextmanager
def phoenix_serving(python: Path, folder: Path, **more: str) -> Iterator[str]:
    """Run Phoenix with its data in a folder; yields its address.

    Args:
        python: an interpreter that has it.
        folder: where it keeps its data and its log.
        more: further environment variables.
    """
    port, grpc = free_ports(2)
    environ = os.environ | {
        "PHOENIX_HOST": HOST,
        "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(grpc),
        "PHOENIX_WORKING_DIR": str(folder),
        "PHOENIX_TELEMETRY_ENABLED": "false",
        **more,
    }
    command = [str(python), "-m", "phoenix.server.main", "serve"]
    ready = lambda: listens(port)  # noqa: E731 - a name for the line below
    with running("phoenix", command, log=folder / "log", is_ready=ready, environ=environ):
        yield f"http://{HOST}:{port}"
