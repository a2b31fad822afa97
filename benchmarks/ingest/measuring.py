"""Runs one subject under one load: first as fast as it acknowledges, then at half that speed."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.ingest.bodies import make_bodies
from benchmarks.ingest.load import Load, Sent, percentile, send
from benchmarks.ingest.subjects import SUBJECTS, Running, announcing

WARM_S: Final = 1.0
_DRAIN_S: Final = 30.0
_QUIET_S: Final = 0.5
_SETTLE_S: Final = 0.3
_ENOUGH: Final = 0.98
_FLUSHED_BYTES: Final = 64 << 10
"""Compressed size of a group of requests on disk: about six with 16 spans."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One row to measure."""

    subject: str
    protocol: str
    spans: int
    """Spans in a request."""
    agents: int
    """Agents' traces among a hundred."""
    is_gzip: bool
    sign: str = "agent"
    """What the spans of an agent's traces carry (``bodies.SIGNS``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Figures of a row."""

    spans_per_s: float
    """Spans per second, until the last one left the subject."""
    spans_per_cpu_s: float
    """Spans per second of the process's CPU time, all threads."""
    requests: int
    p50_ms: float
    p99_ms: float
    half_load_requests: int
    half_load_p50_ms: float
    half_load_p99_ms: float
    late_p99_ms: float
    """Sending delays at half load: the sender's own part of the latency."""
    flush_p99_ms: float
    """Flush times of the disk alone, before and after the half load."""
    peak_mib: float
    delivered: float
    """Share of the acknowledged bytes that reached the backend."""


async def measure(case: Case, seconds: float) -> Figures:
    """Run one subject from start to end.

    Raises:
        RefusedError: it refuses such requests.
    """
    load = Load(
        protocol=case.protocol,
        bodies=make_bodies(case.spans, case.agents, case.sign),
        spans=case.spans,
        is_gzip=case.is_gzip,
    )
    null = [sys.executable, "-m", "benchmarks.ingest.null_backend", case.protocol]
    with tempfile.TemporaryDirectory() as folder, announcing(null) as (_, announced):
        backend, counter = announced.split()
        with SUBJECTS[case.subject].start(case.protocol, backend, Path(folder)) as running:
            arrived = partial(_count, counter)
            return await _measure(load, _Setup(running, arrived, Path(folder)), seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """Arrival of everything that was sent at full speed."""

    seconds: float
    """Seconds until the last byte left the subject."""
    cpu_s: float
    came: int
    """Bytes that reached the backend."""


@dataclass(frozen=True, slots=True)
class _Setup:
    """The subject and the means of measurement."""

    running: Running
    arrived: Callable[[], int]
    """Returns the bytes that reached the backend so far."""
    folder: Path
    """Folder on the disk that it writes to."""


async def _measure(load: Load, setup: _Setup, seconds: float) -> Figures:
    running, arrived = setup.running, setup.arrived
    warm = await send(load, running.endpoint, seconds=WARM_S)
    await _drained(arrived, 0)
    before, cpu = arrived(), running.cpu_s()
    began = time.perf_counter()
    sent = await send(load, running.endpoint, seconds=seconds, first=warm.requests)
    lasted = await _drained(arrived, before + int(_ENOUGH * sent.bytes)) - began
    passage = Passage(seconds=lasted, cpu_s=running.cpu_s() - cpu, came=arrived() - before)
    floor = list(_flushes(setup.folder, _SETTLE_S))
    half = await _at_half_load(load, running, sent, seconds, warm.requests + sent.requests)
    floor += _flushes(setup.folder, _SETTLE_S)
    return figures_of(load.spans, sent, half, passage, flush_s=floor, peak_mib=running.peak_mib())


def figures_of(
    spans: int, sent: Sent, half: Sent, passage: Passage, *, flush_s: list[float], peak_mib: float
) -> Figures:
    """Return the figures of a row.

    Args:
        spans: spans in a request.
        sent: results at full speed.
        half: results at half that pace.
        passage: the arrival of ``sent``.
        flush_s: flush times of the disk alone.
        peak_mib: peak memory of the subject.
    """
    return Figures(
        spans_per_s=sent.requests * spans / passage.seconds,
        spans_per_cpu_s=sent.requests * spans / passage.cpu_s,
        requests=sent.requests,
        p50_ms=sent.p50_ms,
        p99_ms=sent.p99_ms,
        half_load_requests=half.requests,
        half_load_p50_ms=half.p50_ms,
        half_load_p99_ms=half.p99_ms,
        late_p99_ms=half.late_p99_ms,
        flush_p99_ms=1000 * percentile(flush_s, 0.99),
        peak_mib=peak_mib,
        delivered=passage.came / sent.bytes,
    )


async def _at_half_load(load: Load, running: Running, sent: Sent, seconds: float, first: int) -> Sent:
    pace = sent.requests / sent.seconds / 2
    return await send(load, running.endpoint, seconds=seconds, pace=pace, first=first)


async def _drained(arrived: Callable[[], int], expected: int) -> float:
    """Wait until this much has arrived and no more does, or give up; return the time of the last arrival."""
    deadline = time.perf_counter() + _DRAIN_S
    last, since = -1, time.perf_counter()
    while time.perf_counter() < deadline:
        found, now = arrived(), time.perf_counter()
        if found != last:
            last, since = found, now
        elif found >= expected and now - since > _QUIET_S:
            break
        await asyncio.sleep(0.02)
    return since


def _count(counter: str) -> int:
    with urllib.request.urlopen(counter, timeout=10) as answer:
        return int(answer.read())


def _flushes(folder: Path, seconds: float) -> Iterator[float]:
    """Append to a file and flush it repeatedly for a time; return the seconds of each flush."""
    until = time.perf_counter() + seconds
    with (folder / "floor").open("wb", buffering=0) as file:
        while (began := time.perf_counter()) < until:
            file.write(os.urandom(_FLUSHED_BYTES))
            os.fdatasync(file.fileno())
            yield time.perf_counter() - began
