"""Scoring of findings: one posterior from a position prior and the findings' log-odds.

The prior locates the decisive error from the structure alone.
If every acting step is equally likely to make the fatal mistake, the
*first* mistake is geometrically distributed over the acting steps; the chance
of a mistake per step follows from the run's length (a longer run has survived more steps). Idle steps, such
as a plan before the first call, were no chance to make it (``deeds.py``). Steps that
coordinate, relay or state the task are less likely to be at fault, by fixed odds.
Findings add their log-odds; a softmax turns the sum into probabilities.

One kind of evidence is not diluted by the run's length: the error of a step that is the error that ended the
run. Steps that succeeded long before did not raise it, however many they are; only those shortly before may
have caused it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from analyzer.texts.run_view import Finding, Reading, Role
from semconv.model import UNKNOWN_AGENT, ContentState, StepKind

_ROLE_ODDS: Final[dict[Role, float]] = {
    Role.ACTING: 0.0,
    Role.COORDINATING: -1.5,
    Role.CALL: -2.0,
    Role.STATING: -2.5,
    Role.RELAYING: -5.0,
}
_CAP: Final = 8.0
"""Cap on the log-odds that findings add to a step: many weak findings must not look like certainty."""
_TEMPERATURE: Final = 1.6
"""Temperature of the sum: signals read the same words, so their log-odds overlap."""


_LEAST_BY_PLACE: Final = -4.0
"""Lowest log-odds of a position: in a run of hundreds of steps, evidence near the end must still count."""
_BY_PLACE: Final = 0.3
"""Highest confidence if no finding stands out and only position counts: the method
``first-agent-step``, which uses the same information, is less accurate than this (``docs/accuracy.md``)."""
_MOST_CONFIDENT: Final = 0.9
"""Highest confidence of a verdict by signals: no finding proves a counterfactual."""
_PROOF: Final = 4.0
"""Log-odds from which a finding is an indisputable error (a crash, a wrong calculation); the limits below do
not apply to these. The 273 labelled runs have one such verdict, so how often they are right is not known."""
_OVERCONFIDENT: Final = 1.5
"""Temperature of confidences above one half. Fitted to all labelled runs it is 1.5, to six of the seven
systems at a time 1.1 to 1.8."""
_SHORT_RUN: Final = (Role.ACTING, Role.CALL) * 6
"""Run whose length counts if the error of one step ended the run: a dozen steps, as a guess of how many may
have caused the error. No labelled run has such an error, so this is not fitted."""
_LONG: Final = 60
"""Number of steps above which a run is long: in 17 such labelled runs, signals found the right step in 2."""
_TURNS: Final = 2
"""Number of a person's turns from which a run counts as a dialogue."""
_NAMED_FROM: Final = 0.25
"""Share of unreadable steps from which the verdict's reason mentions them."""


def posterior(reading: Reading, findings: Sequence[Finding]) -> tuple[float, ...]:
    """Return the probability of each step, in order; they sum to 1."""
    idle = frozenset(finding.step for finding in findings if finding.is_idle)
    added, before = marks(reading, findings), list(prior(reading.roles, idle))
    ending = {finding.step for finding in findings if finding.ended_run}
    for step in ending:
        role = reading.roles[step]
        before[step] = max(before[step], _SHORT_PRIOR[-1] + _ROLE_ODDS[role] - _ROLE_ODDS[_SHORT_RUN[-1]])
    scores = [place + min(mark, _CAP) for place, mark in zip(before, added, strict=True)]
    highest = max(scores)
    weights = [math.exp((score - highest) / _TEMPERATURE) for score in scores]
    if ending:
        weights = _shortened(weights, added, math.exp(-highest / _TEMPERATURE))
    total = sum(weights)
    return tuple(weight / total for weight in weights)


def _shortened(weights: Sequence[float], added: Sequence[float], unit: float) -> list[float]:
    """Scale the weights of steps without evidence down to their sum in a short run.

    Args:
        weights: of all steps.
        added: the log-odds of the findings on each.
        unit: the weight of log-odds of 0.
    """
    innocent = sum(weight for weight, mark in zip(weights, added, strict=True) if mark <= 0)
    most = unit * sum(math.exp(place / _TEMPERATURE) for place in _SHORT_PRIOR[:-1])
    scale = min(1.0, most / innocent) if innocent else 1.0
    return [weight if mark > 0 else weight * scale for weight, mark in zip(weights, added, strict=True)]


def marks(reading: Reading, findings: Sequence[Finding]) -> tuple[float, ...]:
    """Return the log-odds that the findings add to each step."""
    strongest: dict[tuple[int, str], float] = {}
    for finding in findings:  # two findings of one signal on a step are one piece of evidence
        key = (finding.step, finding.signal)
        strongest[key] = max(finding.weight, strongest.get(key, finding.weight))
    added = [0.0] * len(reading.steps)
    for (step, _signal), weight in strongest.items():
        added[step] += weight
    return tuple(added)


def most_confidence(added: Sequence[float], step: int) -> float:
    """Return the highest confidence for a verdict on ``step``, from the log-odds added to each step.

    Having few other candidates is not evidence; findings that clear all of them are.
    """
    rival = max((mark for other, mark in enumerate(added) if other != step), default=0.0)
    mark = max(added[step], 0.0) - min(rival, 0.0)
    odds = _BY_PLACE / (1 - _BY_PLACE) * math.exp(min(mark, _CAP) / _TEMPERATURE)
    return min(_MOST_CONFIDENT, odds / (1 + odds))


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A reason why signals know little about a run."""

    most: float
    """Highest confidence justified for such runs."""
    reason: str = ""
    """A sentence; empty if there is nothing to add to the verdict's own reason."""


def earned(confidence: float, reading: Reading, findings: Sequence[Finding], step: int) -> Limit:
    """Return the confidence that a verdict on ``step`` deserves, and the strongest limitation, if any.

    Sources of the limits: how often signals were right in labelled runs of this kind (``docs/accuracy.md``).
    The authors of the rules had read these runs.
    """
    mine = [finding.weight for finding in findings if finding.step == step and finding.weight > 0]
    if max(mine, default=0.0) >= _PROOF:
        return Limit(most=confidence)
    tempered = _tempered(confidence)
    limits = [Limit(most=tempered), *_limits(reading, tempered, has_finding=bool(mine))]
    named = sorted((limit for limit in limits if limit.reason), key=lambda limit: limit.most)
    return Limit(most=min(limit.most for limit in limits), reason=named[0].reason if named else "")


def _limits(reading: Reading, confidence: float, *, has_finding: bool) -> Iterator[Limit]:
    steps = reading.steps
    if not has_finding:
        yield Limit(most=0.18)  # right in 14 of 77
    if len(steps) > _LONG:
        reason = f"The run has {len(steps)} steps, and such evidence is rarely right in runs this long."
        yield Limit(
            most=0.15, reason=reason if has_finding else f"In a run of {len(steps)} steps, this is a guess."
        )
    turns = sum(step.kind is StepKind.HUMAN for step in steps)
    acting = {step.agent for step, role in zip(steps, reading.roles, strict=True) if role is Role.ACTING}
    if len(acting) == 1 and turns >= _TURNS:  # right in 0 of 14
        reason = f"One agent talks with a user ({turns} turns), so no single step shows what the user wanted."
        yield Limit(most=0.15, reason=reason)
    nameless = sum(step.agent == UNKNOWN_AGENT for step in steps)
    if nameless * 2 >= len(steps):
        yield Limit(most=0.15, reason=f"The agent of {nameless} of {len(steps)} steps is unknown.")
    dark = sum(
        step.kind is StepKind.OTHER or (step.content is ContentState.ABSENT and not step.error)
        for step in steps
        if step.kind is not StepKind.HANDOFF
    )
    reason = f"{dark} of {len(steps)} steps cannot be read: their text or what they did is not recorded."
    share = dark / len(steps)
    readable = (len(steps) - dark + 1) / (len(steps) + 1)  # never 0: candidates keep an order
    yield Limit(most=confidence * (readable if dark else 1.0), reason=reason if share >= _NAMED_FROM else "")


def _tempered(confidence: float) -> float:
    if confidence <= 0.5:
        return confidence
    return 1 / (1 + math.pow(1 / confidence - 1, 1 / _OVERCONFIDENT))


def prior(roles: Sequence[Role], idle: AbstractSet[int] = frozenset()) -> tuple[float, ...]:
    """Return the log-odds of each step before any evidence; ``idle`` steps were no chance to fail."""
    chances = [role is Role.ACTING and step not in idle for step, role in enumerate(roles)]
    acting = sum(chances)
    fatal = min(0.5, 1 / math.sqrt(acting + 1))
    survived = 0
    scores: list[float] = []
    for role, is_chance in zip(roles, chances, strict=True):
        scores.append(max(survived * math.log1p(-fatal), _LEAST_BY_PLACE) + _ROLE_ODDS[role])
        survived += is_chance
    return tuple(scores)


_SHORT_PRIOR: Final = prior(_SHORT_RUN)
