"""Findings → one posterior: a position prior and the findings' log-odds, added up.

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
from typing import Final

from analyzer.finding import Finding
from analyzer.reading import Reading, Role

_ROLE_ODDS: Final[dict[Role, float]] = {
    Role.ACTING: 0.0,
    Role.COORDINATING: -1.5,
    Role.CALL: -2.0,
    Role.STATING: -2.5,
    Role.RELAYING: -5.0,
}
_CAP: Final = 8.0
"""Most log-odds that findings can add to a step: many weak marks must not look like certainty."""
_TEMPERATURE: Final = 1.6
"""Signals are read off the same words, so their log-odds overlap; the sum is cooled by this."""


_BY_PLACE: Final = 0.3
"""Where nothing stands out, place is all that speaks, however few steps there are to choose from: the
method ``first-agent-step``, which knows no more, is right in less than this (``docs/accuracy.md``)."""
_MOST_CONFIDENT: Final = 0.9
"""No marks in the margin prove a counterfactual."""


def posterior(reading: Reading, found: Sequence[Finding]) -> tuple[float, ...]:
    """Return the probability of each step, in order; they sum to 1."""
    scores = [
        before + min(mark, _CAP)
        for before, mark in zip(prior(reading.roles), marks(reading, found), strict=True)
    ]
    highest = max(scores)
    weights = [math.exp((score - highest) / _TEMPERATURE) for score in scores]
    total = sum(weights)
    return tuple(weight / total for weight in weights)


def marks(reading: Reading, found: Sequence[Finding]) -> tuple[float, ...]:
    """Return the log-odds that the findings add to each step."""
    strongest: dict[tuple[int, str], float] = {}
    for finding in found:  # a signal that strikes a step twice is one witness, not two
        key = (finding.step, finding.signal)
        strongest[key] = max(finding.weight, strongest.get(key, finding.weight))
    added = [0.0] * len(reading.steps)
    for (step, _signal), weight in strongest.items():
        added[step] += weight
    return tuple(added)


def most_confidence(added: Sequence[float], step: int) -> float:
    """Return how sure a verdict on ``step`` may be, by what the findings added to each.

    That few others can be blamed is no evidence; that findings clear all of them is.
    """
    rival = max((mark for other, mark in enumerate(added) if other != step), default=0.0)
    mark = max(added[step], 0.0) - min(rival, 0.0)
    odds = _BY_PLACE / (1 - _BY_PLACE) * math.exp(min(mark, _CAP) / _TEMPERATURE)
    return min(_MOST_CONFIDENT, odds / (1 + odds))


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
