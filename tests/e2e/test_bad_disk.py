"""On a disk that fails one call in N, or is read-only, full or slow for a while, nothing acknowledged is
lost."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final

import grpc
import pytest

from collector_processor.otlp import Signal
from collector_processor.rebuild.decode import decode
from collector_processor.rebuild.encode import encode
from semconv.model import Span
from tests.backends.fixtures import REQUIRE
from tests.backends.postgresql import postgresql
from tests.backends.supervise import wait_until
from tests.deploy.shifts import spans_of
from tests.e2e.backend import Backend, grpc_backend
from tests.e2e.line import Line, StartLine
from tests.e2e.traffic import Doors, send

SOURCE: Final = Path(__file__).parent / "power" / "faulty.c"
LONG_S: Final = 3.0
"""Least seconds of the disk's failure."""
MOST_S: Final = 60.0
"""Seconds in which a failure that refuses requests must refuse one."""
REFUSALS: Final = {grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE}


class Fault(IntEnum):
    """Kinds of failure, numbered as in ``faulty.c``."""

    NONE = 0
    ERRORS = 1
    READ_ONLY = 2
    SLOW = 3
    FULL = 4


FAULTS: Final = (
    (Fault.ERRORS, 2, True),
    (Fault.ERRORS, 17, True),
    (Fault.ERRORS, 301, False),
    (Fault.READ_ONLY, 0, True),
    (Fault.FULL, 0, True),
    (Fault.SLOW, 30, False),
)
"""Faults, their numbers, and whether spans are refused meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    library: Path
    control: Path
    root: Path

    def be(self, fault: Fault, number: int = 0) -> None:
        with self.control.open("r+b") as file:
            file.write(struct.pack("ii", fault, number))

    @property
    def environ(self) -> dict[str, str]:
        return {
            "LD_PRELOAD": str(self.library),
            "FAULT_ROOT": str(self.root),
            "FAULT_CONTROL": str(self.control),
        }


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    library, control = tmp_path / "faulty.so", tmp_path / "control"
    compiler = shutil.which("cc")
    if compiler is None:
        if os.environ.get(REQUIRE) == "true":
            pytest.fail("no C compiler")
        pytest.skip("needs a C compiler")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(SOURCE), "-ldl"],
        check=True,
        capture_output=True,
    )
    control.write_bytes(struct.pack("ii", Fault.NONE, 0))
    return Disk(library=library, control=control, root=tmp_path / "data")


def acknowledged(line: Line, for_s: float) -> tuple[list[list[Span]], int]:
    """Send failing runs for a while, as SDKs do; return the acknowledged ones and the number of refusals."""
    taken: list[list[Span]] = []
    refusals, end = 0, time.monotonic() + for_s
    while time.monotonic() < end:
        spans = spans_of("planner", "clerk", failing="clerk")
        try:
            send(Doors(grpc=line.grpc, http=line.http), encode(spans), way="grpc")
            taken.append(spans)
        except grpc.RpcError as refusal:
            if refusal.code() not in REFUSALS:
                raise
            refusals += 1
        time.sleep(0.05)
    return taken, refusals


def arrived(backend: Backend) -> set[tuple[str, str]]:
    """Return the backend's spans by trace and id."""
    return {
        (span.trace_id, span.span_id)
        for request in backend.of(Signal.TRACES)
        for span in decode(request.body).spans
    }


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """Settings of a store on the bad disk, beside the journal; and of one that is elsewhere."""
    if request.param == "sqlite":
        yield {}
        return
    with postgresql() as server:
        yield {"store_url": server.url()}


@pytest.mark.timeout(1_800)
def test_after_each_fault_nothing_acknowledged_is_lost_and_work_resumes(
    start_line: StartLine, disk: Disk, store: dict[str, str]
) -> None:
    with grpc_backend() as backend:
        line = start_line(forward_endpoint=backend.url, root_grace=100, **disk.environ, **store)
        for fault, number, refuses in FAULTS:
            print(f"{fault.name} {number}")
            outlive(line, backend, disk, fault, number, refuses=refuses)
        log = line.server.log.read_text(errors="replace")
        assert "Traceback" not in log, log[log.index("Traceback") - 500 :][:3000]
        assert line.terminate() == 0


def outlive(line: Line, backend: Backend, disk: Disk, fault: Fault, number: int, *, refuses: bool) -> None:
    """Break the disk for a while: whatever was acknowledged before, meanwhile and afterwards is there."""
    taken, refusals = acknowledged(line, 1.0)
    assert taken
    assert not refusals
    disk.be(fault, number)
    more, refusals = acknowledged(line, LONG_S)
    end = time.monotonic() + MOST_S
    while refuses and not refusals and time.monotonic() < end:  # a slow machine has sent little so far
        others, refusals = acknowledged(line, LONG_S)
        more += others
    assert bool(refusals) >= refuses
    assert line.server.process.poll() is None, line.server.tail()
    if fault in {Fault.READ_ONLY, Fault.FULL}:
        assert line.health()[:2] == ["degraded", "the store of journal refuses: spans are refused"]
    disk.be(Fault.NONE)
    wait_until(lambda: acknowledged(line, 0.1)[0], what="an acknowledgement", timeout_s=300)
    last, _ = acknowledged(line, 1.0)
    sent = {(span.trace_id, span.span_id) for spans in (*taken, *more, *last) for span in spans}
    wait_until(lambda: sent <= arrived(backend), what="all acknowledged spans", timeout_s=300)
    for spans in (*taken[-2:], *more[-2:], *last[-2:]):
        verdict = line.verdict(spans[0].trace_id)
        assert verdict["agent"] == "clerk", (verdict["reason"], verdict["error"], line.server.tail())
    wait_until(lambda: line.health() == ["ok"], what="it to be well", timeout_s=300)
