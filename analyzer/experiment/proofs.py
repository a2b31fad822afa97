"""Verdicts from experiments: a proof blames a step, a refutation withdraws a blame. Pure."""

from __future__ import annotations

from typing import Final

from analyzer.experiment.candidates import ChangeKind
from analyzer.experiment.findings import Experiment, Finding
from analyzer.experiment.sequential import ALPHA, Decision
from analyzer.methods.reasons import in_fix
from collector_processor.store.records import EXPERIMENT, StoredVerdict
from semconv.model import (
    Abstention,
    Attribution,
    Blame,
    Proof,
    ProofDecision,
    Status,
    Step,
    Trajectory,
    Verdict,
    agent_in_prose,
)

_FIXES: Final = {
    ChangeKind.RESAMPLE: "Check this answer of {agent}, and ask again if it is wrong: that often helps.",
    ChangeKind.TEXT: "Change the prompt or the tools of {agent} until it answers as in the experiment.",
    ChangeKind.HINT: "Put the experiment's hint into the prompt of {agent}.",
    ChangeKind.MODEL: "Give {agent} the experiment's model for this step.",
    ChangeKind.PROMPT: "Give {agent} the experiment's prompt.",
}
"""Remedies, by the experiment's change, for a proved step whose verdict had none."""
_DECISIONS: Final = {Decision.PROVED: ProofDecision.PROVED, Decision.REFUTED: ProofDecision.REFUTED}


def attribution_of(
    experiment: Experiment, trajectory: Trajectory, verdict: StoredVerdict
) -> Attribution | None:
    """Return the attribution that follows from an experiment; ``None`` if the verdict stays as it is.

    Args:
        experiment: the result.
        trajectory: the run that was replayed.
        verdict: the run's verdict when the experiment began.
    """
    found = _decided(experiment, trajectory, verdict)
    if found is None:
        return None
    step = _step(trajectory, found)
    proof = Proof(
        decision=_DECISIONS[found.comparison.decision],
        step=step.index,
        span_id=step.span_id,
        effect=found.comparison.effect,
        interval=found.comparison.interval,
        trials=found.control.n + found.treatment.n,
        change=experiment.fix.kind.value,
    )
    return Attribution(
        run_id=verdict.run_id,
        verdict=_verdict(found, step, verdict, experiment.fix.kind),
        method=EXPERIMENT,
        proof=proof,
    )


def _decided(experiment: Experiment, trajectory: Trajectory, verdict: StoredVerdict) -> Finding | None:
    """Return the finding on the proved step, or on the refuted step that the verdict blames."""
    if experiment.decision is Decision.PROVED:
        return experiment.decisive
    refuted = (one for one in experiment.findings if one.comparison.decision is Decision.REFUTED)
    blamed = verdict.span_id
    return next((one for one in refuted if blamed and _step(trajectory, one).span_id == blamed), None)


def _verdict(found: Finding, step: Step, verdict: StoredVerdict, change: ChangeKind) -> Verdict:
    if found.comparison.decision is Decision.REFUTED:
        reason = f"An experiment refuted step {step.index} of {agent_in_prose(step.agent)}: {found.reason}."
        return Abstention(status=Status.UNDETERMINED, reason=reason)
    fields = verdict.fields if verdict.span_id == step.span_id else {}
    before = f" {fields['reason']}" if isinstance(fields.get("reason"), str) else ""
    return Blame(
        agent=step.agent,
        step=step.index,
        reason=f"Proved by experiment: {found.reason}.{before}",
        confidence=1.0 - ALPHA,  # at most this share of walks prove a step that does not heal
        mode=_text(fields.get("mode")),
        fix=_text(fields.get("fix")) or _FIXES[change].format(agent=in_fix(step.agent)),
    )


def _step(trajectory: Trajectory, found: Finding) -> Step:
    return trajectory.steps[found.candidate.step]


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
