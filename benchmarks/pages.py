"""``python -m tests.web.measure``: what pages take while people analyse, ag2tracer's page in the same run.

Both services run as processes of their own, as their users start them: ours over stores of
100,000 runs, ag2tracer from its package. So many people on each analyse the same file
all-at-once, one time after the other, with the same model, which answers after a second.
Meanwhile pages are asked for at a steady pace (``asking.py``): the same for both, for the
same time, with the same patience. What nobody answered in that time counts as having taken
at least as long, so that ag2tracer's quantiles are lower bounds where they say ``>=``. Then
ours once more with people whose analyses need no model and take the processor instead.
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

from tests.backends.supervise import running
from tests.bench.commands import environment, slow_model
from tests.bench.peer_ag2tracer import PACKAGE, install
from tests.web.asking import Pace, Took, asked, quantile, told
from tests.web.filling import Filled, filled
from tests.web.load import MODEL, Analyse, Done, ours, theirs, work

_WARM_S: Final = 4.0
"""People are at it for so long before pages are asked for."""
_SETTLE_S: Final = 60.0
"""The last analyses are waited for at most so long, so that the next load begins in quiet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One of the two."""

    name: str
    address: str
    pages: Mapping[str, str]
    """Paths by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a service does meanwhile."""

    name: str
    analyse: Analyse | None
    people: int


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


@asynccontextmanager
async def under(load: Load, address: str) -> AsyncIterator[Done]:
    """Keep people busy; gives how much came of it."""
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
    """Ask for a service's pages under a load, print what each took, and return all."""
    async with under(load, service.address) as done:
        before, began = done.analyses, time.monotonic()
        found = await asked([service.address + path for path in service.pages.values()], pace)
        analyses, lasted = done.analyses - before, time.monotonic() - began
    took = [one for of_page in found for one in of_page]
    if len(found) > 1:
        for name, of_page in zip(service.pages, found, strict=True):
            _print({"service": service.name, "while": load.name, "page": name, **told(of_page)})
    done_a_minute = round(60 * analyses / lasted, 1) if load.analyse else None
    _print(
        {
            "service": service.name, "while": load.name, "page": "all", **told(took),
            "analyses": analyses, "analyses_a_minute": done_a_minute,
        }
    )  # fmt: skip
    return took


async def measure(own: Service, peer: Service | None, people: Sequence[int], pace: Pace) -> None:
    """Measure both in quiet and under each load, one after the other, and compare them."""
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
    """Return how many times as long theirs takes; ``>=`` where theirs is known as a lower bound only."""
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
    """Return what is asked for of ours."""
    return {
        "runs": "/runs", "runs in the middle": f"/runs?after={store.middle}",
        "last page of runs": f"/runs?after={store.end}", "search that finds": "/runs?q=solar",
        "search for nothing": "/runs?q=nowhere", "filter": "/runs?status=no_failure",
        "filter for nothing": "/runs?status=error", "one run": f"/runs/{store.run_id}",
        "issues": "/issues", "one issue": f"/issues/{store.issue_id}", "health": "/health",
    }  # fmt: skip


def main() -> None:
    """Fill stores, start what is compared, measure."""
    parser = argparse.ArgumentParser(prog="python -m tests.web.measure", description=__doc__)
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
