"""What a person's score in a backend states about a run's verdict. Pure.

``task_success`` says whether the run succeeded. ``failure_attribution`` says whether the span that has it is
the decisive one; a failure mode as its label says so too, as on our own scores. A score that contradicts
nothing, or whose meaning is not clear, states nothing.
"""

from __future__ import annotations

from typing import Final

from analyzer.issues.labels.run_label import LabelKind, Statement
from collector_processor.core.records import StoredVerdict
from collector_processor.sinks.exchange import HumanScore
from collector_processor.writeback.evaluations import FAILURE_ATTRIBUTION, TASK_SUCCESS
from semconv.model import Status, Trajectory

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
