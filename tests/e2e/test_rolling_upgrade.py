"""Processors are replaced one by one, by SIGTERM, while spans arrive: the backend gets every span.

As Kubernetes does it with the chart's StatefulSet: the next pod ends when the one before it is ready again.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

import psycopg
import yaml

import analyzer
import collector_processor
import semconv
from collector_processor.otlp import Signal
from collector_processor.rebuild.encode import encode
from collector_processor.store.database.upgrade import SCHEMA
from semconv.model import TraceId
from tests.backends.kafka_broker import KafkaBroker
from tests.backends.postgresql import PostgresServer
from tests.backends.supervise import HOST, free_ports, wait_until
from tests.deploy.test_collectors import FOLDER, StartTier, collector, start_tier
from tests.e2e.backend import Backend, grpc_backend
from tests.e2e.kafka_group import kafka_collector, processors
from tests.e2e.line import Line, environment, starting
from tests.e2e.spans import placed
from tests.e2e.test_postgresql import run
from tests.e2e.traffic import CARRIERS, Doors, send

__all__ = ["collector", "start_tier"]

SPANS: Final = 3
"""Spans of a run, each sent in a request of its own."""
TOGETHER: Final = 4
"""Runs that are open at the same time."""
BETWEEN: Final = 12
"""Further runs between two replacements: traffic never rests."""
GRACE: Final = {"root_grace": 3_000}
"""Longer than a processor is away, so that a run whose parts two processors get is not cut."""
LONG_GRACE: Final = {"root_grace": 20_000}
"""Longer than the balancer's pauses before it repeats a request, too: a root may come before its children."""
PATIENCE_S: Final = 240.0


@dataclass(slots=True, kw_only=True)
class Traffic:
    """Runs that a thread sends part by part, until it is told to end."""

    doors: Doors
    runs: list[TraceId] = field(default_factory=list)
    """Runs that were acknowledged completely."""
    over: Event = field(default_factory=Event)

    def play(self) -> None:
        number = 0
        while not self.over.is_set():
            ids = [TraceId(f"{0xB1A3E5 + number + one:032x}") for one in range(TOGETHER)]
            number += TOGETHER
            for place in range(SPANS):
                for trace_id in ids:
                    send(self.doors, encode(run(trace_id)[place : place + 1]))
                self.over.wait(0.1)  # the pace of the sender; nothing depends on it
            self.runs += ids

    def await_more(self) -> None:
        """Wait for further runs."""
        wanted = len(self.runs) + BETWEEN
        wait_until(lambda: len(self.runs) >= wanted, what="further runs", timeout_s=PATIENCE_S)


@contextmanager
def traffic(doors: Doors) -> Iterator[Traffic]:
    """Send runs until the block ends."""
    playing = Traffic(doors=doors)
    thread = Thread(target=playing.play)
    thread.start()
    try:
        yield playing
    finally:
        playing.over.set()
        thread.join()


def times_each(backend: Backend, runs: list[TraceId]) -> Counter[tuple[str, str]]:
    """Return how often each span that the agents sent came; carriers are left out."""
    sent = {one.span_id for one in run(runs[0])}
    wanted = set(runs)
    return Counter(
        (trace_id, one.id)
        for request in backend.of(Signal.TRACES)
        for one in placed(request.body)
        if one.id in sent and (trace_id := one.span.trace_id.hex()) in wanted
    )


def check_all_arrived(backend: Backend, runs: list[TraceId]) -> int:
    """Wait for every span and both carriers of each run; return how many spans came more than once."""
    wanted = len(runs) * SPANS
    wait_until(lambda: len(times_each(backend, runs)) == wanted, what=f"{wanted} spans", timeout_s=PATIENCE_S)
    for trace_id in runs:
        found = {one.id for one in backend.await_spans(trace_id, SPANS + CARRIERS)}
        assert len(found) == SPANS + CARRIERS, "one verdict, of one version"
    return sum(count - 1 for count in times_each(backend, runs).values())


def check_judged(runs: list[TraceId], *lines: Line) -> None:
    """Check that each run has one verdict, the right one, among the processors that may have it."""
    for trace_id in runs:
        found: list[Any] = [verdict for line in lines if (verdict := line.run(trace_id)) is not None]
        assert [(one["agent"], one["version"]) for one in found] == [("planner", 1)]


MIGRATION: Final = """
from collector_processor.store.schema import text_
from alembic import op

revision = "9999"
down_revision = "{before}"


def upgrade() -> None:
    op.add_column("verdict", text_("of_the_future", server_default=""))
"""


def next_release(folder: Path) -> dict[str, str]:
    """Make a later release: this code, a higher version, and a migration that adds a column.

    Returns the environment in which a process runs it.
    """
    for package in (semconv, collector_processor, analyzer):
        copied = Path(str(package.__file__)).parent
        shutil.copytree(copied, folder / copied.name, ignore=shutil.ignore_patterns("__pycache__"))
    store = folder / "collector_processor" / "store"
    upgrade = store / "database" / "upgrade.py"
    text = upgrade.read_text()
    assert f'"{SCHEMA}"' in text
    upgrade.write_text(text.replace(f'"{SCHEMA}"', '"9999"'))
    migration = store / "migrations" / "versions" / "v9999_future.py"
    migration.write_text(MIGRATION.format(before=SCHEMA))
    (about := folder / "blamespan-99.0.dist-info").mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: blamespan\nVersion: 99.0\n")
    return {"PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1"}


def columns(server: PostgresServer) -> set[str]:
    asked = "SELECT column_name FROM information_schema.columns WHERE table_name = 'verdict'"
    with psycopg.connect(host=str(server.folder), user="postgres", autocommit=True) as db:
        return {row[0] for row in db.execute(asked)}


def test_behind_kafka_processors_are_replaced_one_by_one_without_loss(
    kafka: KafkaBroker, server: PostgresServer, tmp_path: Path, collector: Path
) -> None:
    with (
        grpc_backend() as backend,
        kafka_collector(collector, tmp_path / "collector", kafka) as doors,
        processors(tmp_path, kafka, server) as start,
    ):
        running = [start(forward_endpoint=backend.url, **GRACE) for _ in range(2)]
        for line in running:
            wait_until(partial(line.said, "partitions assigned"), what="partitions")
        with traffic(doors) as playing:
            playing.await_more()
            for old in tuple(running):
                assert old.terminate() == 0
                running.remove(old)
                new = start(forward_endpoint=backend.url, **GRACE)
                wait_until(partial(new.said, "partitions assigned"), what="the new one's partitions")
                running.append(new)
                playing.await_more()
        repeated = check_all_arrived(backend, playing.runs)
        check_judged(playing.runs, running[0])  # either shows every run
        assert repeated == 0, "who is asked to end gives back what it has not sent"


def test_a_release_that_migrates_the_store_replaces_running_processors_without_loss(
    kafka: KafkaBroker, server: PostgresServer, tmp_path: Path, collector: Path
) -> None:
    """The first of the new release migrates the store under the feet of the others, which go on."""
    later = next_release(tmp_path / "later")
    with (
        grpc_backend() as backend,
        kafka_collector(collector, tmp_path / "collector", kafka) as doors,
        processors(tmp_path, kafka, server) as start,
    ):
        settings = GRACE | {"forward_endpoint": backend.url}
        old = [start(**settings) for _ in range(2)]
        with traffic(doors) as playing:
            playing.await_more()
            assert "of_the_future" not in columns(server)
            new = start(**settings, **later)
            assert "of_the_future" in columns(server), "else the two would be one release"
            wait_until(partial(new.said, "partitions assigned"), what="the new one's partitions")
            playing.await_more()  # three processors of two releases
            assert old[0].terminate() == 0
            playing.await_more()
            other = start(**settings, **later)
            wait_until(partial(other.said, "partitions assigned"), what="the other new one's partitions")
            assert old[1].terminate() == 0
            playing.await_more()
        assert check_all_arrived(backend, playing.runs) == 0
        check_judged(playing.runs, new)
        assert not any(line.said("the store refuses") for line in old), "both releases use the store"
    refused = subprocess.run(
        [sys.executable, "-m", "analyzer", "serve", "pages"],
        env=environment(store_url=server.url(), token="of-sixteen-letters"),
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert refused.returncode == 1
    assert "was written by a newer or an unreleased blamespan (schema 9999; " in refused.stderr


def test_behind_the_balancer_processors_are_restarted_one_by_one_without_loss(
    start_tier: StartTier, tmp_path: Path
) -> None:
    ports = free_ports(2)
    hosts = [f"{HOST}:{port}" for port in ports]
    config = yaml.safe_load((FOLDER / "gateway.yaml").read_text())
    config["exporters"]["loadbalancing"]["resolver"] = {"static": {"hostnames": hosts}}
    file = tmp_path / "gateway-to-two.yaml"
    file.write_text(yaml.safe_dump(config))
    with grpc_backend() as backend, ExitStack() as stack:
        starts = []
        for host in hosts:
            (folder := tmp_path / host.replace(":", "-")).mkdir()
            begin = stack.enter_context(starting(folder))  # the name and the disk stay, as a StatefulSet's do
            starts.append(partial(begin, otlp_grpc_listen=host, forward_endpoint=backend.url, **LONG_GRACE))
        running = [start() for start in starts]
        (http,) = free_ports(1)
        gateway = start_tier(file, {"receivers::otlp::protocols::http::endpoint": f"{HOST}:{http}"})
        with traffic(gateway.doors) as playing:
            playing.await_more()
            for number, old in enumerate(tuple(running)):
                assert old.terminate() == 0
                running[number] = starts[number]()
                playing.await_more()
        repeated = check_all_arrived(backend, playing.runs)
        # Where an answer comes too late, or a processor ends before it (on a disk that takes seconds), the
        # Collector sends that request, of one span, again.
        log = (tmp_path / "gateway-to-two.log").read_text()
        unanswered = log.count("DeadlineExceeded") + log.count("Cancelling all calls")
        assert repeated <= unanswered, "a span comes twice only where the Collector got no answer"
        check_judged(playing.runs, *running)
        assert all(line.runs() for line in running), "both had some"
