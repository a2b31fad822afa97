"""Results of an experiment: a finding for each step tried, the conclusion, and the verdict from it. Pure.

A proof blames a step; a refutation withdraws a blame.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any, Final

from analyzer.experiment.call_budget import Spent
from analyzer.experiment.candidates import Candidate, ChangeKind, Fix
from analyzer.experiment.sequential import ALPHA, Arm, Comparison, Decision, Reason, interval
from analyzer.experiment.walk import Walk
from analyzer.methods.reasons import in_fix
from collector_processor.core.records import EXPERIMENT, StoredVerdict
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
from semconv.record import record


@record
class Fidelity:
    """Result of the trial without a change: whether the rerun made the recorded requests."""

    calls: int
    served: int
    masked: int
    first_difference: str | None = None


@record
class Finding:
    """Result of the trials on one step."""

    candidate: Candidate
    control: Arm
    treatment: Arm
    resampled: Arm | None
    """The third arm; ``None`` if the treatment already samples anew."""
    comparison: Comparison
    reason: str
    spent: Spent


@record
class KeptTrial:
    """File of one trial."""

    file: str
    has_passed: bool


@record
class KeptArms:
    """One trial of each arm of a step."""

    recorded: KeptTrial
    """With the recorded answer; one that failed, if there is one."""
    changed: KeptTrial
    """With the changed answer; one that passed, if there is one."""

    @property
    def files(self) -> tuple[str, str]:
        """The two files; the one with the recorded answer comes first."""
        return self.recorded.file, self.changed.file


@record
class KeptTrials:
    """Files of an experiment's trials."""

    arms: KeptArms | None = None
    """Of the decisive step; ``None`` if there is none, or if one of its arms has no trial with spans."""
    by_step: Mapping[int, KeptArms] = field(default_factory=dict)
    """Of each step with a trial in both arms."""
    without_spans: int = 0
    """Valid trials that sent no readable spans, and so have no file."""
    error: str = ""
    """Why a file could not be written; empty if all were."""


@record
class Experiment:
    """The result of one experiment."""

    run_id: str
    fix: Fix
    fidelity: Fidelity | None
    findings: tuple[Finding, ...]
    """One finding for each step with trials in both arms, earliest first."""
    decision: Decision
    reason: str
    spent: Spent
    duration_s: float
    trials: int = 0
    """Number of completed trials, including the fidelity trial and invalid ones."""
    decisive: Finding | None = None
    """The earliest proved step; without one, the tried step if only one could be tried."""
    control_passes: bool = False
    valid: int = 0
    """Number of valid trials of arms; if 0, nothing was compared."""
    invalid: int = 0
    """Number of invalid trials of arms."""
    reasons: tuple[Reason, ...] = ()
    """Reasons why they are invalid: the last distinct ones, newest first."""
    copies: int = 0
    """Valid trials that are not counted, because they may repeat one answer of the model."""
    is_interrupted: bool = False
    kept: KeptTrials | None = None
    """Files of the trials, if they are kept."""

    @property
    def healing(self) -> tuple[int, ...]:
        """The steps whose change heals the run."""
        proved = (f for f in self.findings if f.comparison.decision is Decision.PROVED)
        return tuple(finding.candidate.step for finding in proved)


def finding(walk: Walk, candidate: Candidate, fix: Fix, spent: Spent, stopped: str) -> Finding:
    """Describe the finding on one step; ``stopped`` says why there are no more trials."""
    comparison = walk.comparison(candidate)
    decided = walk.decision(candidate)
    control, treatment = walk.arm(candidate.control), walk.arm(candidate.treatment)
    why = comparison.reason or stopped or walk.why_dropped(candidate)
    is_resampled = fix.kind is ChangeKind.RESAMPLE
    resampled = None if is_resampled else walk.arm(candidate.resampled)
    return Finding(
        candidate=candidate,
        control=control,
        treatment=treatment,
        resampled=resampled,
        comparison=Comparison(
            decision=decided,
            effect=comparison.effect,
            interval=comparison.interval,
            reason=comparison.reason,
        ),
        reason=_reason(walk, candidate, fix, decided, why),
        spent=spent,
    )


def _reason(walk: Walk, candidate: Candidate, fix: Fix, decided: Decision, stopped: str) -> str:
    control, treatment = walk.arm(candidate.control), walk.arm(candidate.treatment)
    rates = (
        f"the run succeeds in {treatment.successes} of {treatment.n} trials with step {candidate.step}"
        f" {_changed(fix)}, and in {control.successes} of {control.n} with the recorded answer"
    )
    if decided is Decision.PROVED:
        return rates + _third(walk.arm(candidate.resampled), control, fix)
    if decided is Decision.REFUTED and walk.passes(candidate):
        return f"the run mostly succeeds after the recorded answer: {rates}"
    return rates if decided is Decision.REFUTED else f"{rates}: {stopped or 'too few trials to decide'}"


def _changed(fix: Fix) -> str:
    return "sampled anew" if fix.kind is ChangeKind.RESAMPLE else f"changed ({fix.kind})"


def _third(resampled: Arm, control: Arm, fix: Fix) -> str:
    """Say whether the step or the fix matters, if a third arm was tried."""
    if fix.kind is ChangeKind.RESAMPLE or not resampled.n:
        return ""
    low, _ = interval(control, resampled)
    counts = f"{resampled.successes} of {resampled.n}"
    if low > 0:
        return f"; sampled anew without the {fix.kind}, it succeeds too, in {counts}"
    return f"; sampled anew without the {fix.kind}, in {counts}"


def to_json(experiment: Experiment) -> list[dict[str, Any]]:
    """Return the objects of ``experiment --format json``: one for each step tried, and the final one."""
    steps = [_object(experiment, each) for each in experiment.findings]
    return [*steps, _final(experiment)]


def refusal(run_id: str, reason: str, decision: Decision = Decision.NOT_REPLAYABLE) -> dict[str, Any]:
    """Return the object of an experiment without a single trial."""
    return _final(
        Experiment(
            run_id=run_id,
            fix=Fix(),
            fidelity=None,
            findings=(),
            decision=decision,
            reason=reason,
            spent=Spent(),
            duration_s=0.0,
        )
    )


def _object(experiment: Experiment, found: Finding) -> dict[str, Any]:
    return {
        "run_id": experiment.run_id,
        "step": found.candidate.step,
        "agent": found.candidate.agent,
        "fidelity": fidelity_json(experiment.fidelity),
        "change": {"kind": experiment.fix.kind.value, "text": experiment.fix.text},
        "control": _arm(found.control),
        "treatment": _arm(found.treatment),
        "resampled": None if found.resampled is None else _arm(found.resampled),
        "effect": found.comparison.effect,
        "interval": list(found.comparison.interval),
        "decision": found.comparison.decision.value,
        "reason": found.reason,
        "calls": found.spent.calls,
        "cost_usd": found.spent.cost_usd,
        "duration_s": round(experiment.duration_s, 3),
    }


def _final(experiment: Experiment) -> dict[str, Any]:
    found = experiment.decisive
    one: Mapping[str, Any] = {} if found is None else _object(experiment, found)
    return {
        "run_id": experiment.run_id,
        "step": one.get("step"),
        "agent": one.get("agent"),
        "fidelity": fidelity_json(experiment.fidelity),
        "change": {"kind": experiment.fix.kind.value, "text": experiment.fix.text},
        "control": one.get("control", _arm(Arm())),
        "treatment": one.get("treatment", _arm(Arm())),
        "resampled": one.get("resampled"),
        "effect": one.get("effect"),
        "interval": one.get("interval"),
        "decision": experiment.decision.value,
        "reason": experiment.reason,
        "calls": experiment.spent.calls,
        "cost_usd": experiment.spent.cost_usd,
        "duration_s": round(experiment.duration_s, 3),
        "healing": list(experiment.healing),
        "invalid": experiment.invalid,
        "invalid_reasons": _reasons(experiment.reasons),
        "copies": experiment.copies,
        "arms": list(experiment.kept.arms.files) if experiment.kept and experiment.kept.arms else None,
        "final": True,
    }


def fidelity_json(fidelity: Fidelity | None) -> dict[str, Any] | None:
    """Return the fidelity as JSON."""
    if fidelity is None:
        return None
    return {
        "calls": fidelity.calls,
        "served": fidelity.served,
        "masked": fidelity.masked,
        "first_difference": fidelity.first_difference,
    }


def _arm(arm: Arm) -> dict[str, Any]:
    return {
        "n": arm.n,
        "successes": arm.successes,
        "invalid": arm.invalid,
        "invalid_reasons": _reasons(arm.reasons),
        "copies": arm.copies,
    }


def _reasons(reasons: Iterable[Reason]) -> list[dict[str, Any]]:
    return [{"reason": reason.text, "n": reason.n} for reason in reasons]


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
