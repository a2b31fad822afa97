"""What a person says of a verdict: right, wrong, this agent or step instead, or no failure at all.

Pure: a verdict, the run's steps and the person's words in; a label, or why it
cannot be one, out. The newest label of a run counts; that older ones are kept is
``store.py``'s business.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from analyzer.agent_names import same_agent
from analyzer.errors import AnalyzerError
from collector_processor.otlp import Tenant
from collector_processor.stored import StoredVerdict
from semconv.model import SpanId, Status, Step, Trajectory

_MOST_LISTED: Final = 20


class LabelKind(StrEnum):
    """What was said."""

    CONFIRMED = "confirmed"
    """The verdict names the right agent and step."""
    CORRECTED = "corrected"
    """Another agent or step is to blame, or one where the verdict named none."""
    REJECTED = "rejected"
    """The verdict is wrong; what is right is not known."""
    NOT_A_FAILURE = "not_a_failure"
    """The run did its task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """One word of a person on one run."""

    tenant: Tenant
    run_id: str
    kind: LabelKind
    version: int
    """Of the verdict that it was said of."""
    service: str
    """What emitted the run: the system that a ranker learns about."""
    labelled_ns: int
    agent: str | None = None
    step: int | None = None
    span_id: SpanId | None = None
    """Of the step: late spans move a step's index, never its span."""

    def says_the_same_as(self, other: Label) -> bool:
        """Whether both labels make the same statement, whatever their times and verdicts."""
        return (self.kind, self.agent, self.step, self.span_id) == (
            *(other.kind, other.agent, other.step),
            other.span_id,
        )

    @property
    def names_a_step(self) -> bool:
        """Whether it says what a ranker can learn: who, and at which step."""
        return self.agent is not None and self.step is not None


class LabelRefused(AnalyzerError):  # noqa: N818 - a statement reads better where it is raised
    """What was said does not fit the run; the message says what would."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A person's words, before anybody has looked whether they fit."""

    kind: LabelKind
    agent: str | None = None
    step: int | None = None


def as_label(said: Said, verdict: StoredVerdict, trajectory: Trajectory | None, now_ns: int) -> Label:
    """Check a person's words against the verdict and the run.

    Args:
        said: the words.
        verdict: the run's current verdict.
        trajectory: the run's steps; ``None`` where they are not kept.
        now_ns: when it was said.

    Raises:
        LabelRefused: they do not fit, or there is nothing to check them against.
    """
    agent, step, span_id = None, None, None
    kind = said.kind
    if kind is LabelKind.CORRECTED:
        agent, chosen = _corrected(said, verdict, trajectory)
        step, span_id = (chosen.index, chosen.span_id) if chosen else (None, None)
    elif kind in {LabelKind.CONFIRMED, LabelKind.REJECTED}:
        _require_an_answer(verdict, kind)
        if kind is LabelKind.CONFIRMED and verdict.status == Status.NO_FAILURE:
            kind = LabelKind.NOT_A_FAILURE
        elif kind is LabelKind.CONFIRMED:
            agent, step, span_id = verdict.agent, verdict.step, verdict.span_id
            kind = LabelKind.CORRECTED if verdict.is_by_person else kind
    return Label(
        tenant=verdict.tenant,
        run_id=verdict.run_id,
        kind=kind,
        version=verdict.version,
        service=verdict.service,
        labelled_ns=now_ns,
        agent=agent,
        step=step,
        span_id=span_id,
    )


def place_of(label: Label, trajectory: Trajectory) -> int | None:
    """Return where the labelled step stands now; ``None`` where the run no longer has it."""
    if label.step is None:
        return None
    steps = trajectory.steps
    if label.step < len(steps) and label.span_id in {None, steps[label.step].span_id}:
        return label.step
    moved = [step.index for step in steps if label.span_id is not None and step.span_id == label.span_id]
    return moved[0] if len(moved) == 1 else None


def to_json(label: Label) -> dict[str, Any]:
    """Return a label as programs get it, always with the same keys."""
    return {
        "run_id": label.run_id,
        "label": label.kind.value,
        "agent": label.agent,
        "step": label.step,
        "span_id": label.span_id,
        "tenant": label.tenant,
        "service": label.service,
        "verdict_version": label.version,
        "labelled_ns": label.labelled_ns,
    }


def _corrected(said: Said, verdict: StoredVerdict, trajectory: Trajectory | None) -> tuple[str, Step | None]:
    if said.agent is None and said.step is None:
        raise LabelRefused("expected an agent, a step or both")
    if trajectory is None:
        raise LabelRefused(
            f"the steps of {verdict.run_id} are not kept, so that a label cannot be checked:"
            " the run still goes on, or is too old"
        )
    steps = trajectory.steps
    if said.step is not None and not 0 <= said.step < len(steps):
        there = f"0 to {len(steps) - 1}" if steps else "none"
        raise LabelRefused(f"no step {said.step} in {verdict.run_id}: its steps are {there}")
    step = None if said.step is None else steps[said.step]
    if said.agent is None:
        assert step is not None
        return step.agent, step
    agent = next((step.agent for step in steps if same_agent(step.agent, said.agent)), None)
    if agent is None:
        raise LabelRefused(
            f"no agent {said.agent!r} in {verdict.run_id}: its agents are {_listed(s.agent for s in steps)}"
        )
    if step is not None and not same_agent(step.agent, agent):
        own = _listed(str(one.index) for one in steps if same_agent(one.agent, agent))
        raise LabelRefused(f"step {step.index} is {step.agent}'s, not {agent}'s, whose steps are {own}")
    return agent, step


def _require_an_answer(verdict: StoredVerdict, kind: LabelKind) -> None:
    if kind is LabelKind.REJECTED and verdict.is_by_person and verdict.status == Status.UNDETERMINED:
        return  # rejected before
    if verdict.status not in {Status.ATTRIBUTED, Status.NO_FAILURE}:
        word = "confirm" if kind is LabelKind.CONFIRMED else "reject"
        raise LabelRefused(
            f"nothing to {word}: the verdict on {verdict.run_id} is {verdict.status}; label it with an"
            " agent and a step"
        )


def _listed(names: Iterable[str]) -> str:
    distinct = list(dict.fromkeys(names))
    more = f" and {len(distinct) - _MOST_LISTED} more" if len(distinct) > _MOST_LISTED else ""
    return ", ".join(distinct[:_MOST_LISTED]) + more
