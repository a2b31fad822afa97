"""Verify: candidates from signals and a judge, each put to three criteria, in up to two rounds.

The judge proposes; three questions (is it a fault, is it the first, was it not repaired) are
asked of all candidates, one criterion a call; what is held against the best one goes back to the
judge once, who may defend it or propose another. Candidates are weighed by what proposed them
and by the answers; an answer whose quote does not stand in the run weighs half.

Source: judge and specialised evaluators in rounds, arXiv:2509.06822 (RAFFLES). Cost: 4 model
calls where the best candidate passes, 8 at most, one more for each answer that cannot be read.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from analyzer.method import Inquiry, Prompt, Reply
from analyzer.methods.answering import nothing_to_judge, rank, repair, step_at, unreadable
from analyzer.methods.briefing import ask
from analyzer.methods.criteria import FORMAT, SCHEMA, Criterion, Ruling, read_rulings
from analyzer.methods.judge import blame, charge, put
from analyzer.methods.signals import weigh
from analyzer.render import Rendering, render
from semconv.model import Abstention, Blame, Ranked, Trajectory, Verdict

_ROUNDS: Final = 2
_FROM_SIGNALS: Final = 2
_CANDIDATES: Final = 4
"""That one round puts to the criteria."""
_JUDGE_SHARE: Final = 0.7
"""Of the weight before the criteria, the judge's part; the rest is the signals'."""
_LEAST: Final = 0.02
_UNNAMED: Final = 0.1
"""Weight of all the steps that nobody proposed."""
_MOST_CONFIDENT: Final = 0.95
_OUTPUT_TOKENS: Final = 1_500
_LONGEST_OBJECTION: Final = 200
_DUTY: Final = "You check candidates for the step that made a multi-agent run fail, by one criterion."


@dataclass(frozen=True, slots=True, kw_only=True)
class Verify:
    """Judge and verifiers. ``max_bytes`` bounds the run's text in each prompt."""

    max_bytes: int
    name: str = "verify"

    def investigate(self, trajectory: Trajectory) -> Inquiry:
        """Propose and verify until a candidate passes every criterion, at most twice."""
        if not trajectory.steps:
            return nothing_to_judge()
        rendering = render(trajectory, max_bytes=self.max_bytes)
        bench = _Bench(trajectory=trajectory)
        for _ in range(_ROUNDS):
            answer = yield from put(charge(trajectory, rendering, preface=bench.objections()), trajectory)
            if isinstance(answer, Abstention):
                if not bench.rulings:
                    return answer
                break  # the first round stands
            bench.propose(blame(trajectory, answer))
            heard = yield from _hear_all(trajectory, rendering, bench.unheard())
            if isinstance(heard, Abstention):
                if not bench.rulings:
                    return heard
                break
            bench.rule(heard)
            if bench.passes(bench.order()[0]):
                break
        return bench.verdict()


@dataclass(slots=True, kw_only=True)
class _Bench:
    """The candidates and what was said of each."""

    trajectory: Trajectory
    claims: dict[int, Blame] = field(default_factory=dict)
    """What the judge said of the steps it blamed."""
    proposed: dict[int, float] = field(default_factory=dict)
    """The judge's probabilities, the latest for each step."""
    rulings: dict[int, dict[Criterion, Ruling]] = field(default_factory=dict)

    def propose(self, found: Blame) -> None:
        self.claims[found.step] = found
        for candidate in found.ranking:
            self.proposed[candidate.step] = candidate.probability

    def unheard(self) -> tuple[int, ...]:
        """The likeliest candidates that were not yet put to the criteria."""
        weights = self._before()
        order = sorted(weights, key=lambda step: (-weights[step], step))
        return tuple(step for step in order if step not in self.rulings)[:_CANDIDATES]

    def rule(self, heard: Mapping[Criterion, Mapping[int, Ruling]]) -> None:
        for criterion, rulings in heard.items():
            for step, ruling in rulings.items():
                self.rulings.setdefault(step, {})[criterion] = ruling

    def passes(self, step: int) -> bool:
        return all(ruling.probability >= 0.5 for ruling in self.rulings[step].values())

    def order(self) -> list[int]:
        """The candidates that were put to the criteria, likeliest first."""
        weights = self._weights()
        return sorted(weights, key=lambda step: (-weights[step], step))

    def objections(self) -> str:
        """What is held against the candidates so far, for the judge; empty before the first round."""
        held = [
            f"step {step}: {criterion.name.lower()} is doubted; {_shown(ruling.why) or 'no reason given'}"
            for step in self.order()
            for criterion, ruling in self.rulings[step].items()
            if ruling.probability < 0.5
        ]
        if not held:
            return ""
        listed = "\n".join(held)
        return (
            "Candidates were checked by whether they are a fault, the first, and lasting. Held against"
            f" them:\n{listed}\nDefend one with evidence, or find the step that meets all three.\n"
        )

    def verdict(self) -> Verdict:
        weights = self._weights()
        total = sum(weights.values()) + _UNNAMED
        best, *others = self.order()
        step = step_at(self.trajectory, best)
        assert step is not None
        confidence = round(min(weights[best] / total, _MOST_CONFIDENT), 4)
        claim, rulings = self.claims.get(best), self.rulings[best]
        fault = rulings[Criterion.FAULT]
        quotes = [quote for ruling in rulings.values() for quote in ruling.evidence]
        return Blame(
            agent=step.agent,
            step=best,
            reason=(claim.reason if claim else fault.why) or "it meets the criteria best, without a reason",
            confidence=confidence,
            fix=(claim.fix if claim else "") or fault.instead,
            mode=claim.mode if claim else "",
            evidence=tuple(dict.fromkeys([*(claim.evidence if claim else ()), *quotes])),
            ranking=rank(self.trajectory, step, confidence, [(s, weights[s] / total) for s in others]),
        )

    def _before(self) -> dict[int, float]:
        """Weights of all candidates before the criteria."""
        hints: Sequence[Ranked] = weigh(self.trajectory).ranking[:_FROM_SIGNALS]
        steps = dict.fromkeys([*self.proposed, *(hint.step for hint in hints)], _LEAST)
        for step, probability in self.proposed.items():
            steps[step] += _JUDGE_SHARE * probability
        for hint in hints:
            steps[hint.step] += (1 - _JUDGE_SHARE) * hint.probability
        return steps

    def _weights(self) -> dict[int, float]:
        before = self._before()
        weights: dict[int, float] = {}
        for step, rulings in self.rulings.items():
            weights[step] = before[step]
            for ruling in rulings.values():
                weights[step] *= ruling.weight
        return weights


def _shown(why: str) -> str:
    return " ".join(why.split())[:_LONGEST_OBJECTION]


def _hear_all(
    trajectory: Trajectory, rendering: Rendering, candidates: Sequence[int]
) -> Generator[Prompt, Reply, Mapping[Criterion, Mapping[int, Ruling]] | Abstention]:
    """Put every criterion to the candidates; all of them are answered, or none counts."""
    heard: dict[Criterion, Mapping[int, Ruling]] = {}
    for criterion in Criterion if candidates else ():
        rulings = yield from _hear(trajectory, rendering, criterion, candidates)
        if isinstance(rulings, Abstention):
            return rulings
        heard[criterion] = rulings
    return heard


def _hear(
    trajectory: Trajectory, rendering: Rendering, criterion: Criterion, candidates: Sequence[int]
) -> Generator[Prompt, Reply, Mapping[int, Ruling] | Abstention]:
    """Put one criterion to all candidates; once more if the answer cannot be read."""
    listed = ", ".join(f"step {step}" for step in candidates)
    prompt = ask(
        trajectory,
        rendering,
        duty=_DUTY,
        question=f"{criterion.value}\nAnswer it for each of: {listed}; {FORMAT}.",
        max_output_tokens=_OUTPUT_TOKENS,
        schema=SCHEMA,
    )
    reply = yield prompt
    rulings = read_rulings(reply, trajectory, candidates)
    if isinstance(rulings, str):
        reply = yield repair(prompt, reply, rulings, FORMAT)
        rulings = read_rulings(reply, trajectory, candidates)
    return unreadable(rulings, reply) if isinstance(rulings, str) else rulings
