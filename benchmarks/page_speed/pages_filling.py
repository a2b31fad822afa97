"""Stores filled as after weeks of use: many verdicts, kept runs, and their issues."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from analyzer.issues.issue_rows import CountedRun
from analyzer.issues.issue_store import IssueStore
from analyzer.issues.labels.kept_run import pack
from analyzer.issues.labels.label_store import PackedRun
from analyzer.issues.recurrence.issue import Fingerprint, Issue, seen
from analyzer.web.reads.page_records import RunKey
from analyzer.web.run_list import write_key
from collector_processor.otlp import NO_TENANT
from collector_processor.rebuild.stages import rebuild
from collector_processor.store.database.connection import Flush
from collector_processor.store.database.places import RUNS
from collector_processor.store.records import Commit, StoredVerdict
from semconv.model import Abstention, Attribution, Status, Trajectory
from tests.web.long_runs import keep_spans, long_run
from tests.web.showcase import demo_run
from tests.web.stage import ANALYST, Stage, open_stage, verdict_of

_BATCH: Final = 5_000
_APART_NS: Final = 6 * 10**9
"""Nanoseconds between two runs: 14,400 a day, 100,000 in a week."""
_SERVICES: Final = 20
_ISSUES: Final = 60
LONG_STEPS: Final = 1_000
_HOUR_NS: Final = 3600 * 10**9
_PASSED: Final = 3
"""One run in this many passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """Ids to request from a filled store."""

    run_id: str
    """Id of the newest run, whose steps are kept."""
    long_id: str
    """Id of a run of 1,000 steps, whose spans are kept."""
    issue_id: str
    """Id of the issue with the most runs."""
    middle: str
    """Key in the page's address for a position in the middle of the list."""
    end: str
    """The same for a position one page before its end."""


async def filled(folder: Path, runs: int) -> Filled:
    """Make stores with this many runs."""
    trajectory = demo_run()
    failed = (await ANALYST.analyse(trajectory)).attribution
    passed = replace(failed, verdict=Abstention(status=Status.NO_FAILURE, reason="the run states success"))
    stage = open_stage(folder)
    begun_ns = time.time_ns() - runs * _APART_NS
    verdicts = [
        replace(
            _verdict(trajectory, failed if number % _PASSED else passed, number),
            decided_ns=begun_ns + number * _APART_NS,
        )
        for number in range(runs)
    ]
    _store(stage, trajectory, verdicts)
    busiest = _count(folder, verdicts)
    long_id = await _store_long(stage, time.time_ns())
    stage.verdicts.close()
    stage.labels.close()
    return Filled(
        run_id=verdicts[-1].run_id,
        long_id=long_id,
        issue_id=busiest.fingerprint.id,
        middle=_place(verdicts[runs // 2]),
        end=_place(verdicts[min(runs - 1, 40)]),
    )


async def _store_long(stage: Stage, now_ns: int) -> str:
    """Store a long run of the last hour with its spans: the service drops what was kept long ago."""
    body = long_run(LONG_STEPS, began_ns=now_ns - _HOUR_NS)
    (run,) = rebuild([body])
    told = (await ANALYST.analyse(run.trajectory)).attribution
    _store(
        stage, run.trajectory, [replace(verdict_of(run.trajectory, told, "service-0", 0), decided_ns=now_ns)]
    )
    keep_spans(stage, run, body, now_ns)
    return run.trajectory.run_id


def _verdict(trajectory: Trajectory, told: Attribution, number: int) -> StoredVerdict:
    one = replace(trajectory, run_id=f"{number:032x}")
    return verdict_of(one, replace(told, run_id=one.run_id), f"service-{number % _SERVICES}", number)


def _store(stage: Stage, trajectory: Trajectory, verdicts: list[StoredVerdict]) -> None:
    packed = pack(trajectory, lambda text: text)
    assert packed is not None
    for start in range(0, len(verdicts), _BATCH):
        batch = tuple(verdicts[start : start + _BATCH])
        stage.verdicts.commit(Commit(analysed=(), verdicts=batch))
        for one in batch:
            run = PackedRun(
                tenant=NO_TENANT, run_id=one.run_id, is_failure=one.agent is not None, packed=packed
            )
            stage.labels.keep([run], one.decided_ns)


def _count(data_dir: Path, verdicts: list[StoredVerdict]) -> Issue:
    """Count the failures in issues; return the one with the most."""
    issues: dict[str, Issue] = {}
    store = IssueStore(data_dir / RUNS)
    try:
        with store.transaction(Flush.LATER):
            for number, verdict in enumerate(verdicts):
                mark = _mark(verdict, number) if verdict.agent else None
                if mark is not None:
                    found = seen(issues.get(mark.id), mark, verdict.run_id, verdict.decided_ns)
                    issues[mark.id] = found.issue
                store.write_runs([_counted(verdict, mark)])
            for issue in issues.values():
                store.write_issues([(NO_TENANT, issue)])
    finally:
        store.close()
    return max(issues.values(), key=lambda issue: issue.count)


def _mark(verdict: StoredVerdict, number: int) -> Fingerprint:
    tool = f"tool {number % _ISSUES // _SERVICES}"
    return Fingerprint(
        service=verdict.service, agent=verdict.agent or "", mode="", kind="tool", tool=tool, error="Error"
    )


def _counted(verdict: StoredVerdict, mark: Fingerprint | None) -> CountedRun:
    return CountedRun(
        tenant=NO_TENANT,
        run_id=verdict.run_id,
        service=verdict.service,
        agents=("planner", "clerk", "writer"),
        blamed=verdict.agent,
        step=verdict.step,
        mark=mark,
        issue_id=None if mark is None else mark.id,
        decided_ns=verdict.decided_ns,
    )


def _place(verdict: StoredVerdict) -> str:
    return write_key_of(verdict.decided_ns, verdict.run_id)


def write_key_of(decided_ns: int, run_id: str) -> str:
    """Return the key in the page's address for a run's position in the list."""
    return write_key(RunKey(at=decided_ns, tenant=NO_TENANT, run_id=run_id))
