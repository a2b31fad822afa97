"""Verify: candidates from signals and a judge, each put to three criteria, in up to two rounds.

The judge proposes; three questions (is it a fault, is it the first, was it not repaired) are
asked about all candidates, one criterion per call; objections to the best candidate go back to
the judge once, which may defend it or propose another. A candidate's score combines its proposers
and the answers; an answer whose quote is not in the run counts half. A verdict needs a quote of the step that
it blames: proof that a fault was repaired is in a later step, and an attack may quote its own words anywhere.

Source: judge and specialised evaluators in rounds, arXiv:2509.06822 (RAFFLES). Cost: 4 model calls if the
best candidate passes, at most 8, and one more for each unreadable answer.

The criteria that a candidate must meet, and the parsing and weighting of the answers, are here too.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from analyzer.inquiry.method import Inquiry, Prompt, Reply, ResponseSchema
from analyzer.inquiry.render import Rendering, render
from analyzer.methods.briefing import INTEGER, NUMBER, STRING, ask, list_of, object_of
from analyzer.methods.free_text import LONGEST, objects
from analyzer.methods.judge import Objects, claim, judge_prompt, put, supported_in_its_step
from analyzer.methods.settle_answer import (
    ask_until_read,
    check_quotes,
    nothing_to_judge,
    rank,
    says,
    step_at,
)
from analyzer.methods.without_model import judge_by_signals
from semconv.model import Abstention, Blame, Evidence, Ranked, Trajectory, Verdict

_SUREST: Final = 0.95
_DOUBTED: Final = 0.5
"""Share of an answer's weight that remains if its quote is not in the run."""
_OVERLAP: Final = 0.7
"""Exponent of the answers' odds: three answers of one model on one text are not independent."""


class Criterion(Enum):
    """A property of the decisive error, as a question about each candidate."""

    FAULT = (
        "Is it a fault? Did the agent do something wrong there, judged by what it had seen by then: a"
        " false claim, a wrong step of reasoning, a wrong or missing call, something it was asked for"
        " and left out?"
    )
    FIRST = (
        "Is it the first? Was the run still able to succeed right before this step, and does the step"
        " bring the error in itself, rather than repeat or build on an earlier one?"
    )
    LASTING = (
        "Was it not repaired? Did its effect last until the end, so that the run would have succeeded"
        " had this step alone been done right?"
    )


_ANSWER: Final = object_of(
    step=INTEGER, why=STRING, quote=STRING, holds={"type": "boolean"}, confidence=NUMBER, instead=STRING
)
SCHEMA: Final = ResponseSchema(name="criterion", schema=object_of(answers=list_of(_ANSWER)))
FORMAT: Final = (
    'as one JSON object {"answers": [...]} with one entry a candidate: step, why (one or two sentences),'
    " quote (word for word from that step, or of what repaired it), holds (true or false),"
    " confidence (0 to 1, of that answer),"
    " instead (what the agent should have done there; empty if nothing else)"
)


class _Finding(BaseModel):
    model_config = ConfigDict(str_strip_whitespace=True)
    step: int
    holds: bool
    confidence: float = Field(default=0.7, ge=0, le=1, allow_inf_nan=False)
    why: str = ""
    quote: str = ""
    instead: str = ""


class _Findings(BaseModel):
    answers: Objects[_Finding]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """Whether one candidate meets one criterion."""

    step: int
    probability: float
    """Probability that it does, 0..1, after checking the quote."""
    why: str
    instead: str
    evidence: tuple[Evidence, ...]

    @property
    def weight(self) -> float:
        """Odds that the candidate meets the criterion, tempered because the criteria overlap."""
        return float((self.probability / (1 - self.probability)) ** _OVERLAP)


def read_rulings(
    reply: Reply, trajectory: Trajectory, candidates: Sequence[int]
) -> Mapping[int, Ruling] | str:
    """Read the rulings on all candidates; otherwise return the problem as text."""
    problem = "it contains no JSON object with answers"
    for found in objects(reply.text[:LONGEST]):
        try:
            findings = _Findings.model_validate(found)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            problem = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
            continue
        rulings = {answer.step: _ruling(answer, trajectory) for answer in findings.answers}
        missing = [step for step in candidates if step not in rulings]
        if not missing:
            return {step: rulings[step] for step in candidates}
        problem = f"it says nothing of step {missing[0]}"
    return problem


def _ruling(finding: _Finding, trajectory: Trajectory) -> Ruling:
    """Check a quote against all steps: proof that a fault was repaired is in a later step."""
    quoted = [(finding.step, finding.quote)] if finding.quote else []
    elsewhere = (step.index for step in trajectory.steps if quoted and says(step, finding.quote))
    quoted += [(index, finding.quote) for index in islice(elsewhere, 1)]
    evidence = check_quotes(trajectory, quoted).evidence[:1]
    sure = min(finding.confidence, _SUREST) if evidence else 0.5 + (finding.confidence - 0.5) * _DOUBTED
    sure = max(sure, 0.5)  # a model that says "yes, confidence 0.1" has not said "no"
    return Ruling(
        step=finding.step,
        probability=min(sure, _SUREST) if finding.holds else 1 - min(sure, _SUREST),
        why=finding.why,
        instead=finding.instead,
        evidence=evidence,
    )


_ROUNDS: Final = 2
_FROM_SIGNALS: Final = 2
_CANDIDATES: Final = 4
"""Candidates per round."""
_JUDGE_SHARE: Final = 0.7
"""The judge's share of the weight before the criteria; the rest is the signals'."""
_LEAST: Final = 0.02
_UNNAMED: Final = 0.1
"""Total weight of the steps that were not proposed."""
_MOST_CONFIDENT: Final = 0.95
_OUTPUT_TOKENS: Final = 1_500
_LONGEST_OBJECTION: Final = 200
_DUTY: Final = "You check candidates for the step that made a multi-agent run fail, by one criterion."


@dataclass(frozen=True, slots=True, kw_only=True)
class Verify:
    """Judge and verifiers. ``max_bytes`` bounds the run's text in each prompt."""

    max_bytes: int
    marker: str
    """Begins the lines of structure in prompts; occurs in no text."""
    name: str = "verify"

    def investigate(self, trajectory: Trajectory) -> Inquiry:
        """Propose and verify until a candidate passes every criterion, at most twice."""
        if not trajectory.steps:
            return nothing_to_judge()
        rendering = render(trajectory, max_bytes=self.max_bytes, marker=self.marker)
        table = _CandidateTable(trajectory=trajectory)
        for _ in range(_ROUNDS):
            answer = yield from put(
                judge_prompt(trajectory, rendering, preface=table.objections()), trajectory
            )
            if isinstance(answer, Abstention):
                if not table.rulings:
                    return answer
                break  # the first round's result is kept
            table.propose(claim(trajectory, answer))
            heard = yield from _check_criteria(trajectory, rendering, table.unchecked())
            if isinstance(heard, Abstention):
                if not table.rulings:
                    return heard
                break
            table.rule(heard)
            if table.passes(table.order()[0]):
                break
        return table.verdict()


@dataclass(slots=True, kw_only=True)
class _CandidateTable:
    """The candidates with the claims and rulings on each."""

    trajectory: Trajectory
    claims: dict[int, Blame] = field(default_factory=dict)
    """The judge's claims on the steps it blamed."""
    proposed: dict[int, float] = field(default_factory=dict)
    """The judge's probabilities, the latest for each step."""
    rulings: dict[int, dict[Criterion, Ruling]] = field(default_factory=dict)

    def propose(self, found: Blame) -> None:
        self.claims[found.step] = found
        for candidate in found.ranking:
            self.proposed[candidate.step] = candidate.probability

    def unchecked(self) -> tuple[int, ...]:
        """Return the likeliest candidates not yet checked against the criteria."""
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
        """Return the candidates checked against the criteria, likeliest first."""
        weights = self._weights()
        return sorted(weights, key=lambda step: (-weights[step], step))

    def objections(self) -> str:
        """Return the objections to the candidates so far as text for the judge; empty at first."""
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
        claimed, rulings = self.claims.get(best), self.rulings[best]
        fault = rulings[Criterion.FAULT]
        quotes = [quote for ruling in rulings.values() for quote in ruling.evidence]
        verdict = Blame(
            agent=step.agent,
            step=best,
            reason=(claimed.reason if claimed else fault.why) or "it meets the criteria best",
            confidence=confidence,
            fix=(claimed.fix if claimed else "") or fault.instead,
            mode=claimed.mode if claimed else "",
            evidence=tuple(dict.fromkeys([*(claimed.evidence if claimed else ()), *quotes])),
            ranking=rank(self.trajectory, step, confidence, [(s, weights[s] / total) for s in others]),
        )
        return supported_in_its_step(self.trajectory, verdict)

    def _before(self) -> dict[int, float]:
        """Return the weights of all candidates before the criteria."""
        hints: Sequence[Ranked] = judge_by_signals(self.trajectory).ranking[:_FROM_SIGNALS]
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


def _check_criteria(
    trajectory: Trajectory, rendering: Rendering, candidates: Sequence[int]
) -> Generator[Prompt, Reply, Mapping[Criterion, Mapping[int, Ruling]] | Abstention]:
    """Ask about every criterion; an unreadable answer to one discards them all."""
    heard: dict[Criterion, Mapping[int, Ruling]] = {}
    for criterion in Criterion if candidates else ():
        rulings = yield from _check_criterion(trajectory, rendering, criterion, candidates)
        if isinstance(rulings, Abstention):
            return rulings
        heard[criterion] = rulings
    return heard


def _check_criterion(
    trajectory: Trajectory, rendering: Rendering, criterion: Criterion, candidates: Sequence[int]
) -> Generator[Prompt, Reply, Mapping[int, Ruling] | Abstention]:
    """Ask about one criterion for all candidates; repeat if the answer cannot be read."""
    listed = ", ".join(f"step {step}" for step in candidates)
    prompt = ask(
        trajectory,
        rendering,
        duty=_DUTY,
        question=f"{criterion.value}\nAnswer it for each of: {listed}; {FORMAT}.",
        max_output_tokens=_OUTPUT_TOKENS,
        schema=SCHEMA,
    )
    return (
        yield from ask_until_read(prompt, lambda reply: read_rulings(reply, trajectory, candidates), FORMAT)
    )
