"""Page and API of the queue of runs worth asking a person about. Works without JavaScript."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from aiohttp import web

from analyzer.records.json_records import QueuedRun, QueuedRuns
from analyzer.web.pages.front import routed
from analyzer.web.pages.run_pages import PageContext
from analyzer.web.reads.label_queue import MOST_QUESTIONS, Asked, LabelQueue
from analyzer.web.run_api import read_number
from analyzer.web.views.run_page import MOST_APART, Wanted, view
from semconv.model import Status

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


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueContext:
    """Dependencies of the queue."""

    shared: PageContext
    queue: LabelQueue


def queue_routes(context: QueueContext) -> list[web.RouteDef]:
    """Return the routes."""
    return routed(context, ("GET", "/queue", _page), ("GET", "/api/queue", _listed))


def queued_run(asked: Asked) -> QueuedRun:
    """Return a question for programs, without the verdict if the question is blind."""
    row, question = asked.row, asked.question
    shown = not question.is_blind
    return QueuedRun(
        run_id=row.key.run_id,
        tenant=row.key.tenant,
        service=row.service,
        task=row.task,
        why=question.why,
        blind=question.is_blind,
        status=Status(row.status) if shown else None,
        agent=row.agent if shown else None,
        step=row.step if shown else None,
        confidence=row.document.get("confidence") if shown else None,
        failed_probability=row.document.get("failed_probability") if shown else None,
        decided_ns=row.verdict.decided_ns,
    )


async def _listed(context: QueueContext, request: web.Request) -> web.Response:
    most = read_number(request, "limit", _USUAL, 1, MOST_QUESTIONS)
    found = await context.queue.read(context.shared.tenant(request), most)
    questions = tuple(queued_run(each) for each in found.questions)
    answer = QueuedRuns(questions=questions, answered=found.answered, proved=found.proved)
    return web.json_response(asdict(answer))


async def _page(context: QueueContext, request: web.Request) -> web.StreamResponse:
    """Show one question, after the first ``skip`` ones."""
    shared = context.shared
    skip = read_number(request, "skip", 0, 0, MOST_QUESTIONS - 1)
    found = await context.queue.read(shared.tenant(request), skip + 1)
    asked = found.questions[skip] if skip < len(found.questions) else None
    values: dict[str, Any] = {"question": None, "run": None, "shown": None}
    if asked is not None:
        verdict = asked.row.verdict
        document = {**shared.document(verdict), **(_HIDDEN if asked.question.is_blind else {})}
        read = await shared.whole.of(verdict)
        wanted = Wanted(room=MOST_APART)  # no text is requested later: its answer would show the verdict
        shown = None if read is None else await asyncio.to_thread(view, read.whole, document, wanted)
        values = {"question": asked.question, "run": document, "shown": shown, "task": asked.row.task}
    return await shared.front.show(
        request,
        "queue.html",
        skip=skip,
        answered=found.answered,
        proved=found.proved,
        curve=curve_of(shared.pages.card),
        **values,
    )


def curve_of(card: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the learning curve of a ranker's card, with its last point: all labels."""
    points = [*card.get("learning_curve", ())]
    whole = [each for each in card.get("in_distribution", ()) if each.get("subset") in {"total", "all"}]
    points += [
        {"labels": card.get("labels"), **each} for each in (whole or card.get("in_distribution", ()))[-1:]
    ]
    return [each for each in points if {"labels", "step_accuracy", "step_accuracy_ci"} <= each.keys()]
