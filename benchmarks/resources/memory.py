"""Memory and disk use of a service with many open runs: ``python -m benchmarks.resources.memory``.

Uses a real ``blamespan serve`` in front of a backend that keeps nothing: a million spans of agents in 50,000
traces whose roots have not ended, each trace's spans in four requests that 16 traces share. Then every root
ends and all runs are analysed; their spans are kept for late spans, up to ``max_retained_bytes``. A
second process with a small quota must then return the disk space.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc
import grpc.aio
import uvloop
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from benchmarks.ingest.passthrough import PATH
from benchmarks.ingest.subjects import Running, announcing
from semconv.attributes import (
    GEN_AI_AGENT_NAME,
    GEN_AI_INPUT_MESSAGES,
    GEN_AI_OPERATION_NAME,
    GEN_AI_OUTPUT_MESSAGES,
)
from tests.e2e.line import Line, starting
from tests.factories import messages, said
from tests.otlp_requests import request, span

TOGETHER: Final = 16
"""Traces per request."""
PARTS: Final = 4
"""Requests per trace."""
_CLIENTS: Final = 16
_FULL_S: Final = 0.05
_QUIET_S: Final = 2.0
_NEVER_MS: Final = 24 * 3600 * 1000
_SETTLE_S: Final = 120.0
_MIB: Final = 1 << 20
_LARGE_QUOTA: Final = 16 << 30
_SMALL_QUOTA: Final = 64 << 20
_GIVE_BACK_S: Final = 300.0
"""Longer than the minute between a service's checks for traces kept too long."""
_BLOCK: Final = 512
"""Unit of ``st_blocks`` in bytes."""
_SCOPE: Final = "opentelemetry.instrumentation.demo"
_WORDS: Final = ("plan", "route", "harbour", "ferry", "price", "total", "ask", "captain", "and", "return")
_ROOT: Final = 1
_AGENT: Final = 2
_FIRST: Final = 3
"""Counter of spans."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Measurements of a waiting service."""

    traces: int
    spans: int
    open_traces: int
    """Open traces as reported by the service."""
    idle_mib: float
    """Memory before the first request."""
    rss_mib: float
    """Memory after all requests, when idle."""
    peak_mib: float
    wire_bytes_per_span: float
    disk_bytes_per_span: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Freed:
    """Measurements of the same service after all runs were analysed."""

    seconds: float
    """Seconds from the first root's end."""
    unfinished: int
    """Number of traces still open or being analysed."""
    rss_mib: float
    peak_mib: float
    journal_mib: float
    """Bytes on disk for spans; before, ``disk_bytes_per_span`` for each."""
    stores_mib: float
    """Bytes on disk for verdicts and kept runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenBack:
    """Measurements of another process on the same directory, with a small quota."""

    quota_mib: float
    seconds: float
    """Seconds from its start."""
    rss_mib: float
    journal_mib: float


class Batch:
    """A request template without trace ids: filled in, each request has the same size."""

    def __init__(self, first_span: int, spans_each: int, chance: random.Random) -> None:
        ids = [chance.getrandbits(127) | 1 << 126 for _ in range(TOGETHER)]
        made = (_chat(first_span + n, trace, chance) for n in range(spans_each) for trace in ids)
        self._body = bytearray(request(*made, scope=_SCOPE, service="agents"))
        self._places = [_places(self._body, trace.to_bytes(16)) for trace in ids]

    def of(self, group: int) -> bytes:
        """Return the request of the ``group``-th sixteen traces."""
        for place, found in enumerate(self._places):
            trace_id = (group * TOGETHER + place + 1).to_bytes(16)
            for start in found:
                self._body[start : start + 16] = trace_id
        return bytes(self._body)


def _places(body: bytearray, wanted: bytes) -> list[int]:
    found, start = list[int](), body.find(wanted)
    while start >= 0:
        found.append(start)
        start = body.find(wanted, start + 1)
    return found


def _chat(number: int, trace: int, chance: random.Random) -> Span:
    def prose(length: int) -> str:
        return " ".join(chance.choices(_WORDS, k=length // 6)) + f" {chance.getrandbits(64):x}"

    attributes = {
        GEN_AI_OPERATION_NAME: "chat",
        GEN_AI_AGENT_NAME: f"agent-{number % 5}",
        GEN_AI_INPUT_MESSAGES: messages(said("user", prose(420)), said("assistant", prose(160))),
        GEN_AI_OUTPUT_MESSAGES: messages(said("assistant", prose(300))),
    }
    return span(number, trace=trace, parent=_AGENT, attributes=attributes, name="chat model")


def _ends(group: int) -> bytes:
    """Return the request that ends the runs of the ``group``-th sixteen traces."""
    agent = {GEN_AI_OPERATION_NAME: "invoke_agent", GEN_AI_AGENT_NAME: "boss"}
    workflow = {GEN_AI_OPERATION_NAME: "invoke_workflow"}
    ended: list[Span] = []
    for trace in range(group * TOGETHER + 1, (group + 1) * TOGETHER + 1):
        ended.append(span(_AGENT, trace=trace, parent=_ROOT, attributes=agent, name="invoke_agent"))
        ended.append(span(_ROOT, trace=trace, attributes=workflow, name="invoke_workflow"))
    return request(*ended, scope=_SCOPE, service="agents")


class Filled:
    """A filled service, its endpoint and its disk use."""

    def __init__(self, line: Line, folder: Path, channel: grpc.aio.Channel) -> None:
        self._line = line
        self._data = folder / "data"
        self._call = channel.unary_unary(PATH, None, None)
        self.process = Running(pid=line.server.process.pid, endpoint=line.grpc)

    async def send(self, bodies: Iterable[bytes]) -> int:
        """Send all requests, a few at a time; return the bytes."""
        waiting, sent = iter(bodies), 0

        async def client() -> None:
            nonlocal sent
            for body in waiting:
                while not await self._taken(body):  # noqa: ASYNC110 - it reports being full, not having room again
                    await asyncio.sleep(_FULL_S)
                sent += len(body)

        await asyncio.gather(*(client() for _ in range(_CLIENTS)))
        return sent

    async def _taken(self, body: bytes) -> bool:
        try:
            await self._call(body)
        except grpc.RpcError as error:
            if error.code() in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED}:
                return False
            raise
        return True

    async def quiet(self, traces: int, patience_s: float) -> int:
        """Wait until this many traces are open or being analysed, all is forwarded and the disk is idle.

        Returns their number then, or when ``patience_s`` is over.
        """
        deadline, before = time.monotonic() + patience_s, -1
        while True:
            balance = await asyncio.to_thread(self._line.balance)
            found = await asyncio.to_thread(self._traces)
            on_disk = self.disk("")
            at_rest = not balance.get("held") and found == traces and on_disk == before
            if at_rest or time.monotonic() > deadline:
                return found
            before = on_disk
            await asyncio.sleep(_QUIET_S)

    def _traces(self) -> int:
        sample = self._line.sample
        return int(sample("blamespan_open_traces") + sample("blamespan_examinations"))

    def disk(self, part: str) -> int:
        """Return the disk use of the data directory or a part of it."""
        found = 0
        for path in (self._data / part).rglob("*"):
            with suppress(FileNotFoundError):  # a segment is deleted while we look
                found += path.stat().st_blocks * _BLOCK
        return found


async def measure(traces: int, spans: int, patience_s: float) -> AsyncIterator[Held | Freed | GivenBack]:
    """Fill a service, and let it finish.

    Args:
        traces: number of open traces.
        spans: number of spans in all.
        patience_s: time limit for analysing all; 0 to skip that.
    """
    null = [sys.executable, "-m", "benchmarks.ingest.null_backend", "grpc"]
    with (
        tempfile.TemporaryDirectory() as folder,
        announcing(null) as (_, announced),
        starting(Path(folder)) as start,
    ):
        line = start(
            forward_endpoint=announced.split()[0],
            forward_protocol="grpc",
            method="signals",
            idle_close=_NEVER_MS,
            max_age=_NEVER_MS,
            max_retained_bytes=_LARGE_QUOTA,
        )
        async with grpc.aio.insecure_channel(line.grpc.removeprefix("http://")) as channel:
            filled = Filled(line, Path(folder), channel)
            yield await _fill(filled, traces, spans)
            if patience_s:
                yield await _finish(filled, traces, patience_s)
                line.terminate()
                small = start(forward_endpoint=announced.split()[0], max_retained_bytes=_SMALL_QUOTA)
                yield await _give_back(Filled(small, Path(folder), channel))


async def _fill(filled: Filled, traces: int, spans: int) -> Held:
    chance = random.Random(1)
    groups, each = traces // TOGETHER, spans // traces // PARTS
    batches = [Batch(_FIRST + part * each, each, chance) for part in range(PARTS)]
    idle = filled.process.rss_mib()
    sent = await filled.send(batch.of(group) for batch in batches for group in range(groups))
    found = await filled.quiet(groups * TOGETHER, _SETTLE_S)
    count = groups * TOGETHER * each * PARTS
    return Held(
        traces=groups * TOGETHER,
        spans=count,
        open_traces=found,
        idle_mib=idle,
        rss_mib=filled.process.rss_mib(),
        peak_mib=filled.process.peak_mib(),
        wire_bytes_per_span=sent / count,
        disk_bytes_per_span=filled.disk("ingest") / count,
    )


async def _finish(filled: Filled, traces: int, patience_s: float) -> Freed:
    began = time.monotonic()
    await filled.send(_ends(group) for group in range(traces // TOGETHER))
    left = await filled.quiet(0, patience_s)
    return Freed(
        seconds=time.monotonic() - began,
        unfinished=left,
        rss_mib=filled.process.rss_mib(),
        peak_mib=filled.process.peak_mib(),
        journal_mib=filled.disk("ingest") / _MIB,
        stores_mib=(filled.disk("") - filled.disk("ingest")) / _MIB,
    )


async def _give_back(filled: Filled) -> GivenBack:
    began = time.monotonic()
    while filled.disk("ingest") > _SMALL_QUOTA and time.monotonic() - began < _GIVE_BACK_S:  # noqa: ASYNC110 - another process's files
        await asyncio.sleep(_QUIET_S)
    return GivenBack(
        quota_mib=_SMALL_QUOTA / _MIB,
        seconds=time.monotonic() - began,
        rss_mib=filled.process.rss_mib(),
        journal_mib=filled.disk("ingest") / _MIB,
    )


async def main() -> None:
    """Print the measurements, or one JSON object per line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.resources.memory", description=__doc__)
    parser.add_argument("--traces", type=int, default=50_000)
    parser.add_argument("--spans", type=int, default=1_000_000)
    parser.add_argument(
        "--patience", type=float, default=1800, help="seconds for the analysis; 0: without it"
    )
    chosen = parser.parse_args()
    async for found in measure(chosen.traces, chosen.spans, chosen.patience):
        print(_told(found), flush=True)


def _told(found: Held | Freed | GivenBack) -> str:
    if isinstance(found, GivenBack):
        return (
            f"a process that may keep {found.quota_mib:.0f} MiB has {found.journal_mib:.0f} MiB of spans on"
            f" disk after {found.seconds:.0f} s, and {found.rss_mib:.0f} MiB resident"
        )
    if isinstance(found, Held):
        ratio = found.wire_bytes_per_span / found.disk_bytes_per_span
        return (
            f"{found.spans:,} spans held in {found.open_traces:,} open traces (of {found.traces:,}):"
            f" {found.rss_mib:.0f} MiB resident, {found.peak_mib:.0f} at most, {found.idle_mib:.0f} idle\n"
            f"{found.wire_bytes_per_span:,.0f} B a span on the wire, {found.disk_bytes_per_span:,.0f} on disk"
            f" (1 : {ratio:.2f})"
        )
    return (
        f"{found.seconds:.0f} s after their ends {found.unfinished:,} are open or being analysed:"
        f" {found.rss_mib:.0f} MiB resident, {found.peak_mib:.0f} at most;"
        f" on disk {found.journal_mib:.0f} MiB of spans, {found.stores_mib:.0f} MiB of verdicts and kept runs"
    )


if __name__ == "__main__":
    uvloop.run(main())
