"""Verdict as JSON (the object that ``blamespan attribute --format json`` prints) and its failure modes.

Failure modes are a small, closed vocabulary, so that recurring failures can be counted.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any, Final

from collector_processor.core.analysis import NOTES, Analysis
from collector_processor.core.records import PROOF
from collector_processor.core.runs import MAY_JOIN
from semconv.model import (
    Abstention,
    Attribution,
    Blame,
    Pooled,
    Proof,
    Ranked,
    Status,
    StepSet,
    Trajectory,
    ValueOrigin,
)


class FailureMode(StrEnum):
    """Kind of mistake of a decisive error; ``docs/failure-modes.md`` describes each."""

    WRONG_COMPUTATION = "wrong_computation"
    UNHANDLED_ERROR = "unhandled_error"
    IGNORED_RESULT = "ignored_result"
    UNSUPPORTED_CLAIM = "unsupported_claim"
    MISREAD_INPUT = "misread_input"
    WRONG_TOOL_USE = "wrong_tool_use"
    BAD_PLAN = "bad_plan"
    BAD_HANDOFF = "bad_handoff"
    INCOMPLETE_WORK = "incomplete_work"
    UNVERIFIED_RESULT = "unverified_result"
    LOOP = "loop"
    GAVE_UP = "gave_up"
    OFF_TASK = "off_task"
    OTHER = "other"


STATED: Final = "stated_confidence"
"""Key of the confidence that labels corrected; absent if they did not."""
POOLED: Final = "pooled"
"""Key of what a model and the own method said before they were pooled; absent without a pool."""
TRIAGE: Final = "triage"
"""Method of verdicts on runs that triage alone decides."""
COMPARED: Final = frozenset({Status.ATTRIBUTED, Status.UNDETERMINED})
"""Statuses of verdicts that other runs may change."""
NOTHING_SAYS_SO: Final = "nothing says that the run failed"
"""Reason of a ``no_failure`` verdict without evidence of success; pages describe such runs differently."""


def to_json(attribution: Attribution, trajectory: Trajectory) -> dict[str, Any]:
    """Return the verdict on a run, always with the same keys; ``None`` for those that do not apply.

    Only the verdict of an experiment also has ``proof``, only a verdict pooled with a model's ``pooled``, and
    only a run that may be part of another ``notes``.
    """
    verdict = attribution.verdict
    blame = verdict if isinstance(verdict, Blame) else None
    step = next((step for step in trajectory.steps if step.index == blame.step), None) if blame else None
    return (
        {
            "run_id": attribution.run_id,
            "status": attribution.status.value,
            "agent": blame.agent if blame else None,
            "step": blame.step if blame else None,
            "span_id": step.span_id if step else None,
            "trace_id": (step.trace_id if step else None) or trajectory.root_trace_id,
            "confidence": blame.confidence if blame else None,
            "reason": verdict.reason,
            "fix": (blame.fix or None) if blame else None,
            "mode": (blame.mode or None) if blame else None,
            "evidence": [{"step": e.step, "quote": e.quote} for e in blame.evidence] if blame else [],
            "ranking": [_ranked(candidate) for candidate in verdict.ranking],
            "method": attribution.method,
            "model": attribution.model,
            "fallback": attribution.fallback,
            "truncated": attribution.truncated,
            "coverage": attribution.coverage,
            "calls": attribution.effort.calls,
            "input_tokens": attribution.effort.input_tokens,
            "output_tokens": attribution.effort.output_tokens,
            "cost_usd": attribution.effort.cost_usd,
            "duration_s": attribution.effort.duration_s,
            "error": attribution.error,
            "checked": list(attribution.checked),
            "lineage": [_origin(origin) for origin in attribution.lineage],
            "failed_probability": blame.failed_probability if blame else None,
            "set": _step_set(blame.step_set) if blame and blame.step_set else None,
        }
        | ({} if attribution.proof is None else {PROOF: _proof(attribution.proof)})
        | ({} if attribution.pooled is None else {POOLED: _pooled(attribution.pooled, trajectory)})
        | ({} if attribution.stated is None else {STATED: attribution.stated})
        | _notes(trajectory)
    )


def analysis_of(attribution: Attribution, trajectory: Trajectory) -> Analysis:
    """Return an attribution with its JSON document."""
    document = json.dumps(to_json(attribution, trajectory), ensure_ascii=False)
    return Analysis(attribution=attribution, document=document)


def abstained(trajectory: Trajectory, status: Status, reason: str) -> Attribution:
    """Return the attribution of a run that triage alone decides."""
    return Attribution(
        run_id=trajectory.run_id,
        verdict=Abstention(status=status, reason=reason),
        method=TRIAGE,
        error=reason if status is Status.ERROR else None,
    )


def error_analysis(trajectory: Trajectory, reason: str) -> Analysis:
    """Return an ``error`` verdict: the run could not be analysed, and why."""
    return analysis_of(abstained(trajectory, Status.ERROR, reason), trajectory)


def _origin(origin: ValueOrigin) -> dict[str, Any]:
    return {
        "value": origin.value,
        "origin": origin.origin.value,
        "step": origin.step,
        "path": origin.path or None,
        "formula": origin.formula or None,
        "chain": [
            {"step": link.step, "value": link.value, "change": link.change.value} for link in origin.chain
        ],
    }


def _notes(trajectory: Trajectory) -> dict[str, Any]:
    found = [warning for warning in trajectory.warnings if warning.startswith(MAY_JOIN)]
    return {NOTES: found} if found else {}


def _proof(proof: Proof) -> dict[str, Any]:
    return {
        "decision": proof.decision.value,
        "step": proof.step,
        "span_id": proof.span_id,
        "effect": proof.effect,
        "interval": list(proof.interval),
        "trials": proof.trials,
        "change": proof.change,
    }


def _pooled(pooled: Pooled, trajectory: Trajectory) -> dict[str, Any]:
    spans = {step.index: step.span_id for step in trajectory.steps}
    own = {"step": pooled.own_step, "agent": pooled.own_agent, "span_id": spans.get(pooled.own_step)}
    return {
        "model": {"step": pooled.step, "agent": pooled.agent, "span_id": spans.get(pooled.step)},
        "without_model": own,
        "weight": pooled.weight,
        "accuracy": pooled.accuracy,
        "right": pooled.right,
        "labelled": pooled.labelled,
    }


def _step_set(step_set: StepSet) -> dict[str, Any]:
    return {
        "steps": list(step_set.steps),
        "coverage": step_set.coverage,
        "observed": step_set.observed,
        "interval": list(step_set.interval),
        "n": step_set.n,
    }


def _ranked(candidate: Ranked) -> dict[str, Any]:
    return {"step": candidate.step, "agent": candidate.agent, "probability": candidate.probability}
