"""Promotion of a newly trained ranker over the one in use, by a sequential test on the same runs. Pure.

Only runs on which exactly one of the two is right count. If neither ranker is better, each is equally likely
to be the right one. The evidence is the likelihood averaged over shares from one half to one, divided by the
likelihood of one half. It may be tested after every label: without a difference, the probability that it ever
exceeds 1/alpha is at most alpha (Ville's inequality; as in ``experiment/sequential.py``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from semconv.record import record

ALPHA: Final = 0.05
"""Bound on the probability that a challenger that is no better is ever promoted."""


class Ruling(StrEnum):
    """Result of a comparison so far."""

    PROMOTE = "promote"
    REJECT = "reject"
    """The challenger is worse."""
    UNDECIDED = "undecided"


@record
class Contest:
    """Champion and challenger on the same labelled runs."""

    n: int = 0
    champion: int = 0
    """Runs in which the champion is right."""
    challenger: int = 0
    wins: int = 0
    """Runs in which only the challenger is right."""
    losses: int = 0

    @property
    def ruling(self) -> Ruling:
        """The decision at ``ALPHA``."""
        if log_evidence(self.wins, self.losses) >= -math.log(ALPHA):
            return Ruling.PROMOTE
        if log_evidence(self.losses, self.wins) >= -math.log(ALPHA):
            return Ruling.REJECT
        return Ruling.UNDECIDED


def contest(results: Iterable[tuple[bool, bool]]) -> Contest:
    """Count the results of champion and challenger, run by run, until the first decision.

    Later runs do not change a decision: a test that may be continued after it would not keep its bound.
    """
    so_far = Contest()
    for champion, challenger in results:
        if so_far.ruling is not Ruling.UNDECIDED:
            break
        so_far = Contest(
            n=so_far.n + 1,
            champion=so_far.champion + champion,
            challenger=so_far.challenger + challenger,
            wins=so_far.wins + (challenger and not champion),
            losses=so_far.losses + (champion and not challenger),
        )
    return so_far


def log_evidence(wins: int, losses: int) -> float:
    """Return the logarithm of the evidence that wins are more likely than losses.

    The average over shares uniform on one half to one is a Beta integral; its upper half is a sum of binomial
    coefficients, so the value is exact.
    """
    n = wins + losses
    upper = sum(math.comb(n + 1, k) for k in range(wins + 1))  # of 2 ** (n + 1)
    log_beta = math.lgamma(wins + 1) + math.lgamma(losses + 1) - math.lgamma(n + 2)
    return log_beta + math.log(upper)
