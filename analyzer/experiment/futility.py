"""Whether further trials may still prove a step, and about how many a decision needs. Pure.

Each arm's rate has its posterior under Beta(1/2, 1/2), so the successes still to come follow a beta-binomial
distribution. Summed over the outcomes that ``sequential.decide`` calls a proof once both arms are full, this
is the predictive probability of a proof (Saville, Connor, Ayers & Alvarez, *The utility of Bayesian
predictive probabilities for interim monitoring of clinical trials*, 2014). A step at which it is small
is dropped, unless a refutation is near. The most suspect step gets more patience: its refutation takes a
blame back.

Dropping never adds a proof or a refutation: both are decided by e-processes, whose bounds hold however the
trials end. It may only miss one; docs/experiments.md says how many.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

from analyzer.experiment.sequential import (
    CLEAR_EFFECT,
    REFUTING_ALPHA,
    Arm,
    Decision,
    decide,
    log_evidence_of_no_effect,
)
from semconv.record import record

LEAST_PROBABILITY: Final = 0.02
"""Predictive probability of a proof below which a step is dropped: at 0.05, a tenth of the proofs of a step
that raises the rate from 0.2 to 0.6 was missed, at 0.02 one in a hundred (simulated)."""
_LEAST_TRIALS: Final = 3
"""Trials of each arm before a step is dropped: of fewer, the prior says more than the trials."""
_KNOWN_OUTCOMES: Final = 100_000


@record
class Room:
    """Valid trials that each arm may still get."""

    control: int
    treatment: int

    def within(self, trials: int) -> Room:
        """Return the part of it that this many further trials of each arm take."""
        return Room(control=min(self.control, trials), treatment=min(self.treatment, trials))


@record
class Patience:
    """When a step goes on although a proof is improbable: a refutation is near."""

    trials: int
    """Further trials of each arm within which it would have to come."""
    least: float
    """Probability of a refutation within them."""


USUAL: Final = Patience(trials=10, least=0.5)
FOR_THE_BLAMED: Final = Patience(trials=1_000, least=0.25)
"""For the most suspect step, as long as its arms have room. About as many innocent steps are refuted as
without dropping; with ``USUAL``, mostly a quarter to a third of them
(``python -m benchmarks.experiment futility``)."""


def is_futile(  # noqa: PLR0917 - two arms and what bounds them
    control: Arm,
    treatment: Arm,
    alpha: float,
    room: Room,
    patience: Patience = USUAL,
    least: float = LEAST_PROBABILITY,
) -> bool:
    """Return whether a proof is improbable, and no refutation near.

    Args:
        control: the trials with the recorded answer.
        treatment: the trials with the changed one.
        alpha: this candidate's share.
        room: the trials that may follow.
        patience: when a refutation is near.
        least: probability of a proof below which it is improbable; 0 for never.
    """
    if min(control.n, treatment.n) < _LEAST_TRIALS:
        return False
    if probability_of_proof(control, treatment, alpha, room) >= least:
        return False
    return _probability_of_refutation(control, treatment, room.within(patience.trials)) < patience.least


def probability_of_proof(control: Arm, treatment: Arm, alpha: float, room: Room) -> float:
    """Return the predictive probability that the step is proved when both arms are full."""
    n, m = control.n + room.control, treatment.n + room.treatment
    return sum(
        one * other
        for low, one in _outcomes(control, room.control)
        for high, other in _outcomes(treatment, room.treatment)
        if _is_proved(low, n, high, m, alpha)
    )


def trials_left(control: Arm, treatment: Arm, alpha: float, room: Room) -> int:
    """Return about how many trials a decision needs, if both arms go on at their measured rates.

    Returns:
        At most the trials that fit into both arms.
    """
    most = max(room.control, room.treatment)
    for more in range(1, most + 1):
        later = Room(control=min(more, room.control), treatment=min(more, room.treatment))
        one, other = _grown(control, later.control), _grown(treatment, later.treatment)
        if decide(one, other, alpha) is not Decision.UNDECIDED:
            return later.control + later.treatment
    return room.control + room.treatment


def _probability_of_refutation(control: Arm, treatment: Arm, room: Room) -> float:
    n, m = control.n + room.control, treatment.n + room.treatment
    return sum(
        one * other
        for low, one in _outcomes(control, room.control)
        for high, other in _outcomes(treatment, room.treatment)
        if _is_refuted(low, n, high, m)
    )


def _outcomes(arm: Arm, more: int) -> list[tuple[int, float]]:
    """Return the numbers of successes after more trials, each with its predictive probability."""
    a, b = arm.successes + 0.5, arm.n - arm.successes + 0.5
    whole = _log_beta(a, b)
    return [
        (
            arm.successes + k,
            math.comb(more, k) * math.exp(_log_beta(a + k, b + more - k) - whole),
        )
        for k in range(more + 1)
    ]


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


@lru_cache(maxsize=_KNOWN_OUTCOMES)
def _is_proved(low: int, n: int, high: int, m: int, alpha: float) -> bool:
    if high * n - low * m < CLEAR_EFFECT * n * m - 1e-9:  # rules out most outcomes without their likelihoods
        return False
    found = decide(Arm(n=n, successes=low), Arm(n=m, successes=high), alpha)
    return found is Decision.PROVED


@lru_cache(maxsize=_KNOWN_OUTCOMES)
def _is_refuted(low: int, n: int, high: int, m: int) -> bool:
    evidence = log_evidence_of_no_effect(Arm(n=n, successes=low), Arm(n=m, successes=high))
    return evidence >= -math.log(REFUTING_ALPHA)


def _grown(arm: Arm, more: int) -> Arm:
    """Return the arm after more trials at its measured rate."""
    n = arm.n + more
    return Arm(n=n, successes=round(arm.rate * n))
