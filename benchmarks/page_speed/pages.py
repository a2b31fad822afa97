"""``python -m benchmarks.page_speed.pages``: page latency while people analyse, beside ag2tracer.

Both services run in their own processes, started as by users: ours with stores of 100,000 runs, ag2tracer
from its package. On each, simulated people repeatedly analyse the same file all-at-once, with the same model,
which answers after a second. Meanwhile pages are requested at a steady pace (``pages_asking.py``): the same
for both, for the same time, with the same timeout. Unanswered requests count as having taken at least the
timeout, so that ag2tracer's quantiles are lower bounds where marked ``>=``. Then ours is measured again with
analyses that need no model but use the CPU.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.accuracy.peer_ag2tracer import PACKAGE, install
from benchmarks.page_speed.pages_asking import Pace, Took, asked, quantile, shown, told
from benchmarks.page_speed.pages_filling import LONG_STEPS, Filled, filled
from benchmarks.page_speed.pages_load import MODEL, Analyse, Done, ours, theirs, work
from benchmarks.page_speed.server_cpu import cpu_s, listener
from benchmarks.resources.commands import environment, slow_model
from tests.backends.supervise import running

_WARM_S: Final = 4.0
"""Seconds of load before pages are requested."""
_SETTLE_S: Final = 60.0
"""Time limit for the last analyses, so that the next load begins on an idle service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One of the two compared services."""

    name: str
    address: str
    pages: Mapping[str, str]
    """Paths of pages, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Load on a service during the measurement."""

    name: str
    analyse: Analyse | None
    people: int


@contextmanager
def serving(data: Path, url: str) -> Iterator[str]:
    """Run our service with a store; yield its page's address."""
    ports = {f"BLAMESPAN_{name}_LISTEN": "127.0.0.1:0" for name in ("OTLP_GRPC", "OTLP_HTTP")}
    address = f"127.0.0.1:{free_port()}"
    environ = {**environment(url, data), **ports, "BLAMESPAN_WEB_LISTEN": address, "BLAMESPAN_MODEL": MODEL}
    command = [sys.executable, "-m", "analyzer", "serve", "--format", "json"]
    with running("blamespan", command, log=data / "log", is_ready=lambda: answers(address), environ=environ):
        yield f"http://{address}"


@contextmanager
def serving_peer(scratch: Path, url: str) -> Iterator[str | None]:
    """Run ag2tracer's page; yield its address, or ``None`` if it is not available."""
    python = install(scratch / "ag2tracer")
    if python is None:
        print(f"{PACKAGE}: the package registry does not have it, or cannot be reached")
        yield None
        return
    address = f"127.0.0.1:{free_port()}"
    host, _, port = address.partition(":")
    command = [str(python), "-m", "uvicorn", "ag2tracer.api:app", "--host", host, "--port", port]
    command += ["--log-level", "warning"]
    environ = environment(url, scratch)
    with running(
        "ag2tracer", command, log=scratch / "peer.log", is_ready=lambda: answers(address), environ=environ
    ):
        yield f"http://{address}"


def free_port() -> int:
    """Return a port that is currently free."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def answers(address: str) -> bool:
    """Return whether a server listens."""
    host, _, port = address.partition(":")
    with socket.socket() as knock:
        return knock.connect_ex((host, int(port))) == 0


@asynccontextmanager
async def under(load: Load, address: str) -> AsyncIterator[Done]:
    """Run simulated people; yield their count of analyses."""
    done = Done()
    if load.analyse is None:
        yield done
        return
    task = asyncio.create_task(work(load.analyse, address, load.people, done))
    await asyncio.sleep(_WARM_S)
    try:
        yield done
        assert not task.done(), "the people stopped: the figures are of a quiet service"
    finally:
        done.enough.set()
        await asyncio.wait({task}, timeout=_SETTLE_S)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def measured(service: Service, load: Load, pace: Pace) -> list[Took]:
    """Ask for a service's pages under a load, print the latencies, and return them."""
    async with under(load, service.address) as done:
        before, began, used_s = done.analyses, time.monotonic(), _server_cpu_s(service)
        found = await asked([service.address + path for path in service.pages.values()], pace)
        analyses, lasted = done.analyses - before, time.monotonic() - began
        cpu_ms = 1000 * (_server_cpu_s(service) - used_s) / sum(map(len, found))
    took = [one for of_page in found for one in of_page]
    if len(found) > 1:
        for name, of_page in zip(service.pages, found, strict=True):
            _print({"service": service.name, "while": load.name, "page": name, **told(of_page)})
    done_a_minute = round(60 * analyses / lasted, 1) if load.analyse else None
    _print(
        {
            "service": service.name, "while": load.name, "page": "all", **told(took),
            "analyses": analyses, "analyses_a_minute": done_a_minute,
            "server_cpu_ms_a_page": round(cpu_ms, 1),
        }
    )  # fmt: skip
    return took


def _server_cpu_s(service: Service) -> float:
    """Return the CPU seconds of a service so far, its analyses included."""
    return cpu_s(listener(int(service.address.rpartition(":")[2])))


async def first_page(service: Service) -> None:
    """Ask a service that has just started for its first page, and print the latency."""
    pace = Pace(seconds=0.001, every_s=1.0, patience_s=60.0)
    ((took,),) = await asked([service.address + next(iter(service.pages.values()))], pace)
    _print({"service": service.name, "while": "just started", "page": "the first", "ms": shown(took)})


async def measure(own: Service, peer: Service | None, people: Sequence[int], pace: Pace) -> None:
    """Measure both when idle and under each load, in turn, and compare them."""
    await first_page(own)
    quiet = Load(name="quiet", analyse=None, people=0)
    await measured(own, quiet, pace)
    if peer is not None:
        await measured(peer, quiet, pace)
    for many in people:
        name = f"{many} people analyse with a model"
        took = await measured(own, Load(name=name, analyse=ours("all-at-once"), people=many), pace)
        if peer is not None:
            theirs_took = await measured(peer, Load(name=name, analyse=theirs, people=many), pace)
            _print({"while": name, **compared(took, theirs_took)})
    many = people[-1]
    computing = Load(name=f"{many} people analyse without a model", analyse=ours("signals"), people=many)
    await measured(own, computing, pace)


def compared(own: Sequence[Took], peer: Sequence[Took]) -> dict[str, Any]:
    """Return the ratio of their latency to ours; ``>=`` if theirs is only a lower bound."""
    return {
        f"{PACKAGE} / ours, {name}": _ratio(quantile(own, share).at, quantile(peer, share).at)
        for name, share in (("medians", 0.5), ("p99", 0.99))
    }


def _ratio(own: Took, peer: Took) -> str:
    if own.is_given_up:
        return "not known: ours did not answer in time"
    return f"{'>=' if peer.is_given_up else ''}{peer.ms / own.ms:.0f}"


def _print(document: Mapping[str, Any]) -> None:
    print(json.dumps(document), flush=True)


def pages_of(store: Filled) -> dict[str, str]:
    """Return the paths requested from our service."""
    return {
        "runs": "/runs", "runs in the middle": f"/runs?after={store.middle}",
        "last page of runs": f"/runs?after={store.end}", "search that finds": "/runs?q=solar",
        "search for nothing": "/runs?q=nowhere", "filter": "/runs?status=no_failure",
        "filter for nothing": "/runs?status=error", "one run": f"/runs/{store.run_id}",
        "a run of 1,000 steps": f"/runs/{store.long_id}",
        "one of its steps": f"/runs/{store.long_id}/steps/{LONG_STEPS // 2}",
        "search in it": f"/runs/{store.long_id}?find=measured",
        "two runs side by side": f"/compare?a={store.run_id}&b={store.long_id}",
        "issues": "/issues", "one issue": f"/issues/{store.issue_id}", "health": "/health",
    }  # fmt: skip


def main() -> None:
    """Fill stores, start both services, measure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page_speed.pages", description=__doc__)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--people", type=int, nargs="+", default=[2, 16], metavar="N")
    parser.add_argument("--seconds", type=float, default=25.0, help="for each load")
    parser.add_argument("--every", type=float, default=0.04, help="seconds between two requests")
    parser.add_argument("--patience", type=float, default=10.0, help="seconds until a request is given up")
    parser.add_argument("--delay", type=float, default=1.0, help="seconds that the model takes")
    parser.add_argument("--alone", action="store_true", help="without ag2tracer")
    given = parser.parse_args()
    pace = Pace(seconds=given.seconds, every_s=given.every, patience_s=given.patience)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        data = Path(folder) / "data"
        store = asyncio.run(filled(data, given.runs))
        url = stack.enter_context(slow_model(given.delay))
        address = None if given.alone else stack.enter_context(serving_peer(Path(folder), url))
        peer = Service(name=PACKAGE, address=address, pages={"page": "/"}) if address else None
        own = Service(
            name=f"blamespan over {given.runs:,} runs",
            address=stack.enter_context(serving(data, url)),
            pages=pages_of(store),
        )
        asyncio.run(measure(own, peer, given.people, pace))


if __name__ == "__main__":
    main()
