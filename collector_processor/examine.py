"""One complete trace: read it back, rebuild its runs, have them analysed, commit.

The order is the promise: verdict, version and bytes are committed to the outbox
first; only then are held originals rewritten and carriers sent, and both can be
done again after a crash with the same bytes.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Final, ParamSpec, Protocol, TypeAlias, TypeVar

from collector_processor.analyst import Analysis, Analyst
from collector_processor.annotate import CarrierPolicy
from collector_processor.assembler import Released, TraceKey
from collector_processor.cleaning import CleanRun, as_it_is
from collector_processor.otlp import MalformedRequestError, RefusedError, Tenant
from collector_processor.rebuild import Run, rebuild
from collector_processor.runs import TRACE_KEY, run_keys, steady_ids
from collector_processor.runstore import Commit, Outgoing, RunStore, StoredVerdict, ToldRun
from collector_processor.stores import StoreError
from collector_processor.writeback import Decision, WriteBack, provisional, write_back
from semconv.model import Completion, Trace, TraceId, Trajectory

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

MAX_ANALYSES: Final = 3
"""A run that keeps changing is analysed this often, with backoff, and no more."""
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
    """What became of an examination; none of the three where the trace stays open."""

    done: frozenset[TraceKey] = frozenset()
    """The traces that are done with."""
    awaited: frozenset[TraceKey] = frozenset()
    """Open traces of the same run that it waits for."""
    too_early: int = 0
    """How often the run was analysed, where the trace did not wait as long as is due after that."""


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
    told: tuple[ToldRun, ...] = ()
    """The runs as they are now."""
    news: tuple[Run, ...] = ()
    """The runs that are not what they were when they were last analysed."""
    awaited: frozenset[TraceKey] = frozenset()
    fault: str = ""
    """Why nothing can be made of the bytes."""

    @property
    def is_covered(self) -> bool:
        """Whether all of it was analysed before."""
        return all(upto <= self.seen[key][1] for key, upto in self.upto.items())

    @property
    def analyses(self) -> int:
        """How often the run was analysed: as often as any trace of it."""
        return max((analyses for analyses, _ in self.seen.values()), default=0)


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
        refused = await self._rewrite(await self.in_db(self._store.rewrites))
        await self._insist(self._store.rewrites_refused, refused)

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
        analysed: _Material | None = None
        while True:  # once more where another examination of the same run, or the disk, came between
            material = await self._gather(released, is_open)
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

    async def _without_analysis(self, released: Released, material: _Material) -> Examined | None:
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

    async def _analysed(self, material: _Material, known: _Analyses) -> _Analyses:
        """Analyse the runs, but for those that were analysed as they are: a model is not asked twice."""
        return {
            run.trajectory: known.get(run.trajectory) or await self._analyst.analyse(run.trajectory)
            for run in material.news
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
            times, _ = await self.analyses(key)
            decision = await self._decision(key.tenant, run, self._analyst.excuse(trajectory, reason))
            stands = decision.previous is not None and not decision.previous.is_provisional
            verdicts = () if stands else (write_back(decision, self._policy).verdict,)
            await self._insist(
                self._store.commit, Commit(analysed=analysed, times=times + 1, verdicts=verdicts)
            )
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
        await self._name(material)
        return material

    async def _name(self, material: _Material) -> None:
        """Give each run the id that it had before, and find those that are news."""
        before = await self.in_db(self._store.told, tuple(material.upto))
        given = {told.run_id: told.trace_ids for told in before}
        material.runs = tuple(
            _named(run, run_id)
            for run, run_id in zip(
                material.runs, steady_ids([run.trace for run in material.runs], given), strict=True
            )
        )
        # A long run is long to read through: beside the event loop.
        digests = await asyncio.to_thread(lambda: [_digest(run.trajectory) for run in material.runs])
        known = {(told.run_id, told.digest) for told in before}
        material.told = tuple(
            ToldRun(
                run_id=run.trajectory.run_id,
                trace_ids=frozenset(span.trace_id for span in run.trace.spans),
                digest=digest,
            )
            for run, digest in zip(material.runs, digests, strict=True)
        )
        material.news = tuple(
            run
            for run, told in zip(material.runs, material.told, strict=True)
            if (told.run_id, told.digest) not in known
        )

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
        siblings = await self._insist(self._store.join, key, names)
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
        for run in material.news:
            decisions.append(await self._decision(tenant, run, analyses[run.trajectory]))
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
        await self.in_db(self._store.commit, commit)
        for decision, back in zip(decisions, written, strict=True):
            self._tell(decision, back.verdict)
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
            await self._insist(self._store.rewritten, done)
        return refused

    async def _follow_late(self, refused: list[int], claimed: Iterable[TraceKey]) -> None:
        """Send what the replacements say after the originals, which go on as they are."""
        try:
            await self.in_db(self._store.rewrites_refused, refused)
        except StoreError:  # no disk takes anything: the originals do not wait for that
            for key in claimed:
                await self._source.release_held(key)
            await self._insist(self._store.rewrites_refused, refused)


def _named(run: Run, run_id: str) -> Run:
    if run.trajectory.run_id == run_id:
        return run
    return Run(trace=replace(run.trace, run_id=run_id), trajectory=replace(run.trajectory, run_id=run_id))


def _digest(trajectory: Trajectory) -> bytes:
    """Return what two runs share only if an analyst would be shown the same; warnings are for people."""
    return hashlib.blake2b(repr(replace(trajectory, warnings=())).encode(), digest_size=16).digest()


def _late(written: Iterable[WriteBack]) -> tuple[tuple[int, Outgoing], ...]:
    """Return for each row what follows it in the worst case; two runs may share a row."""
    found: dict[int, Outgoing] = {}
    for seq, out in (pair for back in written for pair in back.late):
        before = found.get(seq)
        found[seq] = replace(out, body=before.body + out.body) if before else out
    return tuple(found.items())
