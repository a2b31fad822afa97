"""What became of drafts, and of the processes that made them: counted for whoever watches the service."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from collector_processor.draft import AnalysisLostError, Drafted


class Outcome(StrEnum):
    """What becomes of a trace that is to be drafted."""

    DRAFTED = "drafted"
    LONG_WAY = "long_way"
    """It has company, or a model is to be asked, or a fault of ours is to be said."""
    LOST = "lost"
    """Processes ended by it, or it took too long."""


@dataclass(slots=True, kw_only=True)
class DraftTally:
    """Counts since the start; of one event loop."""

    traces: Counter[Outcome] = field(default_factory=Counter)
    busy_s: float = 0.0
    """While traces were being drafted, one batch at a time."""
    processes: int = 0
    """Running now: one, or none."""
    started: int = 0
    ended: int = 0
    """Processes that ended, or had to be, otherwise than for want of work."""

    def count(self, drafts: Iterable[Drafted]) -> None:
        """Count what became of traces."""
        self.traces.update(map(outcome_of, drafts))


def outcome_of(draft: Drafted) -> Outcome:
    """Return what becomes of a trace."""
    if draft is None:
        return Outcome.LONG_WAY
    return Outcome.LOST if isinstance(draft, AnalysisLostError) else Outcome.DRAFTED
