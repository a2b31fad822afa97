"""Strict scores of verdicts against labels.

Integers are compared as integers, a missing answer is wrong, and agents are
equal when they are the same name in another spelling. The reference scorer of
arXiv:2505.00212 tests substrings, which a string of all ten digits passes; its
figure is kept beside ours under its own name and never instead of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from analyzer.agent_names import same_agent
from analyzer.conversation import Label
from analyzer.measuring.reliability import Confident
from semconv.model import Attribution, Blame, Effort, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How one verdict compares with its label."""

    run_id: str
    subset: str
    steps: int
    """How long the run is."""
    history: str
    """The same for the same conversation; see ``folds.history_key``."""
    label: Label
    status: Status
    agent: str | None
    """As blamed; ``None`` without a blame."""
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
    fallback: bool = False
    """Another method answered in place of the one that was asked for."""
    error: str | None = None

    @property
    def step_right(self) -> bool:
        """Tell whether the very step was named."""
        return self.step_off == 0


def score(attribution: Attribution, label: Label, subset: str, *, steps: int = 0, history: str = "") -> Score:
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
        fallback=attribution.fallback is not None,
        error=attribution.error,
    )


def withheld(scored: Score) -> Score:
    """Return the score of the same run had the method abstained: nothing is right."""
    return replace(
        scored,
        status=Status.UNDETERMINED,
        agent=None,
        step=None,
        confidence=None,
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
