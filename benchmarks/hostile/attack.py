"""Attacks that try to delay all other clients: ``python -m benchmarks.hostile.attack``.

The service runs in its own process, in front of a backend that accepts everything. Attacks of size n, 2n and
4n are sent while a client of another tenant sends a span every 20 ms and a run every few seconds. For each
size it prints: the longest stall of the event loop, the longest latency of acknowledgements for the attacker
and for the other client, the longest delay of the other tenant's verdicts beyond their grace, the time until
the last verdict on the attack, the CPU time of the service and its processes until then, and the attack's
runs; then the results of 2n and 4n as multiples of n. The growth is the exponent of the CPU time from the
smallest size to the largest: 1 is linear.

``--times 50`` gives storms of 25,000, 50,000 and 100,000 traces; ``--size 100000`` one of that size alone.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import math
import os
import sqlite3
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any, Final

import uvloop

from analyzer.service.all_in_one import running_service
from analyzer.service.lifetime import collecting_rarely
from benchmarks.hostile.attack_requests import (
    AGENT,
    OTHER_RUN,
    agents,
    chain,
    groups,
    half_invalid,
    invalid,
    shared,
    star,
)
from collector_processor.core.disk import RUNS
from collector_processor.otlp import Delivered, SendOutcome, Signal, Tenant
from collector_processor.settings import load_settings
from collector_processor.wire.split import split_by_size
from tests.otlp_requests import request, span

_PROBE_S: Final = 0.005
_PACE_S: Final = 0.02
_PATIENCE_S: Final = 300.0
_PATIENCE_EACH_S: Final = 0.05
_QUIET_S: Final = 60.0
"""Seconds without a new verdict after which the attack counts as completely judged."""
_GRACE_MS: Final = 500
_MOST_BYTES: Final = 18 << 20
"""Larger attacks are sent as several requests, one after another."""
_ATTACKER, _OTHER = "attacker", "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """Requests of growing size."""

    name: str
    body: Callable[[int], bytes]
    sizes: tuple[int, ...]
    has_verdicts: bool = True
    settings: Mapping[str, str] = field(default_factory=dict)


ATTACKS: Final = (
    Attack(name="hold", body=agents, sizes=(500, 1000, 2000), settings={"write_back": "hold"}),
    Attack(name="star", body=star, sizes=(500, 1000, 2000)),
    Attack(name="chain", body=chain, sizes=(500, 1000, 2000)),
    Attack(name="shared", body=shared, sizes=(500, 1000, 2000)),
    Attack(name="groups", body=groups, sizes=(500, 1000, 2000)),
    Attack(name="many", body=agents, sizes=(500, 1000, 2000)),
    Attack(name="burst", body=agents, sizes=(25_000, 50_000, 100_000), has_verdicts=False),
    Attack(name="invalid", body=invalid, sizes=(4, 8, 16), has_verdicts=False),
    Attack(name="half-invalid", body=half_invalid, sizes=(4, 8, 16), has_verdicts=False),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Results of one attack of one size, in seconds."""

    stall_s: float
    ack_s: float
    other_ack_s: float
    cpu_s: float
    """CPU time of the service and its worker processes."""
    other_verdict_s: float | None = None
    settled_s: float | None = None
    runs: int | None = None
    answer: str = ""


class _TakesAll:
    """A backend that always answers quickly."""

    max_bytes: int = 4 << 20

    async def send(
        self, signal: Signal, body: bytes, tenant: Tenant, hops: tuple[str, ...] = ()
    ) -> SendOutcome:
        del self, signal, body, tenant, hops
        return Delivered()

    async def close(self) -> None:
        """Do nothing."""


async def _serve(values: Mapping[str, Any]) -> None:
    """Run the service, and answer commands on standard input: ``stall``, ``find RUN``."""
    settings = load_settings({}, **{**values, "data_dir": Path(values["data_dir"])})
    longest = 0.0

    async def probe() -> None:
        nonlocal longest
        while True:
            begun = time.perf_counter()
            await asyncio.sleep(_PROBE_S)
            longest = max(longest, time.perf_counter() - begun - _PROBE_S)

    exporters = dict.fromkeys((Signal.TRACES, Signal.LOGS), _TakesAll())
    async with running_service(settings, exporters=exporters) as running, collecting_rarely():
        _say({"http": str(running.http)})
        probing = asyncio.create_task(probe())
        while line := (await asyncio.to_thread(sys.stdin.readline)).split():
            if line[0] == "stall":
                _say({"stall": longest})
                longest = 0.0
            else:
                found = await running.find(line[1])
                _say({"found": any(not one.is_provisional for one in found)})
        probing.cancel()


def _say(document: Mapping[str, object]) -> None:
    print(json.dumps(document), flush=True)


class _Service:
    def __init__(self, process: Popen[str], store: Path) -> None:
        self._process = process
        self._store = store
        self._lock = threading.Lock()
        self.url = f"http://{json.loads(self._read())['http']}/v1/traces"

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def ask(self, *words: str) -> Any:
        assert self._process.stdin is not None
        with self._lock:
            self._process.stdin.write(f"{' '.join(words)}\n")
            self._process.stdin.flush()
            return next(iter(json.loads(self._read()).values()))

    def count(self) -> int:
        """Count the verdicts on the attacker's runs, from outside the service."""
        with closing(sqlite3.connect(f"{self._store.as_uri()}?mode=ro", uri=True)) as store:
            told = "SELECT count(DISTINCT run_id) FROM verdict WHERE tenant LIKE ?"
            return int(store.execute(told, (f"%{_ATTACKER}",)).fetchone()[0])

    def cpu_s(self) -> float:
        """Return the CPU time of the service and its processes so far."""
        return sum(map(_cpu_s, _family(self._process.pid)))

    def post(self, body: bytes, tenant: str) -> tuple[float, str]:
        headers = {"Content-Type": "application/x-protobuf", "x-scope-orgid": tenant}
        begun = time.perf_counter()
        with urllib.request.urlopen(
            urllib.request.Request(self.url, body, headers), timeout=_PATIENCE_S
        ) as answer:
            said = answer.read()
        return time.perf_counter() - begun, said.decode("utf-8", "replace")


def _family(pid: int) -> Iterator[int]:
    yield pid
    for thread in Path(f"/proc/{pid}/task").iterdir():
        for child in (thread / "children").read_text().split():
            yield from _family(int(child))


def _cpu_s(pid: int) -> float:
    told = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, told[11:13])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _service(settings: Mapping[str, str]) -> Iterator[_Service]:
    with tempfile.TemporaryDirectory(prefix="blamespan-attack-") as folder:
        listen = {f"{name}_listen": "127.0.0.1:0" for name in ("otlp_grpc", "otlp_http", "web")}
        values = {**listen, "data_dir": folder, "root_grace": _GRACE_MS, **settings}
        command = [sys.executable, "-m", "benchmarks.hostile.attack", "--serve", json.dumps(values)]
        with Popen(command, stdin=PIPE, stdout=PIPE, text=True, bufsize=1) as process:
            try:
                yield _Service(process, Path(folder) / RUNS)
            finally:
                process.kill()


def measure(attack: Attack, size: int) -> Outcome:
    """Attack a fresh service once."""
    body = attack.body(size)
    with _service(attack.settings) as service:
        service.post(request(span(1)), _OTHER)
        service.ask("stall")
        acks: list[float] = []
        ended = threading.Event()

        def ping() -> None:
            while not ended.is_set():
                acks.append(service.post(request(span(1)), _OTHER)[0])
                time.sleep(_PACE_S)

        pinging = threading.Thread(target=ping)
        pinging.start()
        begun, before = time.perf_counter(), service.cpu_s()
        judged = None
        try:
            acked = [service.post(part, _ATTACKER) for part in split_by_size(body, _MOST_BYTES)]
            ack_s, answer = sum(seconds for seconds, _ in acked), acked[-1][1]
            if attack.has_verdicts:
                judged = _verdicts(service, begun, size)
            else:
                time.sleep(1.0)
        finally:
            ended.set()
            pinging.join()
        return Outcome(
            stall_s=service.ask("stall"),
            ack_s=ack_s,
            other_ack_s=max(acks),
            cpu_s=(judged.cpu_s if judged else service.cpu_s()) - before,
            other_verdict_s=judged.other_s if judged else None,
            settled_s=judged.settled_s if judged else None,
            runs=judged.runs if judged else None,
            answer=" ".join(answer.split())[:120] if not attack.has_verdicts else "",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    """Verdicts on an attack's traces."""

    other_s: float
    """The other tenant's longest wait for a verdict."""
    settled_s: float
    """Time until the attack's last verdict."""
    cpu_s: float
    """CPU time of the service at that moment, since its start."""
    runs: int


def _verdicts(service: _Service, begun: float, size: int) -> _Judged:
    longest, count, last, cpu_s = 0.0, 0, time.perf_counter(), service.cpu_s()
    for number in itertools.count():
        longest = max(longest, _one_run(service, OTHER_RUN + number))
        before, count = count, service.count()
        if count > before:
            last, cpu_s = time.perf_counter(), service.cpu_s()
        is_quiet = count > 0 and time.perf_counter() - last > _QUIET_S  # joined traces give fewer runs
        if count >= size or is_quiet or time.perf_counter() - begun > _PATIENCE_S + size * _PATIENCE_EACH_S:
            break
        time.sleep(1.0)
    return _Judged(other_s=longest, settled_s=last - begun, cpu_s=cpu_s, runs=count)


def _one_run(service: _Service, number: int) -> float:
    """Return the other tenant's wait for a verdict beyond the grace."""
    posted = time.perf_counter()
    service.post(request(span(1, trace=number, attributes=AGENT)), _OTHER)
    time.sleep(_GRACE_MS / 1000)
    _until(lambda: service.ask("find", f"{number:032x}"))
    return time.perf_counter() - posted - _GRACE_MS / 1000


def _until(is_so: Callable[[], bool]) -> None:
    ends = time.perf_counter() + _PATIENCE_S
    while not is_so() and time.perf_counter() < ends:
        time.sleep(0.05)


def _cell(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.2f}"


def main() -> int:
    """Attack, and print a row for each size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", action="append", choices=[attack.name for attack in ATTACKS])
    parser.add_argument("--times", type=int, default=1, help="multiply the sizes by this")
    parser.add_argument("--size", type=int, action="append", help="use this size instead; repeat for several")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        uvloop.run(_serve(json.loads(given.serve)))
        return 0
    heads = (
        "attack",
        "size",
        "stall",
        "ack",
        "other ack",
        "other verdict",
        "last verdict",
        "cpu",
        "runs",
        "answer",
    )
    print(" | ".join(heads))
    for attack in ATTACKS:
        if not given.only or attack.name in given.only:
            _print_growth(attack, given.size or [number * given.times for number in attack.sizes])
    return 0


def _print_growth(attack: Attack, sizes: Sequence[int]) -> None:
    outcomes: list[Outcome] = []
    for size in sizes:
        one = measure(attack, size)
        outcomes.append(one)
        times = (one.stall_s, one.ack_s, one.other_ack_s, one.other_verdict_s, one.settled_s, one.cpu_s)
        runs = "-" if one.runs is None else str(one.runs)
        print(" | ".join((attack.name, str(size), *map(_cell, times), runs, one.answer)), flush=True)
    first, last = outcomes[0], outcomes[-1]
    if len(sizes) < 2:
        return
    ratios = ", ".join(
        f"{size // sizes[0]}n: {one.cpu_s / first.cpu_s:.2f} x CPU, {_ended(one) / _ended(first):.2f} x time"
        for size, one in zip(sizes[1:], outcomes[1:], strict=True)
    )
    growth = math.log(last.cpu_s / first.cpu_s) / math.log(sizes[-1] / sizes[0])
    print(f"{attack.name}: {ratios}; growth {growth:.2f}", flush=True)


def _ended(one: Outcome) -> float:
    return one.ack_s if one.settled_s is None else one.settled_s


if __name__ == "__main__":
    sys.exit(main())
