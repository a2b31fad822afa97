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
