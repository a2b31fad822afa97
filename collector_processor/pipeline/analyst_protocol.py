"""Interface between processor and analyzer: the methods that the pipeline calls."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from collector_processor.otlp import CollectorError
from semconv.model import Attribution, Trajectory

NOTES: Final = "notes"
"""Key of a verdict's notes in its document; absent if there are none."""

EARLY: Final = "early_warning"
"""Key of the warning in a provisional verdict's document; absent if there is none."""


class AnalysisLostError(CollectorError):
    """The worker process crashed repeatedly on this trace, or used up its CPU time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """An attribution and its JSON document."""

    attribution: Attribution
    document: str

    def with_note(self, note: str) -> Analysis:
        """Return the analysis with one more note for people in its document."""
        fields = json.loads(self.document)
        notes = list(dict.fromkeys([*fields.get(NOTES, ()), note]))
        return replace(self, document=json.dumps({**fields, NOTES: notes}, ensure_ascii=False))

    def with_warning(self, warning: Mapping[str, object], note: str) -> Analysis:
        """Return the analysis with an early warning in its document, and a note of it for people."""
        fields = json.loads(self.document)
        document = json.dumps({**fields, EARLY: dict(warning)}, ensure_ascii=False)
        return replace(self, document=document).with_note(note)

    def with_warning_of(self, before: Mapping[str, Any]) -> Analysis:
        """Return the analysis with the warning of an earlier document, unless it has a warning of its own."""
        warning = before.get(EARLY)
        if warning is None or json.loads(self.document).get(EARLY) is not None:
            return self
        note = (before.get(NOTES) or [""])[-1]  # ``with_warning`` put it last
        return self.with_warning(warning, note)


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
