"""Latency through a real service: from a run's end until its verdict is in the backend.

A run is complete when nothing has arrived for ``BLAMESPAN_ROOT_GRACE`` after its root's end: the clock starts
when its last request was acknowledged, and the grace is subtracted. Runs are sent at a fixed pace, regardless
of earlier ones (open loop): each in two requests, with only the root in the second. Afterwards, requests
without agents are sent, alone and beside runs: their additional latency is the cost of runs to others.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import grpc
import grpc.aio

from benchmarks.analysis.backend import read_arrivals
from benchmarks.ingest.passthrough import PATH
from benchmarks.ingest.subjects import Running, announcing
from benchmarks.resources.demo_again import Again, DemoAgain
from collector_processor.rebuild.encode import encode
from tests.e2e.line import Line, starting
from tests.factories import TRACE, span

WARM_S: Final = 3.0
_PATIENCE_S: Final = 60.0
_BETWEEN_S: Final = 0.05
"""Seconds from a run's spans to its root's end."""
_FULL: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED})
_FULL_S: Final = 0.01
_BYSTANDERS_PER_S: Final = 50
_OPTIONS: Final = (("grpc.max_send_message_length", -1),)

_Call: TypeAlias = "grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The load."""

    runs_per_s: float
    seconds: float
    grace_ms: int
    redact: str
    """Kinds of secrets to remove, or ``none``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """Measured delays."""

    runs: int
    verdicts: int
    """Runs whose carrier arrived."""
    spans_per_run: int
    after_completion_ms: Sequence[float]
    """Ascending, from the end of the grace until the first carrier was in the backend."""
    acknowledged_ms: Sequence[float]
    """Ascending, from the moment the last request was due until it was acknowledged."""
    bystanders_alone_ms: Sequence[float]
    """Ascending latencies of requests without agents while no runs were sent."""
    bystanders_ms: Sequence[float]
    """The same while runs were sent."""
    cpu_per_run_ms: float
    """CPU time of the service and its analysis process, including receiving, storing and forwarding."""
    own_cpu_per_run_ms: float
    """CPU time of the service alone."""
    late_s: float
    """Largest delay of the sender itself: if it is large, the intended load was not reached."""
    peak_mib: float
    """Peak memory of the service."""
    beside_mib: float
    """Memory of its analysis process; 0 if none was started."""


async def measure(pace: Pace) -> Delays:
    """Start a backend and the service, send, and wait for the verdicts."""
    backend = [sys.executable, "-m", "benchmarks.analysis.backend"]
    with tempfile.TemporaryDirectory() as folder, announcing(backend) as (_, announced):
        endpoint, told = announced.split()
        with starting(Path(folder)) as start:
            line = start(
                forward_endpoint=endpoint,
                forward_protocol="grpc",
                method="signals",
                root_grace=pace.grace_ms,
                carriers="all",
                redact=pace.redact,
            )
            return await _measure(pace, line, told)


async def _measure(pace: Pace, line: Line, told: str) -> Delays:
    service = Running(pid=line.server.process.pid, endpoint=line.grpc)
    runs = DemoAgain()
    async with grpc.aio.insecure_channel(line.grpc.removeprefix("http://"), options=_OPTIONS) as channel:
        call: _Call = channel.unary_unary(PATH, None, None)
        sender, alone, beside = _Sender(call), Bystanders(call), Bystanders(call)
        await sender.send(runs, pace.runs_per_s, WARM_S)
        await _arrived(told, sender.ended)
        sender.forget()
        own_s, child_s = service.cpu_s(), _children(service.pid).cpu_s
        await sender.send(runs, pace.runs_per_s, pace.seconds)
        arrivals = await _arrived(told, sender.ended)
        children = _children(service.pid)
        own_s, child_s = service.cpu_s() - own_s, children.cpu_s - child_s
        await alone.send(pace.seconds / 2)
        async with asyncio.TaskGroup() as group:
            group.create_task(beside.send(pace.seconds / 2))
            group.create_task(_Sender(call).send(runs, pace.runs_per_s, pace.seconds / 2))
    delays = [
        1000 * (arrivals[trace_id] - ended) - pace.grace_ms
        for trace_id, ended in sender.ended.items()
        if trace_id in arrivals
    ]
    return Delays(
        runs=len(sender.ended),
        verdicts=len(delays),
        spans_per_run=runs.spans,
        after_completion_ms=sorted(delays),
        acknowledged_ms=sorted(sender.waits_ms),
        bystanders_alone_ms=sorted(alone.waits_ms),
        bystanders_ms=sorted(beside.waits_ms),
        cpu_per_run_ms=1000 * (own_s + child_s) / len(sender.ended),
        own_cpu_per_run_ms=1000 * own_s / len(sender.ended),
        late_s=sender.late_s,
        peak_mib=service.peak_mib(),
        beside_mib=children.mib,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Children:
    """The processes that a process started."""

    cpu_s: float
    mib: float


def _children(pid: int) -> _Children:
    found = [
        Running(pid=int(child), endpoint="")
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]
    return _Children(cpu_s=sum(one.cpu_s() for one in found), mib=sum(one.rss_mib() for one in found))


class Bystanders:
    """Sends requests without agents' spans at a fixed pace, and records each latency."""

    def __init__(self, call: _Call) -> None:
        self._call = call
        self._body = encode([span(number) for number in range(1, 17)])
        self._chance = random.Random(16)
        self.waits_ms: list[float] = []

    async def send(self, seconds: float) -> None:
        """Send for the given time; return when all requests are acknowledged."""
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for number in range(int(_BYSTANDERS_PER_S * seconds)):
                due = began + number / _BYSTANDERS_PER_S
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                group.create_task(self._send())

    async def _send(self) -> None:
        body = self._body.replace(bytes.fromhex(TRACE), self._chance.randbytes(16))
        began = time.monotonic()
        await _insist(self._call, body)
        self.waits_ms.append(1000 * (time.monotonic() - began))


class _Sender:
    """Sends runs at a pace and records when each was completely acknowledged."""

    def __init__(self, call: _Call) -> None:
        self._call = call
        self.forget()

    def forget(self) -> None:
        """Reset: the warm-up does not count."""
        self.ended: dict[str, float] = {}
        self.waits_ms: list[float] = []
        self.late_s = 0.0

    async def send(self, runs: DemoAgain, runs_per_s: float, seconds: float) -> None:
        """Send for the given time; return when all requests are acknowledged.

        Raises: grpc.RpcError: a request was permanently refused.
        """
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for number in range(int(runs_per_s * seconds)):
                due = began + number / runs_per_s
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                self.late_s = max(self.late_s, time.monotonic() - due)
                group.create_task(self._send(runs.next()))

    async def _send(self, run: Again) -> None:
        await _insist(self._call, run.before)
        await asyncio.sleep(_BETWEEN_S)
        began = time.monotonic()
        await _insist(self._call, run.root)
        now = time.monotonic()
        self.ended[run.trace_id] = now
        self.waits_ms.append(1000 * (now - began))


async def _insist(call: _Call, body: bytes) -> None:
    """Send until it is acknowledged, as OTLP's clients do; the clock runs on."""
    while True:
        try:
            await call(body)
        except grpc.RpcError as error:
            if error.code() not in _FULL:
                raise
            await asyncio.sleep(_FULL_S)
        else:
            return


async def _arrived(told: str, ended: Mapping[str, float]) -> Mapping[str, float]:
    """Wait until every run's carrier has arrived, or no more arrive."""
    deadline = time.monotonic() + _PATIENCE_S
    missing, since = len(ended), time.monotonic()
    while True:
        arrivals = await asyncio.to_thread(read_arrivals, told)
        left = sum(trace_id not in arrivals for trace_id in ended)
        now = time.monotonic()
        if left < missing:
            missing, since = left, now
        if not left or now > deadline or now - since > _PATIENCE_S / 2:
            return arrivals
        await asyncio.sleep(0.25)
