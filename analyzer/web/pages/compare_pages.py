"""The page and the API of two runs side by side; the address is the link to share. Not pure."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from analyzer.history.run_diff import compare_runs
from analyzer.inquiry.present import plain
from analyzer.inquiry.whole_run import WholeRun
from analyzer.web.long_answers import long_answer
from analyzer.web.pages.front import routed
from analyzer.web.pages.prepared import PreparedComparison
from analyzer.web.pages.run_pages import PageContext
from analyzer.web.reads.nearest import NoneNear, TooLong, find_nearest, require_short
from collector_processor.core.records import StoredVerdict
from collector_processor.store.small_tables import TrialArm

_LONGEST_ID: Final = 200
TRIAL_NAME: Final = "trial:"
"""Beginning of the name of an experiment's trial, in place of a run's id; its id follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareContext:
    """Dependencies of the page."""

    shared: PageContext
    find: Callable[[web.Request, str], Awaitable[StoredVerdict]]
    """Returns a run by its id; raises a 404 or 409 if there is not exactly one."""


def compare_routes(context: CompareContext) -> list[web.RouteDef]:
    """Return the routes."""
    return routed(context, ("GET", "/compare", _compared), ("GET", "/api/compare", _document))


@dataclass(frozen=True, slots=True, kw_only=True)
class _TwoRuns:
    """The two runs of a request."""

    left: _Side
    right: _Side
    compared: int = 1
    """Runs among which the second is the nearest; 1 if it was named."""
    note: str = ""
    """How the second run was found; empty if it was named."""

    @property
    def runs(self) -> tuple[WholeRun, WholeRun]:
        """Both runs with their steps."""
        return self.left.whole, self.right.whole


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """One of the two: a run with its verdict, or an experiment's trial, which has none."""

    whole: WholeRun
    verdict: StoredVerdict | None = None
    trial: TrialArm | None = None

    @property
    def name(self) -> str:
        """Its name in the page's address."""
        return self.whole.run_id if self.verdict is None else self.verdict.run_id


async def _document(context: CompareContext, request: web.Request) -> web.Response:
    """Return the comparison as ``blamespan diff --format json`` prints it."""
    unknown = sorted(request.query.keys() - {"a", "b"})
    left, right = _named(request)
    if unknown or not left:
        raise web.HTTPBadRequest(text="expected ?a=RUN&b=RUN, or ?a=RUN for the nearest run\n")
    both = await _two(context, request, left, right)
    return await long_answer(
        lambda: json.dumps(compare_runs(*both.runs, both.compared).to_json()), "application/json"
    )


def _named(request: web.Request) -> tuple[str, str]:
    left, right = (request.query.get(name, "").strip()[:_LONGEST_ID] for name in ("a", "b"))
    return left, right


async def _two(context: CompareContext, request: web.Request, left: str, right: str) -> _TwoRuns:
    """Read two runs; an empty ``right`` stands for the run nearest to the first.

    Raises:
        web.HTTPError: a run is not known or not kept, or the two are too long to compare here.
    """
    first = await _side(context, request, left)
    if not right:
        if first.verdict is None:
            raise web.HTTPNotFound(text="a trial has no nearest run: name another run\n")
        return await _with_nearest(context, first, first.verdict)
    second = await _side(context, request, right)
    try:
        require_short(first.whole, second.whole)
    except TooLong as error:
        raise web.HTTPUnprocessableEntity(text=f"{error}\n") from error
    return _TwoRuns(left=first, right=second)


async def _side(context: CompareContext, request: web.Request, name: str) -> _Side:
    """Read a run by its id, or a trial by its name ``trial:ID``.

    Raises:
        web.HTTPError: it is not known or not kept.
    """
    if name.startswith(TRIAL_NAME):
        return await _trial_side(context, request, name.removeprefix(TRIAL_NAME))
    try:
        verdict = await context.find(request, name)
    except web.HTTPNotFound as error:
        raise web.HTTPNotFound(text=f"no such run: {plain(name, 80)}\n") from error
    return _Side(whole=await _read(context, verdict), verdict=verdict)


async def _trial_side(context: CompareContext, request: web.Request, trial: str) -> _Side:
    """Read a trial of the request's tenant; a request without a tenant reads those of all, as of runs."""
    shared = context.shared
    is_id = trial.isascii() and trial.isalnum()  # a database may refuse other texts
    found = await shared.pages.runs.trial_arm(trial) if is_id else None
    tenant = shared.tenant(request)
    if found is None or (tenant and found[0].tenant != tenant):
        raise web.HTTPNotFound(text="no such trial: a later experiment may have replaced it\n")
    arm, packed = found
    whole = await shared.whole.of_trial(f"{TRIAL_NAME}{arm.id}", packed)
    if whole is None:
        raise web.HTTPNotFound(text="the spans of this trial cannot be read\n")
    return _Side(whole=whole, trial=arm)


async def _with_nearest(context: CompareContext, first: _Side, verdict: StoredVerdict) -> _TwoRuns:
    """Return a run beside the nearest run of its workflow.

    Raises:
        web.HTTPError: none can be compared with it.
    """
    shared = context.shared
    try:
        found = await find_nearest(shared.pages.runs, shared.whole, verdict, first.whole)
    except NoneNear as error:
        raise web.HTTPNotFound(text=f"{error}\n") from error
    except TooLong as error:
        raise web.HTTPUnprocessableEntity(text=f"{error}\n") from error
    return _TwoRuns(
        left=first,
        right=_Side(whole=found.whole, verdict=found.verdict),
        compared=found.compared,
        note=found.note,
    )


async def _compared(context: CompareContext, request: web.Request) -> web.StreamResponse:
    left, right = _named(request)
    if not left:
        return await _shown(context, request, left, right, None)
    try:
        both = await _two(context, request, left, right)
    except (web.HTTPNotFound, web.HTTPConflict, web.HTTPUnprocessableEntity) as refusal:
        page = await _shown(context, request, left, right, None, error=(refusal.text or "").strip())
        page.set_status(refusal.status)
        return page
    shown = await context.shared.prepared.comparison(*both.runs)
    right = both.right.name
    return await _shown(context, request, left, right, shown, note=both.note, sides=(both.left, both.right))


async def _read(context: CompareContext, verdict: StoredVerdict) -> WholeRun:
    found = await context.shared.whole.of(verdict)
    if found is None:
        raise web.HTTPNotFound(text=f"the steps of run {verdict.run_id} are not kept\n")
    return found.whole


async def _shown(
    context: CompareContext,
    request: web.Request,
    left: str,
    right: str,
    prepared: PreparedComparison | None,
    *,
    note: str = "",
    error: str = "",
    sides: tuple[_Side, ...] = (),
) -> web.Response:
    return await context.shared.front.show(
        request,
        "compare.html",
        left=left,
        right=right,
        shown=None if prepared is None else prepared.shown,
        body=None if prepared is None else prepared.body,
        note=note,
        error=error,
        runs=[_head(context, side) for side in sides],
    )


def _head(context: CompareContext, side: _Side) -> dict[str, Any]:
    """Return the fields that the page shows above a side."""
    if side.verdict is not None:
        return {**context.shared.document(side.verdict), "trial": None}
    return {"run_id": side.name, "trial": side.trial}
