"""Strict scores of verdicts against labels, and the result lines of ``blamespan bench``.

Integers are compared as integers, a missing answer is wrong, and agents are equal if their normalised names
are. The reference scorer of arXiv:2505.00212 tests substrings, a test that a string of all ten digits passes;
its result is reported under its own name beside ours.

The error categories of labels are mapped to our failure modes, so that ``bench`` can score the mode. Sources
of the categories: AgentErrorTaxonomy (AgentDebug, arXiv:2509.25370), TRAIL (arXiv:2505.08638) and AgentRx's
nine categories. Each was written for other systems, so a category may map to several modes; a mode is correct
if it is one of these.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from analyzer.inquiry.calibration import Confident
from analyzer.inquiry.conversation import Label
from analyzer.inquiry.intervals import Interval, wilson
from analyzer.inquiry.match_agents import same_agent
from analyzer.inquiry.verdict import FailureMode as Mode
from analyzer.lab.evaluation.significance import (
    bootstrap,
    brier,
    calibration_error,
    coverage_curve,
    error_if_calibrated,
)
from semconv.model import BLAMELESS, Attribution, Blame, Effort, Status

_AGENT_ERROR_TAXONOMY: Final = {
    "memory/hallucination": {Mode.UNSUPPORTED_CLAIM},
    "memory/memory_retrieval_failure": {Mode.MISREAD_INPUT, Mode.IGNORED_RESULT},
    "memory/over_simplification": {Mode.INCOMPLETE_WORK, Mode.MISREAD_INPUT},
    "reflection/progress_misjudge": {Mode.UNVERIFIED_RESULT, Mode.INCOMPLETE_WORK},
    "reflection/outcome_misinterpretation": {Mode.MISREAD_INPUT, Mode.IGNORED_RESULT},
    "reflection/causal_misattribution": {Mode.MISREAD_INPUT, Mode.BAD_PLAN},
    "reflection/hallucination": {Mode.UNSUPPORTED_CLAIM},
    "planning/constraint_ignorance": {Mode.BAD_PLAN, Mode.OFF_TASK},
    "planning/impossible_action": {Mode.BAD_PLAN, Mode.WRONG_TOOL_USE},
    "planning/inefficient_plan": {Mode.BAD_PLAN, Mode.LOOP},
    "action/misalignment": {Mode.OFF_TASK, Mode.WRONG_TOOL_USE},
    "action/invalid_action": {Mode.WRONG_TOOL_USE},
    "action/format_error": {Mode.WRONG_TOOL_USE},
    "action/parameter_error": {Mode.WRONG_TOOL_USE},
    "system/step_limit": {Mode.LOOP, Mode.INCOMPLETE_WORK},
    "system/tool_execution_error": {Mode.UNHANDLED_ERROR},
    "system/llm_limit": {Mode.UNHANDLED_ERROR, Mode.INCOMPLETE_WORK},
    "system/environment_error": {Mode.UNHANDLED_ERROR},
}
_AGENTRX: Final = {
    "instruction/plan adherence failure": {Mode.OFF_TASK, Mode.INCOMPLETE_WORK},
    "invention of new information": {Mode.UNSUPPORTED_CLAIM},
    "invalid invocation": {Mode.WRONG_TOOL_USE},
    "misinterpretation of tool output": {Mode.MISREAD_INPUT, Mode.IGNORED_RESULT},
    "misinterpretation of tool output / handoff failure": {
        Mode.MISREAD_INPUT,
        Mode.IGNORED_RESULT,
        Mode.BAD_HANDOFF,
    },
    "intent-plan misalignment": {Mode.BAD_PLAN, Mode.OFF_TASK},
    "underspecified user intent": {Mode.OTHER},
    "intent not supported": {Mode.GAVE_UP, Mode.WRONG_TOOL_USE},
    "guardrails triggered": {Mode.GAVE_UP, Mode.UNHANDLED_ERROR},
    "system failure": {Mode.UNHANDLED_ERROR},
}
_TRAIL: Final = {
    "language-only": {Mode.UNSUPPORTED_CLAIM},
    "tool-related": {Mode.UNSUPPORTED_CLAIM},
    "poor information retrieval": {Mode.INCOMPLETE_WORK, Mode.WRONG_TOOL_USE},
    "tool output misinterpretation": {Mode.MISREAD_INPUT, Mode.IGNORED_RESULT},
    "incorrect problem identification": {Mode.MISREAD_INPUT, Mode.OFF_TASK},
    "tool selection errors": {Mode.WRONG_TOOL_USE},
    "formatting errors": {Mode.WRONG_TOOL_USE, Mode.OFF_TASK},
    "instruction non-compliance": {Mode.OFF_TASK, Mode.INCOMPLETE_WORK},
    "tool definition issues": {Mode.WRONG_TOOL_USE},
    "environment setup errors": {Mode.UNHANDLED_ERROR},
    "rate limiting": {Mode.UNHANDLED_ERROR},
    "authentication errors": {Mode.UNHANDLED_ERROR},
    "service errors": {Mode.UNHANDLED_ERROR},
    "resource not found": {Mode.UNHANDLED_ERROR},
    "resource exhaustion": {Mode.UNHANDLED_ERROR},
    "timeout issues": {Mode.UNHANDLED_ERROR},
    "context handling failures": {Mode.MISREAD_INPUT, Mode.BAD_HANDOFF},
    "resource abuse": {Mode.LOOP, Mode.BAD_PLAN},
    "goal deviation": {Mode.OFF_TASK},
    "task orchestration": {Mode.BAD_PLAN, Mode.BAD_HANDOFF},
}


def _plain(category: str) -> str:
    return re.sub(r"[\s_-]+", " ", category).strip().casefold()


_MODES: Final = {
    _plain(category): frozenset(modes)
    for taxonomy in (_AGENT_ERROR_TAXONOMY, _AGENTRX, _TRAIL)
    for category, modes in taxonomy.items()
}


def accepted_modes(category: str) -> frozenset[Mode]:
    """Return the modes that a label's category maps to; empty if it is unknown or missing."""
    return _MODES.get(_plain(category), frozenset())


def most_accepted(labels: Iterable[frozenset[Mode]]) -> float | None:
    """Return the share of labels that the best constant mode matches: a baseline; ``None`` without labels."""
    wanted = list(labels)
    fits = Counter(mode for modes in wanted for mode in modes)
    return max(fits.values()) / len(wanted) if wanted else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Comparison of one verdict with its label."""

    run_id: str
    subset: str
    steps: int
    """Number of steps in the run."""
    history: str
    """Equal for equal conversations; see ``folds.history_key``."""
    label: Label
    status: Status
    agent: str | None
    """The blamed step; ``None`` without a blame."""
    step: int | None
    confidence: float | None
    step_off: int | None
    """Distance of the blamed step from the labelled one; ``None`` without a blame."""
    agent_right: bool
    in_top_three: bool
    substring_step: bool
    """Whether the reference scorer would count the step."""
    substring_agent: bool
    effort: Effort
    mode: str = ""
    """The verdict's failure mode; empty without one."""
    fallback: bool
    """Whether a fallback answered instead of the method."""
    error: str | None

    @property
    def step_right(self) -> bool:
        """Tell whether the exact step was named."""
        return self.step_off == 0


def score(attribution: Attribution, label: Label, subset: str, *, steps: int = 0, history: str = "") -> Score:
    """Compare a verdict with a label that names both agent and step.

    Raises:
        ValueError: the label lacks one of them; callers must leave out such runs.
    """
    if label.agent is None or label.step is None:
        message = "a label without agent or step cannot be scored"
        raise ValueError(message)
    verdict = attribution.verdict
    blame = verdict if isinstance(verdict, Blame) else None
    return Score(
        run_id=attribution.run_id,
        subset=subset,
        steps=steps,
        history=history,
        label=label,
        status=attribution.status,
        agent=blame.agent if blame else None,
        step=blame.step if blame else None,
        confidence=blame.confidence if blame else None,
        step_off=abs(blame.step - label.step) if blame else None,
        agent_right=blame is not None and same_agent(blame.agent, label.agent),
        in_top_three=blame is not None and label.step in _top_three(blame),
        substring_step=blame is not None and str(label.step) in str(blame.step),
        substring_agent=blame is not None and label.agent in blame.agent,
        effort=attribution.effort,
        mode=blame.mode if blame else "",
        fallback=attribution.fallback is not None,
        error=attribution.error,
    )


def as_abstention(scored: Score) -> Score:
    """Return the score of the same run as if the method had abstained."""
    return replace(
        scored,
        status=Status.UNDETERMINED,
        agent=None,
        step=None,
        confidence=None,
        mode="",
        step_off=None,
        agent_right=False,
        in_top_three=False,
        substring_step=False,
        substring_agent=False,
    )


def confident(scores: Sequence[Score]) -> list[Confident]:
    """Return confidence and outcome of the runs in which a step was blamed."""
    return [(s.confidence, s.step_right) for s in scores if s.confidence is not None]


def _top_three(blame: Blame) -> tuple[int, ...]:
    ranked = [candidate.step for candidate in blame.ranking if candidate.step != blame.step]
    return (blame.step, *ranked[:2])


TOTAL: Final = "total"
_WITHIN: Final = (1, 3, 5)
_OF_ANSWERS: Final = ("step_accuracy", "step_accuracy_ci", "agent_accuracy", "agent_accuracy_ci")
_LENGTHS: Final = ((1, 10), (11, 30), (31, 60), (61, None))
"""Bucket bounds in steps. Who&When's algorithm-generated logs are all in the first bucket; its hand-crafted
logs are in all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The measured method and its data set."""

    dataset: str
    method: str
    model: str | None = None
    with_reference: bool = False
    trained_on: str | None = None
    """Training data as text; ``None`` for a method that does not learn."""


def tabulate(scores: Sequence[Score], subject: Subject) -> tuple[dict[str, Any], ...]:
    """Return one line per subset, in order of first appearance, and the total last."""
    subsets = dict.fromkeys(scored.subset for scored in scores)
    parts = [(name, [s for s in scores if s.subset == name]) for name in subsets]
    return tuple(summarise(part, subject, subset=name) for name, part in [*parts, (TOTAL, scores)])


def summarise(scores: Sequence[Score], subject: Subject, *, subset: str) -> dict[str, Any]:
    """Return one line; shares are 0..1, ``None`` where n is 0.

    Brier score and calibration error (five equal-mass bins) are for the confidence
    in the blamed step, over the runs in which a step was blamed. ``duration_s`` is
    the sum over runs, even if they ran concurrently. Calls, tokens and cost count
    all calls, including replies from the cache.
    """
    costs = [s.effort.cost_usd for s in scores]
    known = [cost for cost in costs if cost is not None]
    pairs = confident(scores)
    return {
        "dataset": subject.dataset,
        "subset": subset,
        "n": len(scores),
        "method": subject.method,
        "model": subject.model,
        **_accuracies(scores),
        "undetermined": sum(s.status in {Status.UNDETERMINED, *BLAMELESS} for s in scores),
        "errors": sum(s.status is Status.ERROR for s in scores),
        "brier": brier(pairs),
        "ece": calibration_error(pairs),
        "calls": sum(s.effort.calls for s in scores),
        "input_tokens": sum(s.effort.input_tokens for s in scores),
        "output_tokens": sum(s.effort.output_tokens for s in scores),
        "cost_usd": round(sum(known), 6) if len(known) == len(scores) else None,
        "duration_s": round(sum(s.effort.duration_s for s in scores), 6),
        "with_reference": subject.with_reference,
        "trained_on": subject.trained_on,
        "fallbacks": sum(s.fallback for s in scores),
        "reference_scorer": {
            "step_accuracy": share([s.substring_step for s in scores]),
            "agent_accuracy": share([s.substring_agent for s in scores]),
        },
        **_intervals(scores, pairs),
        "answered": _answered(scores),
        "modes": _modes(scores),
        "ece_if_calibrated": error_if_calibrated(pairs),
        "coverage_curve": _curve(pairs, len(scores)),
        "by_length": _by_length(scores),
    }


def share(claims: Sequence[bool]) -> float | None:
    """Return the share of true values; ``None`` if there are none."""
    return sum(claims) / len(claims) if claims else None


def share_interval(claims: Sequence[bool]) -> list[float] | None:
    """Return the 95 % Wilson interval of a share as a pair; ``None`` without values."""
    return _pair(wilson(sum(claims), len(claims))) if claims else None


def _accuracies(scores: Sequence[Score]) -> dict[str, Any]:
    return {
        "step_accuracy": share([s.step_right for s in scores]),
        "step_accuracy_ci": share_interval([s.step_right for s in scores]),
        "agent_accuracy": share([s.agent_right for s in scores]),
        "agent_accuracy_ci": share_interval([s.agent_right for s in scores]),
        "joint_accuracy": share([s.step_right and s.agent_right for s in scores]),
        "top3_step_accuracy": share([s.in_top_three for s in scores]),
        "within": {str(k): share(_within(scores, k)) for k in _WITHIN},
    }


def _intervals(scores: Sequence[Score], pairs: Sequence[Confident]) -> dict[str, Any]:
    return {
        "joint_accuracy_ci": share_interval([s.step_right and s.agent_right for s in scores]),
        "top3_step_accuracy_ci": share_interval([s.in_top_three for s in scores]),
        "within_ci": {str(k): share_interval(_within(scores, k)) for k in _WITHIN},
        "brier_ci": _resampled(pairs, brier),
        "ece_ci": _resampled(pairs, calibration_error),
    }


def _answered(scores: Sequence[Score]) -> dict[str, Any]:
    """Return how many runs got a blame, and how many of these were correct."""
    answered = [s for s in scores if s.step is not None]
    return {
        "n": len(answered),
        "coverage": len(answered) / len(scores) if scores else None,
        **{key: value for key, value in _accuracies(answered).items() if key in _OF_ANSWERS},
    }


def _within(scores: Sequence[Score], distance: int) -> list[bool]:
    return [s.step_off is not None and s.step_off <= distance for s in scores]


def _resampled(
    pairs: Sequence[Confident], statistic: Callable[[Sequence[Confident]], float | None]
) -> list[float] | None:
    return _pair(bootstrap(pairs, lambda drawn: statistic(drawn) or 0.0)) if pairs else None


def _modes(scores: Sequence[Score]) -> dict[str, Any] | None:
    """Score the failure modes of the runs whose label has a category; ``None`` without such runs."""
    wanted = [(s.mode, modes) for s in scores if (modes := accepted_modes(s.label.category))]
    right = [mode in modes for mode, modes in wanted]
    best = most_accepted(modes for _, modes in wanted)
    if best is None:
        return None
    return {
        "n": len(right),
        "accuracy": share(right),
        "accuracy_ci": share_interval(right),
        "best_constant": best,
    }


def _curve(pairs: Sequence[Confident], n: int) -> list[dict[str, float]]:
    return [
        {"coverage": point.answered / n, "accuracy": point.accuracy, "threshold": point.threshold}
        for point in coverage_curve(pairs)
    ]


def _by_length(scores: Sequence[Score]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for low, high in _LENGTHS:
        held = [s for s in scores if low <= s.steps and (high is None or s.steps <= high)]
        if held:
            name = f"{low}-{high}" if high is not None else f"{low}+"
            rows.append({"steps": name, "n": len(held), **_accuracies(held)})
    return rows


def _pair(interval: Interval) -> list[float]:
    return [round(interval.low, 6), round(interval.high, 6)]
