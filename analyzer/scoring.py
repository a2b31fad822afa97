"""Strict scores of verdicts against labels, with the uncertainty that small data sets have.

Integers are compared as integers, a missing answer is wrong, and agents are
equal when they are the same name in another spelling. (The reference scorer of
arXiv:2505.00212 tests substrings, which a string of all ten digits passes.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from analyzer.agent_names import same_agent
from analyzer.conversation import Label
from semconv.model import Attribution, Blame, Effort, Status

TOTAL: Final = "total"
_WITHIN: Final = (1, 3, 5)
_BINS: Final = 5
_Z_95: Final = 1.959964


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How one verdict compares with its label."""

    subset: str
    status: Status
    confidence: float | None
    step_off: int | None
    """Distance of the blamed step from the labelled one; ``None`` without a blame."""
    agent_right: bool
    in_top_three: bool
    effort: Effort

    @property
    def step_right(self) -> bool:
        """Tell whether the very step was named."""
        return self.step_off == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A 95 % confidence interval of a share."""

    low: float
    high: float


def score(attribution: Attribution, label: Label, subset: str) -> Score:
    """Compare a verdict with a label that names both agent and step.

    Raises:
        ValueError: the label lacks one of them; such runs are left out, not scored.
    """
    if label.agent is None or label.step is None:
        message = "a label without agent or step cannot be scored"
        raise ValueError(message)
    verdict = attribution.verdict
    blame = verdict if isinstance(verdict, Blame) else None
    return Score(
        subset=subset,
        status=attribution.status,
        confidence=blame.confidence if blame else None,
        step_off=abs(blame.step - label.step) if blame else None,
        agent_right=blame is not None and same_agent(blame.agent, label.agent),
        in_top_three=blame is not None and label.step in _top_three(blame),
        effort=attribution.effort,
    )


def wilson(right: int, n: int) -> Interval:
    """Return the 95 % Wilson score interval of ``right`` out of ``n``; all of 0..1 for none."""
    if n == 0:
        return Interval(low=0.0, high=1.0)
    share, z2 = right / n, _Z_95**2
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z_95 / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    return Interval(low=max(0.0, middle - half), high=min(1.0, middle + half))


def summarise(
    scores: Sequence[Score], *, dataset: str, subset: str, method: str, model: str | None
) -> dict[str, Any]:
    """Return one line of ``blamespan bench --format json``; shares are 0..1, ``None`` where n is 0.

    Brier score and calibration error (five equal-mass bins) are those of the
    confidence in the blamed step, over the runs in which a step was blamed.
    ``duration_s`` is the sum over runs, whatever ran at the same time.
    """
    n = len(scores)
    costs = [s.effort.cost_usd for s in scores]
    known = [cost for cost in costs if cost is not None]
    return {
        "dataset": dataset,
        "subset": subset,
        "n": n,
        "method": method,
        "model": model,
        "step_accuracy": _share([s.step_right for s in scores]),
        "step_accuracy_ci": _interval([s.step_right for s in scores]),
        "agent_accuracy": _share([s.agent_right for s in scores]),
        "agent_accuracy_ci": _interval([s.agent_right for s in scores]),
        "joint_accuracy": _share([s.step_right and s.agent_right for s in scores]),
        "top3_step_accuracy": _share([s.in_top_three for s in scores]),
        "within": {
            str(k): _share([s.step_off is not None and s.step_off <= k for s in scores]) for k in _WITHIN
        },
        "undetermined": sum(s.status in (Status.UNDETERMINED, Status.NO_FAILURE) for s in scores),
        "errors": sum(s.status is Status.ERROR for s in scores),
        "brier": brier(scores),
        "ece": calibration_error(scores),
        "calls": sum(s.effort.calls for s in scores),
        "input_tokens": sum(s.effort.input_tokens for s in scores),
        "output_tokens": sum(s.effort.output_tokens for s in scores),
        "cost_usd": round(sum(known), 6) if len(known) == n else None,
        "duration_s": round(sum(s.effort.duration_s for s in scores), 6),
    }


def brier(scores: Sequence[Score]) -> float | None:
    """Return the mean squared distance of confidence from outcome; 0 is best."""
    pairs = _confident(scores)
    return sum((c - right) ** 2 for c, right in pairs) / len(pairs) if pairs else None


def calibration_error(scores: Sequence[Score]) -> float | None:
    """Return the expected calibration error over five bins of (nearly) equal mass."""
    pairs = sorted(_confident(scores))
    n = len(pairs)
    if not n:
        return None
    error = 0.0
    for number in range(_BINS):
        held = pairs[n * number // _BINS : n * (number + 1) // _BINS]
        error += abs(sum(c - right for c, right in held)) / n
    return error


def _confident(scores: Sequence[Score]) -> list[tuple[float, bool]]:
    return [(s.confidence, s.step_right) for s in scores if s.confidence is not None]


def _top_three(blame: Blame) -> tuple[int, ...]:
    ranked = [candidate.step for candidate in blame.ranking if candidate.step != blame.step]
    return (blame.step, *ranked[:2])


def _share(claims: Sequence[bool]) -> float | None:
    return sum(claims) / len(claims) if claims else None


def _interval(claims: Sequence[bool]) -> list[float] | None:
    if not claims:
        return None
    interval = wilson(sum(claims), len(claims))
    return [round(interval.low, 6), round(interval.high, 6)]
