"""The passing run nearest to a kept run, for comparisons on the page, in the API and over MCP. Not pure."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final

from analyzer.inquiry.errors import AnalyzerError
from analyzer.inquiry.run_diff import nearest_run
from analyzer.inquiry.whole_run import WholeRun
from analyzer.web.reads.archive import RunArchive
from analyzer.web.reads.page_records import RunName, RunQuery, RunRow
from analyzer.web.reads.whole_runs import WholeRuns
from analyzer.web.run_list import MOST_ASKED
from collector_processor.core.records import StoredVerdict
from semconv.model import Status

MOST_COMPARED: Final = 4_000_000
"""Largest product of two runs' steps: aligning them takes about a second."""
_NEAR: Final = 20
"""Number of newest passing runs searched for similar tasks; the most similar are aligned."""
_ALIGNED: Final = 8
"""Passing runs whose steps are aligned with the run's, to find the nearest."""


class NoneNear(AnalyzerError):  # noqa: N818 - a statement reads better at the ``raise``
    """No passing run of the workflow can be compared with the run; the message says why."""


class TooLong(AnalyzerError):  # noqa: N818 - as above
    """The runs have too many steps to align them in a second."""

    def __init__(self) -> None:
        super().__init__("these runs are too long to compare here: blamespan diff compares them")


@dataclass(frozen=True, slots=True, kw_only=True)
class Nearest:
    """The passing run whose steps are nearest to a run's."""

    verdict: StoredVerdict
    whole: WholeRun
    compared: int
    """Runs among which it is the nearest."""


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
    """Align a run with the passing runs of its workflow that have the nearest tasks; return the nearest.

    Raises:
        NoneNear: no passing run of the workflow is known, or the steps of none are kept.
        TooLong: all are too long to compare.
    """
    verdicts = [row.verdict for row in await _near(runs, verdict)]
    read = [(each, await kept_runs.of(each)) for each in verdicts]
    kept = {found.whole.run_id: (each, found.whole) for each, found in read if found is not None}
    if not kept:
        raise NoneNear("the steps of the passing runs of this workflow are not kept")
    most = MOST_COMPARED // len(kept)
    short = [each for _, each in kept.values() if len(each.steps) * len(whole.steps) <= most]
    if not short:
        raise TooLong
    nearest = await asyncio.to_thread(nearest_run, whole, short)
    return Nearest(verdict=kept[nearest.run_id][0], whole=nearest, compared=len(short))


async def _near(runs: RunArchive, verdict: StoredVerdict) -> list[RunRow]:
    """Return passing runs of the same workflow, sorted by nearness of task, then of length.

    Raises:
        NoneNear: none is known.
    """
    none = NoneNear("no passing run of this workflow is known: name another run")
    name: RunName = (verdict.tenant, verdict.run_id)
    own = next(iter(await runs.rows([name])), None)
    if own is None or own.totals is None:
        raise none
    totals = own.totals
    passing = RunQuery(
        tenant=verdict.tenant,
        statuses=(Status.NO_FAILURE,),
        service=own.service[:MOST_ASKED],
        workflow=totals.workflow[:MOST_ASKED],
        limit=_NEAR,
    )
    rows = (await runs.page(passing)).rows
    alike = [
        row
        for row in rows
        # a query without a tenant finds the runs of all
        if row.key.tenant == verdict.tenant
        and row.key.run_id != verdict.run_id
        and row.service == own.service
    ]

    def nearness(row: RunRow) -> tuple[float, int]:
        steps = row.totals.steps if row.totals else 0
        return SequenceMatcher(None, own.task, row.task).ratio(), -abs(steps - totals.steps)

    if not alike:
        raise none
    # Comparing tasks of few letters, each repeated many times, takes 60 ms.
    return (await asyncio.to_thread(sorted, alike, key=nearness, reverse=True))[:_ALIGNED]


__all__ = ["Nearest", "NoneNear", "TooLong", "find_nearest", "require_short"]
