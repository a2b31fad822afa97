"""The criteria that a candidate for the decisive error must meet, and what an answer about them is worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from analyzer.method import Reply, ResponseSchema
from analyzer.methods.answering import check_quotes, step_at
from analyzer.methods.free_text import LONGEST, objects
from analyzer.methods.judge import only_objects
from semconv.model import Evidence, Trajectory

_SUREST: Final = 0.95
_DOUBTED: Final = 0.5
"""How much of an answer's weight stays when what it quotes does not stand in the run."""
_OVERLAP: Final = 0.7
"""The three answers come from one model and one text: together they say less than three witnesses."""


class Criterion(Enum):
    """What must be true of the decisive error. The question is put to each candidate."""

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


SCHEMA: Final = ResponseSchema(
    name="criterion",
    schema={
        "type": "object",
        "additionalProperties": False,
        "required": ["answers"],
        "properties": {
            "answers": {
                "type": "array",
                "items": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["step", "why", "quote", "holds", "confidence", "instead"],
                    "properties": {
                        "step": {"type": "integer"},
                        "why": {"type": "string"},
                        "quote": {"type": "string"},
                        "holds": {"type": "boolean"},
                        "confidence": {"type": "number"},
                        "instead": {"type": "string"},
                    },
                },
            }
        },
    },
)
FORMAT: Final = (
    'as one JSON object {"answers": [...]} with one entry a candidate: step, why (one or two sentences),'
    " quote (word for word from the run), holds (true or false), confidence (0 to 1, of that answer),"
    " instead (what the agent should have done there; empty if nothing else)"
)


class _Finding(BaseModel):
    model_config = ConfigDict(extra="ignore", str_strip_whitespace=True)
    step: int
    holds: bool
    confidence: float = Field(default=0.7, ge=0, le=1, allow_inf_nan=False)
    why: str = ""
    quote: str = ""
    instead: str = ""


class _Findings(BaseModel):
    model_config = ConfigDict(extra="ignore")
    answers: list[_Finding]

    @field_validator("answers", mode="before")
    @classmethod
    def _only_objects(cls, value: object) -> object:
        return only_objects(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """Whether one candidate meets one criterion."""

    step: int
    probability: float
    """That it does, 0..1, after its quote was checked."""
    why: str
    instead: str
    evidence: tuple[Evidence, ...]

    @property
    def weight(self) -> float:
        """The odds that it does, cooled because the criteria overlap."""
        return float((self.probability / (1 - self.probability)) ** _OVERLAP)


def read_rulings(
    reply: Reply, trajectory: Trajectory, candidates: Sequence[int]
) -> Mapping[int, Ruling] | str:
    """Read the rulings on all candidates; otherwise return what is wrong, in words."""
    problem = "it contains no JSON object with answers"
    for found in objects(reply.text[:LONGEST]):
        try:
            findings = _Findings.model_validate(found)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            problem = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
            continue
        rulings = {each.step: _ruling(each, trajectory) for each in findings.answers}
        missing = [step for step in candidates if step not in rulings]
        if not missing:
            return {step: rulings[step] for step in candidates}
        problem = f"it says nothing of step {missing[0]}"
    return problem


def _ruling(found: _Finding, trajectory: Trajectory) -> Ruling:
    """A quote may be from any step: what shows that a fault was repaired stands later."""
    steps = [found.step, *(step.index for step in trajectory.steps)] if found.quote else []
    known = (index for index in steps if step_at(trajectory, index) is not None)
    checks = (check_quotes(trajectory, [(index, found.quote)]).evidence for index in known)
    evidence = next((each for each in checks if each), ())
    sure = min(found.confidence, _SUREST) if evidence else 0.5 + (found.confidence - 0.5) * _DOUBTED
    sure = max(sure, 0.5)  # a model that says "yes, confidence 0.1" has not said "no"
    return Ruling(
        step=found.step,
        probability=min(sure, _SUREST) if found.holds else 1 - min(sure, _SUREST),
        why=found.why,
        instead=found.instead,
        evidence=evidence,
    )
