"""Suspected failures: runs that reported no failure, but whose evidence says that they failed.

The evidence is weighed without a model (``analyzer.signals.suspicion``). If a model is configured, it is
shown the run and asked whether the strongest evidence holds. Its answer is an opinion: it moves the
probability, and alone it clears no suspicion. Cost: no call for runs without such evidence, one for others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from analyzer.inquiry.method import Inquiry, Prompt
from analyzer.inquiry.render import Rendering, render
from analyzer.inquiry.verdict import FailureMode
from analyzer.lineage.clue import weigh
from analyzer.methods.briefing import ask
from analyzer.methods.pooling import WEIGHT
from analyzer.methods.prompt_injection import speaking_steps
from analyzer.methods.reasons import in_fix, subject_of
from analyzer.signals.suspicion import Clue, ClueKind, clues
from analyzer.texts.run_view import read
from semconv.model import (
    Blame,
    Evidence,
    Ranked,
    Status,
    Trajectory,
)

_MODES: Final[dict[ClueKind, FailureMode]] = {
    ClueKind.WRONG_FIGURE: FailureMode.UNSUPPORTED_CLAIM,
    ClueKind.WRONG_SUM: FailureMode.WRONG_COMPUTATION,
    ClueKind.UNSOURCED: FailureMode.UNSUPPORTED_CLAIM,
    ClueKind.IGNORED_ERROR: FailureMode.IGNORED_RESULT,
    ClueKind.LOOP: FailureMode.LOOP,
    ClueKind.CONSTRAINT: FailureMode.OFF_TASK,
    ClueKind.UNDONE: FailureMode.INCOMPLETE_WORK,
    ClueKind.INVENTED: FailureMode.IGNORED_RESULT,
    ClueKind.OTHER_LANGUAGE: FailureMode.OFF_TASK,
    ClueKind.CHANGED: FailureMode.UNSUPPORTED_CLAIM,
    ClueKind.EXCEEDED: FailureMode.IGNORED_RESULT,
    ClueKind.MISREPORTED: FailureMode.UNSUPPORTED_CLAIM,
    ClueKind.CLAIMED: FailureMode.UNSUPPORTED_CLAIM,
    ClueKind.CUT_SHORT: FailureMode.INCOMPLETE_WORK,
    ClueKind.OUT_OF_DATE: FailureMode.IGNORED_RESULT,
}
_FIXES: Final[dict[ClueKind, str]] = {
    ClueKind.WRONG_FIGURE: "Check each figure in the answer of {agent} against its tools' results.",
    ClueKind.WRONG_SUM: "Have {agent} compute with a tool and copy the result; check sums.",
    ClueKind.UNSOURCED: "Let {agent} cite only what its tools returned, and check that it did.",
    ClueKind.IGNORED_ERROR: "Tell {agent} to stop when a call fails or returns nothing, or to say so.",
    ClueKind.LOOP: "Stop {agent} after two equal calls with an equal result.",
    ClueKind.CONSTRAINT: "Check the answer of {agent} against the task's demands before it is sent.",
    ClueKind.UNDONE: "Give {agent} another way when a call fails, or end the run as failed.",
    ClueKind.INVENTED: "Tell {agent} to claim only what a call returned, and to say so when a call fails.",
    ClueKind.OTHER_LANGUAGE: "Tell {agent} to answer in the language of the task.",
    ClueKind.CHANGED: "Hand {agent} values as data, and compare those of its calls and its answer with them.",
    ClueKind.EXCEEDED: "Refuse calls of {agent} beyond what the check before them allows.",
    ClueKind.MISREPORTED: "Let {agent} copy figures from the result of the call that it reports.",
    ClueKind.CLAIMED: "Tell {agent} to claim only what one of its calls did.",
    ClueKind.CUT_SHORT: "Let {agent} count the entries of a result, and compare with those that it names.",
    ClueKind.OUT_OF_DATE: "Tell {agent} to compare the date of a result with today's before using it.",
}
_RANKED: Final = 5
_SHOWN: Final = 3
_OUTPUT_TOKENS: Final = 512
_DUTY: Final = (
    "You check whether the final answer of a run of AI agents is right, by what the run itself shows."
)
_SUPPORT: Final = (0.85 / 0.15) ** WEIGHT
"""Factor of the odds by a model's answer. That 85 % are right is assumed, hence the small weight."""


def suspect(trajectory: Trajectory, least: float) -> Blame | None:
    """Return the suspected failure of a run that reports none; ``None`` below ``least`` probability."""
    weighed = weigh(clues(read(trajectory)))
    if not weighed.clues or weighed.probability < least:
        return None
    agents = {step.index: step.agent for step in trajectory.steps}
    first = _main_clue([clue for _, clue in weighed.clues])
    agent = agents[first.step]
    kind = ClueKind.WRONG_SUM if first.is_miscalculated else first.kind
    ranking = _ranking(weighed.clues, weighed.probability, agents)
    return Blame(
        agent=agent,
        step=first.step,
        reason=f"{subject_of(trajectory.steps[first.step])} {first.reason}.",
        confidence=ranking[0].probability,
        fix=_FIXES[kind].format(agent=in_fix(agent)),
        mode=_MODES[kind].value,
        evidence=_evidence([first, *(clue for _, clue in weighed.clues)]),
        ranking=ranking,
        status=Status.SUSPECTED,
        failed_probability=weighed.probability,
    )


def _main_clue(found: Sequence[Clue]) -> Clue:
    """Return the strongest clue, or the wrong calculation in the same step that led to the same figure."""
    first = found[0]
    same = (clue for clue in found if (clue.step, clue.value) == (first.step, first.value))
    sums = (clue for clue in same if clue.is_miscalculated)
    return first if first.is_miscalculated else next(sums, first)


def _evidence(found: Sequence[Clue]) -> tuple[Evidence, ...]:
    quotes = dict.fromkeys(quote for clue in found[: _SHOWN + 1] for quote in clue.evidence if quote.quote)
    return tuple(
        one
        for one in quotes
        if not any(one.step == other.step and one != other and one.quote in other.quote for other in quotes)
    )[:_SHOWN]


def _ranking(
    scored: Sequence[tuple[float, Clue]], probability: float, agents: dict[int, str]
) -> tuple[Ranked, ...]:
    """Distribute a run's probability of failure over the steps of its clues, which are sorted by strength."""
    by_step: dict[int, float] = {}
    for score, clue in scored:
        by_step.setdefault(clue.step, score)
    shares = list(by_step.items())[:_RANKED]
    total = sum(share for _, share in shares)
    return tuple(
        Ranked(step=step, agent=agents[step], probability=round(probability * share / total, 4))
        for step, share in shares
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirm:
    """Asks a model whether the evidence of a suspected failure holds."""

    blame: Blame
    max_bytes: int
    marker: str
    name: str = "confirm"

    def investigate(self, trajectory: Trajectory) -> Inquiry:
        """Yield one question; an unreadable answer leaves the suspicion unchanged."""
        rendering = render(trajectory, max_bytes=self.max_bytes, marker=self.marker)
        reply = yield self._question(rendering, trajectory)
        from analyzer.methods.free_text import read_yes_or_no  # noqa: PLC0415 - most runs ask no model

        said = read_yes_or_no(reply.text)
        if said is None or speaking_steps(trajectory):
            return self.blame  # the run's text may have dictated the answer
        updated = _updated(self.blame, holds=said)
        if said:
            return updated
        return replace(
            updated, reason=f"{updated.reason} A model that was asked says that this does not hold."
        )

    def _question(self, rendering: Rendering, trajectory: Trajectory) -> Prompt:
        """Ask about the step by number and kind of mistake: no text of the run appears outside its fence."""
        steps = sorted({evidence.step for evidence in self.blame.evidence} - {self.blame.step})
        beside = f" Compare it with step {' and '.join(map(str, steps))}." if steps else ""
        mistake = self.blame.mode.replace("_", " ")
        question = (
            f"The run ended without an error. An automatic check suspects step {self.blame.step} of a mistake"
            f" of the kind “{mistake}” that makes the final answer wrong.{beside} Read the run. Did this step"
            " make a mistake that is still in the final answer? Begin with Yes or No, then give one sentence."
        )
        return ask(trajectory, rendering, duty=_DUTY, question=question, max_output_tokens=_OUTPUT_TOKENS)


def _updated(blame: Blame, *, holds: bool) -> Blame:
    """Return a suspicion with its probability pooled with a model's answer."""
    before = blame.certainty
    odds = before / max(1e-6, 1 - before) * (_SUPPORT if holds else 1 / _SUPPORT)
    probability = round(odds / (1 + odds), 4)
    scale = probability / before if before else 0.0
    ranking = tuple(replace(one, probability=_scaled(one.probability, scale)) for one in blame.ranking)
    confidence = _scaled(blame.confidence, scale)
    return replace(blame, confidence=confidence, failed_probability=probability, ranking=ranking)


def _scaled(probability: float, scale: float) -> float:
    return round(min(1.0, probability * scale), 4)
