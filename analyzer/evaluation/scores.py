"""Scores → the lines of ``blamespan bench``: DESIGN's keys first, then what else is worth knowing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from analyzer.measuring.reliability import (
    Confident,
    brier,
    calibration_error,
    coverage_curve,
    error_if_calibrated,
)
from analyzer.measuring.scoring import Score, confident
from analyzer.measuring.significance import Interval, bootstrap, wilson
from semconv.model import Status

TOTAL: Final = "total"
_WITHIN: Final = (1, 3, 5)
_LENGTHS: Final = ((1, 10), (11, 30), (31, 60), (61, None))
"""Steps: Who&When's algorithm-generated logs are all in the first, its hand-crafted ones in all four."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What was measured, and on what."""

    dataset: str
    method: str
    model: str | None = None
    with_reference: bool = False
    trained_on: str | None = None
    """In words, for a method that learns; ``None`` for one that does not."""


def tabulate(scores: Sequence[Score], subject: Subject) -> tuple[dict[str, Any], ...]:
    """Return one line a subset, in order of first appearance, and the total last."""
    subsets = dict.fromkeys(scored.subset for scored in scores)
    parts = [(name, [s for s in scores if s.subset == name]) for name in subsets]
    return tuple(summarise(part, subject, subset=name) for name, part in [*parts, (TOTAL, scores)])


def summarise(scores: Sequence[Score], subject: Subject, *, subset: str) -> dict[str, Any]:
    """Return one line; shares are 0..1, ``None`` where n is 0.

    Brier score and calibration error (five equal-mass bins) are those of the
    confidence in the blamed step, over the runs in which a step was blamed.
    ``duration_s`` is the sum over runs, whatever ran at the same time. Calls,
    tokens and cost are what the method takes, whether or not a reply was kept
    from an earlier time.
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
        "undetermined": sum(s.status in (Status.UNDETERMINED, Status.NO_FAILURE) for s in scores),
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
        "ece_if_calibrated": error_if_calibrated(pairs),
        "coverage_curve": _curve(pairs, len(scores)),
        "by_length": _by_length(scores),
    }


def share(claims: Sequence[bool]) -> float | None:
    """Return the share of what is true; ``None`` of nothing."""
    return sum(claims) / len(claims) if claims else None


def share_interval(claims: Sequence[bool]) -> list[float] | None:
    """Return the 95 % Wilson interval of a share as a pair; ``None`` of nothing."""
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


def _within(scores: Sequence[Score], distance: int) -> list[bool]:
    return [s.step_off is not None and s.step_off <= distance for s in scores]


def _resampled(
    pairs: Sequence[Confident], statistic: Callable[[Sequence[Confident]], float | None]
) -> list[float] | None:
    return _pair(bootstrap(pairs, lambda drawn: statistic(drawn) or 0.0)) if pairs else None


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
