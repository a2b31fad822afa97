"""View model of a run's page: picture, map, and steps with their times, costs and texts. Pure.

All steps are listed; the texts of those that matter are on the page, the others' are requested when a step is
opened, so that a run of a thousand steps is a small page.

Links to the run's trace lead to Jaeger, and to Grafana with Tempo.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import quote

from analyzer.inquiry.visible import visible_run
from analyzer.inquiry.whole_run import WholeRun, whole_steps
from analyzer.web.views.formatted import shown_text
from analyzer.web.views.marked_texts import MOST_TEXT
from analyzer.web.views.picture import Suspicion, draw, lanes_of, name_board
from analyzer.web.views.step_rows import WINDOW, Rows, ShownStep, ShownStretch, StepBody, Wanted, finds
from analyzer.web.views.timeline import Clock, overview
from semconv.model import SpanStatus, Status, Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceLink:
    """Address of a trace in the user's backend, from a template; without a template there is no link."""

    template: str = ""
    """Contains ``{trace_id}``, and ``{span_id}`` if the backend can show a span."""

    def to(self, trace_id: str | None, span_id: str | None) -> str:
        """Return the address, or nothing; ids are escaped, so that each stays in its place."""
        if not self.template or not trace_id:
            return ""
        address = self.template.replace("{trace_id}", quote(trace_id, safe=""))
        return address.replace("{span_id}", quote(span_id or "", safe=""))


MOST_ROWS: Final = 1_000
"""Number of steps listed on one page."""
MOST_APART: Final = 2_000_000
"""Characters of steps' texts on a page that cannot request further texts."""
_BEFORE: Final = 150
"""Number of steps listed before the decisive one if not all fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The part of a long run that one page shows."""

    first: int
    end: int
    total: int

    @property
    def before(self) -> int | None:
        """First step of the previous part, if there is one."""
        return max(0, self.first - MOST_ROWS) if self.first else None

    @property
    def after(self) -> int | None:
        """First step of the next part, if there is one."""
        return self.end if self.end < self.total else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over a run's steps; ``None`` where no step says."""

    seconds: float
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    errors: int
    first_error: int | None

    @property
    def has_numbers(self) -> bool:
        """Whether any step has a time, tokens or a cost."""
        return bool(self.seconds) or self.tokens is not None or self.cost_usd is not None

    @property
    def tokens(self) -> int | None:
        """Tokens read and written."""
        known = [one for one in (self.input_tokens, self.output_tokens) if one is not None]
        return sum(known) if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """A run's steps and picture."""

    task: str
    output: str
    reference: str
    """The expected answer; empty if not recorded."""
    stretches: tuple[ShownStretch, ...]
    picture: str
    """SVG with all text escaped; empty for a long run."""
    board: str
    """SVG of its lanes' names, escaped likewise."""
    overview: str
    """SVG of the whole run; empty for a short one."""
    window: Window
    agents: tuple[str, ...]
    totals: Totals
    has_texts: bool
    found: int | None = None
    """Number of steps that contain what was searched for; ``None`` without a search."""

    @property
    def steps(self) -> tuple[ShownStep, ...]:
        """The listed steps, in order."""
        return tuple(step for stretch in self.stretches for step in stretch.steps)


WHOLE: Final = Wanted()


def view(run: Trajectory | WholeRun, verdict: Mapping[str, Any], wanted: Wanted = WHOLE) -> RunView:
    """Return the view of a run."""
    whole = run if isinstance(run, WholeRun) else whole_steps(run, lambda one: one)
    if not isinstance(run, WholeRun):  # an upload
        wanted = replace(wanted, room=MOST_APART)
    trajectory = visible_run(whole.trajectory)
    suspicion = suspicion_of(verdict)
    found = None if not wanted.find else finds(whole.steps, wanted.find)
    at = wanted.step if wanted.step is not None else suspicion.decisive
    window = _window(len(trajectory.steps), at, wanted.first)
    listed = list(trajectory.steps if found is not None else trajectory.steps[window.first : window.end])
    if found is not None:
        listed = [step for step in listed if step.index in found][:MOST_ROWS]
        window = Window(first=0, end=len(trajectory.steps), total=len(trajectory.steps))
    is_short = len(trajectory.steps) <= WINDOW
    rows = Rows(whole=whole, clock=Clock.of(whole.trajectory.steps), suspicion=suspicion, wanted=wanted)
    return RunView(
        task=_cut(trajectory.task),
        output=_cut(trajectory.output),
        reference=_cut(trajectory.reference or ""),
        stretches=tuple(rows.stretches(listed, quotes_of(verdict), found)),
        picture=draw(trajectory.steps, suspicion) if is_short else "",
        board=name_board(trajectory.steps, suspicion) if is_short else "",
        overview="" if is_short else overview(trajectory.steps, suspicion),
        window=window,
        agents=lanes_of(trajectory.steps),
        totals=totals_of(whole),
        has_texts=any(step.output or step.input or step.error for step in trajectory.steps),
        found=None if found is None else len(found),
    )


def body_of(run: WholeRun, index: int, verdict: Mapping[str, Any], *, is_full: bool) -> StepBody:
    """Return the view of one step; ``is_full`` shows its texts regardless of length."""
    wanted = Wanted(full=index if is_full else None)
    rows = Rows(
        whole=run, clock=Clock.of(run.trajectory.steps), suspicion=suspicion_of(verdict), wanted=wanted
    )
    return rows.body(run.steps[index], quotes_of(verdict).get(index, ()))


def totals_of(run: WholeRun) -> Totals:
    """Return the sums over a run's steps."""
    steps = run.steps
    failed = [step.index for step in steps if step.status is SpanStatus.ERROR]
    costs = [step.cost_usd for step in steps if step.cost_usd is not None]
    return Totals(
        seconds=Clock.of(run.trajectory.steps).seconds,
        input_tokens=_sum(step.input_tokens for step in steps),
        output_tokens=_sum(step.output_tokens for step in steps),
        cost_usd=sum(costs) if costs else None,
        errors=len(failed),
        first_error=failed[0] if failed else None,
    )


def _sum(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def suspicion_of(verdict: Mapping[str, Any]) -> Suspicion:
    """Return a verdict's probability of blame by step."""
    ranking = {one["step"]: float(one["probability"]) for one in verdict.get("ranking") or ()}
    decisive = verdict.get("step")
    if decisive is not None:
        ranking.setdefault(decisive, float(verdict.get("confidence") or 0.0))
    word = "suspected" if verdict.get("status") == Status.SUSPECTED else "decisive"
    return Suspicion(decisive=decisive, word=word, probabilities=ranking)


def quotes_of(verdict: Mapping[str, Any]) -> dict[int, tuple[str, ...]]:
    """Return the verdict's quotes, by step."""
    quotes: dict[int, tuple[str, ...]] = {}
    for found in verdict.get("evidence") or ():
        quotes[found["step"]] = (*quotes.get(found["step"], ()), found["quote"])
    return quotes


def telling(evidence: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return distinct quotes, without those contained in another of the same step."""
    kept: list[Mapping[str, Any]] = []
    for found in evidence:
        longer = (one["quote"] for one in evidence if one["step"] == found["step"])
        is_part = any(found["quote"] in quote != found["quote"] for quote in longer)
        if not is_part and found not in kept:
            kept.append(found)
    return kept


def _window(total: int, at: int | None, first: int | None) -> Window:
    if first is None:
        at = at or 0
        first = 0 if at < MOST_ROWS else at - _BEFORE
    first = min(max(0, first), max(0, total - 1))
    return Window(first=first, end=min(total, first + MOST_ROWS), total=total)


def _cut(text: str) -> str:
    text = shown_text(text)
    return text if len(text) <= MOST_TEXT else text[:MOST_TEXT] + " […]"


__all__ = [
    "WINDOW",
    "RunView",
    "TraceLink",
    "Wanted",
    "body_of",
    "quotes_of",
    "suspicion_of",
    "telling",
    "view",
]
