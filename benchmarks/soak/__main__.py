"""Soak test: ``python -m benchmarks.soak --minutes 30``.

Runs a real ``blamespan serve`` under a mixed load (plain spans and agents' runs, gRPC and HTTP, compressed
and not) in front of a backend with regular outages. Exits with 1 unless memory and CPU time per span stay
flat, the journal stays bounded, and at the end everything acknowledged is in the backend and every run is
judged. Only ratios count, never durations, so a slow machine does not fail.

The short form, for every change: ``--minutes 2 --first 3000 --runs 30 --requests 5 --memory 0.04``. It can
fail: a build that leaked 4 KiB per run did (124.5 to 130.0 MiB), the same build without the leak did not
(109.5 to 109.4). A leak per run is detected from tolerance x memory / (runs in two thirds of the time): many
runs per second detect more than a long duration. Half an hour at 4 runs per second detects 2.4 KiB per run.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import uvloop

from benchmarks.ingest.subjects import Running, announcing
from benchmarks.soak.backend import read_taken
from benchmarks.soak.load import Pace, Sent, keep_sending
from benchmarks.soak.trend import Trend, trend
from tests.e2e.line import Line, starting

SAMPLES: Final = 60
WARM: Final = 0.1
"""Share of the soak to ignore: caches fill, libraries load."""
_FULL_SPEED: Final = 1_000.0
_END_S: Final = 30.0
_AWAYS: Final = 8
_AWAY_SHARE: Final = 0.05
_LONGEST_AWAY_S: Final = 10.0
_DRAIN_S: Final = 600.0
_LOOK_S: Final = 1.0
_MIB: Final = 1 << 20
_BLOCK: Final = 512
_LEAST_QUOTA: Final = 4 << 20
_EVICTED: Final = "traces evicted before their analysis"
_RUN_BYTES: Final = 15_000
"""Bytes counted in the journal for one of the demo's runs."""
JOURNAL_MIB: Final = 4 * 64
"""Bound on the journal during an outage of the backend: a few segments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Measurements of the service at one moment."""

    rss_mib: float
    cpu_s: float
    spans: int
    """Spans acknowledged since the start."""
    journal_mib: float
    stores_mib: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Results of a soak."""

    minutes: float
    samples: Sequence[Sample]
    acknowledged: int
    """Spans acknowledged, according to the senders."""
    runs: int
    balance: dict[str, int]
    """Counts according to the service, once idle."""
    taken: int
    """Spans received according to the backend, without carriers."""
    away: int
    """Requests refused during the backend's outages."""
    unjudged: int
    """Runs without a carrier in the backend."""
    evicted: int
    """Runs evicted before they were judged, according to the service."""

    def memory(self) -> Trend:
        """Return the trend of memory."""
        return trend([sample.rss_mib for sample in self.samples])

    def cost(self) -> Trend:
        """Return the trend of CPU time per span, in µs."""
        pairs = zip(self.samples, self.samples[1:], strict=False)
        return trend([1e6 * (b.cpu_s - a.cpu_s) / (b.spans - a.spans) for a, b in pairs if b.spans > a.spans])

    def faults(self, most_memory: float, most_cost: float) -> list[str]:
        """Return the failures; empty if the service passes."""
        journal = max(sample.journal_mib for sample in self.samples)
        balance = self.balance
        checks = {
            "memory grows": not self.memory().is_flat(most_memory),
            "a span costs ever more CPU time": not self.cost().is_flat(most_cost),
            f"the journal took {journal:.0f} MiB": journal > JOURNAL_MIB,
            "the service counts other spans than were acknowledged": balance.get("acknowledged")
            != self.acknowledged,
            "not all that was acknowledged was forwarded": balance.get("forwarded") != self.acknowledged,
            "the backend lacks spans": self.taken < self.acknowledged,
            f"{self.unjudged} runs were not judged, {self.evicted} evicted before that": self.unjudged > 0,
            "the backend was never away": not self.away,
        }
        return [what for what, is_so in checks.items() if is_so]


async def soak(pace: Pace, minutes: float, first: int) -> Outcome:
    """Run the soak.

    Args:
        pace: load per second.
        minutes: duration.
        first: runs sent beforehand, as fast as they are accepted: SQLite's page caches (2 MiB per connection)
        are full after some 3,000; otherwise a short soak mistakes their growth for a leak.
    """
    seconds = 60 * minutes
    every_s = seconds / _AWAYS
    away_s = min(_LONGEST_AWAY_S, every_s * _AWAY_SHARE)
    backend = [sys.executable, "-m", "benchmarks.soak.backend", f"{every_s}", f"{away_s}"]
    with (
        tempfile.TemporaryDirectory() as folder,
        announcing(backend) as (_, announced),
        starting(Path(folder)) as start,
    ):
        endpoint, told = announced.split()
        line = start(
            forward_endpoint=endpoint,
            forward_protocol="grpc",
            method="signals",
            root_grace=2000,
            carriers="all",  # also for runs that pass: each carrier shows that a run was judged
            max_retained_bytes=_quota(pace, seconds, first),
        )
        sent, watch = Sent(), _Watch(line, Path(folder) / "data")
        with _telling_how_it_ended(line):
            if first:
                at_once = replace(pace, runs=_FULL_SPEED)
                await keep_sending(at_once, line, sent, lambda: len(sent.runs) >= first)
            samples = await _sampled(pace, line, sent, watch, seconds)
            taken = await _settled(line, told, sent)
        return Outcome(
            minutes=minutes,
            samples=samples[:-1],  # the last sample was taken at the end
            acknowledged=sent.spans,
            runs=len(sent.runs),
            balance=line.balance(),
            taken=taken["spans"],
            away=taken["refusals"],
            unjudged=len(sent.runs.difference(taken["judged"])),
            evicted=sum(said["traces"] for said in line.said(_EVICTED)),
        )


def _quota(pace: Pace, seconds: float, first: int) -> int:
    """Return the quota in bytes for retained runs.

    It is reached during the warm-up, because the index of retained runs grows until then. But it has room for
    all of the first runs at once: with a fast disk they are acknowledged before any of them has ended.
    """
    return max(_LEAST_QUOTA, int((first + WARM * seconds * pace.runs) * _RUN_BYTES))


async def _sampled(pace: Pace, line: Line, sent: Sent, watch: _Watch, seconds: float) -> list[Sample]:
    ends = time.monotonic() + seconds
    loading = asyncio.create_task(keep_sending(pace, line, sent, lambda: time.monotonic() >= ends))
    await asyncio.sleep(WARM * seconds)
    samples = [watch.sample(sent)]
    while not loading.done():
        await asyncio.wait([loading], timeout=(1 - WARM) * seconds / SAMPLES)
        samples.append(watch.sample(sent))
    await loading
    return samples


@contextmanager
def _telling_how_it_ended(line: Line) -> Iterator[None]:
    """If the service dies under the load, report its exit code and log, which are gone afterwards."""
    try:
        yield
    except Exception as error:
        try:
            code = line.server.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            raise error from None
        raise SystemExit(f"the service ended with {code}; its log ends:\n{line.server.tail()}") from error


class _Watch:
    """Observes a service from outside."""

    def __init__(self, line: Line, data: Path) -> None:
        self._process = Running(pid=line.server.process.pid, endpoint=line.grpc)
        self._data = data

    def sample(self, sent: Sent) -> Sample:
        """Return its current measurements."""
        journal = _disk_mib(self._data / "ingest")
        return Sample(
            rss_mib=self._process.rss_mib(),
            cpu_s=self._process.cpu_s(),
            spans=sent.spans,
            journal_mib=journal,
            stores_mib=_disk_mib(self._data) - journal,
        )


def _disk_mib(folder: Path) -> float:
    found = 0
    for path in folder.rglob("*"):
        try:
            found += path.stat().st_blocks * _BLOCK
        except FileNotFoundError:
            continue  # a segment is deleted while we look
    return found / _MIB


async def _settled(line: Line, told: str, sent: Sent) -> dict[str, Any]:
    """Wait until everything is forwarded and judged, up to a time limit."""
    deadline = time.monotonic() + _DRAIN_S
    while True:
        balance = await asyncio.to_thread(line.balance)
        taken = await asyncio.to_thread(read_taken, told)
        is_done = not balance.get("held") and sent.runs <= set(taken["judged"])
        if is_done or time.monotonic() > deadline:
            return taken
        await asyncio.sleep(_LOOK_S)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the results, and exit with 1 if it failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--requests", type=float, default=20.0, help="of plain spans a second")
    parser.add_argument("--spans", type=int, default=128, help="in each of these")
    parser.add_argument("--runs", type=float, default=4.0, help="of agents a second")
    parser.add_argument("--first", type=int, default=0, help="runs sent before, as fast as they are taken")
    parser.add_argument("--memory", type=float, default=0.10, help="growth tolerated, a share")
    parser.add_argument("--cost", type=float, default=0.25, help="growth of a span's CPU time tolerated")
    chosen = parser.parse_args(arguments)
    pace = Pace(requests=chosen.requests, spans=chosen.spans, runs=chosen.runs)
    outcome = uvloop.run(soak(pace, chosen.minutes, chosen.first))
    faults = outcome.faults(chosen.memory, chosen.cost)
    print(_told(outcome, faults), flush=True)
    return 1 if faults else 0


def _told(outcome: Outcome, faults: Sequence[str]) -> str:
    last = outcome.samples[-1]
    rows = [
        (
            f"{outcome.minutes:g} minutes: {outcome.acknowledged:,} spans acknowledged,"
            f" {outcome.runs:,} runs; the backend was away for {outcome.away:,} requests"
            f" and took {outcome.taken:,} spans"
        ),
        f"memory: {_went(outcome.memory(), 'MiB')}",
        f"CPU time of a span: {_went(outcome.cost(), 'µs')}",
        (
            f"journal: {max(sample.journal_mib for sample in outcome.samples):.0f} MiB at most,"
            f" {last.journal_mib:.0f} in the end; verdicts and kept runs: {last.stores_mib:.0f} MiB"
        ),
        (
            f"balance: {', '.join(f'{what} {count:,}' for what, count in outcome.balance.items())};"
            f" runs not judged: {outcome.unjudged}, evicted: {outcome.evicted}"
        ),
        f"it does not last: {'; '.join(faults)}" if faults else "it lasts",
    ]
    return "\n".join(rows)


def _went(found: Trend, unit: str) -> str:
    return (
        f"{found.first:.1f} → {found.last:.1f} {unit} from the first third to the last; slope over the whole"
        f" {found.slope:+.1%} of the first third [{found.low:+.1%}, {found.high:+.1%}]"
    )


if __name__ == "__main__":
    sys.exit(main())
