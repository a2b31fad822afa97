"""Page and API of the queue of runs worth asking a person about. Works without JavaScript.

The queue asks about a run when its verdict is final, until a person or an experiment has given the answer.
``blamespan label`` reads it too.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

from aiohttp import web

from analyzer.issues.labels.queue import Candidate, Question, choose
from analyzer.issues.recurrence import Issue
from analyzer.records.json_records import QueuedRun, QueuedRuns
from analyzer.web.api import read_number, run_document
from analyzer.web.front import PageContext, routed
from analyzer.web.pages.run_page import MOST_APART, view
from analyzer.web.pages.step_page import Wanted
from analyzer.web.reads.archive import RunArchive
from analyzer.web.reads.documents import RunRow
from analyzer.web.reads.run_query import RunName, RunQuery
from collector_processor.core.records import PROOF
from collector_processor.otlp import Tenant
from semconv.model import ProofDecision, Status
from semconv.record import record

_USUAL: Final = 10
_HIDDEN: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("agent", "step", "span_id", "confidence", "failed_probability")),
    **dict.fromkeys(("fix", "mode", "proof", "pooled", "set")),
    "checked": (),
    "lineage": (),
    "evidence": (),
    "ranking": (),
    "reason": "",
    "notes": (),
    "status": Status.UNDETERMINED.value,
}
"""Fields of a verdict that a blind question does not show."""
NEWEST: Final = 500
"""Failed runs among which questions are chosen: the newest."""
MOST_QUESTIONS: Final = 50
_FAILED: Final = (Status.ATTRIBUTED, Status.SUSPECTED, Status.UNDETERMINED)
IssuesOf = Callable[[Sequence[RunName]], Awaitable[Mapping[RunName, Issue]]]
"""Returns the recurring failures of runs; runs without one are left out."""


def queue_routes(context: PageContext) -> list[web.RouteDef]:
    """Return the routes."""
    return routed(context, ("GET", "/queue", _queue_page), ("GET", "/api/queue", _listed))


async def _read(context: PageContext, request: web.Request, most: int) -> Queue:
    issues = context.pages.issues
    queue = LabelQueue(context.pages.runs, None if issues is None else issues.of_runs)
    return await queue.read(context.tenant(request), most)


def queued_run(asked: Asked) -> QueuedRun:
    """Return a question for programs, without the verdict if the question is blind."""
    row, question = asked.row, asked.question
    shown = not question.is_blind
    return QueuedRun(
        run_id=row.key.run_id,
        tenant=row.key.tenant,
        service=row.verdict.service,
        task=row.task,
        why=question.why,
        blind=question.is_blind,
        status=Status(row.verdict.status) if shown else None,
        agent=row.verdict.agent if shown else None,
        step=row.verdict.step if shown else None,
        confidence=row.document.get("confidence") if shown else None,
        failed_probability=row.document.get("failed_probability") if shown else None,
        decided_ns=row.verdict.decided_ns,
    )


async def _listed(context: PageContext, request: web.Request) -> web.Response:
    most = read_number(request, "limit", _USUAL, 1, MOST_QUESTIONS)
    queue = await _read(context, request, most)
    questions = tuple(queued_run(question) for question in queue.questions)
    answer = QueuedRuns(questions=questions, answered=queue.answered, proved=queue.proved)
    return web.json_response(asdict(answer))


async def _queue_page(context: PageContext, request: web.Request) -> web.StreamResponse:
    """Show one question, after the first ``skip`` ones."""
    skip = read_number(request, "skip", 0, 0, MOST_QUESTIONS - 1)
    queue = await _read(context, request, skip + 1)
    asked = queue.questions[skip] if skip < len(queue.questions) else None
    values: dict[str, Any] = {"question": None, "run": None, "shown": None}
    if asked is not None:
        verdict = asked.row.verdict
        document = {**run_document(verdict), **(_HIDDEN if asked.question.is_blind else {})}
        read = await context.whole.of(verdict)
        wanted = Wanted(room=MOST_APART)  # no text is requested later: its answer would show the verdict
        shown = None if read is None else await asyncio.to_thread(view, read.whole, document, wanted)
        values = {"question": asked.question, "run": document, "shown": shown, "task": asked.row.task}
    return await context.front.show(
        request,
        "queue.html",
        skip=skip,
        answered=queue.answered,
        proved=queue.proved,
        curve=curve_of(context.pages.card),
        **values,
    )


def curve_of(card: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the learning curve of a ranker's card, with its last point: all labels."""
    points = [*card.get("learning_curve", ())]
    whole = [each for each in card.get("in_distribution", ()) if each.get("subset") in {"total", "all"}]
    points += [
        {"labels": card.get("labels"), **each} for each in (whole or card.get("in_distribution", ()))[-1:]
    ]
    return [point for point in points if {"labels", "step_accuracy", "step_accuracy_ci"} <= point.keys()]


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
            if not row.verdict.is_provisional
            and row.verdict.status in _FAILED  # another one is damaged on disk
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
        tasks = await self._runs.rows([_named(question) for question in chosen])
        told = {(row.key.tenant, row.key.run_id): row.task for row in tasks}
        asked = tuple(
            Asked(question=question, row=replace(rows[name], task=told.get(name, "")))
            for question in chosen
            for name in [_named(question)]
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
    step = row.verdict.step
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
    return f"{row.verdict.service}\0{row.verdict.agent or ''}\0{row.document.get('mode') or ''}"


def _probabilities(ranking: Any) -> tuple[float, ...]:
    """Read the suspects' probabilities from a stored verdict, which may be damaged."""
    found = [one.get("probability") for one in ranking or () if isinstance(one, dict)]
    return tuple(float(each) for each in found if isinstance(each, int | float))
