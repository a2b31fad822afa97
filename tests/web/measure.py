"""``python -m tests.web.measure``: what pages take while 16 analyses run, ag2tracer's page in the same run.

Both services run as processes of their own, as their users start them: ours over a store of
100,000 runs, ag2tracer from its package. Sixteen people on each analyse the same file
all-at-once, one time after the other, with a model that answers after a second. Meanwhile
each page is asked for again and again, one request at a time, for a stated time. Then ours
once more with sixteen people whose analyses need no model and take the processor instead.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from aiohttp import ClientSession, ClientTimeout

from collector_processor.runstore import Commit
from semconv.model import Attribution, Trajectory
from tests.backends.supervise import running
from tests.bench.commands import environment, slow_model
from tests.bench.peer_ag2tracer import PACKAGE, install
from tests.web.load import MODEL, Analyse, Done, ours, theirs, work
from tests.web.showcase import demo_run
from tests.web.stage import ANALYST, Stage, open_stage, verdict_of

_BATCH: Final = 5_000
_APART_NS: Final = 6 * 10**9
"""Between two runs: 14,400 a day, a hundred thousand in a week."""
_PAUSE_S: Final = 0.02
"""Between two requests: a person who looks, not a second load."""
_PATIENT: Final = ClientTimeout(total=600)
_WARM_S: Final = 3.0


def fill(stage: Stage, trajectory: Trajectory, told: Attribution, runs: int) -> None:
    """Store many verdicts, as one analysis after the other would have."""
    now_ns = time.time_ns()
    for start in range(0, runs, _BATCH):
        verdicts = tuple(
            replace(
                verdict_of(trajectory, told, f"service-{number % 20}", number),
                run_id=f"{number:032x}",
                decided_ns=now_ns - (runs - number) * _APART_NS,
            )
            for number in range(start, min(runs, start + _BATCH))
        )
        stage.verdicts.commit(Commit(analysed=(), verdicts=verdicts))


async def filled(folder: Path, runs: int) -> str:
    """Make a store of so many runs; return the id of the newest, whose steps are kept."""
    trajectory = demo_run()
    told = (await ANALYST.analyse(trajectory)).attribution
    stage = open_stage(folder)
    fill(stage, trajectory, told, runs)
    run_id = await stage.add(trajectory, "demo")
    newest = replace(verdict_of(trajectory, told, "demo", runs + 1), decided_ns=time.time_ns())
    stage.verdicts.commit(Commit(analysed=(), verdicts=(newest,)))
    stage.verdicts.close()
    stage.labels.close()
    return run_id


@contextmanager
def serving(data: Path, url: str) -> Iterator[str]:
    """Run our service over a store; gives its page's address."""
    ports = {f"BLAMESPAN_{name}_LISTEN": "127.0.0.1:0" for name in ("OTLP_GRPC", "OTLP_HTTP")}
    address = f"127.0.0.1:{free_port()}"
    environ = {**environment(url, data), **ports, "BLAMESPAN_WEB_LISTEN": address, "BLAMESPAN_MODEL": MODEL}
    command = [sys.executable, "-m", "analyzer", "serve", "--format", "json"]
    with running("blamespan", command, log=data / "log", is_ready=lambda: answers(address), environ=environ):
        yield f"http://{address}"


@contextmanager
def serving_peer(scratch: Path, url: str) -> Iterator[str | None]:
    """Run ag2tracer's page; gives its address, or ``None`` where it cannot be had."""
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
    """Return a port that nobody listens on at the moment."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def answers(address: str) -> bool:
    """Whether somebody listens."""
    host, _, port = address.partition(":")
    with socket.socket() as knock:
        return knock.connect_ex((host, int(port))) == 0


async def asked(address: str, seconds: float) -> list[float]:
    """Return what each answer took in ms, over so many seconds and at least three answers."""
    took: list[float] = []
    ends_at = time.monotonic() + seconds
    async with ClientSession(timeout=_PATIENT) as session:
        while len(took) < 3 or time.monotonic() < ends_at:
            began = time.perf_counter()
            async with session.get(address) as answer:
                await answer.read()
                assert answer.status == 200, address
            took.append(1000 * (time.perf_counter() - began))
            await asyncio.sleep(_PAUSE_S)
    return sorted(took)


@asynccontextmanager
async def under(analyse: Analyse | None, address: str, people: int) -> AsyncIterator[Done]:
    """Keep people busy; gives how much came of it."""
    done = Done()
    if analyse is None:
        yield done
        return
    task = asyncio.create_task(work(analyse, address, people, done))
    await asyncio.sleep(_WARM_S)
    try:
        yield done
    finally:
        is_lost = task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert not is_lost, "the people stopped: the figures are of a quiet service"


def quantile(took: list[float], share: float) -> dict[str, Any]:
    """Return an order statistic with its 95 % interval by ranks; where n is too small, an end is open."""
    n = len(took)
    spread = 1.96 * math.sqrt(n * share * (1 - share))
    low, high = max(0, math.floor(n * share - spread) - 1), math.ceil(n * share + spread)
    shown = took[min(n - 1, math.ceil(n * share) - 1)]
    return {
        "ms": round(shown, 1),
        "low": round(took[low], 1),
        "high": round(took[high], 1) if high < n else None,
    }


def line(page: str, load: str, took: list[float], done: Done) -> dict[str, Any]:
    """Return what is printed of a page."""
    return {
        "page": page, "load": load, "n": len(took), "median_ms": round(took[len(took) // 2], 1),
        "p99": quantile(took, 0.99), "slowest_ms": round(took[-1], 1), "analyses": done.analyses,
    }  # fmt: skip


async def measure(
    given: argparse.Namespace, address: str, peer: str | None, pages: Mapping[str, str]
) -> None:
    """Ask for every page in quiet and under each load, and print what it took."""
    loads: dict[str, Analyse | None] = {
        "quiet": None, "with a model": ours("all-at-once"), "without a model": ours("signals")
    }  # fmt: skip
    found: dict[str, list[float]] = {}
    for load, analyse in loads.items():
        async with under(analyse, address, given.people) as done:
            for name, path in pages.items():
                took = await asked(address + path, given.seconds)
                found[load] = sorted([*found.get(load, []), *took])
                print(json.dumps(line(name, load, took, done)), flush=True)
        if peer is not None and load != "without a model":
            async with under(theirs if analyse else None, peer, given.people) as done:
                took = await asked(f"{peer}/", given.seconds * (4 if analyse else 1))
                found[f"{PACKAGE} {load}"] = took
                print(json.dumps(line(PACKAGE, load, took, done)), flush=True)
    print(json.dumps(summed(given, found)), flush=True)


def summed(given: argparse.Namespace, found: Mapping[str, list[float]]) -> dict[str, Any]:
    """Return what is said in the end: all of our pages together, and how often theirs takes as long."""
    told: dict[str, Any] = {"all pages": True, "runs": given.runs, "people": given.people}
    for load, took in found.items():
        middle = round(took[len(took) // 2], 1)
        told[load] = {"n": len(took), "median_ms": middle, "p99": quantile(took, 0.99)}
    own, peers = found["with a model"], found.get(f"{PACKAGE} with a model")
    if peers:
        told["ratio of medians"] = round(peers[len(peers) // 2] / own[len(own) // 2], 1)
        told["ratio of p99"] = round(quantile(peers, 0.99)["ms"] / quantile(own, 0.99)["ms"], 1)
    return told


def main() -> None:
    """Fill a store, start what is compared, measure."""
    parser = argparse.ArgumentParser(prog="python -m tests.web.measure", description=__doc__)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--people", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=30.0, help="for each page")
    parser.add_argument("--delay", type=float, default=1.0, help="seconds that the model takes")
    parser.add_argument("--alone", action="store_true", help="without ag2tracer")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        data = Path(folder) / "data"
        run_id = asyncio.run(filled(data, given.runs))
        url = stack.enter_context(slow_model(given.delay))
        peer = None if given.alone else stack.enter_context(serving_peer(Path(folder), url))
        address = stack.enter_context(serving(data, url))
        pages = {
            "runs": "/runs", "search that finds": "/runs?q=solar", "search for nothing": "/runs?q=nowhere",
            "status nobody has": "/runs?status=error", "one run": f"/runs/{run_id}", "issues": "/issues",
            "health": "/health",
        }  # fmt: skip
        asyncio.run(measure(given, address, peer, pages))


if __name__ == "__main__":
    main()
