"""``python -m benchmarks.experiment.diagnosed feed | score``: failed runs to diagnose in two tools.

``feed`` plays the pipeline and the orchestrator with their frameworks until enough runs have failed whose
decisive call the script knows, and sends each run's spans, unchanged, to both tools. It prints each run's
trace id and the tool to read first (half each, at random), and writes the decisive calls to a file that the
reader does not open. ``score`` compares the reader's answers with it: JSON lines
``{"run": 1, "tool": "phoenix", "first": true, "call": 2, "seconds": 31.5}``, ``call`` counting the run's
model calls from 0.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from collections.abc import Sequence
from itertools import count, cycle
from pathlib import Path
from statistics import median
from typing import Any, Final

import aiohttp

from analyzer.experiment.replay.read_tape import read_tape
from analyzer.experiment.replay.tape import Tape
from analyzer.inquiry.intervals import wilson
from benchmarks.experiment.systems import decisive, order, scripted_model, succeeded
from benchmarks.experiment.through_command import ENVIRONMENTS, EXAMPLES, PLAY_S, receiver, run_program
from collector_processor.rebuild.stages import rebuild
from tests.frameworks.catalogue import catalogue
from tests.frameworks.install import install

SYSTEMS: Final = ("pipeline", "orchestrator")
"""Those whose instrumentation writes OpenInference's attributes, which both tools read."""
TOOLS: Final = ("phoenix", "blamespan")


async def feed(number: int, first_order: int, seed: int, endpoints: Sequence[str]) -> list[dict[str, Any]]:
    """Record failed runs and send them to both endpoints (OTLP over HTTP); return their decisive calls."""
    coin, found = random.Random(seed), list[dict[str, Any]]()
    firsts = [TOOLS[place % 2] for place in range(number)]
    coin.shuffle(firsts)
    async with (
        scripted_model(seed=seed) as url,
        receiver() as (endpoint, bodies),
        aiohttp.ClientSession() as to,
    ):
        for task, system in zip(count(first_order), cycle(SYSTEMS), strict=False):
            bodies.clear()
            command = [str(install(catalogue()[ENVIRONMENTS[system]])), str(EXAMPLES / f"{system}.py")]
            recording = {"OPENAI_BASE_URL": url, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
            said, _ = await run_program([*command, str(task)], recording, PLAY_S)
            run = None if succeeded(order(task), said) else _known(system, task, b"".join(bodies))
            if run is None:
                continue
            for body in bodies:
                await _send(to, endpoints, body)
            found.append(run)
            print(f"run {len(found)}: trace {run['trace']}, first in {firsts[len(found) - 1]}", flush=True)
            if len(found) == number:
                break
    return found


def _known(system: str, task: int, recorded: bytes) -> dict[str, Any] | None:
    """Return the decisive call of a run; ``None`` if the script does not know it."""
    (run,) = rebuild([recorded], [])
    tape = read_tape(run)
    if not isinstance(tape, Tape):
        return None
    call = decisive(system, order(task), [each.answer.text for each in tape.calls])
    return None if call is None else {"trace": run.trace.spans[0].trace_id, "system": system, "call": call}


async def _send(to: aiohttp.ClientSession, endpoints: Sequence[str], body: bytes) -> None:
    for endpoint in endpoints:
        headers = {"Content-Type": "application/x-protobuf"}
        async with to.post(f"{endpoint}/v1/traces", data=body, headers=headers) as answer:
            answer.raise_for_status()


def score(sealed: Path, answers: Path) -> None:
    """Print right answers and seconds of both tools: of all readings, and of those that came first."""
    truth = [json.loads(line)["call"] for line in sealed.read_text(encoding="utf-8").splitlines()]
    given = [json.loads(line) for line in answers.read_text(encoding="utf-8").splitlines()]
    print("| tool | readings | right call | seconds, median (least to most) |\n|---|---|---|---|")
    for name, only_first in (("all", False), ("read first", True)):
        for tool in TOOLS:
            rows = [each for each in given if each["tool"] == tool and (each["first"] or not only_first)]
            right = sum(each["call"] == truth[each["run"] - 1] for each in rows)
            share = wilson(right, len(rows))
            took = [each["seconds"] for each in rows]
            shares = f"{right} of {len(rows)} [{100 * share.low:.0f}, {100 * share.high:.0f}] %"
            print(f"| {tool} | {name} | {shares} | {median(took):.0f} ({min(took):.0f} to {max(took):.0f}) |")


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.experiment.diagnosed")
    parser.add_argument("what", choices=("feed", "score"))
    parser.add_argument("--sealed", type=Path, required=True)
    parser.add_argument("--to", nargs=2, metavar=("PHOENIX", "BLAMESPAN"), help="OTLP/HTTP base URLs")
    parser.add_argument("--answers", type=Path)
    parser.add_argument("--number", type=int, default=10)
    parser.add_argument("--order", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=18)
    asked = parser.parse_args()
    if asked.what == "score":
        score(asked.sealed, asked.answers)
    else:
        found = asyncio.run(feed(asked.number, asked.order, asked.seed, asked.to))
        asked.sealed.write_text("".join(f"{json.dumps(each)}\n" for each in found), encoding="utf-8")


if __name__ == "__main__":
    main()
