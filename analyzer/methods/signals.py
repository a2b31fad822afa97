"""Signals as a method: a position prior and the findings, added up into one posterior.

Source: ours. Cost: no model calls.

The prior says where the decisive error is when nothing is known but the
structure. If every acting step is equally likely to make the fatal mistake, the
*first* mistake is geometrically distributed over the acting steps; the chance a
step is taken from the length (a longer run has survived more steps). Steps that
coordinate, relay or state the task are less likely to be at fault, by fixed odds.
Findings add their log-odds; a softmax turns the sum into probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from analyzer.finding import Finding
from analyzer.method import Inquiry, answered
from analyzer.modes import FailureMode
from analyzer.reading import Reading, Role, read
from analyzer.signals import findings
from semconv.model import Abstention, Blame, Evidence, Ranked, Status, Trajectory

_ROLE_ODDS: Final[dict[Role, float]] = {
    Role.ACTING: 0.0,
    Role.COORDINATING: -1.5,
    Role.CALL: -2.0,
    Role.STATING: -2.5,
    Role.RELAYING: -5.0,
}
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
_CAP: Final = 8.0
"""Most log-odds that findings can add to a step: many weak marks must not look like certainty."""
_TEMPERATURE: Final = 1.6
"""Signals are read off the same words, so their log-odds overlap; the sum is cooled by this."""
_MOST_CONFIDENT: Final = 0.9
"""No marks in the margin prove a counterfactual."""
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
    return _blame(found, ranking)


def posterior(reading: Reading, found: Sequence[Finding]) -> tuple[float, ...]:
    """Return the probability of each step, in order; they sum to 1."""
    strongest: dict[tuple[int, str], float] = {}
    for finding in found:  # a signal that strikes a step twice is one witness, not two
        key = (finding.step, finding.signal)
        strongest[key] = max(finding.weight, strongest.get(key, finding.weight))
    marks = [0.0] * len(reading.steps)
    for (step, _signal), weight in strongest.items():
        marks[step] += weight
    scores = [before + min(mark, _CAP) for before, mark in zip(prior(reading.roles), marks, strict=True)]
    highest = max(scores)
    weights = [math.exp((score - highest) / _TEMPERATURE) for score in scores]
    total = sum(weights)
    return tuple(weight / total for weight in weights)


def prior(roles: Sequence[Role]) -> tuple[float, ...]:
    """Return the log-odds of each step before any evidence."""
    acting = sum(role is Role.ACTING for role in roles)
    fatal = min(0.5, 1 / math.sqrt(acting + 1))
    survived = 0
    scores: list[float] = []
    for role in roles:
        scores.append(survived * math.log1p(-fatal) + _ROLE_ODDS[role])
        survived += role is Role.ACTING
    return tuple(scores)


def _blame(found: Sequence[Finding], ranking: tuple[Ranked, ...]) -> Blame:
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
        confidence=round(min(first.probability, _MOST_CONFIDENT), 4),
        mode=_MODES.get(mine[0].signal, FailureMode.OTHER).value if mine else "",
        evidence=tuple(Evidence(step=step, quote=quote) for step, quote in sorted(quotes)),
        ranking=ranking,
    )
