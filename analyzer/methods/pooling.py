"""Pooling of a model's verdict with what signals or a ranker believe, and of several votes on one run. Pure.

A model states a confidence of its own, which says little: on recorded replies of two large models, a model
alone names the right step less often than signals do. So its ranking is an opinion that holds as often as
this model was right (``Trust``), and it enters the pool with a small weight, because models and signals read
the same words and err together. The pool's probability is the verdict's confidence, limited as that of
signals or ranker.

Labels and proofs say what a model has earned (``trust_of``). Its accuracy is the mean of a beta posterior:
the probability that its next answer is right. Accuracy does not show whether its errors are those of signals,
so the weight depends on the runs in which exactly one of the two named the decisive step. It rises when the
lower confidence bound of the model's share of them exceeds that of the models whose replies ``WEIGHT`` was
chosen on, and is 1, that of an independent opinion, once the model is known to be right in half of them. It
never falls below ``WEIGHT``: a model that is seldom right has a low accuracy, which leaves little of its
opinion. A model's agreement with signals counts nothing: both read the same words, so it says little about
who is right, and the pool has counted it already.

Votes of one method: each vote's ranking is a belief over the run's steps, with the rest spread evenly over
unranked steps; beliefs are averaged. This rewards agreement and keeps a single overconfident vote from
deciding. Failed votes do not count, and the reason says so. Source: self-consistency, arXiv:2203.11171
(samples); the average is the linear opinion pool (Stone, 1961). Cost: the votes' own calls.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from analyzer.inquiry.intervals import Z_90, wilson
from analyzer.inquiry.method import AttributionMethod, Inquiry, Prompt, Reply
from analyzer.inquiry.posterior import LogShares, Opinion, mixed, pool
from analyzer.methods.settle_answer import join_sentences, nothing_to_judge, ranking_of
from analyzer.methods.without_model import Belief
from collector_processor.core.analysis import TrackRecord
from semconv.model import Abstention, Blame, Pooled, Status, Trajectory, Verdict, agent_in_prose

STRIDE: Final = 1_000
"""Distance between the sample numbers of two votes: leaves room for methods that resample themselves."""


def combine(verdicts: Sequence[Verdict], trajectory: Trajectory) -> Verdict:
    """Return the pooled verdict: a blame if any vote is one, else the most common verdict.

    Raises:
        ValueError: there are no verdicts.
    """
    if not verdicts:
        message = "there is no verdict to combine: expected at least one voter"
        raise ValueError(message)
    voting = [v for v in verdicts if not (isinstance(v, Abstention) and v.status is Status.ERROR)]
    blames = [v for v in voting if isinstance(v, Blame)]
    if not blames:
        return voting[0] if voting else verdicts[0]
    belief = _pool(voting, trajectory)
    order = sorted(range(len(belief)), key=lambda place: (-belief[place], place))
    ranking = ranking_of(trajectory, [(place, belief[place]) for place in order])
    best = ranking[0]
    backing = sorted((v for v in blames if v.step == best.step), key=lambda v: -v.confidence)
    chosen = backing[0] if backing else None
    return Blame(
        agent=best.agent,
        step=best.step,
        reason=join_sentences([chosen.reason if chosen else "", _tally(verdicts, voting, best.step)]),
        confidence=best.probability,
        fix=next((v.fix for v in backing if v.fix), ""),
        mode=chosen.mode if chosen else "",
        evidence=tuple(dict.fromkeys(quote for v in backing for quote in v.evidence)),
        ranking=ranking,
    )


def _pool(voting: Sequence[Verdict], trajectory: Trajectory) -> list[float]:
    place = {step.index: position for position, step in enumerate(trajectory.steps)}
    belief = [0.0] * len(place)
    for verdict in voting:
        named = {place[candidate.step]: candidate.probability for candidate in verdict.ranking}
        unnamed = len(belief) - len(named)
        rest = max(0.0, 1.0 - sum(named.values())) / unnamed if unnamed else 0.0
        for position in range(len(belief)):
            belief[position] += named.get(position, rest) / len(voting)
    return belief


def _tally(verdicts: Sequence[Verdict], voting: Sequence[Verdict], step: int) -> str:
    backing = sum(isinstance(verdict, Blame) and verdict.step == step for verdict in voting)
    failed = len(verdicts) - len(voting)
    said = f"({backing} of {len(voting)} votes name step {step}"
    return said + (f"; {failed} more failed and did not count)" if failed else ")")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """A method that asks another method several times and pools the verdicts.

    Cost: ``samples`` times the method's calls.

    Raises:
        ValueError: ``samples`` is below 1.
    """

    method: AttributionMethod
    samples: int

    def __post_init__(self) -> None:
        if self.samples < 1:
            message = f"{self.samples} samples: expected at least 1"
            raise ValueError(message)

    @property
    def name(self) -> str:
        """Return the method's name with the number of samples."""
        return f"{self.method.name}*{self.samples}"

    def investigate(self, trajectory: Trajectory) -> Inquiry:
        """Run the inquiries one after another and pool their verdicts."""
        if not trajectory.steps:
            return nothing_to_judge()
        verdicts: list[Verdict] = []
        for sample in range(self.samples):
            verdict = yield from _resampled(self.method.investigate(trajectory), sample)
            verdicts.append(verdict)
        return combine(verdicts, trajectory)


def _resampled(inquiry: Inquiry, sample: int) -> Inquiry:
    """Repeat an inquiry with every prompt marked as another sample."""
    try:
        prompt: Prompt = next(inquiry)
        while True:
            reply: Reply = yield replace(prompt, sample=prompt.sample + STRIDE * sample)
            prompt = inquiry.send(reply)
    except StopIteration as finished:
        verdict: Verdict = finished.value
        return verdict
    finally:
        inquiry.close()


ASSUMED: Final = 0.2
"""Step accuracy assumed of a model without labels. Recorded replies of large models had 12 to 32 %
(``python -m benchmarks.accuracy.model_pool``)."""
WEIGHT: Final = 0.25
"""Exponent of a model's opinion, chosen on the recorded replies: with 1, they made signals worse."""
JUDGE_ACCURACY: Final = 0.45
"""Accuracy hoped for when ``auto`` decides whether to ask at all: the largest models' in the literature."""
_LABELS: Final = 20
"""Number of labelled verdicts that weigh as much as the assumption."""
_WON: Final = 4
_DECIDED: Final = 14
"""The assumption about runs in which either the model or signals were right: the model in 4 of 14, as in
38 of 133 recorded replies. A tenth of the replies, so that a tenant's own labels soon outweigh it."""
_EVEN: Final = 0.5
"""Share of these runs from which a model is no worse than signals where the two differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """What a model has earned: how many of its verdicts were labelled or proved, and how many were right."""

    right: float = 0.0
    labelled: float = 0.0
    weight: float = WEIGHT
    """Exponent of the model's opinion in the pool."""

    @property
    def accuracy(self) -> float:
        """Return how often the model is believed to name the right step."""
        return self._towards(ASSUMED)

    @property
    def hoped(self) -> float:
        """Return how often it may name the right step, which decides whether it is worth asking."""
        return self._towards(JUDGE_ACCURACY)

    def _towards(self, assumed: float) -> float:
        return (self.right + _LABELS * assumed) / (self.labelled + _LABELS)


UNPROVED: Final = Trust()


def trust_of(record: TrackRecord) -> Trust:
    """Return the trust in a model with this record; ``UNPROVED`` for an empty one."""
    low = wilson(record.won + _WON, record.won + record.lost + _DECIDED, Z_90).low
    known = _WON / _DECIDED
    share = min(1.0, max(0.0, (low - known) / (_EVEN - known)))
    return Trust(right=record.right, labelled=record.labelled, weight=round(WEIGHT + (1 - WEIGHT) * share, 4))


def pooled_of(own: Belief, judged: Blame, trajectory: Trajectory, trust: Trust) -> Pooled:
    """Return the two opinions that ``pool_with_model`` pools, as they are kept beside the verdict."""
    first = trajectory.steps[max(range(len(own.shares)), key=own.shares.__getitem__)]
    return Pooled(
        step=judged.step,
        agent=judged.agent,
        own_step=first.index,
        own_agent=first.agent,
        weight=trust.weight,
        accuracy=round(trust.accuracy, 4),
        right=trust.right,
        labelled=trust.labelled,
    )


def pool_with_model(own: Belief, judged: Blame, trajectory: Trajectory, trust: Trust) -> Blame:
    """Pool a belief about a run with a model's verdict on it.

    The reason is the model's if the pool blames its step, else the own one followed by the model's.
    """
    said = mixed(judged.ranking, trajectory, trust.accuracy)
    pooled = pool([Opinion(shares=own.shares), Opinion(shares=said, weight=trust.weight)])
    own_words = own.blame(pooled)
    verdict = _supported(own_words, pooled, _support(said, own_words.step, trajectory) ** trust.weight)
    if verdict.step == judged.step:
        return replace(judged, confidence=verdict.confidence, ranking=verdict.ranking)
    named = f"step {judged.step} of {agent_in_prose(judged.agent)}"
    return replace(verdict, reason=f"{verdict.reason} (the model named {named}: {judged.reason})")


def _support(said: LogShares, index: int, trajectory: Trajectory) -> float:
    """Return how much more probable an opinion makes a step than the mean other one; 1 without others."""
    place = next(at for at, step in enumerate(trajectory.steps) if step.index == index)
    share, others = math.exp(said[place]), len(said) - 1
    return share * others / max(1 - share, 1e-9) if others else 1.0


def _supported(verdict: Blame, pooled: LogShares, support: float) -> Blame:
    """Return the verdict with the odds of its limited confidence moved by the model's support for its step.

    The limits of signals and rankers were measured without a model. The pool's probability is not exceeded.
    """
    if not 0 < verdict.confidence < 1:
        return verdict
    odds = verdict.confidence / (1 - verdict.confidence) * support
    confidence = round(min(math.exp(max(pooled)), odds / (1 + odds)), 4)
    scale = confidence / verdict.confidence
    ranking = tuple(replace(each, probability=round(each.probability * scale, 4)) for each in verdict.ranking)
    return replace(verdict, confidence=confidence, ranking=ranking)
