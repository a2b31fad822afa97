"""Step 3 of a verdict: decides on a commit from prepared runs, analyses and previous verdicts. Pure.

Called with the store's state under the lock of all commits, so that nothing changes between the decision and
its commit. If the traces were analysed meanwhile, nothing is decided, and the caller loads them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from analyzer.analyses.prepare import Changed, Open, RebuiltRun
from collector_processor.core.analysis import Analysis
from collector_processor.core.records import (
    Commit,
    Outgoing,
    Place,
    RunIdentity,
    Standing,
    StoredVerdict,
    VerdictSummary,
)
from collector_processor.otlp import Tenant, TraceKey
from collector_processor.writeback.annotate import CarrierPolicy
from collector_processor.writeback.outgoing import Decision, WriteBack, provisional, summary_of, write_back


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysedTraces:
    """The traces of one analysis, and the runs that need a verdict."""

    tenant: Tenant
    seen: Mapping[TraceKey, tuple[int, int]]
    """For each trace when it was read: its number of analyses, and the last journal row they covered."""
    upto: Mapping[TraceKey, int]
    """The highest journal row of each trace now."""
    times: int
    """Number of analyses of the run, including this one."""
    identities: tuple[RunIdentity, ...] = ()
    """All runs of the traces."""
    runs: tuple[tuple[Changed, Analysis], ...] = ()
    """The runs that changed since they were last analysed."""
    redacted: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """The commit of one analysis, and the verdicts in it."""

    commit: Commit
    verdicts: tuple[tuple[VerdictSummary, StoredVerdict], ...] = ()


def decide(
    analysed: AnalysedTraces,
    standing: Standing,
    policy: CarrierPolicy,
    now_ns: int,
    held: Mapping[int, bytes] | None = None,
) -> Decided | None:
    """Return the commit; ``None`` if the traces were analysed again after they were read.

    Args:
        analysed: the traces, with an analysis of each run that changed.
        standing: what the store holds about them now.
        policy: how carriers are written.
        now_ns: Unix ns.
        held: journal rows of the traces that are still held back (hold mode).
    """
    if standing.seen != analysed.seen:
        return None
    rows = dict(held or {})
    verdicts: list[tuple[VerdictSummary, StoredVerdict]] = []
    written: list[WriteBack] = []
    for prepared, analysis in analysed.runs:
        previous = standing.verdicts.get(prepared.run.identity.run_id)
        decision = _decision(analysed.tenant, prepared.run, analysis, previous, now_ns)
        if packed := prepared.news.place:
            run_id = prepared.run.identity.run_id
            decision = replace(decision, place=Place(tenant=analysed.tenant, run_id=run_id, packed=packed))
        back = write_back(decision, policy, rows)
        rows |= dict(back.rewrites)  # two runs may share a row
        written.append(back)
        verdicts.append((summary_of(decision, back), back.verdict))
    commit = Commit(
        analysed=tuple(analysed.upto.items()),
        times=analysed.times,
        identities=analysed.identities,
        verdicts=tuple(back.verdict for back in written),
        outgoing=tuple(out for back in written for out in back.outgoing),
        rewrites=tuple({seq: body for back in written for seq, body in back.rewrites}.items()),
        late=_late(written),
        places=tuple(back.place for back in written if back.place),
    )
    return Decided(commit=commit, verdicts=tuple(verdicts))


def decide_provisionally(
    tenant: Tenant, runs: Sequence[Open], previous: Mapping[str, StoredVerdict], now_ns: int
) -> Commit:
    """Return the provisional verdicts on runs that have not ended; a final verdict is kept.

    A warning stays until the run has ended, also when the process that gave it has forgotten it.
    """
    verdicts: list[StoredVerdict] = []
    for one in runs:
        before = previous.get(one.run.identity.run_id)
        if before is None or before.is_provisional:
            analysis = one.analysis if before is None else one.analysis.with_warning_of(before.fields)
            verdicts.append(provisional(_decision(tenant, one.run, analysis, before, now_ns)))
    return Commit(analysed=(), verdicts=tuple(verdicts))


def _decision(
    tenant: Tenant, run: RebuiltRun, analysis: Analysis, previous: StoredVerdict | None, now_ns: int
) -> Decision:
    return Decision(
        run=run.unpacked(),
        attribution=analysis.attribution,
        document=analysis.document,
        previous=previous,
        tenant=tenant,
        now_ns=now_ns,
    )


def _late(written: Iterable[WriteBack]) -> tuple[tuple[int, Outgoing], ...]:
    """Return, for each rewritten row, the carriers to send if the journal cannot store the rewrite."""
    found: dict[int, Outgoing] = {}
    for seq, out in (pair for back in written for pair in back.late):
        before = found.get(seq)
        found[seq] = replace(out, body=before.body + out.body) if before else out
    return tuple(found.items())
