"""Reads people's scores back from the backends of ``BLAMESPAN_SCORES``, as labels of the runs. Not pure.

One task a backend, beside the lanes: nothing waits for it. A reading asks for some of the recent runs, the
next one for the following ones. A label has the time of its score, so it is known which scores were heard.

``task_success`` says whether the run succeeded. ``failure_attribution`` says whether the span that has it is
the decisive one; a failure mode as its label says so too, as on our own scores. A score that contradicts
nothing, or whose meaning is not clear, states nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from analyzer.issues.correcting import Corrections
from analyzer.issues.labels.run_label import LabelKind, LabelRefused, Statement
from collector_processor.core.records import StoredVerdict
from collector_processor.core.scores import Lane
from collector_processor.otlp import Delivered, Rejected, Tenant, TryLater
from collector_processor.sinks.exchange import HumanScore, ScoredRun
from collector_processor.writeback.carriers import unpack_place
from collector_processor.writeback.evaluations import FAILURE_ATTRIBUTION, TASK_SUCCESS
from semconv.model import Status, Trajectory

logger = logging.getLogger(__name__)

RUNS_AT_ONCE: Final = 50
"""Runs of one reading: at most a request each."""
MOST_RUNS: Final = 500
"""Recent runs that are asked about in turn."""
RECENT_NS: Final = 7 * 86_400 * 10**9
"""Age of a verdict up to which scores are read."""
MOST_AHEAD_NS: Final = 86_400 * 10**9
"""Lead of a backend's clock; a score of a later time states nothing."""
MOST_WAIT_S: Final = 3600.0
_MOST_SPANS: Final = 200
"""Spans of one run that are asked about."""


class Reader(Protocol):
    """A backend that can be read (``SinkOutlet``)."""

    async def read(
        self, runs: Sequence[ScoredRun], since_ns: int
    ) -> Sequence[HumanScore] | TryLater | Rejected:
        """Return what people said about these runs, oldest first, or why the backend does not say."""
        ...


@dataclass(slots=True, kw_only=True)
class ScoresBack:
    """Turns one backend's human scores of one tenant's runs into labels."""

    lane: Lane
    tenant: Tenant
    reader: Reader
    corrections: Corrections
    every_s: float
    now_ns: Callable[[], int]
    _first: int = field(default=0, init=False)
    """Place of the next reading's first run among the recent ones."""
    _failures: int = field(default=0, init=False)
    _unclear: int = field(default=0, init=False)

    async def run(self) -> None:
        """Read until cancelled."""
        wait_s = self.every_s
        while True:
            await asyncio.sleep(wait_s)
            wait_s = await self.poll()

    async def poll(self) -> float:
        """Read once; return the seconds until the next reading, more after each failure in a row."""
        try:
            outcome = await self._poll()
        except Exception as error:  # noqa: BLE001 - one reading must not end all later ones
            outcome = TryLater(reason=f"{type(error).__name__}: {error}")
        if isinstance(outcome, Delivered):
            self._failures = 0
            return self.every_s
        if not self._failures:
            logger.warning("scores cannot be read", extra={"lane": self.lane, "reason": outcome.reason})
        self._failures += 1
        asked_s = (outcome.after_s if isinstance(outcome, TryLater) else None) or 0.0
        return min(MOST_WAIT_S, max(self.every_s * 2.0 ** min(self._failures, 10), asked_s))

    async def _poll(self) -> Delivered | TryLater | Rejected:
        since_ns = self.now_ns() - RECENT_NS
        runs = await self._window(since_ns)
        if not runs:
            return Delivered()
        scored_runs = [_scored(run_id, trajectory) for run_id, trajectory in runs.items()]
        found = await self.reader.read(scored_runs, since_ns)
        if isinstance(found, TryLater | Rejected):
            return found
        await self._hear(found, scored_runs, runs)
        return Delivered()

    async def _window(self, since_ns: int) -> Mapping[str, Trajectory]:
        """Return the steps of the next of the recent runs."""
        store, in_db = self.corrections.store, self.corrections.commits.in_db
        recent = await in_db(store.recent_of, self.tenant, since_ns, MOST_RUNS)
        first = self._first if self._first < len(recent) else 0
        self._first = first + RUNS_AT_ONCE
        found: dict[str, Trajectory] = {}
        for verdict in recent[first : first + RUNS_AT_ONCE]:
            packed = await in_db(store.place, self.tenant, verdict.run_id)
            if packed is not None and (steps := await asyncio.to_thread(_steps, packed)):
                found[verdict.run_id] = steps
        return found

    async def _hear(
        self, scores: Sequence[HumanScore], scored_runs: Sequence[ScoredRun], runs: Mapping[str, Trajectory]
    ) -> None:
        owners, unclear = _Owners(scored_runs), 0
        for score in scores:
            run_id = owners.of(score)
            if (
                run_id is None
                or not 0 < score.said_ns <= self.now_ns() + MOST_AHEAD_NS
                or not await self._label(run_id, score, runs[run_id])
            ):
                unclear += 1
        if unclear != self._unclear:
            about = {"lane": self.lane, "scores": unclear}
            logger.info("people's scores state nothing new about the verdicts", extra=about)
        self._unclear = unclear

    async def _label(self, run_id: str, score: HumanScore, trajectory: Trajectory) -> bool:
        """Make a label of a score; return false if the score states nothing that fits the verdict."""
        in_db = self.corrections.commits.in_db
        labels = await in_db(self.corrections.labels.labels, self.tenant, run_id)
        if any(label.labelled_ns >= score.said_ns for label in labels):
            return True
        verdict: StoredVerdict | None = await in_db(self.corrections.store.current, self.tenant, run_id)
        statement = None if verdict is None else statement_of(score, verdict, trajectory)
        if verdict is None or statement is None:
            return False
        try:
            said = replace(statement, author=score.author)
            accepted_label = await self.corrections.hear(verdict, said, score.said_ns)
        except LabelRefused as error:
            logger.debug("a score is no label", extra={"run_id": run_id, "reason": str(error)})
            return False
        if accepted_label is not None and accepted_label.label.labelled_ns == score.said_ns:
            about = {"run_id": run_id, "label": accepted_label.label.kind.value, "author": score.author}
            logger.info("a person's score became a label", extra={"lane": self.lane, **about})
        return True


class _Owners:
    """Finds the run of a score; none if several have its span, since Phoenix knows spans by these alone."""

    def __init__(self, runs: Sequence[ScoredRun]) -> None:
        self._traces: Final[dict[str, set[str]]] = {}
        self._spans: Final[dict[str, set[str]]] = {}
        for run in runs:
            for trace_id in run.trace_ids:
                self._traces.setdefault(trace_id, set()).add(run.run_id)
            for span_id in run.span_ids:
                self._spans.setdefault(span_id, set()).add(run.run_id)

    def of(self, score: HumanScore) -> str | None:
        """Return the id of the only run that has the score's trace and span."""
        found = self._traces.get(score.trace_id, set()) if score.trace_id else None
        if score.span_id:
            spans = self._spans.get(score.span_id, set())
            found = spans if found is None else found & spans
        return next(iter(found)) if found and len(found) == 1 else None


def _steps(packed: bytes) -> Trajectory | None:
    try:
        return unpack_place(packed).trajectory
    except ValueError as error:
        logger.debug("a run's scores are not read", extra={"reason": str(error)})
        return None


def _scored(run_id: str, trajectory: Trajectory) -> ScoredRun:
    steps = trajectory.steps
    traces = [trajectory.root_trace_id or run_id, *(step.trace_id for step in steps)]
    spans = [trajectory.root_span_id, *(step.span_id for step in steps)]
    return ScoredRun(
        run_id=run_id,
        trace_ids=[*dict.fromkeys(filter(None, traces))][:_MOST_SPANS],
        span_ids=[*dict.fromkeys(filter(None, spans))][:_MOST_SPANS],
    )


_RIGHT: Final = frozenset(
    {"right", "correct", "confirmed", "yes", "true", "1", "good", "thumbs up", "thumbs-up", "👍"}
)
_WRONG: Final = frozenset(
    {"wrong", "incorrect", "rejected", "no", "false", "0", "bad", "thumbs down", "thumbs-down", "👎"}
)
_PASS: Final = _RIGHT | {"pass", "passed", "success", "succeeded"}
_FAIL: Final = _WRONG | {"fail", "failed", "failure"}
_UNCLEAR: Final = frozenset(
    {"unknown", "withdrawn", "none", "n/a", "unsure", "partial", "maybe", "other"}
) | ((_PASS | _FAIL) - _RIGHT - _WRONG)
"""Labels of an attribution that name no failure mode."""


def statement_of(score: HumanScore, verdict: StoredVerdict, trajectory: Trajectory) -> Statement | None:
    """Return what a score states about the run's current verdict; ``None`` if it states nothing.

    Args:
        score: a score of the run.
        verdict: the run's current verdict.
        trajectory: the run's steps, with their spans.
    """
    if score.name == TASK_SUCCESS:
        return _outcome(score, verdict, trajectory)
    return _attribution(score, verdict, trajectory) if score.name == FAILURE_ATTRIBUTION else None


def _outcome(score: HumanScore, verdict: StoredVerdict, trajectory: Trajectory) -> Statement | None:
    if score.span_id not in {"", trajectory.root_span_id}:
        return None  # a part of the run
    said = _word(score)
    if said in _PASS:
        return Statement(kind=LabelKind.NOT_A_FAILURE)
    # A failure of a run that has failed says nothing new about who is to blame.
    is_news = said in _FAIL and verdict.status == Status.NO_FAILURE
    return Statement(kind=LabelKind.REJECTED) if is_news else None


def _attribution(score: HumanScore, verdict: StoredVerdict, trajectory: Trajectory) -> Statement | None:
    said = _word(score)
    is_number = not isinstance(score.value, str)
    is_mode = not is_number and said not in _RIGHT | _WRONG | _UNCLEAR
    if said in _WRONG:
        return Statement(kind=LabelKind.REJECTED) if _is_about(score, verdict) else None
    if said not in _RIGHT and not (is_mode and score.span_id):
        return None
    if _is_about(score, verdict):
        return Statement(kind=LabelKind.CONFIRMED)
    return _corrected(score, trajectory)


def _is_about(score: HumanScore, verdict: StoredVerdict) -> bool:
    """Return whether a score stands at the verdict's decisive span, or at the trace of a blamed run."""
    is_blamed = verdict.status in {Status.ATTRIBUTED, Status.SUSPECTED}
    return is_blamed and score.span_id in {"", verdict.span_id}


def _corrected(score: HumanScore, trajectory: Trajectory) -> Statement | None:
    steps = [
        step
        for step in trajectory.steps
        if score.span_id and step.span_id == score.span_id and score.trace_id in {"", step.trace_id}
    ]
    if len({step.agent for step in steps}) != 1:
        return None
    step = steps[0].index if len(steps) == 1 else None  # which of the span's steps is not known
    return Statement(kind=LabelKind.CORRECTED, agent=steps[0].agent, step=step)


def _word(score: HumanScore) -> str:
    value = score.value
    if isinstance(value, str):
        return value.casefold().replace("_", " ")
    return {0.0: "0", 1.0: "1"}.get(float(value), "")
