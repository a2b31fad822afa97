"""``python -m benchmarks.page_speed.pages_million``: time and CPU time of the pages over a million runs.

The pages run in their own process, as ``blamespan web`` serves them, over a store filled as after a month:
verdicts, totals and facts of runs in 50 workflows, the newest runs kept and counted in issues. (``serve``
would delete all but the newest 100,000.) Pages are requested one after the other, so that the CPU
time of the server's processes belongs to a page; on a busy machine it says more than the latency. With
``--store-url`` the store is an empty database in PostgreSQL, whose own CPU time is not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import quantiles
from typing import Final

import uvloop

from analyzer.cli.responsive import responsive
from analyzer.history.elements import elements_of, pack
from analyzer.issues.issue_rows import CountedRun
from analyzer.issues.issue_store import MAX_RUNS, IssueStore
from analyzer.issues.labels.kept_run import pack as pack_run
from analyzer.issues.labels.label_store import LabelStore, PackedRun
from analyzer.issues.recurrence.issue import Fingerprint, Issue, IssueState
from analyzer.service.lifetime import Lifetime
from analyzer.service.pages_alone import open_pages_alone
from benchmarks.page_speed.pages import answers, free_port
from benchmarks.page_speed.pages_filling import write_key_of
from benchmarks.page_speed.server_cpu import cpu_s, listener
from collector_processor.otlp import NO_TENANT
from collector_processor.rebuild.run_totals import RunTotals
from collector_processor.settings import load_settings
from collector_processor.store.database.connection import Flush
from collector_processor.store.database.places import RUNS, open_database
from collector_processor.store.records import Commit, StoredVerdict
from collector_processor.store.run_history import RunFacts
from collector_processor.store.verdicts import RunStore
from semconv.model import Abstention, Status, Trajectory
from tests.backends.supervise import running
from tests.web.showcase import demo_run
from tests.web.stage import ANALYST, Stage, verdict_of

_BATCH: Final = 5_000
_WORKFLOWS: Final = 50
_SERVICES: Final = 10
_KEPT: Final = 20_000
"""Runs whose steps are kept."""
_DAYS_NS: Final = 30 * 86_400 * 10**9


async def filled(place: Path | str, runs: int) -> dict[str, str]:
    """Fill a store, a file or a database in PostgreSQL; return the paths of the pages to request."""
    with closing(open_database(place)) as database, closing(database.connect()) as db:
        stage = Stage(folder=Path(), verdicts=RunStore(db), labels=LabelStore(db))
        return await _filled(stage, IssueStore(db), runs)


async def _filled(stage: Stage, issues: IssueStore, runs: int) -> dict[str, str]:
    trajectory = demo_run()
    failed = (await ANALYST.analyse(trajectory)).attribution
    passed = replace(failed, verdict=Abstention(status=Status.NO_FAILURE, reason="the run states success"))
    elements = pack(elements_of(trajectory))
    began = time.time_ns() - _DAYS_NS
    for first in range(0, runs, _BATCH):
        verdicts = [
            replace(
                verdict_of(
                    replace(trajectory, run_id=f"{at:032x}"),
                    replace(failed if _fails(at, runs) else passed, run_id=f"{at:032x}"),
                    f"service-{at % _SERVICES}",
                    at,
                ),
                decided_ns=began + at * (_DAYS_NS // runs),
            )
            for at in range(first, min(runs, first + _BATCH))
        ]
        _store(stage, verdicts, elements, runs)
        if first + _BATCH > runs - _KEPT:
            _keep(stage, trajectory, verdicts)
        if first + _BATCH > runs - MAX_RUNS // 2:
            _count(issues, verdicts)
    newest, other = f"{_last_failed(runs):032x}", f"{runs - 1:032x}"
    _open_issues(issues, runs, began)
    middle = write_key_of(began + runs // 2 * (_DAYS_NS // runs), f"{runs // 2:032x}")
    return {
        "runs": "/runs", "runs in the middle": f"/runs?after={middle}", "search": "/runs?q=solar",
        "search for nothing": "/runs?q=nowhere", "filter": "/runs?status=no_failure",
        "longest runs": "/runs?sort=longest", "one run": f"/runs/{newest}",
        "compare": f"/compare?a={newest}&b={other}", "issues": "/issues",
        "one issue, with its fix": f"/issues/{_mark(_last_failed(runs)).id}", "queue": "/queue",
        "health": "/health",
    }  # fmt: skip


def _fails(at: int, runs: int) -> bool:
    """Fail 20 % of the runs, and 8 % of those since release 2.0, which is the newest half."""
    return at % 100 < (8 if at > runs // 2 else 20)


def _last_failed(runs: int) -> int:
    return next(at for at in range(runs - 1, -1, -1) if _fails(at, runs))


def _mark(at: int) -> Fingerprint:
    return Fingerprint(
        service=f"service-{at % _SERVICES}", agent="calculator", mode="wrong_computation", kind="llm",
        tool="", error="",
    )  # fmt: skip


def _store(stage: Stage, verdicts: list[StoredVerdict], elements: bytes, runs: int) -> None:
    stage.verdicts.commit(Commit(analysed=(), verdicts=tuple(verdicts)))
    with stage.verdicts.transaction(Flush.LATER):
        stage.verdicts.totals.total(
            [
                (
                    one.tenant,
                    one.run_id,
                    RunTotals(workflow=f"flow {int(one.run_id, 16) % _WORKFLOWS}", steps=6),
                )
                for one in verdicts
            ]
        )
        stage.verdicts.history.note(
            [(one.tenant, one.run_id, _said(one), _facts(one, elements, runs)) for one in verdicts]
        )


def _workflow(run_id: str) -> str:
    return f"flow {int(run_id, 16) % _WORKFLOWS}"


def _said(one: StoredVerdict) -> str:
    return "failed" if one.agent is not None else "passed"


def _facts(one: StoredVerdict, elements: bytes, runs: int) -> RunFacts:
    """Return the facts of a run; the newest 400 runs of a workflow have another release."""
    release = "2.0" if int(one.run_id, 16) > runs - 400 * _WORKFLOWS else "1.0"
    return RunFacts(version=f"v{release}", release=release, elements=elements)


def _keep(stage: Stage, trajectory: Trajectory, verdicts: list[StoredVerdict]) -> None:
    packed = pack_run(trajectory, lambda text: text)
    assert packed is not None
    for one in verdicts:
        kept = PackedRun(tenant=NO_TENANT, run_id=one.run_id, is_failure=one.agent is not None, packed=packed)
        stage.labels.keep([kept], one.decided_ns)


def _count(issues: IssueStore, verdicts: list[StoredVerdict]) -> None:
    with issues.transaction(Flush.LATER):
        issues.write_runs(
            CountedRun(
                tenant=NO_TENANT, run_id=one.run_id, service=one.service, agents=("planner", "calculator"),
                blamed=one.agent, step=one.step, mark=_mark(int(one.run_id, 16)) if one.agent else None,
                issue_id=_mark(int(one.run_id, 16)).id if one.agent else None, decided_ns=one.decided_ns,
            )
            for one in verdicts
        )  # fmt: skip


def _open_issues(issues: IssueStore, runs: int, began: int) -> None:
    newest: dict[str, tuple[Fingerprint, list[str]]] = {}
    for at in range(runs - 1, max(-1, runs - 20_000), -1):
        if _fails(at, runs):
            mark = _mark(at)
            newest.setdefault(mark.id, (mark, []))[1].append(f"{at:032x}")
    with issues.transaction(Flush.LATER):
        issues.write_issues(
            (
                NO_TENANT,
                Issue(
                    fingerprint=mark, since_ns=began, first_ns=began, last_ns=began + _DAYS_NS,
                    count=runs // 10, runs=tuple(names[:20]), state=IssueState.ONGOING,
                ),
            )
            for mark, names in newest.values()
        )  # fmt: skip


@contextmanager
def _serving_alone(place: Path | str) -> Iterator[str]:
    """Run the pages alone over a store; yield their address."""
    address = f"127.0.0.1:{free_port()}"
    at, where = ("STORE_URL", place) if isinstance(place, str) else ("DATA_DIR", str(place.parent))
    environ = {**os.environ, f"BLAMESPAN_{at}": where, "BLAMESPAN_WEB_LISTEN": address}
    command = [sys.executable, "-m", "benchmarks.page_speed.pages_million", "--serve"]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with running("pages", command, log=log, is_ready=lambda: answers(address), environ=environ):
            yield f"http://{address}"


async def _serve() -> None:
    """Serve the pages over the store of the environment until the process is ended."""
    async with AsyncExitStack() as stack:
        server = open_pages_alone(load_settings(os.environ), stack, Lifetime(stack))
        await server.start()
        stack.push_async_callback(server.stop)
        await stack.enter_async_context(responsive())
        await asyncio.Event().wait()


def measured(address: str, pages: Mapping[str, str], times: int) -> None:
    """Request each page so many times, and print its latency and the server's CPU time."""
    pid = listener(int(address.rpartition(":")[2]))
    for name, path in pages.items():
        began = time.perf_counter()
        _get(address + path)
        cold = 1000 * (time.perf_counter() - began)
        took, used = [], cpu_s(pid)
        for _ in range(times):
            began = time.perf_counter()
            _get(address + path)
            took.append(1000 * (time.perf_counter() - began))
        cuts = quantiles(took, n=100, method="inclusive")
        told = {"page": name, "n": times, "first_ms": round(cold, 1), "p50_ms": round(cuts[49], 1)}
        told |= {"p99_ms": round(cuts[98], 1), "cpu_ms": round(1000 * (cpu_s(pid) - used) / times, 1)}
        print(json.dumps(told), flush=True)


def _get(url: str) -> None:
    with urllib.request.urlopen(url) as answer:
        answer.read()


def main() -> None:
    """Fill a store, start the service, and request its pages."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.page_speed.pages_million", description=__doc__
    )
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--times", type=int, default=100, help="requests of each page")
    parser.add_argument("--store-url", help="an empty database in PostgreSQL")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        uvloop.run(_serve())
        return
    with tempfile.TemporaryDirectory() as folder:
        place: Path | str = given.store_url or Path(folder) / RUNS
        began = time.monotonic()
        pages = asyncio.run(filled(place, given.runs))
        size = sum(file.stat().st_size for file in Path(folder).iterdir())
        print(
            f"{given.runs:,} runs written in {time.monotonic() - began:.0f} s, {size >> 20} MiB", flush=True
        )
        with _serving_alone(place) as address:
            measured(address, pages, given.times)


if __name__ == "__main__":
    main()
