"""Pooling of several verdicts on one run into one.

Each vote's ranking is a belief over the run's steps, with the rest spread evenly over unranked
steps; beliefs are averaged. This rewards agreement and keeps a single overconfident vote from
deciding. Failed votes do not count, and the reason says so. Source: self-consistency,
arXiv:2203.11171 (samples); the average is the linear opinion pool (Stone, 1961). Cost: the
votes' own calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from analyzer.inquiry.method import AttributionMethod, Inquiry, Prompt, Reply
from analyzer.methods.replies.settle_answer import join_sentences, nothing_to_judge, ranking_of
from semconv.model import Abstention, Blame, Status, Trajectory, Verdict

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
