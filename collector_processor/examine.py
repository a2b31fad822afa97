"""One complete trace: read it back, rebuild its runs, have them analysed, commit.

The order is the promise: verdict, version and bytes are committed to the outbox
first; only then are held originals rewritten and carriers sent, and both can be
done again after a crash with the same bytes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, ParamSpec, Protocol, TypeVar

from collector_processor.analyst import Analysis, Analyst
from collector_processor.annotate import CarrierPolicy
from collector_processor.assembler import Released, TraceKey
from collector_processor.otlp import MalformedRequestError
from collector_processor.rebuild import Run, rebuild
from collector_processor.runs import TRACE_KEY, run_keys
from collector_processor.runstore import Commit, RunStore, StoredVerdict
from collector_processor.writeback import Decision, WriteBack, provisional, write_back
from semconv.model import Completion, Trace, TraceId, Trajectory

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

MAX_JOINED: Final = 256
"""Most traces that one run is joined from."""


class TraceSource(Protocol):
    """Where the bytes of agent traces are kept: the journal."""

    async def read_trace(self, key: TraceKey) -> tuple[tuple[int, bytes], ...]:
        """Return the trace's rows, each with only that trace's spans; empty once reclaimed."""
        ...

    async def read_logs(self, key: TraceKey) -> tuple[bytes, ...]:
        """Return log requests with records of this trace."""
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


@dataclass(frozen=True, slots=True)
class _Material:
    """The traces of a run, or of several, as read back."""

    upto: dict[TraceKey, int]
    """Each trace's highest journal row."""
    runs: tuple[Run, ...]


class Examiner:
    """Turns released traces into committed verdicts."""

    def __init__(
        self,
        *,
        source: TraceSource,
        store: RunStore,
        analyst: Analyst,
        policy: CarrierPolicy,
        wall_ns: Callable[[], int],
        wake_outbox: Callable[[], None],
    ) -> None:
        self._source: Final = source
        self._store: Final = store
        self._analyst: Final = analyst
        self._policy: Final = policy
        self._wall_ns: Final = wall_ns
        self._wake_outbox: Final = wake_outbox
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
        await self.in_db(self._store.rewritten, [seq for seq, _ in rewrites])

    async def examine(
        self, released: Released, *, is_open: Callable[[TraceKey], bool], claim: Callable[[], bool]
    ) -> bool:
        """Give every run of the trace a verdict.

        Args:
            released: the trace and why now.
            is_open: whether another trace is still waited for: a run joined from several
                is examined when the last of them is complete.
            claim: takes the trace's held rows out of reach of the hold deadline; says
                whether there are any.

        Returns:
            Whether the trace is done with; ``False`` where it stays open or waits for others.
        """
        material = await self._gather(released, is_open)
        if material is None:
            return False
        if released.completion is Completion.IDLE_OPEN:
            await self._glance(released.key, material.runs)
            return False
        decisions = [await self._decide(released.key, run) for run in material.runs]
        held = dict(await self._source.held_rows(released.key)) if claim() else {}
        written: list[WriteBack] = []
        for decision in decisions:
            written.append(write_back(decision, self._policy, held))
            held |= dict(written[-1].rewrites)  # two runs may share a row
        await self._commit(material, written)
        return True

    async def give_up(self, key: TraceKey, reason: str) -> None:
        """Record an ``error`` verdict for a trace that cannot be examined; nothing is written into it."""
        rows = await self._source.read_trace(key)
        trajectory = Trajectory(run_id=key.trace_id, steps=(), complete=False, root_trace_id=key.trace_id)
        run = Run(trace=Trace(spans=(), tenant=key.tenant), trajectory=trajectory)
        decision = await self._decision(key, run, self._analyst.excuse(trajectory, reason))
        analysed = ((key, max((seq for seq, _ in rows), default=0)),)
        verdicts = (write_back(decision, self._policy).verdict,)
        await self.in_db(self._store.commit, Commit(analysed=analysed, verdicts=verdicts))

    async def in_db(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run one call on the store's thread."""
        return await asyncio.get_running_loop().run_in_executor(self._db, lambda: call(*args, **kwargs))

    def close(self) -> None:
        """End the store's thread; the store itself is its owner's."""
        self._db.shutdown()

    async def _gather(self, released: Released, is_open: Callable[[TraceKey], bool]) -> _Material | None:
        """Read the trace and those joined to it; ``None`` if it is reclaimed or one of them still open."""
        bodies, upto = dict[TraceKey, tuple[bytes, ...]](), dict[TraceKey, int]()
        wanted, runs = [released.key], tuple[Run, ...]()
        while wanted and len(upto) < MAX_JOINED:
            for key in wanted:
                rows = await self._source.read_trace(key)
                if rows:
                    bodies[key], upto[key] = tuple(body for _, body in rows), max(seq for seq, _ in rows)
            if released.key not in upto:
                return None
            runs = await self._rebuild(released, bodies)
            wanted = await self._joined(released.key, runs, upto)
            if released.completion is not Completion.IDLE_OPEN and any(is_open(key) for key in wanted):
                return None
        return _Material(upto, runs)

    async def _joined(self, key: TraceKey, runs: Iterable[Run], known: Iterable[TraceKey]) -> list[TraceKey]:
        names = {name for run in runs for name in run_keys(run.trace)}
        await self.in_db(self._store.remember_keys, [(key, name) for name in names])
        siblings = await self.in_db(self._store.siblings, key, names)
        linked = {TraceId(name.removeprefix(TRACE_KEY)) for name in names if name.startswith(TRACE_KEY)}
        seen = set(known)
        return [
            other
            for trace_id in sorted(siblings | linked)
            if (other := TraceKey(key.tenant, trace_id)) not in seen
        ]

    async def _rebuild(
        self, released: Released, bodies: dict[TraceKey, tuple[bytes, ...]]
    ) -> tuple[Run, ...]:
        logs = [body for key in bodies for body in await self._source.read_logs(key)]
        flat = [body for rows in bodies.values() for body in rows]
        try:
            # Decoding a large trace takes a while: off the event loop, so that acknowledgements go on.
            return await asyncio.to_thread(
                rebuild, flat, logs, completion=released.completion, tenant=released.key.tenant
            )
        except MalformedRequestError as error:
            logger.warning(
                "trace cannot be decoded", extra={"trace_id": released.key.trace_id, "error": str(error)}
            )
            return ()

    async def _decide(self, key: TraceKey, run: Run) -> Decision:
        analysis = await self._analyst.analyse(run.trajectory)
        return await self._decision(key, run, analysis)

    async def _decision(self, key: TraceKey, run: Run, analysis: Analysis) -> Decision:
        return Decision(
            run=run,
            attribution=analysis.attribution,
            document=analysis.document,
            previous=await self.in_db(self._store.current, key.tenant, run.trajectory.run_id),
            tenant=key.tenant,
            now_ns=self._wall_ns(),
        )

    async def _glance(self, key: TraceKey, runs: Iterable[Run]) -> None:
        verdicts: list[StoredVerdict] = []
        for run in runs:
            decision = await self._decision(key, run, self._analyst.glance(run.trajectory))
            if decision.previous is None or decision.previous.is_provisional:
                verdicts.append(provisional(decision))
        await self.in_db(self._store.commit, Commit(analysed=(), verdicts=tuple(verdicts)))

    async def _commit(self, material: _Material, written: list[WriteBack]) -> None:
        rewrites = tuple({seq: body for back in written for seq, body in back.rewrites}.items())
        commit = Commit(
            analysed=tuple(material.upto.items()),
            verdicts=tuple(back.verdict for back in written),
            outgoing=tuple(out for back in written for out in back.outgoing),
            rewrites=rewrites,
        )
        await self.in_db(self._store.commit, commit)
        for seq, body in rewrites:
            await self._source.rewrite_held(seq, body)
        if rewrites:
            await self.in_db(self._store.rewritten, [seq for seq, _ in rewrites])
        self._wake_outbox()
