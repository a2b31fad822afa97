"""The page and the API of two runs side by side; the address is the link to share. Not pure.

``history/run_diff.py`` aligns the steps. Equal steps in a row are folded; differences of texts are marked
word by word, within bounds, since texts of runs may have any length.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby
from typing import Any, Final

from aiohttp import web
from markupsafe import Markup

from analyzer.history.run_diff import (
    Change,
    RunDiff,
    RunTotals,
    StepPair,
    compare_runs,
    departure_in_words,
    in_words,
    matter_in_words,
)
from analyzer.inquiry.present import plain
from analyzer.inquiry.visible import visible
from analyzer.inquiry.whole_run import WholeRun, WholeStep
from analyzer.web.api import run_document
from analyzer.web.front import PageContext, routed
from analyzer.web.reads.documents import RunRow
from analyzer.web.reads.run_query import RunQuery
from analyzer.web.reads.whole_runs import NoneNear, TooLong, find_nearest, require_short
from analyzer.web.remembered import PreparedParts
from analyzer.web.rendering import long_answer
from collector_processor.core.records import StoredVerdict
from collector_processor.store.small_tables import TrialArm

_MOST_CHOICES: Final = 10
"""Runs offered for a run that no other is near to."""
_ALONE: Final = (
    "This is the only run so far. Once the program has run again, this page shows what differs: the same task"
    " first, and a run that passed if there is any."
)
TRIAL_NAME: Final = "trial:"
"""Beginning of the name of an experiment's trial, in place of a run's id; its id follows."""
MOST_MARKED: Final = 100
"""Most pairs whose texts are compared word by word."""
MOST_WORDS: Final = 600
"""Words of a text that are compared; the comparison is quadratic at worst."""
MOST_TEXT: Final = 4_000
"""Characters shown of a text."""
MOST_PAIRS: Final = 2_000
_LEAST_ALIKE: Final = 0.2
"""Share of words in common below which two texts are shown whole, one after the other: the few words that
happen to be the same would only break both texts up."""
_FOLDED: Final = 4
"""Equal steps in a row that are folded."""
_MOST_LANES: Final = 12
_WORD: Final = re.compile(r"\s+|\w+|[^\w\s]")
_TEXTS: Final = ("input", "output", "error")
SIGNS: Final = {Change.SAME: "=", Change.TEXT: "~", Change.ONLY_LEFT: "-", Change.ONLY_RIGHT: "+"}


def compare_routes(context: PageContext) -> list[web.RouteDef]:
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


async def _document(context: PageContext, request: web.Request) -> web.Response:
    """Return the comparison as ``blamespan diff --format json`` prints it."""
    unknown = sorted(request.query.keys() - {"a", "b"})
    left, right = _named(request)
    if unknown or not left:
        raise web.HTTPBadRequest(text="expected ?a=RUN&b=RUN, or ?a=RUN for the nearest run\n")
    try:
        both = await _two(context, request, left, right)
    except NoneNear as error:
        raise web.HTTPNotFound(text=f"{error}\n") from error
    return await long_answer(
        lambda: json.dumps(compare_runs(*both.runs, both.compared).to_json()), "application/json"
    )


def _named(request: web.Request) -> tuple[str, str]:
    left, right = (request.query.get(name, "").strip() for name in ("a", "b"))
    return left, right


async def _two(context: PageContext, request: web.Request, left: str, right: str) -> _TwoRuns:
    """Read two runs; an empty ``right`` stands for the run nearest to the first.

    Raises:
        web.HTTPError: a run is not known or not kept, or the two are too long to compare here.
        NoneNear: no run can be compared with the first.
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


async def _side(context: PageContext, request: web.Request, name: str) -> _Side:
    """Read a run by its id, or a trial by its name ``trial:ID``.

    Raises:
        web.HTTPError: it is not known or not kept.
    """
    if name.startswith(TRIAL_NAME):
        return await _trial_side(context, request, name.removeprefix(TRIAL_NAME))
    try:
        verdict = await context.named(request, name)
    except web.HTTPNotFound as error:
        raise web.HTTPNotFound(text=f"no such run: {plain(name, 80)}\n") from error
    return _Side(whole=await _read(context, verdict), verdict=verdict)


async def _trial_side(context: PageContext, request: web.Request, trial: str) -> _Side:
    """Read a trial of the request's tenant; a request without a tenant reads those of all, as of runs."""
    is_id = trial.isascii() and trial.isalnum()  # a database may refuse other texts
    found = await context.pages.runs.trial_arm(trial) if is_id else None
    tenant = context.tenant(request)
    if found is None or (tenant and found[0].tenant != tenant):
        raise web.HTTPNotFound(text="no such trial: a later experiment may have replaced it\n")
    arm, packed = found
    whole = await context.whole.of_trial(f"{TRIAL_NAME}{arm.id}", packed)
    if whole is None:
        raise web.HTTPNotFound(text="the spans of this trial cannot be read\n")
    return _Side(whole=whole, trial=arm)


async def _with_nearest(context: PageContext, first: _Side, verdict: StoredVerdict) -> _TwoRuns:
    """Return a run beside the nearest run of its workflow.

    Raises:
        NoneNear: none can be compared with it.
        web.HTTPError: all are too long.
    """
    try:
        found = await find_nearest(context.pages.runs, context.whole, verdict, first.whole)
    except TooLong as error:
        raise web.HTTPUnprocessableEntity(text=f"{error}\n") from error
    return _TwoRuns(
        left=first,
        right=_Side(whole=found.whole, verdict=found.verdict),
        compared=found.compared,
        note=found.note,
    )


async def _compared(context: PageContext, request: web.Request) -> web.StreamResponse:
    named = left, right = _named(request)
    if not left:
        return await _shown(context, request, named, None)
    try:
        both = await _two(context, request, left, right)
    except NoneNear as none:
        return await _with_choices(context, request, left, none)
    except (web.HTTPNotFound, web.HTTPConflict, web.HTTPUnprocessableEntity) as refusal:
        page = await _shown(context, request, named, None, error=(refusal.text or "").strip())
        page.set_status(refusal.status)
        return page
    shown = await prepared_comparison(context.prepared, *both.runs)
    named = left, both.right.name
    return await _shown(context, request, named, shown, note=both.note, sides=(both.left, both.right))


async def _with_choices(
    context: PageContext, request: web.Request, left: str, none: NoneNear
) -> web.StreamResponse:
    """Show a run that no other is near to, with the newest other runs to choose from."""
    first = await _side(context, request, left)
    assert first.verdict is not None  # a trial has no nearest run
    own, tenant = first.verdict.run_id, first.verdict.tenant
    newest = await context.pages.runs.page(RunQuery(tenant=tenant, limit=_MOST_CHOICES + 1))
    # a query without a tenant finds the runs of all
    rows = [row for row in newest.rows if row.key.tenant == tenant and row.key.run_id != own][:_MOST_CHOICES]
    told = f"{str(none).capitalize()}." if rows else _ALONE
    return await _shown(context, request, (left, ""), None, note=told, sides=(first,), choices=rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PreparedComparison:
    """A comparison and its part of the page."""

    shown: ShownComparison
    body: Markup


async def prepared_comparison(parts: PreparedParts, left: WholeRun, right: WholeRun) -> _PreparedComparison:
    """Return two runs side by side; made once for the two in their order."""

    def make() -> tuple[_PreparedComparison, int]:
        shown = view_of(compare_runs(left, right), left, right)
        body = parts.render("_compared.html", shown=shown)
        return _PreparedComparison(shown=shown, body=Markup(body)), len(body)  # noqa: S704 - from a template

    return await parts.of((id(left), id(right)), (left, right), make)


async def _read(context: PageContext, verdict: StoredVerdict) -> WholeRun:
    found = await context.whole.of(verdict)
    if found is None:
        raise web.HTTPNotFound(text=f"the steps of run {verdict.run_id} are not kept\n")
    return found.whole


async def _shown(
    context: PageContext,
    request: web.Request,
    named: tuple[str, str],
    prepared: _PreparedComparison | None,
    *,
    note: str = "",
    error: str = "",
    sides: tuple[_Side, ...] = (),
    choices: Sequence[RunRow] = (),
) -> web.Response:
    return await context.front.show(
        request,
        "compare.html",
        left=named[0],
        right=named[1],
        shown=None if prepared is None else prepared.shown,
        body=None if prepared is None else prepared.body,
        note=note,
        error=error,
        runs=[_head(side) for side in sides],
        choices=choices,
    )


def _head(side: _Side) -> dict[str, Any]:
    """Return the fields that the page shows above a side."""
    head = {"run_id": side.name, "trial": side.trial, "task": side.whole.task}
    return head if side.verdict is None else {**run_document(side.verdict), **head}


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Part of a text; ``side`` says which run alone has it: ``left``, ``right``, or empty for both."""

    text: str
    side: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownText:
    """A field that differs."""

    name: str
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownPair:
    """Two aligned steps, or one."""

    pair: StepPair
    place: int
    sign: str
    is_first: bool
    """Whether it is the first difference that matters; the first of all if none does."""
    words: str
    """Names of the fields that differ."""
    line: str
    texts: tuple[ShownText, ...]
    tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownGroup:
    """Consecutive pairs; folded if they are the same and many."""

    pairs: tuple[ShownPair, ...]
    is_folded: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownLane:
    """An agent's row: one cell a pair."""

    agent: str
    cells: tuple[tuple[int, ShownPair], ...]
    """Places and pairs of its steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalRow:
    """One number of both runs."""

    name: str
    left: float | None
    right: float | None
    unit: str

    @property
    def more(self) -> float | None:
        """The second run's number minus the first's."""
        return None if self.left is None or self.right is None else self.right - self.left


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownComparison:
    """A comparison for the page."""

    first: ShownPair | None
    """First difference that matters; the first of all if none does, ``None`` if the runs are the same."""
    matters: str
    """The first difference that matters, as a sentence; empty if the runs are the same."""
    has_matter: bool
    differs_from: int | None
    """Place of the first difference of all, if that is an earlier one."""
    departure: str
    """The first step without a counterpart, as a sentence; empty if all are paired."""
    found: RunDiff
    outputs: tuple[Piece, ...]
    totals: tuple[TotalRow, ...]
    groups: tuple[ShownGroup, ...]
    lanes: tuple[ShownLane, ...]
    left_out: int
    """Pairs beyond the bound of the page."""


def view_of(found: RunDiff, left: WholeRun, right: WholeRun) -> ShownComparison:
    """Return a comparison as the page shows it."""
    marked = 0
    first = found.first_divergence if found.matters is None else found.matters.place
    pairs: list[ShownPair] = []
    for place, pair in enumerate(found.pairs[:MOST_PAIRS]):
        is_marked = pair.change is Change.TEXT and marked < MOST_MARKED
        marked += is_marked
        pairs.append(_pair(place, pair, left, right, is_first=place == first, mark=is_marked))
    return ShownComparison(
        first=next((pair for pair in pairs if pair.is_first), None),
        matters=matter_in_words(found),
        has_matter=found.matters is not None,
        differs_from=found.first_divergence if found.first_divergence != first else None,
        departure=departure_in_words(found.departure, found.distance) if found.departure else "",
        found=found,
        outputs=_marked(left.output, right.output),
        totals=_totals(found.left_totals, found.right_totals),
        groups=_groups(pairs),
        lanes=_lanes(pairs),
        left_out=len(found.pairs) - len(pairs),
    )


def _pair(
    place: int, pair: StepPair, left: WholeRun, right: WholeRun, *, is_first: bool, mark: bool
) -> ShownPair:
    ours = None if pair.left is None else left.steps[pair.left]
    theirs = None if pair.right is None else right.steps[pair.right]
    shown = ours or theirs
    assert shown is not None
    tokens = [count for count in (pair.input_tokens, pair.output_tokens) if count is not None]
    return ShownPair(
        pair=pair,
        place=place,
        sign=SIGNS[pair.change],
        is_first=is_first,
        words=in_words(pair.differs) if pair.differs else "",
        line=plain(shown.error or shown.output or shown.input or shown.name, 160),
        texts=_pair_texts(pair, ours, theirs) if mark else _single(ours, theirs),
        tokens=sum(tokens) if tokens else None,
    )


def _pair_texts(pair: StepPair, ours: WholeStep | None, theirs: WholeStep | None) -> tuple[ShownText, ...]:
    if ours is None or theirs is None:
        return ()
    return tuple(
        ShownText(name=name, pieces=_marked(str(getattr(ours, name)), str(getattr(theirs, name))))
        for name in pair.differs
    )


def _single(ours: WholeStep | None, theirs: WholeStep | None) -> tuple[ShownText, ...]:
    """Return the texts of a step that one run alone has."""
    step = theirs if ours is None else ours if theirs is None else None
    side = "right" if ours is None else "left"
    if step is None:
        return ()
    told = ((name, getattr(step, name)) for name in _TEXTS)
    return tuple(ShownText(name=name, pieces=(_piece(text, side),)) for name, text in told if text)


def _marked(left: str, right: str) -> tuple[Piece, ...]:
    """Return two texts as one, with the words that only one of them has marked."""
    ours, theirs = _WORD.findall(left[:MOST_TEXT]), _WORD.findall(right[:MOST_TEXT])
    if left == right:
        return (_piece(left, ""),) if left else ()
    if max(len(ours), len(theirs)) > MOST_WORDS:
        return tuple(_piece(text, side) for text, side in ((left, "left"), (right, "right")) if text)
    matcher = SequenceMatcher(None, ours, theirs, autojunk=False)
    if _alike(matcher, ours, theirs) < _LEAST_ALIKE:
        return tuple(_piece(text, side) for text, side in ((left, "left"), (right, "right")) if text)
    pieces: list[Piece] = []
    for kind, low, high, first, last in matcher.get_opcodes():
        if kind == "equal":
            pieces.append(_piece("".join(ours[low:high]), ""))
            continue
        for words, side in ((ours[low:high], "left"), (theirs[first:last], "right")):
            if words:
                pieces.append(_piece("".join(words), side))
    cut = "left" if len(left) > MOST_TEXT else "right" if len(right) > MOST_TEXT else None
    return tuple(pieces) if cut is None else (*pieces, Piece(text=" …", side=cut))


def _alike(matcher: SequenceMatcher[str], ours: Sequence[str], theirs: Sequence[str]) -> float:
    """Return the share of words, without spaces and punctuation, that two texts have in common."""
    same = sum(
        word[0].isalnum()
        for block in matcher.get_matching_blocks()
        for word in ours[block.a : block.a + block.size]
    )
    words = sum(word[0].isalnum() for word in (*ours, *theirs))
    return 2 * same / words if words else 1.0


def _piece(text: str, side: str) -> Piece:
    return Piece(text=visible(text[:MOST_TEXT]) + (" …" if len(text) > MOST_TEXT else ""), side=side)


def _totals(left: RunTotals, right: RunTotals) -> tuple[TotalRow, ...]:
    """Return the numbers that at least one of the runs has."""
    numbers: tuple[tuple[str, str, Callable[[RunTotals], float | None]], ...] = (
        ("Steps", "", lambda one: one.steps),
        ("Errors", "", lambda one: one.errors),
        ("Duration", "s", lambda one: one.duration_s or None),
        ("Tokens in", "", lambda one: one.input_tokens),
        ("Tokens out", "", lambda one: one.output_tokens),
        ("Cost", "$", lambda one: one.cost_usd),
    )
    rows = [
        TotalRow(name=name, left=read(left), right=read(right), unit=unit) for name, unit, read in numbers
    ]
    return tuple(row for row in rows if row.left is not None or row.right is not None)


def _groups(pairs: Sequence[ShownPair]) -> tuple[ShownGroup, ...]:
    runs = [
        (is_same, tuple(group))
        for is_same, group in groupby(pairs, lambda shown: shown.pair.change is Change.SAME)
    ]
    return tuple(
        ShownGroup(pairs=group, is_folded=is_same and len(group) >= _FOLDED) for is_same, group in runs
    )


def _lanes(pairs: Sequence[ShownPair]) -> tuple[ShownLane, ...]:
    """Return one lane for each agent, in order of appearance; the last gathers all beyond the bound."""
    agents = list(dict.fromkeys(shown.pair.agent for shown in pairs))
    lane_of = {agent: min(place, _MOST_LANES - 1) for place, agent in enumerate(agents)}
    cells: list[list[tuple[int, ShownPair]]] = [[] for _ in agents[:_MOST_LANES]]
    for shown in pairs:
        cells[lane_of[shown.pair.agent]].append((shown.place, shown))
    names = [*agents[:_MOST_LANES]]
    if len(agents) > _MOST_LANES:
        names[-1] = f"{len(agents) - _MOST_LANES + 1} further agents"
    return tuple(ShownLane(agent=name, cells=tuple(own)) for name, own in zip(names, cells, strict=True))
