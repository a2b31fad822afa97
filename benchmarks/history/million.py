"""A store with a million runs: bytes of a run's facts, and time of what pages and verdicts read of them."""

from __future__ import annotations

import random
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from statistics import mean, quantiles
from typing import Final, TypeVar

from analyzer.history.elements import elements_of, pack
from analyzer.history.known_runs import CountedRuns, KnownRun
from analyzer.history.spectrum import Said
from analyzer.issues.issue_store import DAY_NS, IssueStore
from analyzer.issues.workflow_reports import WorkflowReports
from analyzer.service.run_comparison import MOST_RUNS
from benchmarks.history.stories import FLOWS, KINDS, played
from collector_processor.otlp import NO_TENANT
from collector_processor.store.database.connection import StoreConnection
from collector_processor.store.database.places import RUNS, open_database
from collector_processor.store.run_history import RunFacts, RunHistoryRows
from semconv.model import Trajectory

NOW_NS: Final = 20_000 * DAY_NS
SERVICE: Final = "shop"
_WORKFLOWS: Final = 50
_SHAPES: Final = 200
"""Different runs that are kept again and again."""
_BATCH: Final = 20_000
_TOTALS: Final = (
    "INSERT INTO run_totals (tenant, run_id, version, decided_ns, status, service, workflow)"
    f" VALUES ('', ?, 1, ?, '', '{SERVICE}', ?)"
)

One = TypeVar("One")


def million(number: int) -> None:
    """Fill a store with runs of 50 workflows over 30 days; print bytes, times and memory."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / RUNS
        with closing(open_database(place)) as database, closing(database.own()) as db:
            packed = _fill(db, number)
            size = sum(file.stat().st_size for file in Path(folder).iterdir())
            print(
                f"{number:,} runs: elements {packed:.0f} bytes a run; {size / number:.0f} bytes on disk with"
                " the run's row in the list and its seven indexes"
            )
            _measure(db)
    print(f"peak memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


def _fill(db: StoreConnection, number: int) -> float:
    """Write the runs, one failed in ten; return the mean bytes of their elements."""
    shapes = [
        (Said.FAILED if kind else Said.PASSED, pack(elements_of(played(system, at, kind).trajectory)))
        for system in FLOWS
        for at in range(_SHAPES)
        for kind in ("", KINDS[at % len(KINDS)])[: 1 + (at % 10 == 0)]
    ]
    coin, rows, sizes = random.Random(1), RunHistoryRows(db), 0
    for first in range(0, number, _BATCH):
        drawn = [coin.choice(shapes) for _ in range(min(_BATCH, number - first))]
        names = [f"{first + at:032x}" for at in range(len(drawn))]
        facts = [RunFacts(version="v1", release="1.4.2", elements=elements) for _, elements in drawn]
        sizes += sum(len(elements) for _, elements in drawn)
        with db.transaction():
            db.executemany(
                _TOTALS,
                [
                    (name, NOW_NS - 30 * DAY_NS * (number - first - at) // number, _workflow(first + at))
                    for at, name in enumerate(names)
                ],
            )
            rows.note(
                [
                    (NO_TENANT, name, said, each)
                    for name, (said, _), each in zip(names, drawn, facts, strict=True)
                ]
            )
    return sizes / number


def _workflow(number: int) -> str:
    return f"workflow {number % _WORKFLOWS}"


def _measure(db: StoreConnection) -> None:
    rows = RunHistoryRows(db)
    failed = [played(system, 9_999 + at, "extra_step").trajectory for system in FLOWS for at in range(40)]
    names = [_workflow(at) for at in range(100)]
    _print(
        "read a workflow's newest runs", names, lambda name: rows.told(NO_TENANT, SERVICE, name, MOST_RUNS)
    )
    _print("read, count and compare", names, lambda name: _compare(_counted(rows, name), name, failed[0]))
    counted = _counted(rows, names[0])
    _print("compare one more failed run", failed, lambda run: _compare(counted, names[0], run))
    reports = WorkflowReports(IssueStore(db))
    _print("report of all 50 workflows", range(5), lambda _: reports.reports(NOW_NS))


def _counted(rows: RunHistoryRows, name: str) -> CountedRuns:
    return CountedRuns(
        KnownRun(
            run_id=row.run_id,
            service=row.service,
            workflow=row.workflow,
            version=row.version,
            said=Said(row.said),
            elements=row.elements,
        )
        for row in rows.told(NO_TENANT, SERVICE, name, MOST_RUNS)
    )


def _compare(runs: CountedRuns, name: str, run: Trajectory) -> None:
    elements = elements_of(run)
    own = KnownRun(
        run_id=run.run_id,
        service=SERVICE,
        workflow=name,
        version="v1",
        said=Said.FAILED,
        elements=pack(elements),
    )
    assert runs.compare(own, elements, [step.index for step in run.steps]) is not None


def _print(what: str, asked: Sequence[One], call: Callable[[One], object]) -> None:
    times, began_cpu = [], time.process_time()
    for one in asked:
        began = time.perf_counter()
        call(one)
        times.append(1000 * (time.perf_counter() - began))
    cpu = 1000 * (time.process_time() - began_cpu) / len(asked)
    print(
        f"{what:<30} n {len(asked):>4}  mean {mean(times):8.2f} ms  p99 {quantiles(times, n=100)[-1]:8.2f} ms"
        f"  CPU {cpu:8.2f} ms",
        flush=True,
    )
