"""The learned ranker as a method: a model trained on labelled runs of the user's own system.

Source: ours. Cost: no model calls, some milliseconds.

A run of a system it has not seen gets an answer too, but one that says so and
claims no more confidence than such answers have earned.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from analyzer.finding import Finding
from analyzer.learning.features import VERSION, tabulate
from analyzer.learning.ranker import Ranker
from analyzer.method import Inquiry, answered
from analyzer.methods.signals import at_most, blame_first
from analyzer.posterior import LogShares, Opinion, from_ranking, pool, ranked
from analyzer.reading import read
from analyzer.signals import findings
from semconv.model import Abstention, Blame, Status, Trajectory, Verdict

_RANKED: Final = 5
_STRANGE: Final = 0.15
"""Most confidence on a system never seen: trained on all other systems of the development data, such
models named the right step in 26 of 181 runs of five systems outside Who&When."""
JUDGE_ACCURACY: Final = 0.45
"""Steps that one call over an indexed log names rightly: 45 to 49 of 100 on algorithm-generated Who&When
logs, by model (the structured single-call baseline in the literature); not measured here."""
_UNTRAINED: Final = (
    "no ranker is trained: train one on labelled runs with `blamespan train DATASET --out FILE`,"
    " and say where it is with BLAMESPAN_RANKER=FILE"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedRanking:
    """Asks the model it is given; without one, it says what is missing."""

    ranker: Ranker | None = None
    name: str = "ranker"

    def investigate(self, trajectory: Trajectory) -> Inquiry:
        """Return the verdict at once: no prompt is ever yielded."""
        if self.ranker is None:
            return answered(Abstention(status=Status.ERROR, reason=_UNTRAINED))
        return answered(rank(self.ranker, trajectory))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """What a model makes of a run: the steps' log-probabilities, and whether it knows such runs."""

    shares: LogShares
    is_at_home: bool
    found: tuple[Finding, ...]


def ranking(ranker: Ranker, trajectory: Trajectory) -> Ranking:
    """Apply a model to a run that has steps."""
    reading = read(trajectory)
    found = findings(reading)
    table = tabulate(reading, found)
    return Ranking(shares=ranker.rank(table), is_at_home=ranker.is_at_home(table.agents), found=found)


def rank(ranker: Ranker, trajectory: Trajectory) -> Verdict:
    """Judge a run by a model."""
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
    """Put a ranking into a verdict that says what the model was trained on."""
    candidates = ranked(seen.shares, trajectory, _RANKED)
    verdict = blame_first(seen.found, candidates)
    trained = (
        f"{ranker.card.get('labels', '?')} labelled runs of {', '.join(ranker.systems) or 'unnamed systems'}"
    )
    evidence = f": {verdict.reason}" if verdict.mode else "; no signal stands out in it"
    confidence = min(math.exp(max(seen.shares)), most_confidence(ranker))
    if seen.is_at_home:
        reason = f"ranked first by a model trained on {trained}{evidence}"
    else:
        reason = (
            f"out of distribution: the model was trained on {trained}, and knows few of this run's agents;"
            f" its ranking is little better than a guess here{evidence}"
        )
        confidence = min(confidence, _STRANGE)
    return at_most(round(confidence, 4), replace(verdict, reason=reason))


def most_confidence(ranker: Ranker) -> float:
    """Return what a model may claim at most: the chance of being right after being right in all its labels.

    The rule of succession, (n + 1) / (n + 2): twenty labels of runs with a single step teach no certainty.
    """
    labels = ranker.card.get("labels")
    n = labels if isinstance(labels, int) and labels > 0 else 0
    return (n + 1) / (n + 2)


def concur(ranker: Ranker, trajectory: Trajectory, seen: Ranking, judged: Blame) -> Blame:
    """Pool a model's ranking of a run at home with a judge's verdict on it.

    The text is the judge's where both come to its step, else the ranker's, with
    what the judge thought.
    """
    judge = from_ranking(judged.ranking, trajectory, JUDGE_ACCURACY)
    pooled = pool([Opinion(shares=seen.shares), Opinion(shares=judge)])
    candidates = ranked(pooled, trajectory, _RANKED)
    first = candidates[0]
    if first.step == judged.step:
        agreed = replace(judged, confidence=first.probability, ranking=candidates)
        return at_most(most_confidence(ranker), agreed)
    own = blame(ranker, trajectory, replace(seen, shares=pooled))
    note = f"{own.reason} (the judge named step {judged.step} of {judged.agent}: {judged.reason})"
    return replace(own, reason=note)
