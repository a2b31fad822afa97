"""The run nearest to a kept run, for comparisons on the page, in the API and over MCP. Not pure."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Final

from analyzer.history.run_diff import has_same_task, nearest_run
from analyzer.inquiry.errors import AnalyzerError
from analyzer.inquiry.whole_run import WholeRun
from analyzer.web.reads.archive import RunArchive
from analyzer.web.reads.documents import RunRow
from analyzer.web.reads.run_query import MOST_ASKED, RunName, RunQuery
from analyzer.web.reads.whole_runs import WholeRuns
from analyzer.web.rendering import outcome
from collector_processor.core.records import StoredVerdict
from semconv.model import Status

MOST_COMPARED: Final = 4_000_000
"""Largest product of two runs' steps: aligning them takes about a second."""
_NEAR: Final = 20
"""Number of newest runs searched for similar tasks, and of runs with the same task."""
_ALIGNED: Final = 8
"""Runs whose steps are aligned with the run's, to find the nearest."""
_SEARCHED: Final = 200
"""Characters of the task by which runs of the same task are searched."""


class NoneNear(AnalyzerError):  # noqa: N818 - a statement reads better at the ``raise``
    """No run of the workflow can be compared with the run; the message says why."""


class TooLong(AnalyzerError):  # noqa: N818 - as above
    """The runs have too many steps to align them in a second."""

    def __init__(self) -> None:
        super().__init__("these runs are too long to compare here: blamespan diff compares them")


@dataclass(frozen=True, slots=True, kw_only=True)
class Nearest:
    """The run that is nearest to a run."""

    verdict: StoredVerdict
    whole: WholeRun
    compared: int
    """Runs among which it is the nearest."""
    note: str
    """What it is, as a sentence: of the same task or not, passed or without a sign of failure."""


def require_short(left: WholeRun, right: WholeRun) -> None:
    """Refuse to compare two runs that are too long.

    Raises:
        TooLong: they are.
    """
    if len(left.steps) * len(right.steps) > MOST_COMPARED:
        raise TooLong


async def find_nearest(
    runs: RunArchive, kept_runs: WholeRuns, verdict: StoredVerdict, whole: WholeRun
) -> Nearest:
    """Return the run of the same workflow that is nearest to a run.

    Runs of the same task come before others, and runs that passed before runs without a sign of failure. A
    run that may have failed is taken only if it has the same task, and no other run is known.

    Raises:
        NoneNear: no such run is known, or the steps of none are kept.
        TooLong: all are too long to compare.
    """
    rows = await _near(runs, verdict)
    read = [(row, await kept_runs.of(row.verdict)) for row in rows]
    kept = {found.whole.run_id: (row, found.whole) for row, found in read if found is not None}
    if not kept:
        raise NoneNear("the steps of the runs nearest to this one are not kept: name another run")
    most = MOST_COMPARED // len(kept)
    short = [each for _, each in kept.values() if len(each.steps) * len(whole.steps) <= most]
    if not short:
        raise TooLong
    passed = {run_id for run_id, (row, _) in kept.items() if _has_passed(row)}
    nearest = await asyncio.to_thread(nearest_run, whole, short, passed)
    row = kept[nearest.run_id][0]
    note = _note(row, len(short), same_task=has_same_task(nearest, whole))
    return Nearest(verdict=row.verdict, whole=nearest, compared=len(short), note=note)


def _has_passed(row: RunRow) -> bool:
    return outcome(row.document) == "passed"


def _note(row: RunRow, compared: int, *, same_task: bool) -> str:
    """Say which run it is."""
    task = "with the same task" if same_task else "of the same workflow, with another task,"
    among = f" It is the nearest of {compared} compared." if compared > 1 else ""
    if row.verdict.status != Status.NO_FAILURE:
        said = "that may have failed too: no run without a sign of failure is known."
    elif _has_passed(row):
        said = "that passed."
    else:
        said = "without a sign of failure. Nothing says that it passed."
    return f"The second is a run {task} {said}{among}"


async def _near(runs: RunArchive, verdict: StoredVerdict) -> list[RunRow]:
    """Return runs of the same workflow: the same task first, then by nearness of task and of length.

    Raises:
        NoneNear: none is known.
    """
    none = NoneNear(
        "no passing run of this workflow and no other run of this task is known: name another run"
    )
    name: RunName = (verdict.tenant, verdict.run_id)
    own = next(iter(await runs.rows([name])), None)
    if own is None or own.totals is None:
        raise none
    totals = own.totals
    of_workflow = RunQuery(
        tenant=verdict.tenant,
        statuses=(Status.NO_FAILURE,),
        service=own.verdict.service[:MOST_ASKED],
        workflow=totals.workflow[:MOST_ASKED],
        limit=_NEAR,
    )
    of_task = replace(of_workflow, text=own.task[:_SEARCHED].strip())

    async def found(query: RunQuery) -> list[RunRow]:
        return [
            row
            for row in (await runs.page(query)).rows
            # a query without a tenant finds the runs of all
            if row.key.tenant == verdict.tenant
            and row.key.run_id != verdict.run_id
            and row.verdict.service == own.verdict.service
        ]

    alike = await found(of_workflow)
    if own.task and not any(row.task == own.task for row in alike):
        alike += await found(of_task)
    if not alike and own.task:
        others = await found(replace(of_task, statuses=(Status.ATTRIBUTED, Status.SUSPECTED)))
        alike = [row for row in others if row.task == own.task]

    def nearness(row: RunRow) -> tuple[bool, bool, float, int]:
        steps = row.totals.steps if row.totals else 0
        likeness = SequenceMatcher(None, own.task, row.task).ratio()
        return row.task == own.task, _has_passed(row), likeness, -abs(steps - totals.steps)

    if not alike:
        raise none
    distinct = {row.key.run_id: row for row in alike}.values()
    # Comparing tasks of few letters, each repeated many times, takes 60 ms.
    return (await asyncio.to_thread(sorted, distinct, key=nearness, reverse=True))[:_ALIGNED]


__all__ = ["Nearest", "NoneNear", "TooLong", "find_nearest", "require_short"]
