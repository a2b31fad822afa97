"""Triage, then attribution, then JSON: what the pipeline asks for when a run is complete."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass

from analyzer.attribution import Attributor
from analyzer.methods import AUTO
from analyzer.triage import Claim, triage, worth_a_model
from analyzer.verdict import to_json
from collector_processor.analyst import Analysis
from semconv.model import Abstention, Attribution, Status, Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAnalyst:
    """Analyses any run; holds nothing of one. A model's failure ends in a verdict that says so."""

    attributor: Attributor
    rules: Sequence[Claim] = ()
    """The user's own claims about failure."""

    async def analyse(self, trajectory: Trajectory) -> Analysis:
        """Triage and attribute with everything there is."""
        # Signals read all of the text: beside the loop, so that a giant run delays nobody's acknowledgement.
        unasked = await asyncio.to_thread(self.unasked, trajectory)
        return unasked or analysis_of(await self.attributor(trajectory), trajectory)

    def unasked(self, trajectory: Trajectory) -> Analysis | None:
        """Triage and attribute with everything there is; ``None`` where that may ask a model."""
        finding = triage(trajectory, self.rules)
        if not finding.failed:
            return analysis_of(_abstained(trajectory, Status.NO_FAILURE, finding.reason), trajectory)
        asks_model = self.attributor.model is not None and worth_a_model(trajectory)
        if asks_model or self.attributor.method not in (AUTO, "signals"):
            return None
        return analysis_of(self.attributor.at_once(trajectory), trajectory)

    def glance(self, trajectory: Trajectory) -> Analysis:
        """Triage and attribute with no model, at once: for runs that still go on."""
        finding = triage(trajectory, self.rules)
        if not finding.failed:
            return analysis_of(_abstained(trajectory, Status.NO_FAILURE, finding.reason), trajectory)
        return analysis_of(self.attributor.at_once(trajectory), trajectory)

    def excuse(self, trajectory: Trajectory, reason: str) -> Analysis:
        """Return an ``error`` verdict: we could not analyse, and why."""
        return analysis_of(_abstained(trajectory, Status.ERROR, reason), trajectory)


def _abstained(trajectory: Trajectory, status: Status, reason: str) -> Attribution:
    return Attribution(
        run_id=trajectory.run_id,
        verdict=Abstention(status=status, reason=reason),
        method="triage",
        error=reason if status is Status.ERROR else None,
    )


def analysis_of(attribution: Attribution, trajectory: Trajectory) -> Analysis:
    """Return an attribution with its JSON."""
    document = json.dumps(to_json(attribution, trajectory), ensure_ascii=False)
    return Analysis(attribution=attribution, document=document)
