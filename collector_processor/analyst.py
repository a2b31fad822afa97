"""What the pipeline asks of whoever analyses: the seam between processor and analyzer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from semconv.model import Attribution, Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """An attribution and its JSON."""

    attribution: Attribution
    document: str


class Analyst(Protocol):
    """Decides whether a run failed and who is to blame. Never raises for a model's sake."""

    async def analyse(self, trajectory: Trajectory) -> Analysis:
        """Triage and attribute with everything there is."""
        ...

    def glance(self, trajectory: Trajectory) -> Analysis:
        """Triage and attribute with no model, at once: for runs that still go on."""
        ...

    def excuse(self, trajectory: Trajectory, reason: str) -> Analysis:
        """An ``error`` verdict: we could not analyse, and why."""
        ...
