"""Panel: two experts who read the run differently; a third answer only where they differ.

One expert judges plainly, the other counterfactually (what would have happened had the step been
right). Where they blame the same step, their beliefs are pooled and that is the verdict. Where not,
an arbiter is shown both cases, in an order that has nothing to do with who made them, and decides
between them, or for a third step if neither holds.

Source: the counterfactual expert is arXiv:2509.10401's; the arrangement is ours.
Cost: 2 model calls where they agree, 3 where they differ, one more for each answer that cannot be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from analyzer.method import Inquiry
from analyzer.methods.answering import nothing_to_judge
from analyzer.methods.judge import Approach, Judge, blame, charge, put
from analyzer.methods.votes import combine
from analyzer.render import render
from semconv.model import Abstention, Blame, Trajectory, Verdict

_LONGEST_CASE: Final = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Two judges and an arbiter. ``max_bytes`` bounds the run's text in each prompt."""

    max_bytes: int
    name: str = "panel"

    def investigate(self, trajectory: Trajectory) -> Inquiry:
        """Hear both experts; ask the arbiter if they blame different steps."""
        if not trajectory.steps:
            return nothing_to_judge()
        opinions: list[Verdict] = []
        for approach in Approach:
            expert = Judge(max_bytes=self.max_bytes, approach=approach)
            opinions.append((yield from expert.investigate(trajectory)))
        blames = [opinion for opinion in opinions if isinstance(opinion, Blame)]
        if len({opinion.step for opinion in blames}) < 2:
            return combine(opinions, trajectory)
        rendering = render(trajectory, max_bytes=self.max_bytes)
        answer = yield from put(charge(trajectory, rendering, preface=_cases(blames)), trajectory)
        if isinstance(answer, Abstention):
            return combine(opinions, trajectory)
        return _arbitrated(blame(trajectory, answer), blames, trajectory)


def _cases(blames: Sequence[Blame]) -> str:
    cases = "\n".join(
        f"- step {each.step}: {' '.join(each.reason.split())[:_LONGEST_CASE]}"
        for each in sorted(blames, key=lambda each: each.step)
    )
    return (
        f"Two examiners who read the run apart blame different steps:\n{cases}\n"
        "Check both against the run. Decide for one of them, or for another step if neither holds.\n"
    )


def _arbitrated(decided: Blame, blames: Sequence[Blame], trajectory: Trajectory) -> Verdict:
    """The arbiter names the step; all three beliefs say how sure that is."""
    pooled = combine([decided, *blames], trajectory)
    assert isinstance(pooled, Blame)
    share = next((each.probability for each in pooled.ranking if each.step == decided.step), 0.0)
    first = replace(decided.ranking[0], probability=share)
    others = [
        replace(each, probability=min(each.probability, share))
        for each in pooled.ranking
        if each.step != decided.step
    ]
    return replace(decided, confidence=share, ranking=(first, *others))
