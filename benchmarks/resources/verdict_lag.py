"""Lag and CPU time of verdicts in two trees: ``python -m benchmarks.resources.verdict_lag --against TREE``.

Both services run at the same time and get the demo's runs in turn, so that other work on the machine slows
both. The lag is from sending a run's root to its verdict in the store, without the configured wait for
further spans. The CPU time is that of each of a service's processes; their backends only count.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.ingest.subjects import Running, announcing
from collector_processor.core.disk import RUNS
from tests.backends.supervise import wait_until
from tests.e2e.demo_again import DemoAgain
from tests.e2e.line import GRACE_MS, environment

_OURS: Final = Path(__file__).parents[2]
_LOOK_S: Final = 0.002
_WARM: Final = 50
"""Runs of each service that are not measured."""
_TEXTS_S: Final = 6.0
"""Seconds after which the service has written the searched texts of its last runs."""
_SHOWN_MS: Final = 0.1


@dataclass(slots=True, kw_only=True)
class Service:
    """A running service, and when its runs were sent and judged."""

    pid: int
    connection: http.client.HTTPConnection
    store: Path
    sent: dict[str, float] = field(default_factory=dict)
    judged: dict[str, float] = field(default_factory=dict)

    def send(self, body: bytes) -> None:
        """Send a request of spans."""
        self.connection.request("POST", "/v1/traces", body, {"Content-Type": "application/x-protobuf"})
        with self.connection.getresponse() as answer:
            answer.read()
            if answer.status != http.client.OK:
                raise http.client.HTTPException(answer.reason)

    def cpu_ms(self) -> Counter[str]:
        """Return the CPU time of its processes so far, by the module that each runs."""
        return Counter(
            {_module(pid): 1_000 * Running(pid=pid, endpoint="").cpu_s() for pid in _family(self.pid)}
        )

    def watch(self, is_over: threading.Event) -> None:
        """Note when verdicts are committed, until the end."""
        with closing(sqlite3.connect(f"file:{self.store}?mode=ro", uri=True)) as db:
            version = None
            while not is_over.wait(_LOOK_S):
                (found,) = db.execute("PRAGMA data_version").fetchone()
                if found != version:
                    version, now = found, time.monotonic()
                    for (run_id,) in db.execute(
                        "SELECT run_id FROM verdict WHERE NOT is_provisional"
                        " ORDER BY decided_ns DESC LIMIT 50"
                    ).fetchall():
                        self.judged.setdefault(run_id, now)

    def has_judged_all(self) -> bool:
        """Return whether every run has its verdict."""
        return self.sent.keys() <= self.judged.keys()

    def lags_ms(self) -> list[float]:
        """Return the lags without the configured wait, after the first runs."""
        names = list(self.sent)[_WARM:]
        return [1_000 * (self.judged[name] - self.sent[name]) - GRACE_MS for name in names]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one service did in a pair."""

    lags_ms: Sequence[float]
    cpu_ms: Mapping[str, float]
    """CPU time a run, by the module that a process runs."""

    def __str__(self) -> str:
        """Return the lags, and the CPU time of processes with more than a tenth of a millisecond a run."""
        late = sorted(self.lags_ms)[int(0.99 * len(self.lags_ms))]
        parts = " + ".join(f"{ms:.1f} {name}" for name, ms in sorted(self.cpu_ms.items()) if ms > _SHOWN_MS)
        return f"p50 {statistics.median(self.lags_ms):.1f} p99 {late:.0f} ms, CPU a run {parts} ms"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure pairs and print each, and the median ratios."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.resources.verdict_lag", description=__doc__)
    parser.add_argument("--against", type=Path, required=True, metavar="TREE", help="the other source tree")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--runs", type=int, default=200, help="runs of each service in a pair")
    parser.add_argument("--pace", type=float, default=10, help="runs a second, of each service")
    chosen = parser.parse_args(arguments)
    lags, cpu = list[float](), dict[str, list[float]]()
    for number in range(chosen.pairs):
        trees = [_OURS, chosen.against][:: 1 if number % 2 else -1]
        found = dict(zip(trees, _pair(trees, chosen.runs, chosen.pace), strict=True))
        ours, theirs = found[_OURS], found[chosen.against]
        lags.append(statistics.median(ours.lags_ms) / statistics.median(theirs.lags_ms))
        for name in theirs.cpu_ms:
            if theirs.cpu_ms[name] > _SHOWN_MS:
                cpu.setdefault(name, []).append(ours.cpu_ms.get(name, 0.0) / theirs.cpu_ms[name])
        sys.stdout.write(f"{ours}\n  against {theirs}\n")
        sys.stdout.flush()
    sys.stdout.write(f"median of the ratios of p50: {statistics.median(lags):.3f}, n = {len(lags)}\n")
    for name, ratios in cpu.items():
        sys.stdout.write(f"median of the ratios of CPU time of {name}: {statistics.median(ratios):.3f}\n")


def _pair(trees: Sequence[Path], runs: int, pace: float) -> list[Measured]:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        services = [
            stack.enter_context(_serving(tree, Path(folder) / f"{at}")) for at, tree in enumerate(trees)
        ]
        over, source = threading.Event(), DemoAgain()
        watching = [threading.Thread(target=one.watch, args=(over,)) for one in services]
        for one in watching:
            one.start()
        try:
            _play(services, source, _WARM, pace)
            before = [one.cpu_ms() for one in services]
            _play(services, source, runs, pace)
            after = [one.cpu_ms() for one in services]
        finally:
            over.set()
            for one in watching:
                one.join()
        return [
            Measured(
                lags_ms=service.lags_ms(),
                cpu_ms={name: (ms - then[name]) / runs for name, ms in now.items()},
            )
            for service, then, now in zip(services, before, after, strict=True)
        ]


def _play(services: Sequence[Service], source: DemoAgain, runs: int, pace: float) -> None:
    """Send each service this many runs, and wait until all that follows is done too."""
    began, beat_s = time.monotonic(), 1 / pace / len(services)
    for at in range(runs * len(services)):
        service, run = services[at % len(services)], source.next()
        service.send(run.before)
        service.sent[run.trace_id] = time.monotonic()
        service.send(run.root)
        time.sleep(max(0.0, began + (at + 1) * beat_s - time.monotonic()))
    wait_until(lambda: all(one.has_judged_all() for one in services), what="all verdicts")
    time.sleep(_TEXTS_S)


def _family(pid: int) -> list[int]:
    """Return a process and its descendants."""
    found = [pid]
    for one in found:  # it grows meanwhile
        for task in Path(f"/proc/{one}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def _module(pid: int) -> str:
    arguments = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    return arguments[arguments.index("-m") + 1]


@contextmanager
def _serving(tree: Path, folder: Path) -> Iterator[Service]:
    folder.mkdir()
    log = folder / "log"
    command = [sys.executable, "-m", "analyzer", "serve", "--data-dir", str(folder / "data")]
    null = [sys.executable, "-m", "benchmarks.ingest.null_backend", "grpc"]
    with announcing(null) as (_, announced), log.open("wb") as out:
        settings = environment(forward_endpoint=announced.split()[0], forward_protocol="grpc")
        process = subprocess.Popen(
            [*command, "--format", "json"], cwd=tree, env=settings, stdout=out, stderr=out
        )
        try:
            wait_until(lambda: bool(_announced(log)), what="the service")
            yield Service(
                pid=process.pid,
                connection=http.client.HTTPConnection(_announced(log)[0]["http"]),
                store=folder / "data" / RUNS,
            )
        finally:
            process.terminate()
            process.wait(timeout=60)


def _announced(log: Path) -> list[dict[str, str]]:
    lines = [json.loads(line) for line in log.read_text().split("\n")[:-1] if line.startswith("{")]
    return [line for line in lines if "grpc" in line]


if __name__ == "__main__":
    main()
