"""One complete trace: read it back, rebuild its runs, have them analysed, commit.

The order is the promise: verdict, version and bytes are committed to the outbox
first; only then are held originals rewritten and carriers sent, and both can be
done again after a crash with the same bytes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Final, ParamSpec, Protocol, TypeAlias, TypeVar

from collector_processor.analyst import Analysis, Analyst
from collector_processor.annotate import CarrierPolicy
from collector_processor.assembler import Released, TraceKey
from collector_processor.cleaning import CleanRun, as_it_is
from collector_processor.otlp import MalformedRequestError, Tenant
from collector_processor.rebuild import Run, rebuild
from collector_processor.runs import TRACE_KEY, run_keys
from collector_processor.runstore import Commit, RunStore, StoredVerdict, StoreError
from collector_processor.writeback import Decision, WriteBack, provisional, write_back
from semconv.model import Completion, Trace, TraceId, Trajectory

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

MAX_JOINED: Final = 256
"""Most traces that one run is joined from."""
EVICTED: Final = "evicted: its spans were dropped before its analysis"
MAX_KEYS: Final = 4 * MAX_JOINED
"""Most run keys of one trace that are remembered: a span may link to any number of others."""
STORE_RETRY_S: Final = 2.0
"""How long a verdict waits before it is written again where the disk refuses."""


Keep: TypeAlias = Callable[[Tenant, Sequence[tuple[Trajectory, Analysis]]], Awaitable[None]]
"""Keeps analysed runs for whoever wants to see their steps later; never raises for the disk's sake."""


async def keep_nothing(_tenant: Tenant, _analyses: Sequence[tuple[Trajectory, Analysis]]) -> None:
    """Keep no run."""


Tell: TypeAlias = Callable[[Decision, StoredVerdict], None]
"""Hears of each verdict once it is durable, provisional ones left out; quick, and never raises."""


def tell_nobody(_decision: Decision, _verdict: StoredVerdict) -> None:
    """Tell nobody."""


class TraceSource(Protocol):
    """Where the bytes of agent traces are kept: the journal."""

    async def read_trace(self, key: TraceKey) -> tuple[tuple[int, bytes], ...]:
        """Return the trace's rows, each with only that trace's spans; empty once reclaimed."""
        ...

    async def read_logs(self, key: TraceKey) -> tuple[tuple[int, bytes], ...]:
        """Return the rows with log records of this trace, each with only those."""
        ...

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
    """What became of an examination; neither of the two where the trace stays open."""

    done: frozenset[TraceKey] = frozenset()
    """The traces that are done with."""
    awaited: frozenset[TraceKey] = frozenset()
    """Open traces of the same run that it waits for."""


@dataclass(slots=True)
class _Material:
    """The traces of a run, or of several, as read back."""

    seen: dict[TraceKey, tuple[int, int]] = field(default_factory=dict)
    """How often each trace was analysed when it was read, and up to which row."""
    upto: dict[TraceKey, int] = field(default_factory=dict)
    """Each trace's highest journal row."""
    bodies: list[bytes] = field(default_factory=list)
    logs: list[bytes] = field(default_factory=list)
    runs: tuple[Run, ...] = ()
    awaited: frozenset[TraceKey] = frozenset()
    fault: str = ""
    """Why nothing can be made of the bytes."""

    @property
    def is_covered(self) -> bool:
        """Whether all of it was analysed before."""
        return all(upto <= self.seen[key][1] for key, upto in self.upto.items())


_Analyses: TypeAlias = dict[Trajectory, Analysis]
"""By what was analysed: a trajectory is a value."""


class Examiner:
    """Turns released traces into committed verdicts."""

    def __init__(  # noqa: PLR0913 - it joins the slow lane's ends, and is made once
        self,
        *,
        source: TraceSource,
        store: RunStore,
        analyst: Analyst,
        policy: CarrierPolicy,
        wall_ns: Callable[[], int],
        wake_outbox: Callable[[], None],
        keep: Keep = keep_nothing,
        tell: Tell = tell_nobody,
        clean: CleanRun = as_it_is,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._source: Final = source
        self._store: Final = store
        self._analyst: Final = analyst
        self._policy: Final = policy
        self._wall_ns: Final = wall_ns
        self._wake_outbox: Final = wake_outbox
        self._keep: Final = keep
        self._tell: Final = tell
        self._clean: Final = clean
        self._pause: Final = pause
        self._committing: Final = asyncio.Lock()
        """Traces of one run may be examined at the same time; only one of them has the word."""
        # SQLite wants one thread at a time; what runs there is short.
        self._db: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="runstore")

    async def analyses(self, key: TraceKey) -> tuple[int, int]:
        """Return how often the trace was analysed, and the highest journal row seen; (0, -1) if never."""
        return await self.in_db(self._store.analyses, key)

    async def let_go(self, key: TraceKey) -> None:
        """Let whatever is still held of the trace go on as it is."""
        await self._source.release_held(key)

    async def finish_rewrites(self) -> None:
        """Apply the replacements that were committed and perhaps not carried out."""
        rewrites = await self.in_db(self._store.rewrites)
        for seq, body in rewrites:
            await self._source.rewrite_held(seq, body)
        await self._insist(self._store.rewritten, [seq for seq, _ in rewrites])

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
        analyses: _Analyses = {}
        while True:  # once more where another examination of the same run, or the disk, came between
            material = await self._gather(released, is_open)
            if material.awaited:
                return Examined(awaited=material.awaited)
            if released.completion is Completion.IDLE_OPEN:
                await self._glance(released.key, material.runs)
                return Examined()
            if released.key not in material.upto:
                return await self._nothing_left(released.key)
            done = Examined(done=frozenset(material.upto))
            if material.fault:
                await self.give_up(released.key, material.fault)
                return done
            if await self._is_settled(material):
                return done
            analyses = await self._analysed(material, analyses)
            # Before the verdict: a verdict that is there to be labelled has its run kept beside it.
            await self._keep(released.key.tenant, tuple(analyses.items()))
            if await self._commit_if_current(released.key.tenant, material, analyses, claim):
                return done

    async def _analysed(self, material: _Material, known: _Analyses) -> _Analyses:
        """Analyse the runs, but for those that were analysed as they are: a model is not asked twice."""
        return {
            run.trajectory: known.get(run.trajectory) or await self._analyst.analyse(run.trajectory)
            for run in material.runs
        }

    async def _commit_if_current(
        self, tenant: Tenant, material: _Material, analyses: _Analyses, claim: Callable[[TraceKey], bool]
    ) -> bool:
        """Commit; ``False``, after a while, where the disk refuses, or at once where more is known by now."""
        async with self._committing:
            if not await self._is_current(material):
                return False
            claimed = [key for key in material.upto if claim(key)]
            try:
                await self._commit(tenant, material, analyses, claimed)
            except StoreError as error:
                logger.warning("verdict waits for the store", extra={"reason": str(error)})
                for key in claimed:  # telemetry waits for no disk of ours; the blame follows late
                    await self._source.release_held(key)
            else:
                return True
        await self._pause(STORE_RETRY_S)
        return False

    async def _insist(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call that writes, again and again while the disk refuses."""
        while True:
            try:
                return await self.in_db(call, *args, **kwargs)
            except StoreError as error:
                logger.warning("slow lane waits for the store", extra={"reason": str(error)})
            await self._pause(STORE_RETRY_S)

    async def give_up(self, key: TraceKey, reason: str) -> None:
        """Record an ``error`` verdict for a trace that cannot be examined; nothing is written into it.

        A verdict that was given before stands.
        """
        rows = await self._source.read_trace(key)
        trajectory = Trajectory(run_id=key.trace_id, steps=(), complete=False, root_trace_id=key.trace_id)
        run = Run(trace=Trace(spans=(), tenant=key.tenant), trajectory=trajectory)
        analysed = ((key, max((seq for seq, _ in rows), default=0)),)
        async with self._committing:
            decision = await self._decision(key.tenant, run, self._analyst.excuse(trajectory, reason))
            stands = decision.previous is not None and not decision.previous.is_provisional
            verdicts = () if stands else (write_back(decision, self._policy).verdict,)
            await self._insist(self._store.commit, Commit(analysed=analysed, verdicts=verdicts))
        for verdict in verdicts:
            self._tell(decision, verdict)

    async def in_db(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run one call on the store's thread."""
        return await asyncio.get_running_loop().run_in_executor(self._db, lambda: call(*args, **kwargs))

    def close(self) -> None:
        """End the store's thread; the store itself is its owner's."""
        self._db.shutdown()

    async def _gather(self, released: Released, is_open: Callable[[TraceKey], bool]) -> _Material:
        """Read the trace and those joined to it; nothing of it where its earlier spans are reclaimed."""
        material, asked = _Material(), {released.key}
        wanted = [released.key]
        while wanted:
            for key in wanted:
                await self._read(key, material)
            if released.key not in material.upto:
                return material
            await self._rebuild(released, material)
            wanted = await self._joined(released.key, material.runs, asked)
            asked.update(wanted)
            if released.completion is not Completion.IDLE_OPEN:
                material.awaited = frozenset(key for key in wanted if is_open(key))
                if material.awaited:
                    return material
        return material

    async def _read(self, key: TraceKey, material: _Material) -> None:
        if len(material.upto) >= MAX_JOINED:
            return
        analyses, upto = await self.analyses(key)
        rows = await self._source.read_trace(key)
        if not rows or (analyses and rows[0][0] > upto):
            return  # its first spans are reclaimed: half a run would only look like another failure
        logs = await self._source.read_logs(key)
        material.seen[key] = (analyses, upto)
        material.upto[key] = max(seq for seq, _ in (*rows, *logs))
        material.bodies += (body for _, body in rows)
        material.logs += (body for _, body in logs)

    async def _joined(self, key: TraceKey, runs: Iterable[Run], asked: Container[TraceKey]) -> list[TraceKey]:
        """Return the traces of the same run that were not asked for yet."""
        found = {name for run in runs for name in run_keys(run.trace)}
        names = sorted(found, key=lambda name: (name != f"{TRACE_KEY}{key.trace_id}", name))[:MAX_KEYS]
        await self._insist(self._store.remember_keys, [(key, name) for name in names])
        siblings = await self.in_db(self._store.siblings, key, names)
        linked = {TraceId(name.removeprefix(TRACE_KEY)) for name in names if name.startswith(TRACE_KEY)}
        return [
            other
            for trace_id in sorted(siblings | linked)
            if (other := TraceKey(key.tenant, trace_id)) not in asked
        ]

    async def _rebuild(self, released: Released, material: _Material) -> None:
        try:
            # Decoding a large trace takes a while: off the event loop, so that acknowledgements go on.
            material.runs = await asyncio.to_thread(self._runs, material, released)
        except MalformedRequestError as error:
            logger.warning(
                "trace cannot be decoded", extra={"trace_id": released.key.trace_id, "error": str(error)}
            )
            material.fault = f"the spans cannot be read: {error}"

    def _runs(self, material: _Material, released: Released) -> tuple[Run, ...]:
        """Return the runs in order, without their secrets: nothing behind this line sees those."""
        runs = rebuild(
            tuple(material.bodies),
            tuple(material.logs),
            completion=released.completion,
            tenant=released.key.tenant,
        )
        return tuple(replace(run, trajectory=self._clean(run.trajectory)) for run in runs)

    async def _nothing_left(self, key: TraceKey) -> Examined:
        """Say so where a trace was never analysed and its spans are gone; log records alone are no run."""
        analyses, _ = await self.analyses(key)
        if not analyses and not await self._source.read_logs(key):
            await self.give_up(key, EVICTED)
        return Examined(done=frozenset((key,)))

    async def _is_settled(self, material: _Material) -> bool:
        """Whether another examination of the same run saw all of this, and is through with it."""
        async with self._committing:
            return material.is_covered

    async def _is_current(self, material: _Material) -> bool:
        """Whether nothing of it was analysed since it was read."""
        return all([await self.analyses(key) == seen for key, seen in material.seen.items()])

    async def _decision(self, tenant: Tenant, run: Run, analysis: Analysis) -> Decision:
        return Decision(
            run=run,
            attribution=analysis.attribution,
            document=analysis.document,
            previous=await self.in_db(self._store.current, tenant, run.trajectory.run_id),
            tenant=tenant,
            now_ns=self._wall_ns(),
        )

    async def _glance(self, key: TraceKey, runs: Iterable[Run]) -> None:
        # Signals read all of the text: beside the event loop too.
        glances = [(run, await asyncio.to_thread(self._analyst.glance, run.trajectory)) for run in runs]
        verdicts: list[StoredVerdict] = []
        async with self._committing:
            for run, analysis in glances:
                decision = await self._decision(key.tenant, run, analysis)
                if decision.previous is None or decision.previous.is_provisional:
                    verdicts.append(provisional(decision))
            await self._insist(self._store.commit, Commit(analysed=(), verdicts=tuple(verdicts)))

    async def _commit(
        self,
        tenant: Tenant,
        material: _Material,
        analyses: _Analyses,
        claimed: Iterable[TraceKey],
    ) -> None:
        held: dict[int, bytes] = {}
        for key in claimed:
            held |= dict(await self._source.held_rows(key))
        decisions: list[Decision] = []
        written: list[WriteBack] = []
        for run in material.runs:
            decisions.append(await self._decision(tenant, run, analyses[run.trajectory]))
            written.append(write_back(decisions[-1], self._policy, held))
            held |= dict(written[-1].rewrites)  # two runs may share a row
        rewrites = tuple({seq: body for back in written for seq, body in back.rewrites}.items())
        commit = Commit(
            analysed=tuple(material.upto.items()),
            verdicts=tuple(back.verdict for back in written),
            outgoing=tuple(out for back in written for out in back.outgoing),
            rewrites=rewrites,
        )
        await self.in_db(self._store.commit, commit)
        for decision, back in zip(decisions, written, strict=True):
            self._tell(decision, back.verdict)
        for seq, body in rewrites:
            await self._source.rewrite_held(seq, body)
        if rewrites:
            await self._insist(self._store.rewritten, [seq for seq, _ in rewrites])
        self._wake_outbox()
