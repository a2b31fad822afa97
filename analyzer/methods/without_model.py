"""Methods without a model: ``signals`` and ``ranker``. Source: this project.

``signals`` combines a position prior and the findings (``signals/scoring.py``). ``ranker`` applies a ranker
trained on labelled runs of the user's own system; a run of an unknown system gets an answer too, but the
verdict says so, and its confidence is capped at the measured accuracy of such answers. The blamed agent is
always the actor of the blamed step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from analyzer.inquiry.method import Inquiry, answered
from analyzer.inquiry.posterior import COVERAGE, LogShares, ranked, steps_within
from analyzer.methods.ranker import Ranker
from analyzer.methods.ranker_features import VERSION, tabulate
from analyzer.methods.reasons import blame_first, with_product
from analyzer.signals.registry import findings
from analyzer.signals.scoring import earned, marks, most_confidence, posterior
from analyzer.texts.run_view import Finding, Reading, read
from semconv.model import (
    Abstention,
    Blame,
    Ranked,
    Status,
    StepSet,
    Trajectory,
    Verdict,
)

_RANKED: Final = 5
_LEAST: Final = 1e-12
"""Lowest probability that has a logarithm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """Combines the findings of ``analyzer.signals``; always answers if there is a step to blame."""

    name: str = "signals"

    def investigate(self, trajectory: Trajectory) -> Inquiry:
        """Return the verdict at once, without yielding a prompt."""
        return answered(judge_by_signals(trajectory))


def judge_by_signals(trajectory: Trajectory) -> Blame | Abstention:
    """Judge a trajectory by its signals."""
    if not trajectory.steps:
        return Abstention(status=Status.ERROR, reason="the run has no steps to blame")
    belief = signals_belief(trajectory)
    return belief.blame(belief.shares)


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """What signals or a ranker believe about a run, to be pooled with other opinions."""

    shares: LogShares
    blame: Callable[[LogShares], Blame]
    """Words the verdict by these or by pooled shares."""


def signals_belief(trajectory: Trajectory) -> Belief:
    """Return what signals believe about a run that has steps."""
    reading = read(trajectory)
    found = findings(reading)
    shares = tuple(math.log(max(share, _LEAST)) for share in posterior(reading, found))
    return Belief(shares=shares, blame=partial(_by_signals, reading, found))


def _by_signals(reading: Reading, found: Sequence[Finding], shares: LogShares) -> Blame:
    trajectory = reading.trajectory
    probabilities, added = [math.exp(share) for share in shares], marks(reading, found)
    ranking = tuple(
        Ranked(step=step, agent=trajectory.steps[step].agent, probability=round(probabilities[step], 4))
        for step in _candidates(probabilities, added)
    )
    first = ranking[0].step
    verdict = at_most(most_confidence(added, first), blame_first(found, ranking, trajectory))
    verdict = with_product(reading, verdict)
    limit = earned(verdict.confidence, reading, found, first)
    reason = f"{verdict.reason} {limit.reason}".rstrip()
    return at_most(limit.most, replace(verdict, reason=reason))


def _candidates(probabilities: Sequence[float], added: Sequence[float]) -> list[int]:
    """Return the most probable steps, best first; the one with the strongest evidence is among them.

    In a long run, the first steps would otherwise crowd out the only step that shows an error.
    """
    order = sorted(range(len(probabilities)), key=lambda step: (-probabilities[step], step))
    first, strongest = order[:_RANKED], max(order, key=lambda step: added[step])
    return first if strongest in first or added[strongest] <= 0 else [*first[:-1], strongest]


def at_most(most: float, verdict: Blame) -> Blame:
    """Scale down a verdict's confidence and ranking so that no probability exceeds ``most``."""
    if verdict.confidence <= most:
        return verdict
    scale = most / verdict.confidence
    ranking = tuple(replace(each, probability=round(each.probability * scale, 4)) for each in verdict.ranking)
    return replace(verdict, confidence=ranking[0].probability, ranking=ranking)


_STRANGE: Final = 0.15
"""Highest confidence on an unknown system: models trained on all other systems of the development data
named the correct step in 26 of 181 runs of five systems outside Who&When."""
_UNTRAINED: Final = (
    "no ranker is trained: train one on labelled runs with `blamespan train DATASET --out FILE`,"
    " and say where it is with BLAMESPAN_RANKER=FILE"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedRanking:
    """Applies a trained ranker; without one, abstains and says how to train one."""

    ranker: Ranker | None = None
    name: str = "ranker"

    def investigate(self, trajectory: Trajectory) -> Inquiry:
        """Return the verdict at once, without yielding a prompt."""
        if self.ranker is None:
            return answered(Abstention(status=Status.ERROR, reason=_UNTRAINED))
        return answered(rank(self.ranker, trajectory))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """A ranker's result for a run: the steps' log-probabilities, and whether the system is known."""

    shares: LogShares
    """These alone, or pooled with other opinions."""
    own: LogShares
    """The ranker's, for which its sets of steps were calibrated."""
    is_at_home: bool
    found: tuple[Finding, ...]


def ranking(ranker: Ranker, trajectory: Trajectory) -> Ranking:
    """Apply a ranker to a run that has steps."""
    reading = read(trajectory)
    found = findings(reading)
    table = tabulate(reading, found)
    shares = ranker.rank(table)
    return Ranking(shares=shares, own=shares, is_at_home=ranker.is_at_home(table.agents), found=found)


def rank(ranker: Ranker, trajectory: Trajectory) -> Verdict:
    """Judge a run by a ranker."""
    if not trajectory.steps:
        return Abstention(status=Status.ERROR, reason="the run has no steps to blame")
    if ranker.features_version != VERSION:
        reason = (
            f"the ranker was trained on version {ranker.features_version} of the features, this is version"
            f" {VERSION}: train it again"
        )
        return Abstention(status=Status.ERROR, reason=reason)
    seen = ranking(ranker, trajectory)
    return blame(ranker, trajectory, seen)


def blame(ranker: Ranker, trajectory: Trajectory, seen: Ranking) -> Blame:
    """Convert a ranking to a verdict that names the ranker's training systems."""
    candidates = ranked(seen.shares, trajectory, _RANKED)
    verdict = blame_first(seen.found, candidates, trajectory)
    trained = (
        f"{ranker.card.get('labels', '?')} labelled runs of {', '.join(ranker.systems) or 'unnamed systems'}"
    )
    evidence = f": {verdict.reason}" if verdict.mode else "; no signal stands out in it"
    confidence = min(math.exp(max(seen.shares)), highest_confidence(ranker))
    if seen.is_at_home:
        reason = f"ranked first by a model trained on {trained}{evidence}"
    else:
        reason = (
            f"out of distribution: the model was trained on {trained}, and knows few of this run's agents;"
            f" its ranking is little better than a guess here{evidence}"
        )
        confidence = min(confidence, _STRANGE)
    verdict = at_most(round(confidence, 4), replace(verdict, reason=reason))
    return replace(verdict, step_set=_step_set(ranker, trajectory, seen, verdict.step))


def _step_set(ranker: Ranker, trajectory: Trajectory, seen: Ranking, blamed: int) -> StepSet | None:
    """Return the steps that hold the decisive one with the coverage shown on runs of the same system."""
    rule = ranker.set_rule
    if rule is None or not rule.is_shown or not seen.is_at_home:
        return None
    held = {trajectory.steps[place].index for place in steps_within(seen.own, rule)} | {blamed}
    interval = rule.interval
    return StepSet(
        steps=tuple(sorted(held)),
        coverage=COVERAGE,
        observed=round(rule.covered / rule.n, 4),
        interval=(round(interval.low, 4), round(interval.high, 4)),
        n=rule.n,
    )


def highest_confidence(ranker: Ranker) -> float:
    """Return a ranker's highest confidence by the rule of succession: (n + 1) / (n + 2) of n labels.

    Even twenty labels of single-step runs do not give certainty.
    """
    labels = ranker.card.get("labels")
    n = labels if isinstance(labels, int) and labels > 0 else 0
    return (n + 1) / (n + 2)


def ranker_belief(ranker: Ranker, trajectory: Trajectory, seen: Ranking) -> Belief:
    """Return what a ranker believes about a run of its own system."""

    def blamed(shares: LogShares) -> Blame:
        return blame(ranker, trajectory, replace(seen, shares=shares))

    return Belief(shares=seen.shares, blame=blamed)
