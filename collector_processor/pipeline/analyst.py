"""Interface between processor and analyzer: the methods that the pipeline calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from collector_processor.otlp import CollectorError
from semconv.model import Attribution, Trajectory


class AnalysisLostError(CollectorError):
    """The worker process crashed repeatedly on this trace, or used up its CPU time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """An attribution and its JSON document."""

    attribution: Attribution
    document: str


class Analyst(Protocol):
    """Decides whether a run failed and which agent is to blame. Never raises because a model failed."""

    async def analyse(self, trajectory: Trajectory) -> Analysis:
        """Triage and attribute a run with all configured methods."""
        ...

    def glance(self, trajectory: Trajectory) -> Analysis:
        """Triage and attribute a run at once, without a model: for runs that have not ended."""
        ...

    def excuse(self, trajectory: Trajectory, reason: str) -> Analysis:
        """Return an ``error`` verdict, which says why blamespan could not analyse the run."""
        ...
