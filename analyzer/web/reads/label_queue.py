"""Reads the queue of runs worth asking a person about, for the page, the API and the command. Not pure.

The queue asks about a run when its verdict is final, until a person or an experiment has given the answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from analyzer.issues.labels.queue import Candidate, Question, choose
from analyzer.issues.recurrence import Issue
from analyzer.web.reads.archive import RunArchive
from analyzer.web.reads.page_records import RunName, RunQuery, RunRow
from collector_processor.core.records import PROOF
from collector_processor.otlp import Tenant
from semconv.model import ProofDecision, Status
from semconv.record import record

NEWEST: Final = 500
"""Failed runs among which questions are chosen: the newest."""
MOST_QUESTIONS: Final = 50
_FAILED: Final = (Status.ATTRIBUTED, Status.SUSPECTED, Status.UNDETERMINED)

IssuesOf = Callable[[Sequence[RunName]], Awaitable[Mapping[RunName, Issue]]]
"""Returns the recurring failures of runs; runs without one are left out."""


@record
class Asked:
    """A question with its run."""

    question: Question
    row: RunRow


@record
class Queue:
    """The next questions, and how many runs are answered."""

    questions: tuple[Asked, ...]
    answered: int
    """Runs with an answer among the newest."""
    proved: int
    """Those of them that an experiment answered."""


class LabelQueue:
    """The queue of a store."""

    def __init__(self, runs: RunArchive, issues_of: IssuesOf | None) -> None:
        """Create the queue; without issues, no run counts as frequent."""
        self._runs: Final = runs
        self._issues_of: Final = issues_of

    async def read(self, tenant: Tenant, most: int) -> Queue:
        """Return the next questions of a tenant; an empty tenant means all."""
        page = await self._runs.page(RunQuery(tenant=tenant, statuses=_FAILED, limit=NEWEST, has_tasks=False))
        rows = {
            (row.key.tenant, row.key.run_id): row
            for row in page.rows
            if not row.is_provisional and row.status in _FAILED  # another one is damaged on disk
        }
        issues = await self._issues_of(list(rows)) if self._issues_of is not None and rows else {}
        answered = [name for name, row in rows.items() if _answered(row)]
        open_rows = {name: row for name, row in rows.items() if not _answered(row)}
        others = await self._runs.second_steps(list(open_rows))
        candidates = [
            _candidate(name, row, issues.get(name), others.get(name, ())) for name, row in open_rows.items()
        ]
        labelled = Counter(_group(rows[name], issues.get(name)) for name in answered)
        chosen = choose(candidates, labelled, min(most, MOST_QUESTIONS))
        tasks = await self._runs.rows([_named(one) for one in chosen])
        told = {(row.key.tenant, row.key.run_id): row.task for row in tasks}
        asked = tuple(
            Asked(question=one, row=replace(rows[name], task=told.get(name, "")))
            for one in chosen
            for name in [_named(one)]
        )
        proved = sum(rows[name].said is None for name in answered)
        return Queue(questions=asked, answered=len(answered), proved=proved)


def _named(question: Question) -> RunName:
    tenant, run_id = question.candidate.name
    return Tenant(tenant), run_id


def _answered(row: RunRow) -> bool:
    """Return whether a person or an experiment has said what happened; a refutation does not say it."""
    proof = row.document.get(PROOF)
    is_proved = isinstance(proof, dict) and proof.get("decision") == ProofDecision.PROVED
    return row.said is not None or is_proved


def _candidate(name: RunName, row: RunRow, issue: Issue | None, others: Sequence[int]) -> Candidate:
    step = row.step
    return Candidate(
        name=(str(name[0]), name[1]),
        probabilities=_probabilities(row.document.get("ranking")),
        steps=() if step is None else (step, *others),
        group=_group(row, issue),
        size=1 if issue is None else issue.count,
    )


def _group(row: RunRow, issue: Issue | None) -> str:
    if issue is not None:
        return issue.fingerprint.id
    return f"{row.service}\0{row.agent or ''}\0{row.document.get('mode') or ''}"


def _probabilities(ranking: Any) -> tuple[float, ...]:
    """Read the suspects' probabilities from a stored verdict, which may be damaged."""
    found = [one.get("probability") for one in ranking or () if isinstance(one, dict)]
    return tuple(float(each) for each in found if isinstance(each, int | float))
