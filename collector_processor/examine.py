"""One complete trace: read it back, rebuild its runs, have them analysed, commit.

The order is the promise: verdict, version and bytes are committed to the outbox
first; only then are held originals rewritten and carriers sent, and both can be
done again after a crash with the same bytes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, ParamSpec, Protocol, TypeAlias, TypeVar

from collector_processor.analyst import Analysis, Analyst
from collector_processor.annotate import CarrierPolicy
from collector_processor.assembler import Released, TraceKey
from collector_processor.cleaning import CleanRun, as_it_is
from collector_processor.committing import Analyses, Committing, HeldRows, Leaving, Tell, tell_nobody
from collector_processor.draft import AnalysisLostError, Drafts
from collector_processor.giving_up import EVICTED, GivingUp
from collector_processor.material import Gathering, Material, TraceSource, absent_parents
from collector_processor.otlp import Tenant
from collector_processor.outright import Outright, WholeTraces
from collector_processor.rebuild import Run
from collector_processor.runstore import RunStore
from collector_processor.store_thread import StoreThread
from collector_processor.stored import AbsentParent, Commit, StoredVerdict
from collector_processor.writeback import provisional
from semconv.model import Completion, Trajectory

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

MAX_ANALYSES: Final = 32
"""Most analyses of a run that keeps changing.

The wait doubles each time, up to ``MAX_AGE``: at the default of an hour, late spans count for a day.
"""


Keep: TypeAlias = Callable[[Tenant, Sequence[tuple[Trajectory, Analysis]]], Awaitable[None]]
"""Keeps analysed runs for whoever wants to see their steps later; never raises for the disk's sake."""


async def keep_nothing(_tenant: Tenant, _analyses: Sequence[tuple[Trajectory, Analysis]]) -> None:
    """Keep no run."""


class HeldTraces(TraceSource, WholeTraces, HeldRows, Protocol):
    """Where the bytes of agent traces are kept, and some held back: the journal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """What became of an examination; none of the three where the trace stays open."""

    done: frozenset[TraceKey] = frozenset()
    """The traces that are done with."""
    awaited: frozenset[TraceKey] = frozenset()
    """Open traces of the same run that it waits for."""
    too_early: int = 0
    """How often the run was analysed, where the trace did not wait as long as is due after that."""


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
        self._wall_ns: Final = wall_ns
        self._keep: Final = keep
        self._thread: Final = StoreThread(pause)
        leaving = Leaving(policy=policy, wall_ns=wall_ns, wake_outbox=wake_outbox, tell=tell)
        self._committing: Final = Committing(
            held=source, store=store, thread=self._thread, leaving=leaving, pause=pause
        )
        self.committed: Final = leaving.committed
        """Report verdicts committed through ``in_turn``, and start sending their spans."""
        self._giving_up: Final = GivingUp(
            source=source,
            store=store,
            thread=self._thread,
            analyst=analyst,
            committing=self._committing,
            leaving=leaving,
        )
        self._gathering: Final = Gathering(source=source, store=store, thread=self._thread, clean=clean)
        self._outright: Final = None if drafts is None else self._outright_by(drafts, leaving)

    def _outright_by(self, drafts: Drafts, leaving: Leaving) -> Outright:
        return Outright(
            source=self._source,
            store=self._store,
            thread=self._thread,
            committing=self._committing.turn,
            drafts=drafts,
            wall_ns=leaving.wall_ns,
            committed=leaving.committed,
        )

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
        await self._committing.finish_rewrites()

    async def give_up(self, key: TraceKey, reason: str) -> None:
        """Record an ``error`` verdict for a trace that cannot be examined, unless it has a verdict."""
        await self._giving_up.give_up(key, reason)

    async def give_up_evicted(self, keys: Iterable[TraceKey]) -> None:
        """Record the same of traces whose spans are gone and were never analysed."""
        await self._giving_up.give_up_evicted(keys)

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
        analyses: Analyses = {}
        analysed: Material | None = None
        while True:  # once more where another examination of the same run, or the disk, came between
            material = await self._gathering.gather(released, is_open)
            await self._give_up_on(absent_parents(material, released, self._wall_ns()))
            if analysed is not None and not material.upto:  # made room while its verdict waited for the disk
                material = analysed
            ended = await self._without_analysis(released, material)
            if ended is not None:
                return ended
            analyses, analysed = await self._analysed(material, analyses), material
            # Before the verdict: a verdict that is there to be labelled has its run kept beside it.
            await self._keep(released.key.tenant, tuple(analyses.items()))
            if await self._committing.commit_if_current(released.key.tenant, material, analyses, claim):
                return Examined(done=frozenset(material.upto))

    async def _give_up_on(self, absent: Sequence[AbsentParent]) -> None:
        for one in absent:
            told = {"service": one.service, "scope": one.scope, "span": one.name}
            logger.info("parent span never arrived: similar traces no longer wait for it", extra=told)
        if absent:
            await self._thread.run(self._store.absent.add, absent)

    async def absent_parents(self) -> Sequence[AbsentParent]:
        """Return the kinds of spans whose parents never arrive."""
        return await self._thread.run(self._store.absent.all)

    async def arriving_parents(self) -> Sequence[tuple[Tenant, int]]:
        """Return the kinds of spans whose parents were seen to arrive."""
        return await self._thread.run(self._store.absent.arriving)

    async def parents_arrived(self, kinds: Iterable[tuple[Tenant, int]]) -> None:
        """Remember that the parents of such spans arrive."""
        await self._thread.insist(self._store.absent.arrived, tuple(kinds), self._wall_ns())

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

    async def _analysed(self, material: Material, known: Analyses) -> Analyses:
        """Analyse the runs, but for those that were analysed as they are: a model is not asked twice."""
        return {
            run.trajectory: known.get(run.trajectory) or await self._analyst.analyse(run.trajectory)
            for run in material.news
        }

    async def in_db(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run one call on the store's thread."""
        return await self._thread.run(call, *args, **kwargs)

    async def in_turn(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call that may commit verdicts on the store's thread; no analysis commits meanwhile."""
        async with self._committing.turn:
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
        async with self._committing.turn:
            return material.is_covered

    async def _glance(self, key: TraceKey, runs: Iterable[Run]) -> None:
        # Signals read all of the text: beside the event loop too.
        glances = [(run, await asyncio.to_thread(self._analyst.glance, run.trajectory)) for run in runs]
        verdicts: list[StoredVerdict] = []
        async with self._committing.turn:
            for run, analysis in glances:
                run_id = run.trajectory.run_id
                previous = await self._thread.run(self._store.current, key.tenant, run_id)
                decision = self._committing.decision(key.tenant, run, analysis, previous)
                if decision.previous is None or decision.previous.is_provisional:
                    verdicts.append(provisional(decision))
            await self._thread.insist(self._store.commit, Commit(analysed=(), verdicts=tuple(verdicts)))
