"""Examination of one complete trace: load it, analyse its runs, commit.

The order guarantees consistency: verdict, version and bytes are committed to the outbox first; only then are
held originals rewritten and carriers sent, and both can be repeated after a crash with the same bytes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from analyzer.analyses.commit import EVICTED, AnalysedTraces, Claim, Committer
from analyzer.analyses.early import MOST_BYTES, EarlyWarning
from analyzer.analyses.load import (
    MAX_ANALYSES,
    MAX_JOINS,
    Loaded,
    Loader,
    Others,
    Prepare,
    absent_parents,
)
from analyzer.analyses.prepared import Analysed, Changed, Open
from analyzer.analyses.run_comparison import Finding, RunComparison
from collector_processor.assembly.assembler import Released
from collector_processor.core.analysis import AnalysisLostError, Analyst, KeepRun, ReadEarned, nothing_earned
from collector_processor.core.records import AbsentParent
from collector_processor.otlp import Tenant, TraceKey
from collector_processor.rebuild.runs import RecentRuns, note
from semconv.model import Completion

logger = logging.getLogger(__name__)

Findings: TypeAlias = dict[bytes, Finding]
"""Findings by the digest of the analysed content."""


def owns_all(_key: TraceKey) -> bool:
    """Return true: one process has all traces."""
    return True


@dataclass(frozen=True, slots=True)
class Done:
    """These traces are finished."""

    traces: frozenset[TraceKey]


@dataclass(frozen=True, slots=True)
class Awaits:
    """These traces of the same run must be complete, or examined, first."""

    traces: frozenset[TraceKey]


@dataclass(frozen=True, slots=True)
class Glanced:
    """These traces are still open; their runs got provisional verdicts."""

    traces: frozenset[TraceKey]


@dataclass(frozen=True, slots=True)
class TooEarly:
    """The trace must wait longer, because its run was analysed before."""

    analyses: int
    """Earlier analyses of the run."""


Examined: TypeAlias = Done | Awaits | Glanced | TooEarly
"""Outcome of an examination."""


class Examiner:
    """Turns released traces into committed verdicts."""

    def __init__(
        self,
        *,
        committer: Committer,
        prepare: Prepare,
        analyst: Analyst,
        kept: KeepRun,
        comparison: RunComparison | None = None,
        early: EarlyWarning | None = None,
        earned: ReadEarned = nothing_earned,
        owns: Callable[[TraceKey], bool] = owns_all,
    ) -> None:
        """Create an examiner from its parts.

        Args:
            committer: commits verdicts; its source and store are read.
            prepare: runs step 1.
            analyst: runs step 2, for runs that step 1 does not decide.
            kept: returns the stored form of those runs.
            comparison: compares failed runs with others, before their verdicts are committed.
            early: warns of runs that have not ended.
            earned: returns what models have earned with a tenant.
            owns: returns whether this process has a trace's spans; another one judges it if not (Kafka).
        """
        self.committer: Final = committer
        self._store: Final = committer.store
        self._thread: Final = committer.thread
        self._wall_ns: Final = committer.leaving.wall_ns
        self._analyst: Final = analyst
        self._kept: Final = kept
        self._comparison: Final = comparison
        self.early: Final = early
        self._earned: Final = earned
        self.owns: Final = owns
        self._recent: Final = RecentRuns()
        self._loader: Final = Loader(
            source=committer.source,
            store=committer.store,
            thread=committer.thread,
            prepare=prepare,
            wall_ns=self._wall_ns,
        )

    async def analyses_of(self, keys: Iterable[TraceKey]) -> Mapping[TraceKey, tuple[int, int]]:
        """Return each trace's number of analyses and the highest journal row seen; (0, -1) if never."""
        return await self._thread.run(self._store.seen, tuple(keys))

    async def examine(
        self,
        released: Released,
        *,
        others: Others,
        claim: Callable[[TraceKey], bool],
    ) -> Examined:
        """Give every run of the trace a verdict.

        Args:
            released: the trace and the reason for its release.
            others: the state of other traces, which may belong to the same run.
            claim: stops the hold deadline of a trace; returns whether it has held rows.
        """
        try:
            return await self._examine(released, others, claim)
        except AnalysisLostError as error:
            await self.committer.give_up(released.key, str(error))
            return Done(frozenset((released.key,)))

    async def _examine(self, released: Released, others: Others, claim: Claim) -> Examined:
        findings: Findings = {}
        analysed: Loaded | None = None
        while True:  # repeated if another examination of the same run, or the disk, interfered
            loaded = await self._loader.load(released, others)
            await self._note_absent(absent_parents(loaded, self._wall_ns()))
            if loaded.awaited:
                if awaited := frozenset(filter(others.is_pending, loaded.awaited)):
                    return Awaits(awaited)
                continue
            if loaded.too_early:
                return TooEarly(loaded.too_early)
            if analysed is not None and not loaded.upto:  # evicted while its verdict waited for the disk
                loaded = analysed
            ended = await self._without_analysis(released, loaded)
            if ended is not None:
                return ended
            news = loaded.news
            if news and loaded.analyses >= MAX_ANALYSES:
                logger.info(
                    "run changed after its last permitted analysis: it is not analysed again",
                    extra={"trace_id": released.key.trace_id},
                )
                news = ()
            findings, analysed = await self._findings(released.key.tenant, news, findings), loaded
            kept = [found for _, found in findings.values()]
            proposed = _proposed(released.key.tenant, loaded, news, findings)
            if await self.committer.commit_if_unchanged(proposed, kept, claim):
                return Done(frozenset(loaded.upto))

    async def look_early(self, key: TraceKey, others: Others) -> None:
        """Warn of the runs of an open trace that are likely to fail; other runs get no verdict here.

        Raises:
            AnalysisLostError: the trace crashed worker processes.
        """
        released = Released(key=key, completion=Completion.IDLE_OPEN)
        loaded = await self._loader.load(released, others, MOST_BYTES)
        if warned := await self._warned(key.tenant, loaded):
            await self.committer.commit_provisionally(key.tenant, loaded, list(warned.values()))

    async def _warned(self, tenant: Tenant, loaded: Loaded) -> Mapping[str, Open]:
        """Return the runs with an early warning, by their ids, with the warning in their analyses.

        A run that was analysed has ended once: what is added to it comes too late for a warning.
        """
        if loaded.analyses or self.early is None:
            return {}
        found = [(one, await self.early.warn(tenant, one)) for one in loaded.unfinished]
        return {
            one.run.identity.run_id: replace(one, analysis=analysis)
            for one, analysis in found
            if analysis is not None
        }

    async def _note_absent(self, absent: Sequence[AbsentParent]) -> None:
        for parent in absent:
            context = {"service": parent.service, "scope": parent.scope, "span": parent.name}
            logger.info("parent span never arrived: similar traces no longer wait for it", extra=context)
        if absent:
            await self._thread.run(self._store.absent.add, absent)

    async def absent_parents(self) -> Sequence[AbsentParent]:
        """Return the kinds of spans whose parents are known never to arrive."""
        return await self._thread.run(self._store.absent.all)

    async def arriving_parents(self) -> Sequence[tuple[Tenant, int]]:
        """Return the kinds of spans whose parents have arrived before."""
        return await self._thread.run(self._store.absent.arriving)

    async def parents_arrived(self, kinds: Iterable[tuple[Tenant, int]]) -> None:
        """Record the kinds of spans whose parents arrived."""
        await self._thread.insist(self._store.absent.arrived, tuple(kinds), self._wall_ns())

    async def _without_analysis(self, released: Released, loaded: Loaded) -> Examined | None:
        """Return the outcome if there is nothing to analyse now; ``None`` if the trace must be analysed."""
        if released.completion is Completion.IDLE_OPEN:
            tenant = released.key.tenant
            warned = await self._warned(tenant, loaded)
            runs = [warned.get(one.run.identity.run_id, one) for one in loaded.unfinished]
            await self.committer.commit_provisionally(tenant, loaded, runs)
            return Glanced(frozenset(loaded.upto))
        if released.key not in loaded.upto:
            return await self._nothing_left(released.key)
        if loaded.prepared.fault:
            await self.committer.give_up(released.key, loaded.prepared.fault)
        if loaded.prepared.fault or await self._is_settled(loaded):
            return Done(frozenset(loaded.upto))
        is_last = loaded.analyses >= MAX_ANALYSES
        is_early = loaded.news and not is_last and released.analyses < loaded.analyses
        return TooEarly(loaded.analyses) if is_early else None

    async def _findings(self, tenant: Tenant, news: Sequence[Changed], known: Findings) -> Findings:
        """Return the analysis (step 2) of each run; an unchanged run is not analysed again."""
        return {
            digest: known.get(digest) or await self._finding(tenant, one)
            for one in news
            for digest in (one.run.identity.digest,)
        }

    async def _finding(self, tenant: Tenant, one: Changed) -> Finding:
        before = self._recent.before(one.news.continuation, tenant)
        found = await self._analysed(tenant, one)
        if self.early is not None:
            self.early.end(tenant, one)
        if self._comparison is not None:
            found = await self._comparison(tenant, one, found)
        analysis, kept = found
        return analysis.with_note(note(before)) if before else analysis, kept

    async def _analysed(self, tenant: Tenant, one: Changed) -> Finding:
        if isinstance(one, Analysed):
            analysis, kept = one.analysis, one.kept
        else:
            analysis = await self._analyst.analyse(one.run.trajectory, await self._earned(tenant))
            kept = await asyncio.to_thread(self._kept, one.run.trajectory, analysis)
        news = one.news
        return analysis, replace(kept, spans=news.kept_spans, totals=news.totals, facts=news.facts)

    async def _nothing_left(self, key: TraceKey) -> Examined:
        """Record that a trace's spans are gone before any analysis; log records alone are not a run."""
        analyses, _ = (await self.analyses_of([key]))[key]
        if self.owns(key) and not analyses and not (await self.committer.source.read_whole([key]))[0][1]:
            await self.committer.give_up(key, EVICTED)
        return Done(frozenset((key,)))

    async def _is_settled(self, loaded: Loaded) -> bool:
        """Return whether another examination of the same run covered this trace and has committed."""
        async with self.committer.turn:
            return loaded.is_covered


def _proposed(tenant: Tenant, loaded: Loaded, news: Sequence[Changed], findings: Findings) -> AnalysedTraces:
    return AnalysedTraces(
        tenant=tenant,
        seen=loaded.seen,
        upto=loaded.upto,
        times=max(loaded.analyses + bool(news or loaded.is_experiment), MAX_JOINS if loaded.is_full else 0),
        identities=tuple(one.run.identity for one in loaded.prepared.runs),
        runs=tuple((one, findings[one.run.identity.digest][0]) for one in news),
        redacted=loaded.prepared.redacted,
    )
