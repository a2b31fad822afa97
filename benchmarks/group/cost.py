"""CPU time of a span, fed over gRPC into SQLite or read from Kafka: ``python -m benchmarks.group.cost``.

In each round, every row runs once, one after another, so that ratios are of one time on one machine. All
rows have their verdicts in PostgreSQL; only the journal differs. CPU time is that of the processors alone,
with all their threads and analysis processes; sender, broker, store and backend are not in it, but share
the cores.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Final, TypeAlias

import grpc
import psycopg
from confluent_kafka import Producer

from benchmarks.group.disturbed import SPANS, make_run
from benchmarks.ingest.bodies import make_bodies
from benchmarks.ingest.subjects import announcing
from collector_processor.kafka.record_form import pieces
from collector_processor.otlp import Signal, grpc_path
from tests.backends import install
from tests.backends.kafka_broker import KafkaBroker, start_kafka
from tests.backends.postgresql import PostgresServer, postgresql
from tests.backends.supervise import wait_until
from tests.e2e.line import Line, starting

RUNS: Final = 25
"""Runs of a request of agents; one of plain spans has 16 interleaved traces."""
REQUEST_SPANS: Final = RUNS * SPANS
_SENDERS: Final = 8
_AGENTS_SHARE: Final = 5
"""One in so many requests are sent if they are agents', which cost more."""
_RECORD_BYTES: Final = 900_000
_PATIENCE_S: Final = 900.0

Feed: TypeAlias = Callable[[Sequence[bytes]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What is measured."""

    journal: str
    """``sqlite`` or ``kafka``."""
    agents: int
    """Traces of agents in a hundred; each is a run that is judged by ``signals``."""
    processors: int = 1
    analysis_processes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """Everything that was sent, until it was forwarded and judged."""

    cpu_us: float
    """CPU time of a span, in microseconds."""
    per_s: float
    """Spans per second of wall time."""


JOURNALS: Final = tuple(
    Row(journal=journal, agents=agents) for agents in (0, 100) for journal in ("sqlite", "kafka")
)
PROCESSORS: Final = tuple(
    Row(journal="kafka", agents=agents, processors=n) for agents in (0, 100) for n in (1, 2, 4)
)
PROCESSES: Final = tuple(Row(journal="kafka", agents=100, analysis_processes=n) for n in (0, 1, 2, 4))
PLANS: Final = {"journals": JOURNALS, "processors": PROCESSORS, "processes": PROCESSES}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What all rows share."""

    folder: Path
    broker: KafkaBroker
    server: PostgresServer
    backend: str


def measure(row: Row, place: Place, requests: int) -> Passage:
    """Run one row from start to end; a tenth more is sent beforehand and not counted."""
    made = list(islice(_bodies(row), requests + requests // 10))
    with ExitStack() as stack:
        name = f"{row.journal}_{time.monotonic_ns()}"
        lines = list(_started(row, place, name, stack))
        feed = _grpc_feed(lines[0]) if row.journal == "sqlite" else partial(_publish, place.broker)
        warm = made[requests:]
        feed(warm)
        _await_done(lines, place.server.folder, name, row, len(warm))
        cpu, began = _cpu_s(lines), time.monotonic()
        feed(made[:requests])
        _await_done(lines, place.server.folder, name, row, len(made))
        spans, seconds = REQUEST_SPANS * requests, time.monotonic() - began
        return Passage(cpu_us=1e6 * (_cpu_s(lines) - cpu) / spans, per_s=spans / seconds)


def _bodies(row: Row) -> Iterator[bytes]:
    """Yield requests of plain spans, or of whole runs that were never sent before."""
    if not row.agents:
        yield from cycle(body.fresh(1) for body in make_bodies(REQUEST_SPANS, 0))
    chance = random.Random(0)
    while True:
        yield b"".join(body for _ in range(RUNS) for body in make_run(chance).bodies)


def _started(row: Row, place: Place, name: str, stack: ExitStack) -> Iterator[Line]:
    settings: dict[str, str | float] = {
        "forward_endpoint": place.backend,
        "store_url": place.server.create(name),
        "analysis_processes": row.analysis_processes,
        "method": "signals",
    }
    if row.journal == "kafka":
        settings |= {"queue": place.broker.url, "kafka_group": name}
    for number in range(row.processors):
        folder = place.folder / f"{name}-{number}"
        folder.mkdir()
        line = stack.enter_context(starting(folder))(**settings)
        if row.journal == "kafka":
            wait_until(partial(line.said, "partitions assigned"), what="partitions")
        yield line


def _grpc_feed(line: Line) -> Feed:
    def feed(bodies: Sequence[bytes]) -> None:
        with (
            grpc.insecure_channel(line.grpc.removeprefix("http://")) as channel,
            ThreadPoolExecutor(_SENDERS) as pool,
        ):
            call = channel.unary_unary(grpc_path(Signal.TRACES), None, None)
            list(pool.map(partial(call, timeout=_PATIENCE_S, wait_for_ready=True), bodies))

    return feed


def _publish(broker: KafkaBroker, bodies: Sequence[bytes]) -> None:
    producer = Producer({"bootstrap.servers": broker.address, "partitioner": "fnv1a", "linger.ms": 5})
    for body in bodies:
        for key, value in pieces(Signal.TRACES, body, _RECORD_BYTES):
            producer.produce("otlp_spans", value, key=key)
        producer.poll(0)
    assert producer.flush(_PATIENCE_S) == 0


def _await_done(lines: Sequence[Line], socket: Path, database: str, row: Row, requests: int) -> None:
    """Wait until the spans of so many requests were forwarded, and their runs judged."""
    runs = RUNS * requests if row.agents else 0

    def is_done() -> bool:
        sent = sum(line.items("forwarded") for line in lines)
        return sent >= REQUEST_SPANS * requests and _verdicts(socket, database) >= runs

    wait_until(is_done, what=f"{requests} requests", timeout_s=_PATIENCE_S)


def _verdicts(socket: Path, database: str) -> int:
    with psycopg.connect(host=str(socket), user="postgres", dbname=database) as db:
        row = db.execute("SELECT count(*) FROM verdict").fetchone()
    return 0 if row is None else int(row[0])


def _cpu_s(lines: Sequence[Line]) -> float:
    """Return the CPU time of the processors and all processes that they started."""
    groups = {str(line.server.process.pid) for line in lines}
    ticks = 0
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            fields = file.read_text().rpartition(")")[2].split()
            ticks += (int(fields[11]) + int(fields[12])) * (fields[2] in groups)
    return ticks / os.sysconf("SC_CLK_TCK")


@contextmanager
def services(folder: Path) -> Iterator[Place]:
    """Run broker, store and a backend that keeps nothing."""
    null = [sys.executable, "-m", "benchmarks.ingest.null_backend", "grpc"]
    with (
        start_kafka(install.build("kafka"), folder / "kafka") as broker,
        postgresql() as server,
        announcing(null) as (_, announced),
    ):
        broker.create()
        yield Place(folder=folder, broker=broker, server=server, backend=announced.split()[0])


def table(found: Sequence[tuple[Row, Sequence[Passage]]]) -> Iterator[str]:
    """Yield the lines of a Markdown table; each figure is a median, with minimum and maximum."""
    heads = (
        "journal | agents' traces | processors | analysis processes | CPU µs a span | spans/s | CPU ÷ first"
    )
    yield f"| {heads} |"
    yield "|---|---|---|---|---|---|---|"
    for row, passages in found:
        first = next(each for other, each in found if other.agents == row.agents)
        ratios = [one.cpu_us / base.cpu_us for one, base in zip(passages, first, strict=True)]
        yield (
            f"| {row.journal} | {row.agents} % | {row.processors} | {row.analysis_processes}"
            f" | {_spread([one.cpu_us for one in passages])} | {_spread([one.per_s for one in passages])}"
            f" | {median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) |"
        )


def _spread(values: Sequence[float]) -> str:
    return f"{median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a plan and print its table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.group.cost", description=__doc__)
    parser.add_argument("plan", nargs="?", choices=PLANS, default="journals")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=300, help=f"of {REQUEST_SPANS} spans each, for a row")
    chosen = parser.parse_args(arguments)
    rows = PLANS[chosen.plan]
    found: dict[Row, list[Passage]] = {row: [] for row in rows}
    for _ in range(chosen.rounds):
        for row in rows:
            # A topic that holds other rows' records would be read by this row's group.
            with tempfile.TemporaryDirectory() as folder, services(Path(folder)) as place:
                share = chosen.requests // _AGENTS_SHARE if row.agents else chosen.requests
                found[row].append(measure(row, place, share))
            print(f"{row}: {found[row][-1]}", file=sys.stderr, flush=True)
    for line in table(list(found.items())):
        print(line)


if __name__ == "__main__":
    main()
