"""Ingest throughput and latency, compared with the Collector: ``python -m benchmarks.ingest PLAN…``.

Spans of 1.4 KB, 16 interleaved traces per request, and a backend that keeps nothing. Figures are spans per
second of wall time and of the process's own CPU time (all threads), so that sender and backend do not count.

A plan (``speed``, ``sizes``, ``gzip``, ``agents``, ``signs``) defines the rows; options change it. Each round
runs every row once, with compared rows next to each other.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.ingest.load import RefusedError
from benchmarks.ingest.measuring import Case, Figures, measure
from benchmarks.ingest.plans import PLANS
from benchmarks.ingest.report import render
from benchmarks.ingest.subjects import SUBJECTS


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the plans, report each row on standard error, print the tables."""
    chosen = _parser().parse_args(arguments)
    rounds: defaultdict[Case, dict[int, Figures]] = defaultdict(dict)
    refused: dict[Case, str] = {}
    print(_machine(), flush=True)
    for number in range(chosen.rounds):
        for plan in chosen.plan:
            for case in replace(PLANS[plan], **_changes(chosen)).cases(number):
                try:
                    figures = uvloop.run(measure(case, chosen.seconds))
                except RefusedError as error:
                    refused[case] = str(error)
                    continue
                rounds[case][number] = figures
                _say(case, figures)
    print(render(rounds, refused), flush=True)


def _say(case: Case, figures: Figures) -> None:
    packed = "gzip" if case.is_gzip else "plain"
    print(
        f"{case.subject:16} {case.protocol} {case.spans:5} spans, {case.agents} % {case.sign}, {packed}:"
        f" {figures.spans_per_cpu_s:,.0f} spans/s per core, p99 {figures.half_load_p99_ms:.1f} ms",
        file=sys.stderr,
        flush=True,
    )


def _machine() -> str:
    """Describe the machine and its other load."""
    info = Path("/proc/cpuinfo")
    models = (
        [line for line in info.read_text().splitlines() if line.startswith("model name")]
        if info.exists()
        else []
    )
    model = models[0].partition(":")[2].strip() if models else platform.processor()
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    system = f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    return f"{os.cpu_count()} cores of {model}, {system}; load {load}."


def _changes(chosen: argparse.Namespace) -> dict[str, Any]:
    """Return what the options change of a plan."""
    names = ("subjects", "protocols", "spans", "agents")
    return {name: tuple(value) for name in names if (value := getattr(chosen, name)) is not None}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.ingest",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("plan", nargs="+", choices=PLANS)
    parser.add_argument("--subject", dest="subjects", nargs="+", choices=SUBJECTS)
    parser.add_argument("--protocol", dest="protocols", nargs="+", choices=["grpc", "http"])
    parser.add_argument("--spans", nargs="+", type=int, help="in a request")
    parser.add_argument("--agents", nargs="+", type=int, help="of a hundred traces")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="for each row, and as long at half load")
    return parser


if __name__ == "__main__":
    main()
