"""What is said of traces that cannot be examined: a verdict ``error``, with nothing written back. A shell."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from collector_processor.analyst import Analyst
from collector_processor.assembler import TraceKey
from collector_processor.committing import Committing, Leaving
from collector_processor.material import TraceSource
from collector_processor.otlp import Tenant
from collector_processor.rebuild import Run
from collector_processor.runstore import RunStore
from collector_processor.store_thread import StoreThread
from collector_processor.stored import Commit, StoredVerdict
from collector_processor.writeback import Decision, gist_of, write_back
from semconv.model import Trace, Trajectory

EVICTED: Final = "evicted: its spans were dropped before its analysis"


class GivingUp:
    """Records why there is no analysis of a trace."""

    def __init__(
        self,
        *,
        source: TraceSource,
        store: RunStore,
        thread: StoreThread,
        analyst: Analyst,
        committing: Committing,
        leaving: Leaving,
    ) -> None:
        self._source: Final = source
        self._store: Final = store
        self._thread: Final = thread
        self._analyst: Final = analyst
        self._committing: Final = committing
        self._leaving: Final = leaving

    async def give_up(self, key: TraceKey, reason: str) -> None:
        """Record an ``error`` verdict for a trace that cannot be examined; nothing is written into it.

        A verdict that was given before stands.
        """
        rows = await self._source.read_trace(key)
        analysed = ((key, max((seq for seq, _ in rows), default=0)),)
        async with self._committing.turn:
            times, _ = await self._thread.run(self._store.analyses, key)
            previous = await self._thread.run(self._store.current, key.tenant, key.trace_id)
            decision = self._excused(key, reason, previous)
            verdicts = () if _stands(previous) else (write_back(decision, self._leaving.policy).verdict,)
            await self._thread.insist(
                self._store.commit, Commit(analysed=analysed, times=times + 1, verdicts=verdicts)
            )
        for verdict in verdicts:
            self._leaving.tell(gist_of(decision), verdict)

    async def give_up_evicted(self, keys: Iterable[TraceKey]) -> None:
        """Record the same, in one transaction, for traces whose spans are gone and were never analysed."""
        tenants: defaultdict[Tenant, list[TraceKey]] = defaultdict(list)
        for key in keys:
            tenants[key.tenant].append(key)
        lost: list[TraceKey] = []
        decisions: list[Decision] = []
        async with self._committing.turn:
            for tenant, own in tenants.items():
                run_ids = [key.trace_id for key in own]
                known = await self._thread.run(self._store.standing, own, tenant, run_ids)
                fresh = [key for key in own if not known.seen[key][0]]
                lost += fresh
                for key in fresh:
                    previous = known.verdicts.get(key.trace_id)
                    if not _stands(previous):
                        decisions.append(self._excused(key, EVICTED, previous))
            verdicts = tuple(write_back(decision, self._leaving.policy).verdict for decision in decisions)
            commit = Commit(analysed=tuple((key, 0) for key in lost), verdicts=verdicts)
            await self._thread.insist(self._store.commit, commit)
        for decision, verdict in zip(decisions, verdicts, strict=True):
            self._leaving.tell(gist_of(decision), verdict)

    def _excused(self, key: TraceKey, reason: str, previous: StoredVerdict | None) -> Decision:
        trajectory = Trajectory(run_id=key.trace_id, steps=(), complete=False, root_trace_id=key.trace_id)
        run = Run(trace=Trace(spans=(), tenant=key.tenant), trajectory=trajectory)
        return self._committing.decision(key.tenant, run, self._analyst.excuse(trajectory, reason), previous)


def _stands(verdict: StoredVerdict | None) -> bool:
    return verdict is not None and not verdict.is_provisional
