"""Rules that read nothing but who speaks when, to stand beside the figures of methods.

A figure says something only if it is above that of such a rule. The best rule is chosen on the very runs that
it is scored on, an advantage that no method has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from analyzer.inquiry.conversation import Conversation, Label
from analyzer.inquiry.intervals import wilson
from analyzer.inquiry.match_agents import same_agent
from semconv.model import Step, StepKind

_SILENT: Final = (StepKind.TOOL, StepKind.HUMAN, StepKind.OTHER)


def speakers(steps: Sequence[Step]) -> list[Step]:
    """Return the steps of agents after step 0; all steps if there are none."""
    return [step for step in steps[1:] if step.kind not in _SILENT] or list(steps)


def of_agent(steps: Sequence[Step], agent: str) -> Step:
    """Return the first step of an agent."""
    return next(step for step in steps if step.agent == agent)


def busiest(steps: Sequence[Step]) -> str:
    """Return the agent with the most steps."""
    return Counter(step.agent for step in steps).most_common(1)[0][0]


Rule: TypeAlias = Callable[[Sequence[Step]], Step]
"""Chooses one of the steps of agents."""
RULES: Final[Mapping[str, Rule]] = {
    "first agent": lambda steps: steps[0],
    "last agent": lambda steps: steps[-1],
    "last agent, first step": lambda steps: of_agent(steps, steps[-1].agent),
    "busiest agent, first step": lambda steps: of_agent(steps, busiest(steps)),
    "third speaker": lambda steps: steps[min(2, len(steps) - 1)],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The rule that does best on some runs, in one respect."""

    rule: str
    right: int
    n: int

    @property
    def share(self) -> str:
        """The share of right answers in per cent, and the rule."""
        return f"{100 * self.right / self.n:.1f} ({self.rule})" if self.n else "-"

    def __str__(self) -> str:
        """Return the share of right answers in per cent, with its interval and the rule."""
        ends = wilson(self.right, self.n)
        share = 100 * self.right / self.n
        return f"{share:.1f} [{100 * ends.low:.1f}, {100 * ends.high:.1f}] ({self.rule})"


def best_step(runs: Sequence[Conversation]) -> Best:
    """Return the rule that names the right step most often."""
    return _best(runs, lambda step, label: step.index == label.step)


def best_agent(runs: Sequence[Conversation]) -> Best:
    """Return the rule that names the right agent most often."""
    return _best(runs, lambda step, label: label.agent is not None and same_agent(step.agent, label.agent))


def _best(runs: Sequence[Conversation], is_right: Callable[[Step, Label], bool]) -> Best:
    found = []
    for name, rule in RULES.items():
        named = [(rule(speakers(one.trajectory.steps)), one.label) for one in runs]
        right = sum(label is not None and is_right(step, label) for step, label in named)
        found.append(Best(rule=name, right=right, n=len(runs)))
    return max(found, key=lambda each: each.right)
