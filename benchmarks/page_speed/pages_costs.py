"""``python -m benchmarks.page_speed.pages_costs``: CPU time of each page.

One service for each tree, over the same store, in its own process; their pages are requested in turn, one at
a time, so that a process's CPU time belongs to a page, and other programs on the machine slow both alike.
The store is filled once and kept in the given folder. With ``--against``, the texts of the pages are compared
too. ``first_cpu_ms`` is the first request of a page, which no cache answers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import fmean
from typing import Final

from benchmarks.page_speed.pages import answers, free_port, pages_of
from benchmarks.page_speed.pages_filling import filled
from benchmarks.page_speed.server_cpu import listener
from tests.backends.supervise import running

_PAGES: Final = "pages.json"
_TURN: Final = 10
"""Requests of a page before it is the other tree's turn."""
_CHANGING: Final = re.compile(r"/static/([a-z.]+)\?[0-9a-f]+|\d+(?:\.\d+)? (?:ms|s|seconds) ago")
"""Parts of a page that differ between two trees, or two moments."""


def prepared(data: Path, runs: int) -> dict[str, str]:
    """Fill a store unless the folder has one; return the paths of its pages."""
    known = data.parent / _PAGES
    if not known.exists():
        data.mkdir(parents=True)
        known.write_text(json.dumps(pages_of(asyncio.run(filled(data, runs)))))
    found: dict[str, str] = json.loads(known.read_text())
    return found


@contextmanager
def serving(tree: Path, data: Path) -> Iterator[str]:
    """Run the pages of a source tree over a store; yield their address."""
    address = f"127.0.0.1:{free_port()}"
    environ = {**os.environ, "PYTHONPATH": str(tree), "BLAMESPAN_WEB_LISTEN": address}
    environ["BLAMESPAN_DATA_DIR"] = str(data)
    command = [sys.executable, "-P", "-m", "benchmarks.page_speed.pages_million", "--serve"]
    log = data.parent / f"log-{address.rpartition(':')[2]}"
    with running("pages", command, log=log, is_ready=lambda: answers(address), environ=environ):
        yield f"http://{address}"


def measured(addresses: Sequence[str], pages: Mapping[str, str], times: int) -> None:
    """Request each page from each service in turn, and print the CPU time of a page."""
    pids = [listener(int(address.rpartition(":")[2])) for address in addresses]
    means: list[list[float]] = [[] for _ in addresses]
    for name, path in pages.items():
        used = [0.0 for _ in addresses]
        first = [_cpu_s(pid) for pid in pids]
        bodies = [_stable(_get(address + path)) for address in addresses]
        first = [_cpu_s(pid) - before for pid, before in zip(pids, first, strict=True)]
        for _ in range(times // _TURN):
            for place, (address, pid) in enumerate(zip(addresses, pids, strict=True)):
                before = _cpu_s(pid)
                for _ in range(_TURN):
                    _get(address + path)
                used[place] += _cpu_s(pid) - before
        n = times // _TURN * _TURN
        costs = [1000 * one / n for one in used]
        for mean, cost in zip(means, costs, strict=True):
            mean.append(cost)
        told = {"page": name, "n": n, "cpu_ms": [round(one, 1) for one in costs], "bytes": len(bodies[0])}
        told["first_cpu_ms"] = [round(1000 * one) for one in first]
        print(json.dumps(told | {"same": len(set(bodies)) == 1}), flush=True)
    print(json.dumps({"page": "mean of all", "cpu_ms": [round(fmean(one), 1) for one in means]}))


def _cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process's threads, finer than ``cpu_s``, which counts hundredths."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def _stable(page: bytes) -> str:
    return _CHANGING.sub("", page.decode())


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url) as answer:
        body: bytes = answer.read()
    return body


def main() -> None:
    """Fill the store, start the services, request their pages."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page_speed.pages_costs", description=__doc__)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--store", type=Path, required=True, help="folder of the store; filled if missing")
    parser.add_argument("--times", type=int, default=100, help="requests of each page")
    parser.add_argument("--against", type=Path, metavar="TREE", help="source tree to compare with")
    given = parser.parse_args()
    data = given.store / "data"
    pages = prepared(data, given.runs)
    trees = [Path.cwd(), *([given.against] if given.against else [])]
    with ExitStack() as stack:
        addresses = [stack.enter_context(serving(tree, data)) for tree in trees]
        measured(addresses, pages, given.times)


if __name__ == "__main__":
    main()
