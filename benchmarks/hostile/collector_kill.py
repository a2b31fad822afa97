"""``python -m benchmarks.hostile.collector_kill``: acknowledged spans that a killed Collector loses.

Runs the real Collector with deploy/collector/agent.yaml and gateway.yaml in front of a backend in this
process, kills it with SIGKILL while runs arrive, restarts it on the same queue, and counts acknowledged spans
that never arrived. For comparison, the same is done with the previous versions of the files.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any, Final, TypeAlias

import grpc
import yaml
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from collector_processor.otlp import Signal
from tests.backends import install
from tests.backends.supervise import HOST, BackendError, Server, free_ports, listens, running, wait_until
from tests.e2e.backend import Backend, grpc_backend
from tests.e2e.killing import Run, make_run
from tests.e2e.raw import plain_span, raw_spans
from tests.e2e.traffic import Doors, send

FOLDER: Final = Path(__file__).parents[2] / "deploy" / "collector"
SENDERS: Final = 4
PAUSE_S: Final = 0.02
"""Seconds between the requests of a run, so that runs last about as long as the interval of kills."""
ARRIVAL_S: Final = 15.0

Config: TypeAlias = dict[str, Any]
Tier: TypeAlias = Callable[[str], Config]
"""Returns a Collector's configuration for the address (host:port) of the backend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """Lost runs of one trial; every span was acknowledged."""

    runs: int
    spans: int
    kills: int
    runs_with_losses: int
    spans_lost: int


def agent(backend: str) -> Config:
    """Return the agent tier as shipped."""
    config = _read("agent.yaml")
    config["exporters"]["otlp_grpc/blamespan"]["endpoint"] = backend
    return config


def agent_before(backend: str) -> Config:
    """Return the agent tier as previously shipped: batches in memory, in front of the queue."""
    config = agent(backend)
    del config["exporters"]["otlp_grpc/blamespan"]["sending_queue"]["batch"]
    return _with_batch_processor(config)


def gateway(backend: str) -> Config:
    """Return the gateway tier as shipped, except for the resolver, which would need Kubernetes."""
    config = _read("gateway.yaml")
    config["exporters"]["loadbalancing"]["resolver"] = {"static": {"hostnames": [backend]}}
    config["exporters"]["otlp_grpc/rest"]["endpoint"] = backend
    return config


def gateway_before(backend: str) -> Config:
    """Return the gateway tier as previously shipped: nothing on disk."""
    config = gateway(backend)
    balancer = config["exporters"]["loadbalancing"]
    del balancer["sending_queue"], balancer["retry_on_failure"], balancer["protocol"]["otlp"]["sending_queue"]
    return _with_batch_processor(config)


TIERS: Final[Mapping[str, Tier]] = {
    "`agent.yaml` before (`batch` processor)": agent_before,
    "`agent.yaml` (`sending_queue.batch`)": agent,
    "`gateway.yaml` before (`batch` processor, queue in memory)": gateway_before,
    "`gateway.yaml` (queue on disk)": gateway,
}


def _read(file: str) -> Config:
    found: Config = yaml.safe_load((FOLDER / file).read_text())
    return found


def _with_batch_processor(config: Config) -> Config:
    """Put a ``batch`` processor before each queue, and one receiver before all of them."""
    config["processors"]["batch"] = {"timeout": "200ms"}
    pipelines = config["service"]["pipelines"]
    for signal in ("traces", "logs", "metrics"):
        del pipelines[f"{signal}/in"]
        pipelines[signal] |= {"receivers": ["otlp"], "processors": ["memory_limiter", "batch"]}
    return config


def kill_under_load(
    binary: Path, tier: Tier, folder: Path, *, runs: int, kills: int, arrival_s: float = ARRIVAL_S
) -> Losses:
    """Send runs through a Collector, kill it ``kills`` times meanwhile, and count the losses.

    Args:
        binary: the Collector.
        tier: returns its configuration.
        folder: for its queue and log; must be this trial's alone.
        runs: number of runs; a request is repeated until it is acknowledged, as SDKs do.
        kills: number of kills, spread evenly over the runs.
        arrival_s: time limit for the rest to reach the backend, once everything was acknowledged.
    """
    chance = random.Random(0)
    made = [make_run(chance, plain_span) for _ in range(runs)]
    with grpc_backend() as backend, _collectors(binary, tier, folder, backend) as (doors, start):
        server = start()
        over = Event()
        with ThreadPoolExecutor(SENDERS) as senders:
            try:
                sent = [senders.submit(_deliver, run, doors, over) for run in made]
                for kill in range(1, kills + 1):
                    _await_done(sent, runs * kill // (kills + 1))
                    server.kill()
                    server = start()
                _await_done(sent, runs)
            finally:
                over.set()  # otherwise the senders would retry forever if a Collector does not restart
        _await_arrival(backend, made, arrival_s)
        return _losses(made, _arrived(backend), kills)


@contextmanager
def _collectors(
    binary: Path, tier: Tier, folder: Path, backend: Backend
) -> Iterator[tuple[Doors, Callable[[], Server]]]:
    """Yield an address, and a function that starts a Collector there with the previous one's queue."""
    grpc_port, http_port, *own = free_ports(5)
    config = tier(backend.url.removeprefix("http://"))
    for protocol, port in (("grpc", grpc_port), ("http", http_port)):
        config["receivers"]["otlp"]["protocols"][protocol]["endpoint"] = f"{HOST}:{port}"
    file = folder / "collector.yaml"
    file.write_text(yaml.safe_dump(config))
    command = [str(binary), "--config", str(file), "--set=service::telemetry::metrics::level=none"]
    environ = os.environ | {"COLLECTOR_QUEUE": str(folder / "queue")} | own_ports(own)
    with ExitStack() as stack:

        def start() -> Server:
            log = folder / "collector.log"
            ready = running(
                "collector", command, log=log, is_ready=lambda: listens(grpc_port), environ=environ
            )
            return stack.enter_context(ready)

        yield Doors(grpc=f"http://{HOST}:{grpc_port}", http=""), start


def own_ports(ports: Sequence[int]) -> dict[str, str]:
    """Return the variables for the ports that a Collector itself uses."""
    signals = ("TRACES", "LOGS", "METRICS")
    return {f"COLLECTOR_{signal}_PORT": str(port) for signal, port in zip(signals, ports, strict=True)}


def _await_done(sent: Sequence[Future[None]], count: int) -> None:
    wait_until(lambda: sum(one.done() for one in sent) >= count, what=f"{count} runs", timeout_s=300)


def _deliver(run: Run, doors: Doors, over: Event) -> None:
    for body in run.requests:
        while not over.is_set():
            with suppress(grpc.RpcError):
                send(doors, body)
                run.acknowledged.append(body)
                break
            over.wait(PAUSE_S)
        over.wait(PAUSE_S)


def _await_arrival(backend: Backend, runs: Sequence[Run], arrival_s: float) -> None:
    wanted = {span for run in runs for span in _spans(run.acknowledged)}
    try:
        wait_until(lambda: wanted <= _arrived(backend), what="the rest", timeout_s=arrival_s)
    except BackendError:
        return  # what is missing now is lost; the caller counts it


def _losses(runs: Sequence[Run], arrived: set[tuple[bytes, bytes]], kills: int) -> Losses:
    missing = [_spans(run.acknowledged) - arrived for run in runs]
    return Losses(
        runs=len(runs),
        spans=sum(len(_spans(run.acknowledged)) for run in runs),
        kills=kills,
        runs_with_losses=sum(bool(spans) for spans in missing),
        spans_lost=sum(len(spans) for spans in missing),
    )


def _arrived(backend: Backend) -> set[tuple[bytes, bytes]]:
    return _spans([request.body for request in backend.of(Signal.TRACES)])


def _spans(bodies: Sequence[bytes]) -> set[tuple[bytes, bytes]]:
    read = (Span.FromString(raw) for body in bodies for raw in raw_spans(body))
    return {(span.trace_id, span.span_id) for span in read}


def table(found: Mapping[str, Losses]) -> str:
    """Return the trials as a Markdown table."""
    lines = ["| configuration | kills | runs that lost spans | spans lost |", "|---|---|---|---|"]
    for name, one in found.items():
        runs = f"{one.runs_with_losses} of {one.runs}"
        lines.append(f"| {name} | {one.kills} | {runs} | {one.spans_lost} of {one.spans} |")
    return "\n".join(lines)


def main() -> None:
    """Try the tiers one after another and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--kills", type=int, default=3)
    arguments = parser.parse_args()
    binary = install.build("collector")
    found = {}
    for name, tier in TIERS.items():
        with tempfile.TemporaryDirectory() as folder:
            found[name] = kill_under_load(
                binary, tier, Path(folder), runs=arguments.runs, kills=arguments.kills
            )
    sys.stdout.write(table(found) + "\n")


if __name__ == "__main__":
    main()
