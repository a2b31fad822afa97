"""Comparison of a failed run with the kept runs of its workflow, before its verdict is committed. Not pure.

Before that, the confidence of signals is corrected by what labels said of the same kind of evidence.

The newest runs of a workflow are read and counted at most once in ``FRESH_S`` seconds, so that the cost does
not grow with the number of failures.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from analyzer.analyses.prepared import Analysed, Changed
from analyzer.history.known_runs import CountedRuns, FailedRun, KnownRun, failed_run, from_text, parts_of
from analyzer.history.spectrum import Comparison, Said
from analyzer.inquiry.calibration import Worth, as_labelled, doubted, may_be_corrected
from analyzer.inquiry.verdict import COMPARED, to_json
from analyzer.issues.counting import noted_run
from analyzer.issues.issue_store import noted_document
from collector_processor.core.analysis import Analysis, KeptRun
from collector_processor.core.records import HistoryRow
from collector_processor.otlp import NO_TENANT, Tenant
from semconv.model import Attribution, Status, Trajectory

MOST_RUNS: Final = 300
"""Newest runs of a workflow that a run is compared with."""
FRESH_S: Final = 30.0
_MOST_WORKFLOWS: Final = 32


Finding: TypeAlias = tuple[Analysis, KeptRun]
ReadRuns: TypeAlias = Callable[[Tenant, str, str, int], Awaitable[Sequence[HistoryRow]]]
"""Returns the newest runs with a known outcome of a service's workflow, up to the given number."""
ReadWorths: TypeAlias = Callable[[Tenant], Awaitable[Mapping[str, Worth]]]
"""Returns what a tenant's labels said of verdicts by signals, by their mode."""


async def nothing_labelled(_tenant: Tenant) -> Mapping[str, Worth]:
    """Know no label."""
    return {}


@dataclass(frozen=True, slots=True)
class _Read:
    """The runs of a workflow."""

    runs: CountedRuns
    at_s: float


class RunComparison:
    """Corrects findings by what the other runs of a workflow say: of failed runs, and of silent ones."""

    def __init__(
        self,
        *,
        read: ReadRuns,
        clean: Callable[[str], str],
        least_confidence: float,
        clock: Callable[[], float],
        worths: ReadWorths = nothing_labelled,
    ) -> None:
        """Create it without any runs.

        Args:
            read: reads the runs of a workflow.
            clean: returns the form of a reason that receivers may read.
            least_confidence: verdicts below it are withheld.
            clock: returns seconds of a monotonic clock.
            worths: returns what labels said of evidence, by tenant.
        """
        self._read: Final = read
        self._worths: Final = worths
        self._clean: Final = clean
        self._least: Final = least_confidence
        self._clock: Final = clock
        self._known: Final[OrderedDict[tuple[Tenant, str, str], _Read]] = OrderedDict()

    async def __call__(self, tenant: Tenant, one: Changed, finding: Finding) -> Finding:
        """Return the finding as labels correct it, pooled with the kept runs if any step stands out."""
        finding = await self._as_labelled(tenant, one.run.trajectory, finding)
        status = finding[0].attribution.status
        compared = one.compared if isinstance(one, Analysed) else ""
        is_silent = status is Status.NO_FAILURE and bool(compared)
        if (status not in COMPARED and not is_silent) or one.news.facts is None:
            return finding
        runs = await self._runs((tenant, one.news.service, one.news.totals.workflow))
        if not runs.is_enough:
            return finding
        return await asyncio.to_thread(self._compared, one, compared, runs, finding)

    def _compared(self, one: Changed, compared: str, runs: CountedRuns, finding: Finding) -> Finding:
        trajectory = one.run.trajectory
        own = from_text(compared) if compared else failed_run(parts_of(trajectory), one.news.service)
        return self._corrected(trajectory, _comparison(one, own, runs), finding)

    async def _as_labelled(self, tenant: Tenant, trajectory: Trajectory, finding: Finding) -> Finding:
        attribution = finding[0].attribution
        if not may_be_corrected(attribution):  # most runs have passed, and need no labels to be read
            return finding
        corrected = as_labelled(attribution, await self._worths(tenant))
        if corrected is attribution:
            return finding
        return await asyncio.to_thread(self._rewritten, corrected, trajectory, finding)

    async def _runs(self, workflow: tuple[Tenant, str, str]) -> CountedRuns:
        now = self._clock()
        found = self._known.get(workflow)
        if found is None or now - found.at_s >= FRESH_S:
            rows = await self._read(*workflow, MOST_RUNS)
            found = self._known[workflow] = _Read(CountedRuns(map(_known, rows)), now)
        self._known.move_to_end(workflow)
        if len(self._known) > _MOST_WORKFLOWS:
            self._known.popitem(last=False)
        return found.runs

    def _corrected(self, trajectory: Trajectory, comparison: Comparison | None, finding: Finding) -> Finding:
        analysis = finding[0]
        if comparison is None or not comparison.is_any:
            return finding
        from analyzer.methods.history import pooled_with, suspected  # noqa: PLC0415 - all signals

        if analysis.attribution.status is Status.NO_FAILURE:
            blame = suspected(trajectory, comparison)
            if blame is None:
                return finding
            pooled = replace(analysis.attribution, verdict=blame, method="history")
        else:
            pooled = pooled_with(analysis.attribution, trajectory, comparison)
        return self._rewritten(pooled, trajectory, finding)

    def _rewritten(self, attribution: Attribution, trajectory: Trajectory, finding: Finding) -> Finding:
        """Return the finding with another attribution, withheld if its confidence is too low."""
        from analyzer.signals.checked import checked  # noqa: PLC0415 - all signals; in a thread

        analysis, kept = finding
        told = doubted(attribution, self._least)
        rewritten = replace(told, checked=checked(told, trajectory))
        fields = {**json.loads(analysis.document), **to_json(rewritten, trajectory)}
        corrected = Analysis(attribution=rewritten, document=json.dumps(fields, ensure_ascii=False))
        noted = noted_document(noted_run(NO_TENANT, trajectory, corrected, self._clean))
        return corrected, replace(kept, noted=noted)


def _comparison(one: Changed, own: FailedRun, runs: CountedRuns) -> Comparison | None:
    trajectory, facts = one.run.trajectory, one.news.facts
    if facts is None:
        return None
    asked = KnownRun(
        run_id=trajectory.run_id,
        service=own.service,
        workflow=one.news.totals.workflow,
        version=facts.version,
        said=Said.FAILED,
        elements=facts.elements,
    )
    return runs.compare(asked, own, [step.index for step in trajectory.steps])


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
