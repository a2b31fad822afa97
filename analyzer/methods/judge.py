"""Judge: the whole run, indexed and structured, in one call with a structured answer.

Source: the one-call indexed log, which successors of arXiv:2505.00212 report 25 to
28 points of step accuracy above the unindexed all-at-once prompt on the same model;
the definition of the decisive error is that of the paper's annotators.
Cost: one model call, one more if the first answer cannot be used.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Annotated, Final, TypeAlias, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from analyzer.inquiry.method import Inquiry, Prompt, Reply, ResponseSchema
from analyzer.inquiry.render import Rendering, render
from analyzer.inquiry.verdict import FailureMode
from analyzer.methods.briefing import INTEGER, NUMBER, STRING, ask, list_of, object_of
from analyzer.methods.free_text import LONGEST, objects
from analyzer.methods.settle_answer import (
    Checked,
    ask_until_read,
    check_quotes,
    contradiction,
    join_sentences,
    no_such_step,
    nothing_to_judge,
    rank,
    step_at,
)
from semconv.model import (
    Abstention,
    Blame,
    Status,
    Step,
    Trajectory,
    agent_in_prose,
)

OUTPUT_TOKENS: Final = 1_500
_MOST_CONFIDENT: Final = 0.95
_CONTRADICTED: Final = 0.7
"""Share of the confidence kept if the model names the wrong agent for its step."""
_UNSUPPORTED: Final = 0.6
_PARTLY_SUPPORTED: Final = 0.85
_MOST_WITHOUT_TEXT: Final = 0.5
_UNSAID: Final = 0.5
"""Confidence if the model gives none."""

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

SCHEMA: Final = ResponseSchema(
    name="decisive_error",
    schema=object_of(
        reason=STRING,
        step=INTEGER,
        agent=STRING,
        mode={"type": "string", "enum": [mode.value for mode in FailureMode]},
        fix=STRING,
        evidence=list_of(object_of(step=INTEGER, quote=STRING)),
        ranking=list_of(object_of(step=INTEGER, probability=NUMBER)),
    ),
)


def _only_objects(value: object) -> list[object]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


Item = TypeVar("Item")
Objects: TypeAlias = Annotated[list[Item], BeforeValidator(_only_objects)]
"""A list of objects; other items are dropped, so that a broken detail does not invalidate the answer."""


class Quote(BaseModel):
    """A quotation from a step."""

    step: int
    quote: str


class _Candidate(BaseModel):
    step: int
    probability: float = Field(ge=0, le=1, allow_inf_nan=False)


class JudgeReply(BaseModel):
    """A judge's answer as JSON; optional fields may be missing."""

    model_config = ConfigDict(str_strip_whitespace=True)
    reason: str = Field(min_length=1)
    step: int
    agent: str = ""
    mode: FailureMode = FailureMode.OTHER
    fix: str = ""
    evidence: Objects[Quote] = []
    ranking: Objects[_Candidate] = []

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """One call over the indexed run. ``max_bytes`` bounds the run's text in the prompt."""

    max_bytes: int
    marker: str
    """Begins the lines of structure in prompts; occurs in no text."""
    name: str = "judge"

    def investigate(self, trajectory: Trajectory) -> Inquiry:
        """Ask once, repeat if the answer cannot be used, and check the answer."""
        if not trajectory.steps:
            return nothing_to_judge()
        rendering = render(trajectory, max_bytes=self.max_bytes, marker=self.marker)
        answer = yield from put(judge_prompt(trajectory, rendering), trajectory)
        return answer if isinstance(answer, Abstention) else supported(claim(trajectory, answer))


def judge_prompt(trajectory: Trajectory, rendering: Rendering, *, preface: str = "") -> Prompt:
    """Return the judge's question, after ``preface``."""
    return ask(
        trajectory,
        rendering,
        duty=_DUTY,
        question=f"{preface}{WANTED}",
        max_output_tokens=OUTPUT_TOKENS,
        schema=SCHEMA,
    )


def put(prompt: Prompt, trajectory: Trajectory) -> Generator[Prompt, Reply, JudgeReply | Abstention]:
    """Ask, and repeat if the answer cannot be used; return the answer or an abstention."""
    return (yield from ask_until_read(prompt, lambda reply: read_reply(reply, trajectory), SHAPE))


def read_reply(reply: Reply, trajectory: Trajectory) -> JudgeReply | str:
    """Read an answer about an existing step; otherwise return the problem as text."""
    begun = reply.text.lstrip().startswith(("{", "```"))
    problem = "its JSON is broken or cut off" if begun else "it contains no JSON object"
    for found in objects(reply.text[:LONGEST]):
        try:
            answer = JudgeReply.model_validate(found)
        except ValidationError as error:
            if begun and "reason" not in found:
                continue  # part of an object that could not be parsed as a whole
            problem = "; ".join(
                f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_url=False)[:3]
            )
            continue
        if step_at(trajectory, answer.step) is not None:
            return answer
        problem = no_such_step(trajectory, answer.step)
    return problem


def supported(claimed: Blame) -> Blame | Abstention:
    """Return a claim with a true quote unchanged; else abstain: the model may not have read the run."""
    if claimed.evidence:
        return claimed
    reason = (
        f"the model blamed step {claimed.step} of {agent_in_prose(claimed.agent)}, but none of its quotes"
        f" identifies a step of the run: {claimed.reason}"
    )
    return Abstention(status=Status.UNDETERMINED, reason=reason, ranking=claimed.ranking)


def supported_in_its_step(trajectory: Trajectory, claimed: Blame) -> Blame | Abstention:
    """Return a claim that quotes the blamed step; otherwise abstain: the model may have obeyed the run.

    A step without text cannot be quoted: the confidence of such a claim is at most 0.5.
    """
    step = step_at(trajectory, claimed.step)
    if step is None or any(evidence.step == step.index for evidence in claimed.evidence):
        return claimed
    if not has_text(step):
        confidence = min(claimed.confidence, _MOST_WITHOUT_TEXT)
        others = [(each.step, each.probability) for each in claimed.ranking]
        return replace(claimed, confidence=confidence, ranking=rank(trajectory, step, confidence, others))
    reason = (
        f"the model blamed step {claimed.step} of {agent_in_prose(claimed.agent)}, but quoted nothing that"
        f" stands in it: {claimed.reason}"
    )
    return Abstention(status=Status.UNDETERMINED, reason=reason, ranking=claimed.ranking)


def has_text(step: Step) -> bool:
    """Return whether a step has a text that can be quoted."""
    return bool(step.output.strip() or step.input.strip() or step.error.strip())


def claim(trajectory: Trajectory, answer: JudgeReply) -> Blame:
    """Convert an answer about an existing step to a blame with its true quotes and adjusted confidence."""
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
    """Return the factor for a verdict's confidence, 0..1: all quotes found, some, or none.

    A model that was manipulated, or did not read the run, seldom quotes existing text.
    """
    if not checked.evidence:
        return _UNSUPPORTED
    is_quoted = any(evidence.step == step.index for evidence in checked.evidence)
    return _PARTLY_SUPPORTED if checked.dropped or (has_text(step) and not is_quoted) else 1.0


def _stated_confidence(answer: JudgeReply, step: Step) -> float:
    return next((item.probability for item in answer.ranking if item.step == step.index), _UNSAID)
