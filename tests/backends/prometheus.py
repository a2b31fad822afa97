"""The real Prometheus and Alertmanager as context managers, and queries to Prometheus.

Knows their flags and files; the processes themselves are ``supervise``'s.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlencode
from urllib.request import ProxyHandler, build_opener

import yaml

from tests.backends.supervise import HOST, Server, free_ports, running

TIMEOUT_S: Final = 60.0
DATA: Final = "prometheus"
"""Name of its data folder, within the given folder."""

Config = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningPrometheus:
    """A Prometheus that answers queries."""

    server: Server
    port: int

    def query(self, promql: str) -> list[dict[str, Any]]:
        """Return the series that an instant query finds now, each with ``metric`` and ``value``.

        Raises:
            HTTPError: it is no PromQL.
        """
        return cast("list[dict[str, Any]]", self._ask("query", {"query": promql})["result"])

    def exemplars(self, promql: str, start_s: float, end_s: float) -> list[dict[str, Any]]:
        """Return the exemplars of the series that a query selects, between two times of the wall clock."""
        asked = {"query": promql, "start": str(start_s), "end": str(end_s)}
        return cast("list[dict[str, Any]]", self._ask("query_exemplars", asked))

    def _ask(self, what: str, parameters: Mapping[str, str]) -> Any:
        url = f"http://{HOST}:{self.port}/api/v1/{what}?{urlencode(parameters)}"
        with build_opener(ProxyHandler({})).open(url, timeout=TIMEOUT_S) as answer:
            return json.load(answer)["data"]


@contextmanager
def start_prometheus(binary: Path, folder: Path, config: Config, *flags: str) -> Iterator[RunningPrometheus]:
    """Run a Prometheus; configuration, data and log are in ``folder``, which may already hold data."""
    (port,) = free_ports(1)
    command = [
        str(binary),
        f"--config.file={_written(folder / 'prometheus.yml', config)}",
        f"--storage.tsdb.path={folder / DATA}",
        f"--web.listen-address={HOST}:{port}",
        "--enable-feature=exemplar-storage",
        *flags,
    ]
    log = folder / "prometheus.log"
    with running("prometheus", command, log=log, is_ready=lambda: _answers(port)) as server:
        yield RunningPrometheus(server=server, port=port)


@contextmanager
def start_alertmanager(binary: Path, folder: Path, config: Config) -> Iterator[str]:
    """Run an Alertmanager without a cluster and yield its address; files are written to ``folder``."""
    (port,) = free_ports(1)
    command = [
        str(binary),
        f"--config.file={_written(folder / 'alertmanager.yml', config)}",
        f"--storage.path={folder / 'alertmanager'}",
        f"--web.listen-address={HOST}:{port}",
        "--cluster.listen-address=",
    ]
    log = folder / "alertmanager.log"
    with running("alertmanager", command, log=log, is_ready=lambda: _answers(port)):
        yield f"{HOST}:{port}"


def _written(path: Path, config: Config) -> Path:
    path.write_text(yaml.safe_dump(config))
    return path


def _answers(port: int) -> bool:
    with build_opener(ProxyHandler({})).open(f"http://{HOST}:{port}/-/ready", timeout=TIMEOUT_S) as answer:
        return bool(answer.status == 200)
