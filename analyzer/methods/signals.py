"""Signals as a method: a position prior and the findings, weighed into one posterior (``weighing.py``).

Source: ours. Cost: no model calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from analyzer.finding import Finding
from analyzer.method import Inquiry, answered
from analyzer.modes import FailureMode
from analyzer.reading import read
from analyzer.signals import findings
from analyzer.weighing import marks, most_confidence, posterior
from semconv.model import Abstention, Blame, Evidence, Ranked, Status, Trajectory

_MODES: Final[dict[str, FailureMode]] = {
    "unhandled_error": FailureMode.UNHANDLED_ERROR,
    "unrepaired_error": FailureMode.UNHANDLED_ERROR,
    "empty_result": FailureMode.INCOMPLETE_WORK,
    "ignored_error": FailureMode.IGNORED_RESULT,
    "wrong_computation": FailureMode.WRONG_COMPUTATION,
    "unsupported_figure": FailureMode.UNSUPPORTED_CLAIM,
    "answer_origin": FailureMode.UNSUPPORTED_CLAIM,
    "made_up_data": FailureMode.UNSUPPORTED_CLAIM,
    "hedging": FailureMode.UNVERIFIED_RESULT,
    "gave_up": FailureMode.GAVE_UP,
    "loop": FailureMode.LOOP,
    "unverified_claim": FailureMode.UNVERIFIED_RESULT,
}
_RANKED: Final = 5
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """Weighs the evidence of ``analyzer.signals``; always answers if there is a step to blame."""

    name: str = "signals"

    def investigate(self, trajectory: Trajectory) -> Inquiry:
        """Return the verdict at once: no prompt is ever yielded."""
        return answered(weigh(trajectory))


def weigh(trajectory: Trajectory) -> Blame | Abstention:
    """Judge a trajectory by its signals."""
    if not trajectory.steps:
        return Abstention(status=Status.ERROR, reason="the run has no steps to blame")
    reading = read(trajectory)
    found = findings(reading)
    probabilities = posterior(reading, found)
    order = sorted(range(len(probabilities)), key=lambda step: (-probabilities[step], step))
    ranking = tuple(
        Ranked(step=step, agent=trajectory.steps[step].agent, probability=round(probabilities[step], 4))
        for step in order[:_RANKED]
    )
    verdict = blame_first(found, ranking)
    return at_most(most_confidence(marks(reading, found), order[0]), verdict)


def at_most(most: float, verdict: Blame) -> Blame:
    """Scale a verdict's probabilities down so that none is above ``most``: confidence and ranking agree."""
    if verdict.confidence <= most:
        return verdict
    scale = most / verdict.confidence
    ranking = tuple(replace(each, probability=round(each.probability * scale, 4)) for each in verdict.ranking)
    return replace(verdict, confidence=ranking[0].probability, ranking=ranking)


def blame_first(found: Sequence[Finding], ranking: tuple[Ranked, ...]) -> Blame:
    """Blame the first of a ranking, with what the signals found against it as the reason."""
    first = ranking[0]
    mine = sorted((f for f in found if f.step == first.step and f.weight > 0), key=lambda f: -f.weight)
    quotes = {(f.step if f.quoted_step is None else f.quoted_step, f.quote) for f in mine[:_SHOWN] if f.quote}
    reason = (
        "; ".join(dict.fromkeys(f.reason for f in mine[:_SHOWN]))
        if mine
        else "no signal stands out; this is the first step in which an agent works on the task"
    )
    return Blame(
        agent=first.agent,
        step=first.step,
        reason=reason,
        confidence=first.probability,
        mode=_MODES.get(mine[0].signal, FailureMode.OTHER).value if mine else "",
        evidence=tuple(Evidence(step=step, quote=quote) for step, quote in sorted(quotes)),
        ranking=ranking,
    )
