"""Bisect: asks in which part of the run the decisive error lies, and takes no answer for certain.

Each question splits what is believed so far in half; each answer shifts the belief by the error
rate that the method is told, until one step is likely enough. A question that comes up again is
put the other way round, and drawn anew, because a model asked twice in the same words is one
witness and not two. Its errors are still not independent the way the arithmetic takes them to
be, so no verdict claims more than 0.9.

Each answer also names the step that the model suspects and what should be done there instead:
the verdict's fix is the latest one given for the step that is blamed. It costs no call.

Source: noisy generalised binary search, arXiv:0910.4397; the question is that of binary search,
arXiv:2505.00212, with the whole run in sight. Cost: ceil(log2 steps) model calls at an error rate
of 0; at 0.2 and a wanted confidence of 0.98 about 24 for 64 steps, never half as many as steps
from 64 on (at most 31 below, 100 at all). Every call shows the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from analyzer.bisection import Belief, answered, blend, is_settled, most_questions, split
from analyzer.method import Inquiry, Prompt, Reply, ResponseSchema
from analyzer.methods.answering import nothing_to_judge, ranking_of, repair, unreadable
from analyzer.methods.briefing import ask
from analyzer.methods.free_text import LONGEST, objects, spoken
from analyzer.methods.signals import weigh
from analyzer.methods.yes_or_no import read_yes_or_no
from analyzer.render import render
from semconv.model import Abstention, Blame, Ranked, Trajectory

_OUTPUT_TOKENS: Final = 500
_NEITHER: Final = "it says neither yes nor no"
_MOST_CONFIDENT: Final = 0.9
_TRUST_IN_SIGNALS: Final = 0.05
"""How far signals move the belief before the first question; where they are wrong it costs 0.07 bit."""
_DUTY: Final = "You narrow down which step made a multi-agent run fail."
_SCHEMA: Final = ResponseSchema(
    name="in_this_part",
    schema={
        "type": "object",
        "additionalProperties": False,
        "required": ["reason", "answer", "step", "fix"],
        "properties": {
            "reason": {"type": "string", "description": "one or two sentences"},
            "answer": {"type": "string", "enum": ["yes", "no"]},
            "step": {"type": "integer", "description": "the one step you suspect most"},
            "fix": {"type": "string", "description": "what its agent should do instead, as an instruction"},
        },
    },
)
_FORMAT: Final = (
    'as one JSON object {"reason": "one or two sentences", "answer": "yes" or "no", "step": the one step you'
    ' suspect most, "fix": "what its agent should do instead, as an instruction"}'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bisect:
    """Noisy binary search over the steps. ``max_bytes`` bounds the run's text in each prompt.

    Raises:
        ValueError: ``error_rate`` is not in 0..0.5, its end excluded.
    """

    max_bytes: int
    error_rate: float = 0.2
    """How often an answer is taken to be wrong; 0 takes every answer as certain."""
    wanted: float = 0.98
    """The probability of one step at which the questions end."""
    name: str = "bisect"

    def __post_init__(self) -> None:
        if not 0 <= self.error_rate < 0.5:
            message = f"an error rate of {self.error_rate:g} leaves answers worth nothing: expected 0 to 0.5"
            raise ValueError(message)

    def investigate(self, trajectory: Trajectory) -> Inquiry:
        """Ask until one step is likely enough, or the questions are used up."""
        if not trajectory.steps:
            return nothing_to_judge()
        count = len(trajectory.steps)
        belief = blend(count, _hints(trajectory), _TRUST_IN_SIGNALS)
        rendering = render(trajectory, max_bytes=self.max_bytes)
        asked: Counter[int] = Counter()
        fixes: dict[int, str] = {}
        while not is_settled(belief, self.wanted, self.error_rate) and asked.total() < most_questions(count):
            first = split(belief, self.error_rate)
            question = _Question(first=first, count=count, time=asked[first])
            asked[first] += 1
            prompt = ask(
                trajectory,
                rendering,
                duty=_DUTY,
                question=question.text(trajectory),
                max_output_tokens=_OUTPUT_TOKENS,
                schema=_SCHEMA,
            )
            said = yield from _put(replace(prompt, sample=question.time // 2))
            if isinstance(said, Abstention):
                return said
            belief = answered(
                belief, first, is_among=said.says_yes is not question.is_turned, error_rate=self.error_rate
            )
            fixes |= said.fixes
        blamed = self._verdict(trajectory, belief, asked.total())
        return replace(blamed, fix=fixes.get(blamed.step, ""))

    def _verdict(self, trajectory: Trajectory, belief: Belief, questions: int) -> Blame:
        order = sorted(range(len(belief)), key=lambda place: (-belief[place], place))
        ranking = ranking_of(trajectory, [(place, belief[place]) for place in order])
        best = ranking[0]
        doubt = f", each taken to be wrong {self.error_rate:.0%} of the time" if self.error_rate else ""
        return Blame(
            agent=best.agent,
            step=best.step,
            reason=f"{questions} answers about where the run went wrong{doubt}, leave step {best.step}"
            f" with a probability of {belief[order[0]]:.2f}.",
            confidence=min(best.probability, _MOST_CONFIDENT),
            ranking=_capped(ranking),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """Whether the error is among the first steps; turned round every second time it comes up."""

    first: int
    count: int
    time: int

    @property
    def is_turned(self) -> bool:
        """Whether it asks about the later part instead."""
        return self.time % 2 == 1

    def text(self, trajectory: Trajectory) -> str:
        steps = trajectory.steps
        part = steps[self.first :] if self.is_turned else steps[: self.first]
        other = steps[: self.first] if self.is_turned else steps[self.first :]
        return (
            f"Is the decisive error in one of the steps {part[0].index} to {part[-1].index}?"
            f" (If not, it is in one of the steps {other[0].index} to {other[-1].index}.)\n"
            f"Answer {_FORMAT}."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    says_yes: bool
    fixes: Mapping[int, str]
    """What to do instead, by step; of one step at most."""


def _put(prompt: Prompt) -> Generator[Prompt, Reply, _Answer | Abstention]:
    """Ask, once more if the answer cannot be read; return what it says, or that it is unreadable."""
    reply = yield prompt
    said = read_yes_or_no(reply.text)
    if said is None:
        reply = yield repair(prompt, reply, _NEITHER, _FORMAT)
        said = read_yes_or_no(reply.text)
    return unreadable(_NEITHER, reply) if said is None else _Answer(says_yes=said, fixes=_fixes(reply.text))


def _fixes(text: str) -> Mapping[int, str]:
    """Return the fix that an answer proposes, by its step; none is no fault of an answer."""
    for found in objects(spoken(text)[:LONGEST]):
        step, fix = found.get("step"), found.get("fix")
        if isinstance(step, int) and not isinstance(step, bool) and isinstance(fix, str) and fix.strip():
            return {step: fix.strip()}
    return {}


def _hints(trajectory: Trajectory) -> Sequence[tuple[int, float]]:
    place = {step.index: position for position, step in enumerate(trajectory.steps)}
    return [(place[candidate.step], candidate.probability) for candidate in weigh(trajectory).ranking]


def _capped(ranking: Sequence[Ranked]) -> tuple[Ranked, ...]:
    return tuple(replace(each, probability=min(each.probability, _MOST_CONFIDENT)) for each in ranking)
