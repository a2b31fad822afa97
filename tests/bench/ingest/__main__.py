"""Taken, durable, acknowledged, passed on, beside others in the same run: ``python -m tests.bench.ingest``.

Spans of 1.4 KB, 16 interleaved traces a request, a backend that keeps nothing. Figures are spans a second of
wall time and of the process's own CPU time (all threads), so that what sends and what receives do not count.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import uvloop

from tests.bench.ingest.load import Load, Sent, send
from tests.bench.ingest.subjects import SUBJECTS, Running, announcing
from tests.bench.wire import TRACES, make_request

WARM_S = 1.0
DRAIN_S = 30.0
QUIET_S = 0.5
BODIES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One row."""

    subject: str
    protocol: str
    spans: int
    agents: int
    """Of the 16 traces in a request."""
    is_gzip: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What came of it."""

    spans_per_s: float
    spans_per_cpu_s: float
    p50_ms: float
    p99_ms: float
    half_load_p99_ms: float
    peak_mib: float
    delivered: float
    """The share of the acknowledged bytes that the backend got."""


def cases(arguments: argparse.Namespace) -> Iterator[Case]:
    """Iterate over the rows asked for, those that are to be compared next to each other."""
    for protocol in arguments.protocol:
        for spans in arguments.spans:
            for agents in arguments.agents:
                for is_gzip in arguments.gzip:
                    for subject in arguments.subject:
                        yield Case(
                            subject=subject, protocol=protocol, spans=spans, agents=agents, is_gzip=is_gzip
                        )


async def measure(case: Case, seconds: float) -> Figures:
    """Run one subject from start to end."""
    bodies = [make_request(case.spans, case.agents, seed) for seed in range(BODIES)]
    load = Load(protocol=case.protocol, bodies=bodies, spans=case.spans, is_gzip=case.is_gzip)
    null = [sys.executable, "-m", "tests.bench.ingest.null_backend", case.protocol]
    with tempfile.TemporaryDirectory() as folder, announcing(null) as (_, announced):
        backend, counter = announced.split()
        with SUBJECTS[case.subject](case.protocol, backend, Path(folder)) as running:
            await send(load, running.endpoint, seconds=WARM_S)
            await _drained(counter, 0)
            before, cpu = _count(counter), running.cpu_s()
            began = time.perf_counter()
            sent = await send(load, running.endpoint, seconds=seconds)
            lasted = await _drained(counter, before + int(0.98 * sent.bytes)) - began
            used, came = running.cpu_s() - cpu, _count(counter) - before
            half = await _at_half_load(load, running, sent, seconds)
            spans = sent.requests * case.spans
            return Figures(
                spans_per_s=spans / lasted,
                spans_per_cpu_s=spans / used,
                p50_ms=sent.p50_ms,
                p99_ms=sent.p99_ms,
                half_load_p99_ms=half.p99_ms,
                peak_mib=running.peak_mib(),
                delivered=came / sent.bytes,
            )


async def _at_half_load(load: Load, running: Running, sent: Sent, seconds: float) -> Sent:
    return await send(load, running.endpoint, seconds=seconds, pace=sent.requests / sent.seconds / 2)


async def _drained(counter: str, expected: int) -> float:
    """Wait until that much came and nothing more does, or in vain; return when the last came."""
    deadline = time.perf_counter() + DRAIN_S
    last, since = -1, time.perf_counter()
    while time.perf_counter() < deadline:
        found, now = _count(counter), time.perf_counter()
        if found != last:
            last, since = found, now
        elif found >= expected and now - since > QUIET_S:
            break
        await asyncio.sleep(0.02)
    return since


def _count(counter: str) -> int:
    with urllib.request.urlopen(counter, timeout=10) as answer:
        return int(answer.read())


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table, or a JSON object a line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.ingest", description=__doc__)
    parser.add_argument("--subject", nargs="+", choices=SUBJECTS, default=list(SUBJECTS))
    parser.add_argument("--protocol", nargs="+", choices=["grpc", "http"], default=["grpc", "http"])
    parser.add_argument("--spans", nargs="+", type=int, default=[16, 512], help="in a request")
    parser.add_argument("--agents", nargs="+", type=int, default=[0], help=f"of {TRACES} traces in a request")
    parser.add_argument("--gzip", nargs="+", type=_switch, default=[False], metavar="on|off")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each row, and as long at half load")
    parser.add_argument("--format", choices=["table", "json"], default="table")
    chosen = parser.parse_args(arguments)
    if chosen.format == "table":
        print(
            f"{'':16} {'protocol':>8} {'spans':>6} {'agents':>6} {'gzip':>5} {'spans/s':>10} "
            f"{'per CPU s':>10} {'p50 ms':>7} {'p99 ms':>7} {'½ p99':>7} {'MiB':>6} {'delivered':>9}"
        )
    for case in cases(chosen):
        figures = uvloop.run(measure(case, chosen.seconds))
        print(
            json.dumps({**asdict(case), **asdict(figures)})
            if chosen.format == "json"
            else _row(case, figures),
            flush=True,
        )


def _switch(word: str) -> bool:
    if word not in {"on", "off"}:
        raise argparse.ArgumentTypeError("expected on or off")
    return word == "on"


def _row(case: Case, figures: Figures) -> str:
    what = f"{case.subject:16} {case.protocol:>8} {case.spans:>6} {case.agents:>3}/{TRACES}"
    speed = f"{figures.spans_per_s:>10,.0f} {figures.spans_per_cpu_s:>10,.0f}"
    waits = f"{figures.p50_ms:>7.1f} {figures.p99_ms:>7.1f} {figures.half_load_p99_ms:>7.1f}"
    gzip = "on" if case.is_gzip else "off"
    return f"{what} {gzip:>5} {speed} {waits} {figures.peak_mib:>6.0f} {figures.delivered:>9.1%}"


if __name__ == "__main__":
    main()
