"""A verdict as JSON: the object a program gets from ``blamespan attribute --format json``."""

from __future__ import annotations

from typing import Any

from semconv.model import Attribution, Blame, Ranked, Step, Trajectory


def to_json(attribution: Attribution, trajectory: Trajectory) -> dict[str, Any]:
    """Return the verdict on a run, always with the same keys; what does not apply is ``None``."""
    verdict = attribution.verdict
    blame = verdict if isinstance(verdict, Blame) else None
    step = _step(trajectory, blame.step) if blame else None
    return {
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
    }


def _step(trajectory: Trajectory, index: int) -> Step | None:
    return next((step for step in trajectory.steps if step.index == index), None)


def _ranked(candidate: Ranked) -> dict[str, Any]:
    return {"step": candidate.step, "agent": candidate.agent, "probability": candidate.probability}
