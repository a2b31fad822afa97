"""Labels: a person's judgement of a verdict (right, wrong, another agent or step, no failure).

Pure: takes a verdict, the run's steps and the statement; returns a label, or raises
with the reason. The newest label of a run counts; ``label_store.py`` keeps older ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from analyzer.inquiry.errors import AnalyzerError
from analyzer.inquiry.match_agents import same_agent
from collector_processor.core.records import StoredVerdict
from collector_processor.otlp import Tenant
from semconv.model import SpanId, Status, Step, Trajectory

MOST_WHY: Final = 1_000
"""Longest reason that a person gives, in characters."""
_MOST_AUTHOR: Final = 100
_MOST_LISTED: Final = 20


class LabelKind(StrEnum):
    """Kind of statement."""

    CONFIRMED = "confirmed"
    """The verdict's agent and step are right."""
    CORRECTED = "corrected"
    """The label names the agent or step to blame instead of the verdict's."""
    REJECTED = "rejected"
    """The verdict is wrong; the right one is not known."""
    NOT_A_FAILURE = "not_a_failure"
    """The run did not fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """One statement of a person on one run."""

    tenant: Tenant
    run_id: str
    kind: LabelKind
    version: int
    """Version of the labelled verdict."""
    service: str
    """Service that emitted the run: the system that a ranker learns about."""
    labelled_ns: int
    agent: str | None = None
    step: int | None = None
    span_id: SpanId | None = None
    """Span of the step: late spans may change a step's index, never its span."""
    why: str = ""
    """The person's reason, without secrets; empty if none was given."""
    author: str = ""
    """The person's name, as the command line, a proxy or a backend tells it; empty if it is not known."""

    def says_the_same_as(self, other: Label) -> bool:
        """Tell whether both labels make the same statement, regardless of times, verdicts and authors."""
        same = {name: getattr(self, name) for name in ("version", "service", "labelled_ns", "author")}
        return replace(other, **same) == self

    @property
    def names_a_step(self) -> bool:
        """Whether the label names a step, so that a ranker can learn from it."""
        return self.agent is not None and self.step is not None


class LabelRefused(AnalyzerError):  # noqa: N818 - a statement reads better at the ``raise``
    """The statement does not fit the run; the message says what would fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A person's statement before it is checked."""

    kind: LabelKind
    agent: str | None = None
    step: int | None = None
    why: str = ""
    author: str = ""


def as_label(
    statement: Statement,
    verdict: StoredVerdict,
    trajectory: Trajectory | None,
    now_ns: int,
    clean: Callable[[str], str] = str,
) -> Label:
    """Check a person's statement against the verdict and the run.

    Args:
        statement: the statement.
        verdict: the verdict that it is about.
        trajectory: the run's steps, if they are kept.
        now_ns: the label's time, Unix ns.
        clean: removes secrets from the person's reason.

    Raises:
        LabelRefused: it does not fit, or there is nothing to check it against.
    """
    if len(statement.why) > MOST_WHY:
        raise LabelRefused(f"why: expected at most {MOST_WHY:,} characters, got {len(statement.why):,}")
    agent, step, span_id = None, None, None
    kind = statement.kind
    if kind is LabelKind.CORRECTED:
        agent, chosen = _corrected(statement, verdict, trajectory)
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
        why=clean(_printable(statement.why)),
        author=_printable(statement.author)[:_MOST_AUTHOR],
    )


def _printable(text: str) -> str:
    """Leave out what no database stores and no page shows, such as NUL and lone surrogates."""
    return "".join(sign for sign in text if sign.isprintable() or sign == "\n").strip()


def place_of(label: Label, trajectory: Trajectory) -> int | None:
    """Return the labelled step's current index; ``None`` if the run no longer has it."""
    if label.step is None:
        return None
    steps = trajectory.steps
    if label.step < len(steps) and label.span_id in {None, steps[label.step].span_id}:
        return label.step
    moved = [step.index for step in steps if label.span_id is not None and step.span_id == label.span_id]
    return moved[0] if len(moved) == 1 else None


def to_json(label: Label) -> dict[str, Any]:
    """Return a label as JSON, always with the same keys."""
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
        "why": label.why or None,
        "author": label.author or None,
    }


def _corrected(
    statement: Statement, verdict: StoredVerdict, trajectory: Trajectory | None
) -> tuple[str, Step | None]:
    if statement.agent is None and statement.step is None:
        raise LabelRefused("expected an agent, a step or both")
    if trajectory is None:
        raise LabelRefused(
            f"the steps of {verdict.run_id} are not kept, so that a label cannot be checked:"
            " the run has not ended, or is too old"
        )
    steps = trajectory.steps
    if statement.step is not None and not 0 <= statement.step < len(steps):
        there = f"0 to {len(steps) - 1}" if steps else "none"
        raise LabelRefused(f"no step {statement.step} in {verdict.run_id}: its steps are {there}")
    step = None if statement.step is None else steps[statement.step]
    if statement.agent is None:
        assert step is not None
        return step.agent, step
    agent = next((step.agent for step in steps if same_agent(step.agent, statement.agent)), None)
    if agent is None:
        raise LabelRefused(
            f"no agent {statement.agent!r} in {verdict.run_id}: its agents are"
            f" {_listed(step.agent for step in steps)}"
        )
    if step is not None and not same_agent(step.agent, agent):
        own = _listed(str(one.index) for one in steps if same_agent(one.agent, agent))
        raise LabelRefused(f"step {step.index} is {step.agent}'s, not {agent}'s, whose steps are {own}")
    return agent, step


def _require_an_answer(verdict: StoredVerdict, kind: LabelKind) -> None:
    if kind is LabelKind.REJECTED and verdict.is_by_person and verdict.status == Status.UNDETERMINED:
        return  # was rejected before
    if verdict.status not in {Status.ATTRIBUTED, Status.SUSPECTED, Status.NO_FAILURE}:
        word = "confirm" if kind is LabelKind.CONFIRMED else "reject"
        raise LabelRefused(
            f"nothing to {word}: the verdict on {verdict.run_id} is {verdict.status}; label it with an"
            " agent and a step"
        )


def _listed(names: Iterable[str]) -> str:
    distinct = list(dict.fromkeys(names))
    more = f" and {len(distinct) - _MOST_LISTED} more" if len(distinct) > _MOST_LISTED else ""
    return ", ".join(distinct[:_MOST_LISTED]) + more
