"""Time to a verdict in two source trees: ``python -m benchmarks.resources.verdict_lag --against TREE``.

Both services run at the same time and get the demo's runs in turn, so that other work on the machine slows
both. The lag is from sending a run's root to its verdict in the store, with the wait for further spans.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from collector_processor.core.disk import RUNS
from tests.backends.supervise import wait_until
from tests.e2e.demo_again import DemoAgain
from tests.e2e.line import GRACE_MS, environment

_OURS: Final = Path(__file__).parents[2]
_LOOK_S: Final = 0.002
_WARM: Final = 50
"""Runs of each service that are not measured."""


@dataclass(slots=True, kw_only=True)
class Service:
    """A running service, and when its runs were sent and judged."""

    url: str
    store: Path
    sent: dict[str, float] = field(default_factory=dict)
    judged: dict[str, float] = field(default_factory=dict)

    def send(self, body: bytes) -> None:
        """Send a request of spans."""
        headers = {"Content-Type": "application/x-protobuf"}
        urllib.request.urlopen(urllib.request.Request(self.url, body, headers), timeout=60).close()

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

    def lags_ms(self) -> list[float]:
        """Return the lags without the configured wait, after the first runs."""
        names = list(self.sent)[_WARM:]
        return [1_000 * (self.judged[name] - self.sent[name]) - GRACE_MS for name in names]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure pairs and print each, and the median ratio."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.resources.verdict_lag", description=__doc__)
    parser.add_argument("--against", type=Path, required=True, metavar="TREE", help="the other source tree")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--runs", type=int, default=200, help="runs of each service in a pair")
    parser.add_argument("--pace", type=float, default=10, help="runs a second, of each service")
    chosen = parser.parse_args(arguments)
    ratios = []
    for number in range(chosen.pairs):
        trees = [_OURS, chosen.against][:: 1 if number % 2 else -1]
        lags = dict(zip(trees, _pair(trees, chosen.runs, chosen.pace), strict=True))
        ours, theirs = (statistics.median(lags[tree]) for tree in (_OURS, chosen.against))
        late, later = (sorted(lags[tree])[int(0.99 * len(lags[tree]))] for tree in (_OURS, chosen.against))
        ratios.append(ours / theirs)
        sys.stdout.write(
            f"p50 {ours:.1f} / {theirs:.1f} ms = {ratios[-1]:.3f}; p99 {late:.0f} / {later:.0f} ms\n"
        )
        sys.stdout.flush()
    sys.stdout.write(f"median of the ratios of p50: {statistics.median(ratios):.3f}, n = {len(ratios)}\n")


def _pair(trees: Sequence[Path], runs: int, pace: float) -> list[list[float]]:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        services = [
            stack.enter_context(_serving(tree, Path(folder) / f"{at}")) for at, tree in enumerate(trees)
        ]
        over, source = threading.Event(), DemoAgain()
        watching = [threading.Thread(target=one.watch, args=(over,)) for one in services]
        for one in watching:
            one.start()
        try:
            for at in range(runs * len(services)):
                service, run = services[at % len(services)], source.next()
                service.send(run.before)
                service.sent[run.trace_id] = time.monotonic()
                service.send(run.root)
                time.sleep(1 / pace / len(services))
            wait_until(
                lambda: all(one.sent.keys() <= one.judged.keys() for one in services), what="all verdicts"
            )
        finally:
            over.set()
            for one in watching:
                one.join()
        return [one.lags_ms() for one in services]


@contextmanager
def _serving(tree: Path, folder: Path) -> Iterator[Service]:
    folder.mkdir()
    log = folder / "log"
    command = [sys.executable, "-m", "analyzer", "serve", "--data-dir", str(folder / "data")]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*command, "--format", "json"], cwd=tree, env=environment(), stdout=out, stderr=out
        )
    try:
        wait_until(lambda: bool(_announced(log)), what="the service")
        yield Service(url=f"http://{_announced(log)[0]['http']}/v1/traces", store=folder / "data" / RUNS)
    finally:
        process.terminate()
        process.wait(timeout=60)


def _announced(log: Path) -> list[dict[str, str]]:
    lines = [json.loads(line) for line in log.read_text().split("\n")[:-1] if line.startswith("{")]
    return [line for line in lines if "grpc" in line]


if __name__ == "__main__":
    main()
