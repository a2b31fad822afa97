"""Comparison of a failed run with the kept runs of its workflow, before its verdict is committed. Not pure.

The newest runs of a workflow are read and counted at most once in ``FRESH_S`` seconds, so that the cost does
not grow with the number of failures.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from analyzer.history.known_runs import CountedRuns, FailedRun, KnownRun, failed_run, from_text
from analyzer.history.spectrum import Comparison, Said
from analyzer.inquiry.verdict import to_json
from analyzer.issues.counting import noted_run
from analyzer.issues.issue_store import noted_document
from analyzer.methods.attribution import doubted
from analyzer.methods.history import COMPARED, pooled_with, suspected
from analyzer.signals.checked import checked
from collector_processor.core.analysis import Analysis, KeptRun
from collector_processor.core.records import HistoryRow
from collector_processor.otlp import NO_TENANT, Tenant
from collector_processor.pipeline.examine import Finding, ReadRuns
from collector_processor.pipeline.prepare import PreparedRun
from collector_processor.writeback.outgoing import service_of
from semconv.model import Status

MOST_RUNS: Final = 300
"""Newest runs of a workflow that a run is compared with."""
FRESH_S: Final = 30.0
_MOST_WORKFLOWS: Final = 32


@dataclass(frozen=True, slots=True)
class _Read:
    """The runs of a workflow."""

    runs: CountedRuns
    at_s: float


class RunComparison:
    """Corrects findings by what the other runs of a workflow say: of failed runs, and of silent ones."""

    def __init__(
        self, *, clean: Callable[[str], str], least_confidence: float, clock: Callable[[], float]
    ) -> None:
        """Create it without any runs.

        Args:
            clean: returns the form of a reason that receivers may read.
            least_confidence: verdicts below it are withheld.
            clock: returns seconds of a monotonic clock.
        """
        self._clean: Final = clean
        self._least: Final = least_confidence
        self._clock: Final = clock
        self._known: Final[OrderedDict[tuple[Tenant, str, str], _Read]] = OrderedDict()

    async def __call__(self, tenant: Tenant, run: PreparedRun, finding: Finding, read: ReadRuns) -> Finding:
        """Return the finding, pooled with the evidence of the kept runs if any step stands out."""
        analysis, kept = finding
        status = analysis.attribution.status
        is_silent = status is Status.NO_FAILURE and bool(run.compared)
        if (status not in COMPARED and not is_silent) or run.facts is None or run.totals is None:
            return finding
        own = from_text(run.compared) if run.compared else await asyncio.to_thread(_taken, run)
        known = await self._runs((tenant, own.service, run.totals.workflow), read)
        if not known.is_enough:
            return finding
        return await asyncio.to_thread(self._corrected, run, own, known, analysis, kept)

    async def _runs(self, workflow: tuple[Tenant, str, str], read: ReadRuns) -> CountedRuns:
        now = self._clock()
        found = self._known.get(workflow)
        if found is None or now - found.at_s >= FRESH_S:
            rows = await read(*workflow, MOST_RUNS)
            found = self._known[workflow] = _Read(CountedRuns(map(_known, rows)), now)
        self._known.move_to_end(workflow)
        if len(self._known) > _MOST_WORKFLOWS:
            self._known.popitem(last=False)
        return found.runs

    def _corrected(
        self, run: PreparedRun, own: FailedRun, known: CountedRuns, analysis: Analysis, kept: KeptRun
    ) -> Finding:
        found = _comparison(run, own, known)
        if found is None or not found.is_any:
            return analysis, kept
        if analysis.attribution.status is Status.NO_FAILURE:
            blame = suspected(run.trajectory, found)
            if blame is None:
                return analysis, kept
            pooled = replace(analysis.attribution, verdict=blame, method="history")
        else:
            pooled = pooled_with(analysis.attribution, run.trajectory, found)
        told = doubted(pooled, self._least)
        attribution = replace(told, checked=checked(told, run.trajectory))
        fields = {**json.loads(analysis.document), **to_json(attribution, run.trajectory)}
        corrected = Analysis(attribution=attribution, document=json.dumps(fields, ensure_ascii=False))
        noted = noted_document(noted_run(NO_TENANT, run.trajectory, corrected, self._clean))
        return corrected, replace(kept, noted=noted)


def _taken(run: PreparedRun) -> FailedRun:
    return failed_run(run.trajectory, service_of(run.unpacked()))


def _comparison(run: PreparedRun, own: FailedRun, known: CountedRuns) -> Comparison | None:
    assert run.facts is not None
    assert run.totals is not None
    asked = KnownRun(
        run_id=run.trajectory.run_id,
        service=own.service,
        workflow=run.totals.workflow,
        version=run.facts.version,
        said=Said.FAILED,
        elements=run.facts.elements,
    )
    return known.compare(asked, own, [step.index for step in run.trajectory.steps])


def _known(row: HistoryRow) -> KnownRun:
    return KnownRun(
        run_id=row.run_id,
        service=row.service,
        workflow=row.workflow,
        version=row.version,
        said=Said(row.said),
        elements=row.elements,
        invariants=row.invariants,
    )


__all__ = ["FRESH_S", "MOST_RUNS", "RunComparison"]
