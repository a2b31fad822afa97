"""Hybrid: all-at-once names the agent, step-by-step finds the step among that agent's.

Source: arXiv:2505.00212, section 5 (the hybrid of the two). Cost: one model call
and one for each step of the named agent until the first "yes".

As there, the agent is all-at-once's word, whatever follows. Where step-by-step
finds none of its steps wrong, the step is the one that all-at-once named, and the
verdict says so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from analyzer.method import Inquiry
from analyzer.methods.all_at_once import AllAtOnce
from analyzer.methods.answering import join_sentences
from analyzer.methods.step_by_step import first_mistake
from semconv.model import Abstention, Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Hybrid:
    """The reference method. ``max_bytes`` bounds the log's text in each prompt."""

    max_bytes: int
    name: str = "hybrid"

    def investigate(self, trajectory: Trajectory) -> Inquiry:
        """Ask who, then at which of its steps."""
        named = yield from AllAtOnce(max_bytes=self.max_bytes).investigate(trajectory)
        if isinstance(named, Abstention):
            return named
        suspects = [step for step in trajectory.steps if step.agent == named.agent]
        found = yield from first_mistake(trajectory, suspects, self.max_bytes)
        if found is not None:
            return found
        doubt = (
            f"(Asked step by step, the model found no mistake of {named.agent}'s;"
            f" step {named.step} is all-at-once's)"
        )
        return replace(named, reason=join_sentences([named.reason, doubt]))
