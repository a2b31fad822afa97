"""Posterior over steps: pooled opinions, the value of one more, and sets that hold the decisive step.

Opinions are pooled log-linearly (a weighted product of experts, renormalised;
Genest & Zidek, *Combining Probability Distributions*, Statistical Science 1986):
a step that any expert rules out stays out, and no expert needs to know how the
others computed theirs. All sequences here hold one value per step, in step order;
probabilities are natural logarithms unless stated otherwise.

The value of a model's answer in USD decides whether ``auto`` calls one: the expected rise in the probability
of naming the correct step (``gain_of_asking``: 0 if no answer could change the verdict) times the value of
the correct step. It bounds the call's cost. For a negligible gain no call is made, even if it is cheap: even
a free model costs time, and an opinion that cannot help can only mislead.

A set of steps holds the decisive one with a stated coverage (split-conformal prediction).
The steps of a run are taken up in an order: by probability (Romano, Sesia & Candès, NeurIPS 2020, without
randomisation), or from the most probable step to its more probable neighbour, which keeps the set contiguous
on the run's path (arXiv:2605.06788). The mass that is taken up before the decisive step, over labelled runs
that the probabilities had not seen, has a quantile; the set of a new run holds every step that is reached
within it. If the new run is exchangeable with those, the set holds its decisive step with that coverage.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from analyzer.inquiry.intervals import Interval, wilson
from semconv.model import Ranked, Trajectory

LogShares: TypeAlias = tuple[float, ...]
"""Log-probabilities that sum (as probabilities) to 1."""

_LEAST: Final = 1e-6
"""Lowest probability an opinion may give a step: no single expert may overrule all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """One expert's probabilities and its weight in the pool."""

    shares: LogShares
    weight: float = 1.0
    """Exponent in the pool; 0 ignores the expert, 1 trusts it fully."""


def log_softmax(scores: Sequence[float]) -> LogShares:
    """Return the scores shifted so that their exponentials sum to 1; empty for no scores."""
    if not scores:
        return ()
    highest = max(scores)
    total = highest + math.log(sum(math.exp(score - highest) for score in scores))
    return tuple(score - total for score in scores)


def pool(opinions: Sequence[Opinion]) -> LogShares:
    """Combine opinions on the same steps.

    Raises:
        ValueError: there are no opinions, or they cover different numbers of steps.
    """
    if not opinions:
        message = "there is no opinion to pool"
        raise ValueError(message)
    columns = zip(*(opinion.shares for opinion in opinions), strict=True)
    weights = [opinion.weight for opinion in opinions]
    return log_softmax([sum(w * s for w, s in zip(weights, column, strict=True)) for column in columns])


def temper(shares: LogShares, temperature: float) -> LogShares:
    """Flatten (above 1) or sharpen (below 1) an opinion; keeps the order of the steps."""
    return log_softmax([share / temperature for share in shares])


def mixed(ranking: Sequence[Ranked], trajectory: Trajectory, accuracy: float) -> LogShares:
    """Convert a model's ranking to an opinion that holds with probability ``accuracy``, else knows nothing.

    The model's own probabilities only divide its opinion: a model that states more is not believed more.
    Without a ranking, the opinion is even.
    """
    total = sum(candidate.probability for candidate in ranking)
    believed = accuracy if total > 0 else 0.0
    even = (1.0 - believed) / max(1, len(trajectory.steps))
    named = {each.step: believed * each.probability / total for each in ranking} if total > 0 else {}
    return log_softmax([math.log(max(even + named.get(s.index, 0.0), _LEAST)) for s in trajectory.steps])


def relative(ranking: Sequence[Ranked], trajectory: Trajectory) -> LogShares:
    """Convert a ranking whose probabilities were scaled down to the opinion behind it.

    Only the ratios count. No unranked step gets more than the last ranked one.
    """
    named = {candidate.step: max(candidate.probability, _LEAST) for candidate in ranking}
    silent = sum(step.index not in named for step in trajectory.steps)
    rest = max(_LEAST, min((1.0 - sum(named.values())) / max(1, silent), *named.values(), 1.0))
    return log_softmax([math.log(named.get(step.index, rest)) for step in trajectory.steps])


def ranked(shares: LogShares, trajectory: Trajectory, most: int) -> tuple[Ranked, ...]:
    """Return the likeliest steps, best first; ties go to the earlier step."""
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
    """Return how much one more expert is expected to raise the probability of naming the correct step.

    The expert names the correct step with probability ``accuracy`` and each other step with equal
    probability, and is pooled by Bayes' rule. The gain is 0 if no answer could change the current choice, so
    the call would be wasted; never negative.
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


RIGHT_STEP_USD: Final = 5.0
"""Value of a failed run's correct step: five minutes of an engineer at 60 USD an hour, less than reading
the run takes."""
LEAST_GAIN: Final = 0.02
"""Expected rise in the probability of naming the correct step below which no call is made."""
SIGNALS_ACCURACY: Final = 0.2
"""Assumed step accuracy of signals on systems they were not written for. Four such systems later measured
12.6 % (docs/accuracy.md): with that value, a model would be asked more often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """Expected benefit of one more opinion."""

    gain: float
    """Rise in the probability of naming the correct step, 0..1."""
    usd: float

    @property
    def is_any(self) -> bool:
        """Whether an answer is expected to improve the verdict."""
        return self.gain >= LEAST_GAIN

    def limit(self, budget_usd: float | None) -> tuple[float, str]:
        """Return the most to spend on the answer within the run's budget, and the purpose as text."""
        if budget_usd is not None and budget_usd <= self.usd:
            return budget_usd, "a run"
        return self.usd, f"for an answer that raises the chance of the right step by {self.gain:.0%}"


def worth_of(shares: LogShares, accuracy: float) -> Worth:
    """Compute the value of one more opinion given the current belief.

    Args:
        shares: the current belief: the log-probability of each step.
        accuracy: how often the new opinion names the correct step, 0..1.
    """
    gain = gain_of_asking(shares, accuracy)
    return Worth(gain=gain, usd=gain * RIGHT_STEP_USD)


def belief_in_signals(steps: int) -> LogShares:
    """Return the belief about a run judged only by signals.

    Their own confidence is not calibrated, but their accuracy is known. Which step they name
    makes no difference here, so the first step represents it.
    """
    if steps < 2:
        return (0.0,) * steps
    first = max(SIGNALS_ACCURACY, 1 / steps)
    others = math.log((1 - first) / (steps - 1))
    return (math.log(first), *(others for _ in range(steps - 1)))


COVERAGE: Final = 0.9
"""Coverage that a set states."""
LEAST_RUNS: Final = 50
"""Calibrating runs below which no set is shown."""
LEAST_COVERED: Final = 0.85
"""Bound on the lower end of the observed coverage's interval, below which no set is shown."""
_ROUNDING: Final = 1e-9


class Order(StrEnum):
    """The order in which a run's steps are taken up."""

    CONTIGUOUS = "contiguous"
    BY_PROBABILITY = "by_probability"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetRule:
    """How to make a run's set, and how often the sets of labelled runs held the decisive step."""

    order: Order
    mass: float
    """Steps that are taken up within this mass belong to the set; 0 leaves the first one."""
    covered: int
    """Labelled runs whose decisive step was in a set made without them and the runs related to them."""
    n: int

    @property
    def interval(self) -> Interval:
        """The 95 % interval of the observed coverage."""
        return wilson(self.covered, self.n)

    @property
    def is_shown(self) -> bool:
        """Whether there are enough calibrating runs, and the observed coverage is high enough."""
        return self.n >= LEAST_RUNS and self.interval.low >= LEAST_COVERED


def steps_within(shares: LogShares, rule: SetRule) -> tuple[int, ...]:
    """Return the positions of the set's steps, ascending; at least one for a run with steps."""
    reached = _masses_before(shares, rule.order)
    return tuple(sorted(step for step, before in reached if before <= rule.mass + _ROUNDING))


def set_rule(
    shares: Sequence[LogShares], right: Sequence[int], folds: Sequence[Sequence[int]]
) -> SetRule | None:
    """Return the rule whose sets are smaller on the labelled runs; contiguous ones if they are no larger.

    Args:
        shares: log-probabilities of each run's steps, from a model that had not seen its label.
        right: the position of each run's decisive step.
        folds: positions of the runs in parts; related runs are in one part.

    Returns:
        ``None`` if there are too few runs for the coverage.
    """
    rules = [rule for order in Order if (rule := _rule(order, shares, right, folds))]
    return min(rules, key=lambda rule: _size(shares, rule), default=None)


def _rule(
    order: Order, shares: Sequence[LogShares], right: Sequence[int], folds: Sequence[Sequence[int]]
) -> SetRule | None:
    scores = [dict(_masses_before(one, order))[step] for one, step in zip(shares, right, strict=True)]
    mass = _quantile(scores)
    if mass is None:
        return None
    covered = 0
    for held in folds:
        outside = set(held)
        of_others = _quantile([score for run, score in enumerate(scores) if run not in outside])
        covered += len(held) if of_others is None else sum(scores[r] <= of_others + _ROUNDING for r in held)
    return SetRule(order=order, mass=round(mass, 9), covered=covered, n=len(scores))


def _quantile(scores: Sequence[float]) -> float | None:
    """Return the score that the coverage needs; ``None`` if only a set of all steps would have it."""
    place = math.ceil((len(scores) + 1) * COVERAGE)
    return sorted(scores)[place - 1] if 0 < place <= len(scores) else None


def _size(shares: Sequence[LogShares], rule: SetRule) -> int:
    return sum(len(steps_within(share, rule)) for share in shares)


def _masses_before(shares: LogShares, order: Order) -> Iterator[tuple[int, float]]:
    """Yield each step in the order in which it is taken up, with the probability taken up before it."""
    taken = 0.0
    for step in _outwards(shares) if order is Order.CONTIGUOUS else _descending(shares):
        yield step, taken
        taken += math.exp(shares[step])


def _descending(shares: LogShares) -> Iterator[int]:
    yield from sorted(range(len(shares)), key=lambda step: (-shares[step], step))


def _outwards(shares: LogShares) -> Iterator[int]:
    """Yield the most probable step, then always the more probable neighbour of those yielded."""
    if not shares:
        return
    first = next(_descending(shares))
    low, high = first - 1, first + 1
    yield first
    while low >= 0 or high < len(shares):
        if high >= len(shares) or (low >= 0 and shares[low] >= shares[high]):
            yield low
            low -= 1
        else:
            yield high
            high += 1
