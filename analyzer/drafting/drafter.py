"""One trace's bytes → all that is committed of it, where nothing is to be waited for. Pure.

The same stages as on the long way (``material.py``, ``analyst.py``, ``writeback.py``) and the
same results; ``tests/unit/test_outright.py`` compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass

from analyzer.analyst import RunAnalyst
from analyzer.issues.counting import noted_run
from analyzer.issues.rows import noted_document
from analyzer.labels.kept_run import Clean, pack
from collector_processor.analyst import Analysis
from collector_processor.annotate import CarrierPolicy
from collector_processor.cleaning import Cleaner
from collector_processor.draft import Draft, DraftedRun, Keepsake, LoneTrace
from collector_processor.material import clean_runs, digests_of, key_names, named_traces, told_runs
from collector_processor.otlp import MalformedRequestError
from collector_processor.rebuild import Run, rebuild
from collector_processor.redaction import omit
from collector_processor.writeback import Decision, gist_of, write_back
from semconv.model import Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafter:
    """Drafts; holds nothing of any trace."""

    analyst: RunAnalyst
    cleaner: Cleaner
    """What it takes out is counted in the draft, not here."""
    policy: CarrierPolicy
    kept: Clean
    """What is kept of a failed run's texts."""
    noticed: Clean
    """What receivers of notices may read of a verdict."""

    def __call__(self, trace: LoneTrace) -> Draft | None:
        """Return what is to be committed of a trace; ``None`` where it must go the long way."""
        cleaner = self.cleaner.alike()
        try:
            found = rebuild(trace.bodies, trace.logs, completion=trace.completion, tenant=trace.key.tenant)
        except MalformedRequestError:
            return None
        names = key_names(trace.key.trace_id, found)
        if named_traces(names) - {trace.key.trace_id}:
            return None
        runs = clean_runs(found, cleaner)
        drafted: list[DraftedRun] = []
        for run in runs:
            analysis = self.analyst.unasked(run.trajectory)
            if analysis is None:
                return None
            drafted.append(self._drafted(run, analysis, trace))
        return Draft(
            names=tuple(names),
            told=told_runs(runs, digests_of(runs)),
            runs=tuple(drafted),
            redacted=cleaner.counts,
        )

    def _drafted(self, run: Run, analysis: Analysis, trace: LoneTrace) -> DraftedRun:
        decision = Decision(
            run=run,
            attribution=analysis.attribution,
            document=analysis.document,
            previous=None,
            tenant=trace.key.tenant,
            now_ns=trace.now_ns,
        )
        back = write_back(decision, self.policy)
        return DraftedRun(
            verdict=back.verdict,
            outgoing=back.outgoing,
            gist=gist_of(decision, back),
            keepsake=self._keepsake(run, analysis, trace),
            place=back.place,
        )

    def _keepsake(self, run: Run, analysis: Analysis, trace: LoneTrace) -> Keepsake:
        is_failure = analysis.attribution.status is not Status.NO_FAILURE
        noted = noted_run(trace.key.tenant, run.trajectory, analysis, self.noticed)
        return Keepsake(
            run_id=run.trajectory.run_id,
            is_failure=is_failure,
            packed=pack(run.trajectory, self.kept if is_failure else omit),
            noted=noted_document(noted),
        )
