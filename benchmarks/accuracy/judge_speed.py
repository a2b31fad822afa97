"""Duration of a benchmark with a model that answers in a second.

``python -m benchmarks.accuracy.judge_speed DATASET``: starts the model, runs ``blamespan bench
--method judge`` on the data set twice (the second time from the cache), with ``--ag2tracer`` then ag2tracer
from its package on the same runs, and finally ten times as many runs, for memory.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.accuracy.peer_ag2tracer import time_ag2tracer
from benchmarks.resources.commands import Timed, count, environment, slow_model, timed

COPIES = 10


def bench(dataset: Path, url: str, home: Path, concurrency: int) -> Timed:
    """Run our benchmark once."""
    command = [sys.executable, "-m", "analyzer", "bench", str(dataset), "--method", "judge"]
    command += ["--model", "openai/slow", "--concurrency", str(concurrency), "--format", "json"]
    return timed(command, environment(url, home))


def many_times(dataset: Path, target: Path, copies: int) -> None:
    """Write the runs of a data set several times, each copy a different conversation."""
    lines = gzip.decompress(dataset.read_bytes()).splitlines()
    with target.open("w", encoding="utf-8") as file:
        for copy in range(copies):
            for line in lines:
                run: dict[str, Any] = json.loads(line)
                run["question"] = f"({copy}) {run.get('question', '')}"
                file.write(json.dumps(run) + "\n")


def _resources(run: Timed) -> str:
    return f"{run.cpu_s:.1f} s of processor, peak {run.peak_mib:.0f} MiB"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--delay", type=float, default=1.0)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--ag2tracer", action="store_true", help="install and time it too: minutes")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, slow_model(given.delay) as url:
        home = Path(scratch)
        first = bench(given.dataset, url, home, given.concurrency)
        total = json.loads(first.output.splitlines()[-1])
        asked = count(url)
        bound = total["n"] / given.concurrency * given.delay + 5
        print(
            f"judge: {total['n']} runs in {first.seconds:.2f} s (bound {bound:.2f}), {asked['calls']} calls,"
        )
        print(f"  {asked['at_once']} at once, {total['errors']} errors, {_resources(first)}")
        again = bench(given.dataset, url, home, given.concurrency)
        calls = count(url)["calls"] - asked["calls"]
        print(f"from the cache: {again.seconds:.2f} s, {calls} calls, {_resources(again)}")
        if given.ag2tracer:
            time_ag2tracer(given.dataset, url, home)
    with tempfile.TemporaryDirectory() as scratch, slow_model(0.0) as url:
        home = Path(scratch)
        many_times(given.dataset, home / "many.jsonl", COPIES)
        large = bench(home / "many.jsonl", url, home, given.concurrency)
        n = json.loads(large.output.splitlines()[-1])["n"]
        print(f"{n} runs: {large.seconds:.2f} s, {_resources(large)}")


if __name__ == "__main__":
    main()
