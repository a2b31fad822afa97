"""Ingest throughput and latency, compared with other programs: ``python -m benchmarks.ingest``.

Spans of 1.4 KB, 16 interleaved traces per request, and a backend that keeps nothing. Figures are spans per
second of wall time and of the process's own CPU time (all threads), so that sender and backend do not count.

A plan (``speed``, ``sizes``, ``gzip``, ``agents``, ``stores``) defines the rows; options change it. Each
round runs every row once, with compared rows next to each other. ``--output`` stores the rows as JSON lines,
from which ``python -m benchmarks.ingest.report`` produces the same Markdown again.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.ingest.load import RefusedError
from benchmarks.ingest.measuring import Case, measure
from benchmarks.ingest.plans import PLANS, Plan
from benchmarks.ingest.report import as_line, render
from benchmarks.ingest.subjects import SUBJECTS


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a plan, report each row on standard error, print the tables."""
    chosen = _parser().parse_args(arguments)
    lines: list[str] = []
    for line in _run(_plan(chosen), chosen.rounds, chosen.seconds):
        lines.append(line)
        if chosen.output:
            with chosen.output.open("a") as file:
                file.write(line + "\n")
    print("\n".join(lines) if chosen.format == "json" else render(lines), flush=True)


def _run(plan: Plan, rounds: int, seconds: float) -> Iterator[str]:
    yield as_line(machine=_machine())
    for case, reason in plan.left_out():
        yield as_line(case=asdict(case), left_out=reason)
    for number in range(rounds):
        for case in plan.cases(number):
            try:
                figures = uvloop.run(measure(case, seconds))
            except RefusedError as error:
                yield as_line(case=asdict(case), round=number, refused=str(error))
                continue
            _say(
                case,
                f"{figures.spans_per_cpu_s:,.0f} spans/s per core, p99 {figures.half_load_p99_ms:.1f} ms",
            )
            yield as_line(case=asdict(case), round=number, figures=asdict(figures))


def _say(case: Case, what: str) -> None:
    print(
        f"{case.subject:16} {case.protocol} {case.spans:5} spans, {case.agents} % agents, "
        f"{'gzip' if case.is_gzip else 'plain'}: {what}",
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


def _plan(chosen: argparse.Namespace) -> Plan:
    given: dict[str, Any] = {
        name: tuple(getattr(chosen, name))
        for name in ("subjects", "protocols", "spans", "agents", "gzip")
        if getattr(chosen, name) is not None
    }
    return replace(PLANS[chosen.plan], **given)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.ingest",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("plan", nargs="?", choices=PLANS, default="speed")
    parser.add_argument("--subject", dest="subjects", nargs="+", choices=SUBJECTS)
    parser.add_argument("--protocol", dest="protocols", nargs="+", choices=["grpc", "http"])
    parser.add_argument("--spans", nargs="+", type=int, help="in a request")
    parser.add_argument("--agents", nargs="+", type=int, help="of a hundred traces")
    parser.add_argument("--gzip", nargs="+", type=_switch, metavar="on|off")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="for each row, and as long at half load")
    parser.add_argument("--output", type=Path, metavar="FILE", help="rows are appended, as JSON lines")
    parser.add_argument("--format", choices=["markdown", "json"], default="markdown")
    return parser


def _switch(word: str) -> bool:
    if word not in {"on", "off"}:
        raise argparse.ArgumentTypeError("expected on or off")
    return word == "on"


if __name__ == "__main__":
    main()
