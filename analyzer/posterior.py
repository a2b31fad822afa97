"""One probability a step, from several opinions: pooling, tempering, and what one more opinion is worth.

Opinions are pooled log-linearly (a weighted product of experts, renormalised;
Genest & Zidek, *Combining Probability Distributions*, Statistical Science 1986):
a step that any expert rules out stays out, and no expert need know how the
others came to their numbers. All sequences here hold one figure a step, in the
order of the steps; probabilities are natural logarithms unless said otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from semconv.model import Ranked, Trajectory

LogShares: TypeAlias = tuple[float, ...]
"""Log-probabilities that sum (as probabilities) to 1."""

_LEAST: Final = 1e-6
"""Least probability an opinion may give a step: no expert is sure enough to overrule all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """What one expert thinks, and how far it is believed."""

    shares: LogShares
    weight: float = 1.0
    """Exponent in the pool; 0 ignores the expert, 1 takes it at its word."""


def log_softmax(scores: Sequence[float]) -> LogShares:
    """Return the scores shifted so that their exponentials sum to 1; empty for none."""
    if not scores:
        return ()
    highest = max(scores)
    total = highest + math.log(sum(math.exp(score - highest) for score in scores))
    return tuple(score - total for score in scores)


def pool(opinions: Sequence[Opinion]) -> LogShares:
    """Combine opinions on the same steps.

    Raises:
        ValueError: there is none, or they speak of different numbers of steps.
    """
    if not opinions:
        message = "there is no opinion to pool"
        raise ValueError(message)
    columns = zip(*(opinion.shares for opinion in opinions), strict=True)
    weights = [opinion.weight for opinion in opinions]
    return log_softmax([sum(w * s for w, s in zip(weights, column, strict=True)) for column in columns])


def temper(shares: LogShares, temperature: float) -> LogShares:
    """Flatten (above 1) or sharpen (below 1) an opinion; the order of the steps stays."""
    return log_softmax([share / temperature for share in shares])


def agent_masses(shares: LogShares, agents: Sequence[str]) -> dict[str, float]:
    """Return the probability (not its logarithm) of each agent: that of its steps together."""
    masses: dict[str, float] = {}
    for share, agent in zip(shares, agents, strict=True):
        masses[agent] = masses.get(agent, 0.0) + math.exp(share)
    return masses


def from_ranking(ranking: Sequence[Ranked], trajectory: Trajectory, most: float) -> LogShares:
    """Read a verdict's ranking as an opinion on all steps.

    The probabilities are scaled down so that none is above ``most``, what such
    verdicts have been right in; the steps left out share the rest evenly.
    """
    top = max((candidate.probability for candidate in ranking), default=0.0)
    scale = min(1.0, most / top) if top > 0 else 0.0
    named = {candidate.step: max(candidate.probability * scale, _LEAST) for candidate in ranking}
    silent = sum(step.index not in named for step in trajectory.steps)
    rest = max((1.0 - sum(named.values())) / max(1, silent), _LEAST)
    return log_softmax([math.log(named.get(step.index, rest)) for step in trajectory.steps])


def ranked(shares: LogShares, trajectory: Trajectory, most: int) -> tuple[Ranked, ...]:
    """Return the likeliest steps, best first, the earlier first among equals."""
    order = sorted(range(len(shares)), key=lambda position: (-shares[position], position))
    return tuple(
        Ranked(
            step=trajectory.steps[position].index,
            agent=trajectory.steps[position].agent,
            probability=round(math.exp(shares[position]), 4),
        )
        for position in order[:most]
    )


def gain_of_asking(shares: LogShares, accuracy: float) -> float:
    """Return by how much one more expert is expected to raise the chance of naming the right step.

    The expert names the right step with probability ``accuracy`` and any other
    with equal chances, and is pooled by Bayes' rule. The gain is 0 where no
    answer of it could change ours, so that asking is waste; never negative.
    """
    if len(shares) < 2:
        return 0.0
    beliefs = [math.exp(share) for share in shares]
    best, second = sorted(beliefs, reverse=True)[:2]
    slip = (1.0 - accuracy) / (len(beliefs) - 1)
    expected = 0.0
    for belief in beliefs:
        rival = second if belief == best else best
        expected += max(belief * accuracy, rival * slip)
    return max(0.0, expected - best)
