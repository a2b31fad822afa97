"""One complete trace: read it back, rebuild its runs, have them analysed, commit.

The order is the promise: verdict, version and bytes are committed to the outbox
first; only then are held originals rewritten and carriers sent, and both can be
done again after a crash with the same bytes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, ParamSpec, Protocol, TypeAlias, TypeVar

from collector_processor.analyst import Analysis, Analyst
from collector_processor.annotate import CarrierPolicy
from collector_processor.assembler import Released, TraceKey
from collector_processor.cleaning import CleanRun, as_it_is
from collector_processor.draft import AnalysisLostError, Drafts
from collector_processor.material import Gathering, Material, TraceSource
from collector_processor.otlp import RefusedError, Tenant
from collector_processor.outright import Outright, WholeTraces
from collector_processor.rebuild import Run
from collector_processor.runstore import RunStore
from collector_processor.store_thread import STORE_RETRY_S, StoreThread
from collector_processor.stored import Commit, Outgoing, StoredVerdict
from collector_processor.stores import StoreError
from collector_processor.writeback import Decision, Gist, WriteBack, gist_of, provisional, write_back
from semconv.model import Completion, Trace, Trajectory

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

MAX_ANALYSES: Final = 3
"""A run that keeps changing is analysed this often, with backoff, and no more."""
EVICTED: Final = "evicted: its spans were dropped before its analysis"


Keep: TypeAlias = Callable[[Tenant, Sequence[tuple[Trajectory, Analysis]]], Awaitable[None]]
"""Keeps analysed runs for whoever wants to see their steps later; never raises for the disk's sake."""


async def keep_nothing(_tenant: Tenant, _analyses: Sequence[tuple[Trajectory, Analysis]]) -> None:
    """Keep no run."""


Tell: TypeAlias = Callable[[Gist, StoredVerdict], None]
"""Hears of each verdict once it is durable, provisional ones left out; quick, and never raises."""


def tell_nobody(_gist: Gist, _verdict: StoredVerdict) -> None:
    """Tell nobody."""


class HeldTraces(TraceSource, WholeTraces, Protocol):
    """Where the bytes of agent traces are kept, and some held back: the journal."""

    async def held_rows(self, key: TraceKey) -> tuple[tuple[int, bytes], ...]:
        """Return the trace's rows that are held back."""
        ...

    async def release_held(self, key: TraceKey) -> None:
        """Let the trace's held rows go on as they are."""
        ...

    async def rewrite_held(self, seq: int, body: bytes) -> None:
        """Let one held row go on as ``body``; nothing if it is gone already."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """What became of an examination; none of the three where the trace stays open."""

    done: frozenset[TraceKey] = frozenset()
    """The traces that are done with."""
    awaited: frozenset[TraceKey] = frozenset()
    """Open traces of the same run that it waits for."""
    too_early: int = 0
    """How often the run was analysed, where the trace did not wait as long as is due after that."""


_Analyses: TypeAlias = dict[Trajectory, Analysis]
"""By what was analysed: a trajectory is a value."""


class Examiner:
    """Turns released traces into committed verdicts."""

    def __init__(  # noqa: PLR0913 - it joins the slow lane's ends, and is made once
        self,
        *,
        source: HeldTraces,
        store: RunStore,
        analyst: Analyst,
        policy: CarrierPolicy,
        wall_ns: Callable[[], int],
        wake_outbox: Callable[[], None],
        keep: Keep = keep_nothing,
        tell: Tell = tell_nobody,
        clean: CleanRun = as_it_is,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        drafts: Drafts | None = None,
    ) -> None:
        self._source: Final = source
        self._store: Final = store
        self._analyst: Final = analyst
        self._policy: Final = policy
        self._wall_ns: Final = wall_ns
        self._wake_outbox: Final = wake_outbox
        self._keep: Final = keep
        self._tell: Final = tell
        self._pause: Final = pause
        self._committing: Final = asyncio.Lock()
        """Traces of one run may be examined at the same time; only one of them has the word."""
        self._thread: Final = StoreThread(pause)
        self._gathering: Final = Gathering(source=source, store=store, thread=self._thread, clean=clean)
        self._outright: Final = None if drafts is None else self._outright_by(drafts)

    def _outright_by(self, drafts: Drafts) -> Outright:
        return Outright(
            source=self._source,
            store=self._store,
            thread=self._thread,
            committing=self._committing,
            drafts=drafts,
            wall_ns=self._wall_ns,
            committed=self._tell_all,
        )

    def _tell_all(self, verdicts: Iterable[tuple[Gist, StoredVerdict]]) -> None:
        for gist, verdict in verdicts:
            self._tell(gist, verdict)
        self._wake_outbox()

    async def analyses(self, key: TraceKey) -> tuple[int, int]:
        """Return how often the trace was analysed, and the highest journal row seen; (0, -1) if never."""
        return await self._thread.run(self._store.analyses, key)

    async def analyses_of(self, keys: Iterable[TraceKey]) -> Mapping[TraceKey, tuple[int, int]]:
        """Return the same of many, asked at once."""
        return await self._thread.run(self._store.seen, tuple(keys))

    async def let_go(self, key: TraceKey) -> None:
        """Let whatever is still held of the trace go on as it is."""
        await self._source.release_held(key)

    async def finish_rewrites(self) -> None:
        """Apply the replacements that were committed and perhaps not carried out."""
        refused = await self._rewrite(await self._thread.run(self._store.rewrites))
        await self._thread.insist(self._store.rewrites_refused, refused)

    async def examine(
        self,
        released: Released,
        *,
        is_open: Callable[[TraceKey], bool],
        claim: Callable[[TraceKey], bool],
    ) -> Examined:
        """Give every run of the trace a verdict.

        Args:
            released: the trace and why now.
            is_open: whether another trace is still waited for: a run joined from several
                is examined when the last of them is complete.
            claim: takes a trace's held rows out of reach of the hold deadline; says
                whether there are any.
        """
        if self._outright is not None:
            try:
                if await self._outright(released):
                    return Examined(done=frozenset((released.key,)))
            except AnalysisLostError as error:
                await self.give_up(released.key, str(error))
                return Examined(done=frozenset((released.key,)))
        return await self._examine_at_length(released, is_open, claim)

    async def _examine_at_length(
        self, released: Released, is_open: Callable[[TraceKey], bool], claim: Callable[[TraceKey], bool]
    ) -> Examined:
        analyses: _Analyses = {}
        analysed: Material | None = None
        while True:  # once more where another examination of the same run, or the disk, came between
            material = await self._gathering.gather(released, is_open)
            if analysed is not None and not material.upto:  # made room while its verdict waited for the disk
                material = analysed
            ended = await self._without_analysis(released, material)
            if ended is not None:
                return ended
            analyses, analysed = await self._analysed(material, analyses), material
            # Before the verdict: a verdict that is there to be labelled has its run kept beside it.
            await self._keep(released.key.tenant, tuple(analyses.items()))
            if await self._commit_if_current(released.key.tenant, material, analyses, claim):
                return Examined(done=frozenset(material.upto))

    async def _without_analysis(self, released: Released, material: Material) -> Examined | None:
        """Return what becomes of the trace where nothing is to be analysed now; ``None`` where it is."""
        if material.awaited:
            return Examined(awaited=material.awaited)
        if released.completion is Completion.IDLE_OPEN:
            await self._glance(released.key, material.runs)
            return Examined()
        if released.key not in material.upto:
            return await self._nothing_left(released.key)
        if material.fault:
            await self.give_up(released.key, material.fault)
        if material.fault or await self._is_settled(material):
            return Examined(done=frozenset(material.upto))
        if material.news and material.analyses >= MAX_ANALYSES:
            logger.info("run changes after its last analysis", extra={"trace_id": released.key.trace_id})
            material.news = ()
        is_early = material.news and released.analyses < material.analyses
        return Examined(too_early=material.analyses) if is_early else None

    async def _analysed(self, material: Material, known: _Analyses) -> _Analyses:
        """Analyse the runs, but for those that were analysed as they are: a model is not asked twice."""
        return {
            run.trajectory: known.get(run.trajectory) or await self._analyst.analyse(run.trajectory)
            for run in material.news
        }

    async def _commit_if_current(
        self, tenant: Tenant, material: Material, analyses: _Analyses, claim: Callable[[TraceKey], bool]
    ) -> bool:
        """Commit; ``False``, after a while, where the disk refuses, or at once where more is known by now."""
        async with self._committing:
            run_ids = [run.trajectory.run_id for run in material.news]
            standing = await self._thread.run(self._store.standing, tuple(material.seen), tenant, run_ids)
            if standing.seen != material.seen:
                return False
            claimed = [key for key in material.upto if claim(key)]
            try:
                await self._commit(tenant, material, analyses, claimed, standing.verdicts)
            except StoreError as error:
                logger.warning("verdict waits for the store", extra={"reason": str(error)})
                for key in claimed:  # telemetry waits for no disk of ours; the blame follows late
                    await self._source.release_held(key)
            else:
                return True
        await self._pause(STORE_RETRY_S)
        return False

    async def give_up(self, key: TraceKey, reason: str) -> None:
        """Record an ``error`` verdict for a trace that cannot be examined; nothing is written into it.

        A verdict that was given before stands.
        """
        rows = await self._source.read_trace(key)
        analysed = ((key, max((seq for seq, _ in rows), default=0)),)
        async with self._committing:
            times, _ = await self.analyses(key)
            previous = await self._thread.run(self._store.current, key.tenant, key.trace_id)
            decision = self._excused(key, reason, previous)
            verdicts = () if _stands(previous) else (write_back(decision, self._policy).verdict,)
            await self._thread.insist(
                self._store.commit, Commit(analysed=analysed, times=times + 1, verdicts=verdicts)
            )
        for verdict in verdicts:
            self._tell(gist_of(decision), verdict)

    async def give_up_evicted(self, keys: Iterable[TraceKey]) -> None:
        """Record the same, in one transaction, for traces whose spans are gone and were never analysed."""
        tenants: defaultdict[Tenant, list[TraceKey]] = defaultdict(list)
        for key in keys:
            tenants[key.tenant].append(key)
        lost: list[TraceKey] = []
        decisions: list[Decision] = []
        async with self._committing:
            for tenant, own in tenants.items():
                run_ids = [key.trace_id for key in own]
                known = await self._thread.run(self._store.standing, own, tenant, run_ids)
                fresh = [key for key in own if not known.seen[key][0]]
                lost += fresh
                for key in fresh:
                    previous = known.verdicts.get(key.trace_id)
                    if not _stands(previous):
                        decisions.append(self._excused(key, EVICTED, previous))
            verdicts = tuple(write_back(decision, self._policy).verdict for decision in decisions)
            commit = Commit(analysed=tuple((key, 0) for key in lost), verdicts=verdicts)
            await self._thread.insist(self._store.commit, commit)
        for decision, verdict in zip(decisions, verdicts, strict=True):
            self._tell(gist_of(decision), verdict)

    def _excused(self, key: TraceKey, reason: str, previous: StoredVerdict | None) -> Decision:
        trajectory = Trajectory(run_id=key.trace_id, steps=(), complete=False, root_trace_id=key.trace_id)
        run = Run(trace=Trace(spans=(), tenant=key.tenant), trajectory=trajectory)
        return self._decision(key.tenant, run, self._analyst.excuse(trajectory, reason), previous)

    async def in_db(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run one call on the store's thread."""
        return await self._thread.run(call, *args, **kwargs)

    def close(self) -> None:
        """End the store's thread; the store itself is its owner's."""
        self._thread.close()

    async def _nothing_left(self, key: TraceKey) -> Examined:
        """Say so where a trace was never analysed and its spans are gone; log records alone are no run."""
        analyses, _ = await self.analyses(key)
        if not analyses and not await self._source.read_logs(key):
            await self.give_up(key, EVICTED)
        return Examined(done=frozenset((key,)))

    async def _is_settled(self, material: Material) -> bool:
        """Whether another examination of the same run saw all of this, and is through with it."""
        async with self._committing:
            return material.is_covered

    def _decision(
        self, tenant: Tenant, run: Run, analysis: Analysis, previous: StoredVerdict | None
    ) -> Decision:
        return Decision(
            run=run,
            attribution=analysis.attribution,
            document=analysis.document,
            previous=previous,
            tenant=tenant,
            now_ns=self._wall_ns(),
        )

    async def _glance(self, key: TraceKey, runs: Iterable[Run]) -> None:
        # Signals read all of the text: beside the event loop too.
        glances = [(run, await asyncio.to_thread(self._analyst.glance, run.trajectory)) for run in runs]
        verdicts: list[StoredVerdict] = []
        async with self._committing:
            for run, analysis in glances:
                run_id = run.trajectory.run_id
                previous = await self._thread.run(self._store.current, key.tenant, run_id)
                decision = self._decision(key.tenant, run, analysis, previous)
                if decision.previous is None or decision.previous.is_provisional:
                    verdicts.append(provisional(decision))
            await self._thread.insist(self._store.commit, Commit(analysed=(), verdicts=tuple(verdicts)))

    async def _commit(
        self,
        tenant: Tenant,
        material: Material,
        analyses: _Analyses,
        claimed: Iterable[TraceKey],
        before: Mapping[str, StoredVerdict],
    ) -> None:
        held: dict[int, bytes] = {}
        for key in claimed:
            held |= dict(await self._source.held_rows(key))
        decisions: list[Decision] = []
        written: list[WriteBack] = []
        for run in material.news:
            previous = before.get(run.trajectory.run_id)
            decisions.append(self._decision(tenant, run, analyses[run.trajectory], previous))
            written.append(write_back(decisions[-1], self._policy, held))
            held |= dict(written[-1].rewrites)  # two runs may share a row
        rewrites = tuple({seq: body for back in written for seq, body in back.rewrites}.items())
        commit = Commit(
            analysed=tuple(material.upto.items()),
            times=material.analyses + bool(material.news),
            told=material.told,
            verdicts=tuple(back.verdict for back in written),
            outgoing=tuple(out for back in written for out in back.outgoing),
            rewrites=rewrites,
            late=_late(written),
        )
        await self._thread.run(self._store.commit, commit)
        for decision, back in zip(decisions, written, strict=True):
            self._tell(gist_of(decision), back.verdict)
        refused = await self._rewrite(rewrites)
        if refused:
            await self._follow_late(refused, claimed)
        self._wake_outbox()

    async def _rewrite(self, rewrites: Iterable[tuple[int, bytes]]) -> list[int]:
        """Let held rows go on as what was committed; return those whose replacement the disk refuses."""
        done: list[int] = []
        refused: list[int] = []
        for seq, body in rewrites:
            try:
                await self._source.rewrite_held(seq, body)
            except RefusedError as error:
                logger.warning("blame follows its original", extra={"reason": str(error)})
                refused.append(seq)
            else:
                done.append(seq)
        if done:
            await self._thread.insist(self._store.rewritten, done)
        return refused

    async def _follow_late(self, refused: list[int], claimed: Iterable[TraceKey]) -> None:
        """Send what the replacements say after the originals, which go on as they are."""
        try:
            await self._thread.run(self._store.rewrites_refused, refused)
        except StoreError:  # no disk takes anything: the originals do not wait for that
            for key in claimed:
                await self._source.release_held(key)
            await self._thread.insist(self._store.rewrites_refused, refused)


def _stands(verdict: StoredVerdict | None) -> bool:
    return verdict is not None and not verdict.is_provisional


def _late(written: Iterable[WriteBack]) -> tuple[tuple[int, Outgoing], ...]:
    """Return for each row what follows it in the worst case; two runs may share a row."""
    found: dict[int, Outgoing] = {}
    for seq, out in (pair for back in written for pair in back.late):
        before = found.get(seq)
        found[seq] = replace(out, body=before.body + out.body) if before else out
    return tuple(found.items())
