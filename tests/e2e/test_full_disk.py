"""A disk that is really full: a small file system, like a volume that is too small."""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import grpc
import pytest

from collector_processor.otlp import Signal
from collector_processor.rebuild.encode import encode
from semconv.model import TraceId
from tests.backends.fixtures import REQUIRE
from tests.backends.supervise import wait_until
from tests.e2e.backend import Backend, grpc_backend
from tests.e2e.line import Line, starting
from tests.e2e.spans import placed
from tests.e2e.traffic import Doors, send
from tests.factories import agent, chat, workflow

MEBIBYTE: Final = 1 << 20
DISK_MIB: Final = 24
CHUNK: Final = 200_000
"""Bytes of text in one span; random, so that it does not compress."""


class StillRefusedError(Exception):
    """The service accepted nothing during our retries."""


@contextmanager
def small_disk(path: Path) -> Iterator[None]:
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(path)]
    mounted = subprocess.run(command, check=False, capture_output=True, text=True)
    if mounted.returncode:
        if os.environ.get(REQUIRE) == "true":
            pytest.fail(f"cannot mount a small disk: {mounted.stderr}")
        pytest.skip(f"a small disk of its own can be mounted by root only: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A folder in which the services' data directory is a small disk; their logs are beside it."""
    with small_disk(tmp_path / "data"):
        yield tmp_path


def part(chance: random.Random, trace_id: TraceId, number: int) -> bytes:
    """One large model call of a run that never ends."""
    text = chance.randbytes(CHUNK // 2).hex()
    return encode([chat(number, parent=1, answer=text, agent_name="writer", trace_id=trace_id)])


def failing_run(trace_id: TraceId) -> bytes:
    spans = [
        workflow(1, task="add up", error="wrong sum", trace_id=trace_id),
        agent(2, "writer", trace_id=trace_id),
        chat(3, parent=2, answer="5", trace_id=trace_id),
    ]
    return encode(spans)


def delivered(backend: Backend) -> int:
    """Return how many of the agents' spans the backend has."""
    found = [one for request in backend.of(Signal.TRACES) for one in placed(request.body)]
    return sum(not one.is_carrier for one in found)


def insist(line: Line, body: bytes, *, for_s: float = 90.0) -> int:
    """Send with retries, as SDKs do, until acknowledged; return the number of refusals."""
    end = time.monotonic() + for_s
    refusals = 0
    while time.monotonic() < end:
        try:
            send(Doors(grpc=line.grpc, http=line.http), body, way="grpc")
        except grpc.RpcError as refusal:
            if refusal.code() not in {grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE}:
                raise
            refusals += 1
            time.sleep(0.1)
        else:
            return refusals
    raise StillRefusedError(f"refused for {for_s} s; {line.balance()}")


def test_what_is_kept_for_analysis_makes_room_for_what_arrives(disk: Path) -> None:
    """Three times the disk's size passes although no trace ends, and a run that does end is judged."""
    chance = random.Random(7)
    count = 3 * DISK_MIB * MEBIBYTE // CHUNK
    with grpc_backend() as backend, starting(disk) as start:
        line = start(forward_endpoint=backend.url)
        for number in range(count):
            insist(line, part(chance, TraceId(f"{number // 8 + 1:032x}"), number % 8 + 2))
        insist(line, failing_run(TraceId("f" * 32)))
        assert line.verdict("f" * 32)["status"] == "attributed"
        wait_until(lambda: "held" not in line.balance(), what="everything to be forwarded")
        assert delivered(backend) == count + 3
        assert line.said("traces evicted before their analysis")
        assert line.verdict(f"{1:032x}")["status"] == "error"


@pytest.mark.parametrize(
    "grace_ms", [pytest.param(300, id="judged before"), pytest.param(60_000, id="judged after")]
)
def test_with_the_backend_away_the_full_disk_refuses_and_loses_nothing(disk: Path, grace_ms: int) -> None:
    """Acknowledged spans arrive once the backend is back, and the run that ended meanwhile is judged.

    Nothing new arrives before that: the disk stays full, and the verdict needs some of it.
    """
    chance = random.Random(8)
    with grpc_backend() as backend, starting(disk) as start:
        closed = "http://127.0.0.1:9"
        line = start(forward_endpoint=closed, root_grace=grace_ms, shutdown_s=3)
        insist(line, failing_run(TraceId("e" * 32)))
        acknowledged = 3
        try:
            while True:
                trace_id = TraceId(f"{acknowledged:032x}")
                insist(line, part(chance, trace_id, 2), for_s=5.0)
                acknowledged += 1
        except StillRefusedError:
            assert acknowledged * CHUNK > DISK_MIB * MEBIBYTE // 4
        assert line.terminate() == 0
        line = start(forward_endpoint=backend.url)
        wait_until(lambda: "held" not in line.balance(), what="everything to be forwarded")
        assert delivered(backend) == acknowledged
        assert line.verdict("e" * 32)["status"] == "attributed"
        insist(line, failing_run(TraceId("d" * 32)))
        assert line.verdict("d" * 32)["status"] == "attributed"
