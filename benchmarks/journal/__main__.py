"""Cost of a row in the journal, of this checkout and of another one, in turns in one run.

``python -m benchmarks.journal --against CHECKOUT`` prints the medians of both and their ratios. Each round is
a new process: it stores rows of three plain spans (about 4 kB) or of one agent's trace, some at a time, as
concurrent clients do, and marks them as forwarded one wave later. The directory is measured before that.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.ingest.bodies import make_request
from collector_processor.journal import Journal, open_journal
from collector_processor.journal.chunks import Chunk, Entry
from collector_processor.otlp import NO_TENANT, Signal
from collector_processor.wire.scan import scan_traces

ROWS: Final = 20_000
HERE: Final = Path(__file__).resolve().parents[2]
UNITS: Final = {
    "writer": "CPU µs a row, writer's thread",
    "process": "CPU µs a row, process",
    "commit": "ms a commit",
    "disk": "MiB on disk",
    "start": "ms to open it again",
}


def entries(kind: str) -> list[Entry]:
    """Return rows of one kind; the same few are stored again and again."""
    found: list[Entry] = []
    for seed in range(32):
        body = make_request(3, agent_traces=16 if kind == "agents" else 0, seed=seed)
        notes = tuple(note for note in scan_traces(body).traces if note.is_agent)
        found.append(
            Entry(
                signal=Signal.TRACES,
                tenant=NO_TENANT,
                hops=(),
                received_ns=time.time_ns(),
                items=3,
                body=body,
                traces=notes,
            )
        )
    return found


async def measure(kind: str, wave: int) -> dict[str, float]:
    """Store the rows; return the figures of one round."""
    rows, commits = entries(kind), list[float]()
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/tmp")) as folder:
        path = Path(folder) / "ingest"
        journal = await open_journal(path)
        await journal.append(rows[:1])
        clock = time.pthread_getcpuclockid(writer_thread(journal))
        writer, process = time.clock_gettime(clock), time.process_time()
        before: Sequence[Chunk] = ()
        for number in range(ROWS // wave):
            some = [rows[(number * wave + place) % len(rows)] for place in range(wave)]
            began = time.perf_counter()
            stored = await asyncio.gather(*(journal.append([one]) for one in some))
            commits.append(time.perf_counter() - began)
            if number % 2:
                journal.mark_done(before)
            before = [chunk for (chunk,) in stored]
        figures = {
            "writer": (time.clock_gettime(clock) - writer) / ROWS * 1e6,
            "process": (time.process_time() - process) / ROWS * 1e6,
            "commit": median(commits) * 1e3,
            "disk": sum(file.stat().st_blocks * 512 for file in path.iterdir()) / (1 << 20),
        }
        await journal.close()
        began = time.perf_counter()
        await (await open_journal(path)).close()
        return figures | {"start": (time.perf_counter() - began) * 1e3}


def writer_thread(journal: Journal) -> int:
    """Return the identity of the thread that commits."""
    thread = journal._writer._thread
    assert thread.ident is not None
    return thread.ident


def round_in(checkout: Path, kind: str, wave: int) -> dict[str, float]:
    """Measure one round with the code of a checkout, in a process of its own."""
    environ = os.environ | {"PYTHONPATH": str(checkout)}
    command = [sys.executable, "-P", str(Path(__file__).resolve()), "--round", kind, str(wave)]
    done = subprocess.run(command, env=environ, check=True, capture_output=True, text=True, cwd=checkout)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    """Run the rounds and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.journal", description=__doc__)
    parser.add_argument("--against", type=Path, help="another checkout, measured in turns with this one")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--waves", type=int, nargs="+", default=[1, 16, 64], help="rows appended at a time")
    parser.add_argument("--round", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.round:
        print(json.dumps(asyncio.run(measure(asked.round[0], int(asked.round[1])))))
        return
    checkouts = [HERE, *([asked.against.resolve()] if asked.against else [])]
    print(
        "| rows | at a time | | "
        + " | ".join(["this checkout", "the other", "ratio"][: 2 * len(checkouts) - 1])
        + " |"
    )
    print("|---|---|---|" + "---|" * (2 * len(checkouts) - 1))
    for kind in ("plain", "agents"):
        for wave in asked.waves:
            rounds = [[round_in(checkout, kind, wave) for checkout in checkouts] for _ in range(asked.rounds)]
            for name, unit in UNITS.items():
                values = [median(found[place][name] for found in rounds) for place in range(len(checkouts))]
                ratio = [f"{median(found[0][name] / found[1][name] for found in rounds):.2f}"] * (
                    len(values) - 1
                )
                cells = [kind, str(wave), unit, *(f"{value:.1f}" for value in values), *ratio]
                print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
