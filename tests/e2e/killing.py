"""Agents that keep sending while services on one data directory are killed one after another."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final
from urllib.error import URLError

import grpc

from semconv.model import Span, TraceId
from tests.backends.forked import fork
from tests.backends.postgresql import PostgresServer
from tests.backends.supervise import running, spawn
from tests.e2e.backend import Backend
from tests.e2e.line import Line, environment, pages_of
from tests.e2e.power.cut import PowerSupply
from tests.e2e.raw import odd_span, plain_span, wrap
from tests.e2e.traffic import Doors, Way, send
from tests.factories import agent, chat, tool, workflow

SERVE: Final = (sys.executable, "-m", "analyzer", "serve", "--format", "json", "--data-dir")
FICKLE: Final = (sys.executable, "-m", "tests.e2e.inconsistent_analyst")
HOLD_MAX_MS: Final = 1500
WAYS: Final[tuple[Way, ...]] = ("grpc", "http", "grpc", "json")
"""One agent each; every second one retries."""
_UNAVAILABLE: Final = (grpc.RpcError, URLError, ConnectionError, TimeoutError)
_PAUSE_S: Final = 0.02
"""Seconds between requests of one agent."""


@dataclass(slots=True, kw_only=True)
class Run:
    """One run: its requests, and which of them were acknowledged."""

    trace_id: TraceId
    fails: bool
    requests: list[bytes]
    acknowledged: list[bytes] = field(default_factory=list)
    was_resent: bool = False
    """Whether a request may have arrived twice."""
    was_top_resent: bool = False
    """Whether the request with the root may have arrived twice, the second time after the verdict, which may
    change it."""

    @property
    def is_whole(self) -> bool:
        """Whether all requests were acknowledged."""
        return len(self.acknowledged) == len(self.requests)


def make_run(chance: random.Random, write: Callable[[Span], bytes]) -> Run:
    """Return a run of three agents in 2 to 5 requests, the root in the last one."""
    trace_id, fails = TraceId(f"{chance.getrandbits(128):032x}"), chance.random() < 0.7
    spans: list[Span] = []
    for place, name in enumerate(("planner", "researcher", "writer")):
        first = 10 * place + 2
        spans += [
            tool(first + 2, "lookup", parent=first, result="12 rows", trace_id=trace_id),
            chat(first + 1, parent=first, answer=f"what {name} said", trace_id=trace_id),
            agent(first, name, trace_id=trace_id, end=10 * first + 80),
        ]
    spans.append(
        workflow(task="add up", answer="12 rows", trace_id=trace_id, error="wrong sum" if fails else None)
    )
    cuts = sorted(chance.sample(range(1, len(spans)), chance.randint(1, 4)))
    parts = [spans[start:end] for start, end in zip([0, *cuts], [*cuts, len(spans)], strict=True)]
    requests = [wrap(part[0], *map(write, part)) for part in parts]
    return Run(trace_id=trace_id, fails=fails, requests=requests)


class Agents:
    """Threads that send runs one after another to the current service.

    Half of them retry unacknowledged requests, as SDKs do; the others abandon the run, so that each of their
    requests is sent once.
    """

    def __init__(self, seed: int) -> None:
        self.runs: list[Run] = []
        self.doors: Doors | None = None
        self._ended = Event()
        self._is_over = False
        self._threads = [
            Thread(target=self._work, args=(random.Random(f"{seed}/{place}"), way, place // 2 == 0))
            for place, way in enumerate(WAYS)
        ]

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Let them work until the block ends."""
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._is_over = True
            self.finish()

    def finish(self) -> None:
        """Let them finish their current run and start no other."""
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _work(self, chance: random.Random, way: Way, is_patient: bool) -> None:
        while not self._ended.is_set():
            run = make_run(chance, plain_span if way == "json" else odd_span)
            self.runs.append(run)
            for body in run.requests:
                if not self._deliver(run, body, way, is_patient=is_patient):
                    break
                self._ended.wait(_PAUSE_S)

    def _deliver(self, run: Run, body: bytes, way: Way, *, is_patient: bool) -> bool:
        """Send one request, with retries if patient; return whether it was acknowledged."""
        while not self._is_over:
            doors = self.doors
            try:
                if doors is not None:
                    send(doors, body, way=way)
                    run.acknowledged.append(body)
                    return True
            except _UNAVAILABLE:
                if not is_patient:
                    return False
                run.was_resent = True
                run.was_top_resent |= body is run.requests[-1]
            time.sleep(_PAUSE_S)
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """The kind of the next service."""

    hold: bool
    fickle: bool

    def __str__(self) -> str:
        return f"{'hold' if self.hold else 'late'} mode, {'fickle analyst' if self.fickle else 'signals'}"


@dataclass(slots=True, kw_only=True)
class Services:
    """Processes on one data directory, one after another."""

    folder: Path
    backend: Backend
    agents: Agents
    supply: PowerSupply | None = None
    """The simulated power supply, if the power fails too."""
    store: PostgresServer | None = None
    """The PostgreSQL server, if the store is there."""
    started: int = 0

    @property
    def data(self) -> Path:
        """Their data directory."""
        return self.folder / "data"

    def lose_power(self, chance: random.Random) -> None:
        """Discard some of the last process's unflushed writes, if the power fails."""
        if self.supply is not None:
            self.supply.cut(chance)

    @contextmanager
    def serving(self, kind: Kind) -> Iterator[Line]:
        """Serve the agents until the block ends."""
        command, environ, log = self._next(kind)

        def is_ready() -> bool:
            return bool(announcement(log))

        how = spawn if self.supply else fork  # the supply is a library that is loaded first
        with running("blamespan", command, log=log, is_ready=is_ready, environ=environ, start=how) as server:
            line = Line(server=server, announced=announcement(log))
            self.agents.doors = Doors(grpc=line.grpc, http=line.http)
            try:
                yield line
            finally:
                self.agents.doors = None

    def kill_while_it_starts(self, kind: Kind, after_s: float) -> None:
        """Start a process and kill it, ready or not."""
        command, environ, log = self._next(kind)
        with log.open("ab") as out:
            process = subprocess.Popen(command, env=environ, stdout=out, stderr=out)
        try:
            process.wait(after_s)
        except subprocess.TimeoutExpired:
            self._cut_off(process.pid)
            process.kill()
        process.wait()

    def kill(self, line: Line) -> None:
        """Kill a process; with it that of its pages, if the power fails."""
        self._cut_off(line.server.process.pid)
        line.server.kill()

    def _cut_off(self, service: int) -> None:
        pages = pages_of(service) if self.supply is not None else None
        if pages is not None:
            os.kill(pages, signal.SIGKILL)

    def _next(self, kind: Kind) -> tuple[list[str], dict[str, str], Path]:
        self.started += 1
        command = [*(FICKLE if kind.fickle else SERVE), str(self.data)]
        environ = environment(
            forward_endpoint=self.backend.url,
            write_back=f"hold:{HOLD_MAX_MS}" if kind.hold else "late",
            carriers="all",
            PYTHONPATH=os.pathsep.join(sys.path),
        )
        if self.supply is not None:
            environ |= self.supply.switch_on()
        if self.store is not None:
            environ["BLAMESPAN_STORE_URL"] = self.store.url()
        return command, environ, self.folder / f"serve-{self.started}.log"


def announcement(log: Path) -> dict[str, Any]:
    """Return the address that a service announces; empty before it does."""
    lines = log.read_text(errors="replace").split("\n")[:-1] if log.exists() else []
    found = (json.loads(line) for line in lines if line.startswith('{"grpc"'))
    return next(found, {})
