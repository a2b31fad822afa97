"""Bisect: noisy binary search that asks which part of the run holds the decisive error.

Each question splits the current belief in half; each answer shifts the belief according to the configured
error rate, until one step is likely enough. A repeated question is inverted and resampled, because the same
words asked twice give one piece of evidence and not two. The model's errors are still not independent, as the
arithmetic assumes, so no verdict claims more than 0.9.

Each answer also names the step that the model suspects, quotes it and proposes a fix: the verdict's fix is
the latest one given for the blamed step. This costs no extra call. Without a true quote of the blamed step
the method abstains: the model may obey a text of the run, or may not have read it.

Source: noisy generalised binary search, arXiv:0910.4397; the question is that of binary search,
arXiv:2505.00212, with the whole run in sight. Cost: ceil(log2 steps) model calls at an error rate of 0; at
0.2 and a target confidence of 0.98 about 24 for 64 steps; always fewer than half the steps from 64 steps on,
at most 31 below, and never more than 100. Every call shows the run.

The search: a belief is a probability for each of n places in order; a question is whether the target
is among the first k. The question that splits the belief's mass most evenly is the most informative;
each answer multiplies the belief by its likelihood (Horstein's scheme; its analysis for general
questions: arXiv:0910.4397). With an error rate of 0 the split is kept small enough on both sides that
ceil(log2 n) questions always suffice, whatever the initial belief.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from analyzer.inquiry.method import Inquiry, Reply, ResponseSchema
from analyzer.inquiry.render import render
from analyzer.methods.briefing import ask, object_of
from analyzer.methods.free_text import LONGEST, objects, read_yes_or_no, spoken
from analyzer.methods.judge import has_text, supported_in_its_step
from analyzer.methods.settle_answer import ask_until_read, check_quotes, nothing_to_judge, ranking_of
from analyzer.methods.without_model import judge_by_signals
from semconv.model import Abstention, Blame, Ranked, Status, Trajectory

Belief: TypeAlias = tuple[float, ...]
"""One probability per place, in order; they sum to 1."""

_FEW: Final = 64
_MOST_AMONG_FEW: Final = 31
_MOST: Final = 100


def most_questions(places: int) -> int:
    """Return the maximum number of questions: fewer than half the places, from 64 places on."""
    if places < _FEW:
        return max(_MOST_AMONG_FEW, needed(places))
    return min((places - 1) // 2, _MOST)


def needed(places: int) -> int:
    """Return the number of questions that find one of ``places`` if every answer is correct: ceil(log2)."""
    return (places - 1).bit_length() if places > 1 else 0


def blend(places: int, hints: Sequence[tuple[int, float]], trust: float) -> Belief:
    """Return a uniform belief shifted by ``trust`` (0..1) towards hints (place, weight)."""
    total = sum(weight for _, weight in hints)
    if total <= 0:
        return (1 / places,) * places
    belief = [(1 - trust) / places] * places
    for place, weight in hints:
        belief[place] += trust * weight / total
    return tuple(belief)


def split(belief: Belief, error_rate: float) -> int:
    """Return how many places, counted from the first, the next question should cover: 1..n-1."""
    live = [place for place, share in enumerate(belief) if share > 0]
    widest = 2 ** (needed(len(live)) - 1) if error_rate == 0 else len(belief)
    best, least = live[0] + 1, 2.0
    mass, left = 0.0, 0
    for place in range(len(belief) - 1):
        mass += belief[place]
        left += belief[place] > 0
        fits = 0 < left <= widest and 0 < len(live) - left <= widest
        if fits and abs(mass - 0.5) < least:
            best, least = place + 1, abs(mass - 0.5)
    return best


def answered(belief: Belief, first: int, *, is_among: bool, error_rate: float) -> Belief:
    """Return the belief after an answer on whether the target is among the ``first`` places."""
    weights = [
        share * (1 - error_rate if (place < first) is is_among else error_rate)
        for place, share in enumerate(belief)
    ]
    total = sum(weights)
    return tuple(weight / total for weight in weights)


def is_settled(belief: Belief, wanted: float, error_rate: float) -> bool:
    """Tell whether one place is likely enough; with an error rate of 0, whether only one is left."""
    if error_rate == 0:
        return sum(share > 0 for share in belief) == 1
    return max(belief) >= wanted


_OUTPUT_TOKENS: Final = 500
_NEITHER: Final = "it says neither yes nor no"
_MOST_UNNAMED: Final = 4
"""Number of answers naming no step after which to stop asking: without a quote, no step can be blamed."""
_NO_STEP: Final = "the model answered yes or no, but named and quoted no step, so none can be blamed"
_MOST_CONFIDENT: Final = 0.9
_TRUST_IN_SIGNALS: Final = 0.05
"""Weight of the signals in the initial belief; if they are wrong, this costs 0.07 bit."""
_DUTY: Final = "You narrow down which step made a multi-agent run fail."
_SCHEMA: Final = ResponseSchema(
    name="in_this_part",
    schema=object_of(
        reason={"type": "string", "description": "one or two sentences"},
        answer={"type": "string", "enum": ["yes", "no"]},
        step={"type": "integer", "description": "the one step you suspect most"},
        quote={"type": "string", "description": "what is wrong there, word for word from that step"},
        fix={"type": "string", "description": "what its agent should do instead, as an instruction"},
    ),
)
_FORMAT: Final = (
    'as one JSON object {"reason": "one or two sentences", "answer": "yes" or "no", "step": the one step you'
    ' suspect most, "quote": "what is wrong there, word for word from that step",'
    ' "fix": "what its agent should do instead, as an instruction"}'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bisect:
    """Noisy binary search over the steps. ``max_bytes`` bounds the run's text in each prompt.

    Raises:
        ValueError: ``error_rate`` is not in [0, 0.5).
    """

    max_bytes: int
    marker: str
    """Begins the lines of structure in prompts; occurs in no text."""
    error_rate: float = 0.2
    """Assumed probability that an answer is wrong; 0 takes every answer as certain."""
    wanted: float = 0.98
    """Probability of one step at which the questions end."""
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
        rendering = render(trajectory, max_bytes=self.max_bytes, marker=self.marker)
        asked: Counter[int] = Counter()
        suspects: dict[int, _Suspect] = {}
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
            said = yield from ask_until_read(replace(prompt, sample=question.time // 2), _read, _FORMAT)
            if isinstance(said, Abstention):
                return said
            belief = answered(
                belief, first, is_among=said.says_yes is not question.is_turned, error_rate=self.error_rate
            )
            suspects |= _kept(trajectory, suspects, said.suspect)
            if asked.total() == _MOST_UNNAMED and not suspects and all(map(has_text, trajectory.steps)):
                return Abstention(status=Status.UNDETERMINED, reason=_NO_STEP)
        blamed = self._verdict(trajectory, belief, asked.total())
        if not asked:
            return blamed
        suspect = suspects.get(blamed.step, _Suspect(step=blamed.step))
        quoted = check_quotes(trajectory, [(suspect.step, suspect.quote)]).evidence
        return supported_in_its_step(trajectory, replace(blamed, fix=suspect.fix, evidence=quoted))

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
    """The question whether the error is among the first steps; inverted every second time."""

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
class _Suspect:
    """The step that an answer suspects, with its words and a fix; both may be missing."""

    step: int
    quote: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    says_yes: bool
    suspect: _Suspect | None


def _read(reply: Reply) -> _Answer | str:
    said = read_yes_or_no(reply.text)
    return _NEITHER if said is None else _Answer(says_yes=said, suspect=_suspect(reply.text))


def _suspect(text: str) -> _Suspect | None:
    for found in objects(spoken(text)[:LONGEST]):
        step = found.get("step")
        if isinstance(step, int) and not isinstance(step, bool):
            return _Suspect(step=step, quote=_text(found.get("quote")), fix=_text(found.get("fix")))
    return None


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""


def _kept(
    trajectory: Trajectory, before: Mapping[int, _Suspect], now: _Suspect | None
) -> Mapping[int, _Suspect]:
    """Return a step's latest fix, and its latest quote that is in the run."""
    if now is None:
        return {}
    suspect = before.get(now.step, _Suspect(step=now.step))
    is_true = bool(check_quotes(trajectory, [(now.step, now.quote)]).evidence)
    return {now.step: replace(now, quote=now.quote if is_true else suspect.quote, fix=now.fix or suspect.fix)}


def _hints(trajectory: Trajectory) -> Sequence[tuple[int, float]]:
    place = {step.index: position for position, step in enumerate(trajectory.steps)}
    return [
        (place[candidate.step], candidate.probability) for candidate in judge_by_signals(trajectory).ranking
    ]


def _capped(ranking: Sequence[Ranked]) -> tuple[Ranked, ...]:
    return tuple(replace(each, probability=min(each.probability, _MOST_CONFIDENT)) for each in ranking)
