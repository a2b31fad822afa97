"""Kept runs with their whole steps, for the pages and the API, and the run nearest to one. Not pure.

Remembers the whole runs that were read last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Final

from analyzer.history.run_diff import has_same_task, nearest_run
from analyzer.inquiry.errors import AnalyzerError
from analyzer.inquiry.whole_run import WholeRun, whole_run, whole_steps
from analyzer.issues.labels.kept_run import KeptRun
from analyzer.issues.labels.kept_trace import read_kept, rebuilt
from analyzer.web.reads.archive import RunArchive
from analyzer.web.reads.documents import RunRow
from analyzer.web.reads.run_query import MOST_ASKED, RunName, RunQuery
from analyzer.web.remembered import Remembered
from analyzer.web.rendering import outcome
from collector_processor.core.records import StoredVerdict
from collector_processor.core.runs import CleanRun
from collector_processor.otlp import MalformedRequestError
from collector_processor.rebuild.kept_spans import unpack_spans
from semconv.dialects import USUAL, Reader
from semconv.model import Status

MOST_REMEMBERED: Final = 32
"""Runs; a run of a thousand steps takes 0.3 s to read, and its page asks for one step after the other."""
MOST_CHARACTERS: Final = 32_000_000
"""Characters of text in all remembered runs."""

_Key = tuple[str, str, int, int, int | None, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRun:
    """A kept run, read."""

    kept: KeptRun
    whole: WholeRun

    @property
    def is_whole(self) -> bool:
        """Whether it was read from its spans."""
        return self.kept.run is not None


class WholeRuns:
    """Reads kept runs. Safe for several threads."""

    def __init__(self, runs: RunArchive, clean: CleanRun, reader: Reader = USUAL) -> None:
        """``clean`` removes secrets from every text; ``reader`` reads the spans."""
        self._runs: Final = runs
        self._clean: Final = clean
        self._reader: Final = reader
        self._read: Final[Remembered[ReadRun]] = Remembered(MOST_REMEMBERED, MOST_CHARACTERS)

    async def of(self, verdict: StoredVerdict) -> ReadRun | None:
        """Return a run with its steps; ``None`` if neither its spans nor its steps are kept and readable."""
        spans = await self._runs.kept_spans(verdict.tenant, verdict.run_id)
        steps = await self._runs.kept(verdict.tenant, verdict.run_id)
        if spans is None and steps is None:
            return None
        # The packed bytes decide: a run that grew, or was deleted and sent again, is read again.
        key = (verdict.tenant, verdict.run_id, hash(spans), hash(steps), verdict.step, verdict.span_id)
        return self._read.get(key) or await asyncio.to_thread(
            self._remembering, key, lambda: read_run(verdict, spans, steps, self._clean, self._reader)
        )

    def clear(self) -> None:
        """Drop all runs in memory."""
        self._read.clear()

    async def of_trial(self, trial: str, packed: bytes) -> WholeRun | None:
        """Return an experiment's kept trial with its steps; ``None`` if its spans cannot be read."""
        return await asyncio.to_thread(read_trial, trial, packed, self._clean, self._reader)

    def _remembering(self, key: _Key, read: Callable[[], ReadRun | None]) -> ReadRun | None:
        found = read()
        if found is not None:
            self._read.put(key, found, _characters(found.whole))
        return found


def read_run(
    verdict: StoredVerdict,
    packed_spans: bytes | None,
    packed_steps: bytes | None,
    clean: CleanRun,
    reader: Reader = USUAL,
) -> ReadRun | None:
    """Return a run from what is kept of it; ``None`` if that cannot be read."""
    kept = read_kept(verdict, packed_spans, packed_steps, clean, reader)
    if kept is None:
        return None
    whole = whole_steps(kept.trajectory, clean) if kept.run is None else whole_run(kept.run, clean, reader)
    return ReadRun(kept=kept, whole=whole)


def read_trial(trial: str, packed: bytes, clean: CleanRun, reader: Reader = USUAL) -> WholeRun | None:
    """Return a kept trial from its packed spans; ``None`` if they cannot be read."""
    try:
        run = rebuilt(unpack_spans(packed), trial, reader)
    except MalformedRequestError:
        return None
    return None if run is None else whole_run(run, clean, reader)


def _characters(run: WholeRun) -> int:
    """Return the length of a run's texts; the kept spans hold them once more."""
    messages = (message for step in run.steps for message in (*step.messages, *step.answers))
    texts = sum(len(message.text) for message in messages)
    return 2 * texts + sum(len(step.input) + len(step.output) + len(step.instructions) for step in run.steps)


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
