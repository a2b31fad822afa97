"""Judge: the whole run, indexed and structured, in one call with a structured answer.

Source: the one-call indexed log that arXiv:2505.00212's successors report 25 to
28 step points above the unindexed all-at-once prompt on the same model; the
definition of the decisive error is that paper's annotators'.
Cost: one model call, one more if the first answer cannot be used.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from analyzer.method import Inquiry, Prompt, Reply, ResponseSchema
from analyzer.methods.answering import (
    Checked,
    check_quotes,
    contradiction,
    join_sentences,
    no_such_step,
    nothing_to_judge,
    rank,
    repair,
    step_at,
    unreadable,
)
from analyzer.methods.briefing import ask
from analyzer.methods.free_text import LONGEST, objects
from analyzer.modes import FailureMode
from analyzer.render import Rendering, render
from semconv.model import Abstention, Blame, Step, Trajectory

OUTPUT_TOKENS: Final = 1_500
_MOST_CONFIDENT: Final = 0.95
_CONTRADICTED: Final = 0.7
"""A model that mistakes whose step it is has not read the step well."""
_UNSUPPORTED: Final = 0.6
_PARTLY_SUPPORTED: Final = 0.85
_UNSAID: Final = 0.5
"""Confidence where the model gave none."""

_DUTY: Final = "You find out which step made a multi-agent run fail."
WANTED: Final = (
    """\
Name the decisive error as one JSON object with the keys reason (one to three sentences), step, \
agent (whose step it is), mode, fix, evidence (a list of {step, quote}) and ranking (up to five \
candidate steps, a list of {step, probability}, in sum at most 1). fix tells the named agent, as an \
instruction it can act on, what to do at that step instead. mode is one of: """
    f"{', '.join(mode.value for mode in FailureMode)}."
)
SHAPE: Final = "as one JSON object of the shape asked for"

_FIELDS: Final[Mapping[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["reason", "step", "agent", "mode", "fix", "evidence", "ranking"],
    "properties": {
        "reason": {"type": "string"},
        "step": {"type": "integer"},
        "agent": {"type": "string"},
        "mode": {"type": "string", "enum": [mode.value for mode in FailureMode]},
        "fix": {"type": "string"},
        "evidence": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["step", "quote"],
                "properties": {"step": {"type": "integer"}, "quote": {"type": "string"}},
            },
        },
        "ranking": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["step", "probability"],
                "properties": {"step": {"type": "integer"}, "probability": {"type": "number"}},
            },
        },
    },
}


SCHEMA: Final = ResponseSchema(name="decisive_error", schema=_FIELDS)


class Quote(BaseModel):
    """Some words of a step."""

    model_config = ConfigDict(extra="ignore")
    step: int
    quote: str


class _Candidate(BaseModel):
    model_config = ConfigDict(extra="ignore")
    step: int
    probability: float = Field(ge=0, le=1, allow_inf_nan=False)


class JudgeReply(BaseModel):
    """A judge's answer as JSON; what is not strictly needed may be missing."""

    model_config = ConfigDict(extra="ignore", str_strip_whitespace=True)
    reason: str = Field(min_length=1)
    step: int
    agent: str = ""
    mode: FailureMode = FailureMode.OTHER
    fix: str = ""
    evidence: list[Quote] = []
    ranking: list[_Candidate] = []

    @field_validator("step", mode="before")
    @classmethod
    def _a_number_is_no_truth_value(cls, value: object) -> object:
        if isinstance(value, bool):
            message = "true and false are no steps"
            raise ValueError(message)  # noqa: TRY004 - pydantic wants ValueError
        return value

    @field_validator("mode", mode="before")
    @classmethod
    def _unknown_modes_are_other(cls, value: object) -> object:
        known = isinstance(value, str) and value in {mode.value for mode in FailureMode}
        return value if known else FailureMode.OTHER

    @field_validator("evidence", "ranking", mode="before")
    @classmethod
    def _only_objects(cls, value: object) -> object:
        return only_objects(value)


def only_objects(value: object) -> list[object]:
    """Leave out of a list what is no object: details must not cost the whole answer."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


class Approach(StrEnum):
    """What the judge is told to do before it answers."""

    PLAIN = ""
    COUNTERFACTUAL = (
        "Before you answer: for each step that may be at fault, find what made the agent act so, say the"
        " least change to that step alone that would mend it, and predict how the run would then have"
        " gone on. Blame the earliest step whose change makes the run succeed.\n"
    )
    """Abduct, act, predict in one call. Source: arXiv:2509.10401."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """One call over the indexed run. ``max_bytes`` bounds the run's text in the prompt."""

    max_bytes: int
    approach: Approach = Approach.PLAIN
    name: str = "judge"

    def investigate(self, trajectory: Trajectory) -> Inquiry:
        """Ask once, once more if the answer cannot be used, and check what is answered."""
        if not trajectory.steps:
            return nothing_to_judge()
        rendering = render(trajectory, max_bytes=self.max_bytes)
        answer = yield from put(charge(trajectory, rendering, preface=self.approach.value), trajectory)
        return answer if isinstance(answer, Abstention) else blame(trajectory, answer)


def charge(trajectory: Trajectory, rendering: Rendering, *, preface: str) -> Prompt:
    """Return the judge's question; ``preface`` is what it is told right before."""
    return ask(
        trajectory,
        rendering,
        duty=_DUTY,
        question=f"{preface}{WANTED}",
        max_output_tokens=OUTPUT_TOKENS,
        schema=SCHEMA,
    )


def put(prompt: Prompt, trajectory: Trajectory) -> Generator[Prompt, Reply, JudgeReply | Abstention]:
    """Ask, once more if the answer cannot be used; return the answer, or that there is none."""
    reply = yield prompt
    answer = read_reply(reply, trajectory)
    if isinstance(answer, str):
        reply = yield repair(prompt, reply, answer, SHAPE)
        answer = read_reply(reply, trajectory)
    return unreadable(answer, reply) if isinstance(answer, str) else answer


def read_reply(reply: Reply, trajectory: Trajectory) -> JudgeReply | str:
    """Read an answer about an existing step; otherwise return what is wrong with it, in words."""
    begun = reply.text.lstrip().startswith(("{", "```"))
    problem = "its JSON is broken or cut off" if begun else "it contains no JSON object"
    for found in objects(reply.text[:LONGEST]):
        try:
            answer = JudgeReply.model_validate(found)
        except ValidationError as error:
            if begun and "reason" not in found:
                continue  # a piece of an object that as a whole could not be read
            problem = "; ".join(
                f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_url=False)[:3]
            )
            continue
        if step_at(trajectory, answer.step) is not None:
            return answer
        problem = no_such_step(trajectory, answer.step)
    return problem


def blame(trajectory: Trajectory, answer: JudgeReply) -> Blame:
    """Turn an answer about an existing step into a verdict that holds, and trust it as far as it does."""
    step = step_at(trajectory, answer.step)
    assert step is not None
    mistaken = contradiction(trajectory, answer.agent, step) if answer.agent else ""
    checked = check_quotes(trajectory, ((item.step, item.quote) for item in answer.evidence))
    confidence = min(_MOST_CONFIDENT, _stated_confidence(answer, step)) * support(checked, step)
    confidence = round(confidence * (_CONTRADICTED if mistaken else 1.0), 4)
    candidates = ((item.step, item.probability) for item in answer.ranking)
    return Blame(
        agent=step.agent,
        step=step.index,
        reason=join_sentences([answer.reason, f"({mistaken}; the step decides)" if mistaken else ""]),
        confidence=confidence,
        fix=answer.fix.strip(),
        mode=answer.mode.value,
        evidence=checked.evidence,
        ranking=rank(trajectory, step, confidence, candidates),
    )


def support(checked: Checked, step: Step) -> float:
    """Return what a verdict's confidence is worth by its quotes, 0..1: all stand, some do, none does.

    A model that was talked into its answer, or did not read, seldom quotes what is there.
    """
    if not checked.evidence:
        return _UNSUPPORTED
    is_quoted = any(evidence.step == step.index for evidence in checked.evidence)
    has_text = bool(step.output.strip() or step.input.strip() or step.error.strip())
    return _PARTLY_SUPPORTED if checked.dropped or (has_text and not is_quoted) else 1.0


def _stated_confidence(answer: JudgeReply, step: Step) -> float:
    return next((item.probability for item in answer.ranking if item.step == step.index), _UNSAID)
