"""Side effects of step 3: decides under one lock, commits many decisions in one transaction, then sends.

Nothing leaves before it is committed. Held originals are rewritten after the commit, so that a crash in
between repeats the same bytes. Traces that cannot be analysed get the verdict ``error``, which writes
nothing into them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Protocol, TypeAlias

from analyzer.analyses.batcher import Batcher
from analyzer.analyses.decide import AnalysedTraces, Decided, decide
from analyzer.analyses.load import Rows, TraceSource
from collector_processor.core.analysis import Analyst, Keep, KeptRun
from collector_processor.core.disk import STORE_RETRY_S, StoreError
from collector_processor.core.records import Commit, Standing, StoredVerdict, VerdictSummary
from collector_processor.core.runs import Run
from collector_processor.otlp import RefusedError, Tenant, TraceKey
from collector_processor.store.database.thread import StoreThread
from collector_processor.store.verdicts import RunStore
from collector_processor.writeback.annotate import CarrierPolicy
from collector_processor.writeback.outgoing import Decision, summary_of, write_back
from semconv.model import Trace, Trajectory

logger = logging.getLogger(__name__)

_MOST_COMMITTED: Final = 32

Tell: TypeAlias = Callable[[VerdictSummary, StoredVerdict], None]
"""Called with each final verdict once it is durable; it must be quick and must not raise."""
Claim: TypeAlias = Callable[[TraceKey], bool]
"""Stops the hold deadline of a trace; returns ``False`` if no span of it is held."""


def report_nothing(_summary: VerdictSummary, _verdict: StoredVerdict) -> None:
    """Do nothing."""


async def keep_nothing(_runs: Sequence[tuple[Tenant, KeptRun]]) -> None:
    """Store no run."""


def count_nothing(_redacted: Mapping[str, int]) -> None:
    """Count no secrets."""


class HeldRows(Protocol):
    """Source of rows that wait for a verdict: the journal."""

    async def held_rows(self, key: TraceKey) -> Rows:
        """Return the trace's held rows."""
        ...

    async def release_held(self, key: TraceKey) -> None:
        """Release the trace's held rows unchanged."""
        ...

    async def rewrite_held(self, seq: int, body: bytes) -> None:
        """Release one held row as ``body``; no effect if the row is gone already."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """The policy for carriers, and the callbacks before and after a commit."""

    policy: CarrierPolicy
    wall_ns: Callable[[], int]
    wake_outbox: Callable[[], None]
    tell: Tell = report_nothing
    keep: Keep = keep_nothing
    count_redacted: Callable[[Mapping[str, int]], None] = count_nothing

    def committed(self, verdicts: Iterable[tuple[VerdictSummary, StoredVerdict]]) -> None:
        """Report durable verdicts and start sending their spans."""
        self.report(verdicts)
        self.wake_outbox()

    def report(self, verdicts: Iterable[tuple[VerdictSummary, StoredVerdict]]) -> None:
        """Report durable verdicts."""
        for summary, verdict in verdicts:
            self.tell(summary, verdict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    analysed: AnalysedTraces
    kept: Sequence[KeptRun]
    claim: Claim


class _Answer(Enum):
    COMMITTED = auto()
    OUTDATED = auto()
    """Marks traces that were analysed again meanwhile."""
    REFUSED = auto()
    """Marks a full disk."""


class Committer:
    """Commits analyses; commits are serialized by a lock."""

    def __init__(
        self,
        *,
        held: HeldRows,
        store: RunStore,
        thread: StoreThread,
        leaving: Leaving,
    ) -> None:
        self._held: Final = held
        self._store: Final = store
        self._thread: Final = thread
        self._leaving: Final = leaving
        self._commit: Final = Batcher(self._commit_all, most=_MOST_COMMITTED)
        self.turn: Final = asyncio.Lock()
        """Held from reading the store until the commit: traces of one run may be analysed concurrently."""

    async def finish_rewrites(self) -> None:
        """Apply rewrites that were committed but perhaps not carried out."""
        refused = await self._rewrite(await self._thread.run(self._store.rewrites))
        await self._thread.insist(self._store.rewrites_refused, refused)

    async def commit_if_unchanged(
        self, analysed: AnalysedTraces, kept: Sequence[KeptRun], claim: Claim
    ) -> bool:
        """Commit; ``False`` if the traces were analysed meanwhile, or (after a pause) the disk is full."""
        answer = await self._commit(_Asked(analysed=analysed, kept=kept, claim=claim))
        if answer is _Answer.REFUSED:
            await self._thread.pause(STORE_RETRY_S)
        return answer is _Answer.COMMITTED

    async def _commit_all(self, several: Sequence[_Asked]) -> Sequence[_Answer]:
        # Before the verdicts: a run must be stored before its verdict can be labelled.
        await self._leaving.keep([(one.analysed.tenant, run) for one in several for run in one.kept])
        answers = dict.fromkeys(range(len(several)), _Answer.OUTDATED)
        unheld: list[int] = []
        async with self.turn:
            for at in _apart(several):
                one = several[at].analysed
                if claimed := [key for key in one.upto if several[at].claim(key)]:
                    answers[at] = await self._commit_held(one, claimed)
                else:
                    unheld.append(at)
            decided = await self._decide_and_commit([several[at].analysed for at in unheld], {})
            answers |= {at: _answer(one) for at, one in zip(unheld, decided, strict=True)}
        self._leaving.wake_outbox()
        for at, answer in answers.items():
            if answer is _Answer.COMMITTED:
                self._leaving.count_redacted(several[at].analysed.redacted)
        return list(answers.values())

    async def _decide_and_commit(
        self, several: Sequence[AnalysedTraces], held: Mapping[int, bytes]
    ) -> Sequence[Decided | StoreError | None]:
        """Commit all decisions in one transaction, then report the verdicts; ``None`` if outdated."""
        if not several:
            return ()
        now_ns = self._leaving.wall_ns()
        try:
            decided = await self._thread.run(self._decide_in_db, several, held, now_ns)
        except StoreError as error:
            logger.warning("verdict waits for the store", extra={"reason": str(error)})
            return [error] * len(several)
        self._leaving.report(pair for one in decided if one for pair in one.verdicts)
        return decided

    def _decide_in_db(
        self, several: Sequence[AnalysedTraces], held: Mapping[int, bytes], now_ns: int
    ) -> Sequence[Decided | None]:
        """Decide and commit in one call on the store's thread, which costs less than two."""
        decided: list[Decided | None] = []
        with self._store.transaction():  # other processors of a Kafka topic may commit to the same store
            for one in several:
                run_ids = [run.run.identity.run_id for run, _ in one.runs]
                standing = self._store.standing(tuple(one.seen), one.tenant, run_ids)
                decided.append(decide(one, standing, self._leaving.policy, now_ns, held))
            if commits := [one.commit for one in decided if one]:
                self._store.commit_all(commits)
        return decided

    async def _commit_held(self, analysed: AnalysedTraces, claimed: Sequence[TraceKey]) -> _Answer:
        """Commit one analysis whose originals are held, and rewrite the originals."""
        held: dict[int, bytes] = {}
        for key in claimed:
            held |= dict(await self._held.held_rows(key))
        (decided,) = await self._decide_and_commit([analysed], held)
        if isinstance(decided, StoreError):  # telemetry does not wait for our disk; carriers follow
            for key in claimed:
                await self._held.release_held(key)
        elif decided is not None:
            refused = await self._rewrite(decided.commit.rewrites)
            if refused:
                await self._follow_late(refused, claimed)
        return _answer(decided)

    async def _rewrite(self, rewrites: Iterable[tuple[int, bytes]]) -> list[int]:
        """Release held rows in their committed form; return the rows that the journal cannot store."""
        done: list[int] = []
        refused: list[int] = []
        for seq, body in rewrites:
            try:
                await self._held.rewrite_held(seq, body)
            except RefusedError as error:
                logger.warning("carriers follow the original spans", extra={"reason": str(error)})
                refused.append(seq)
            else:
                done.append(seq)
        if done:
            await self._thread.insist(self._store.rewritten, done)
        return refused

    async def _follow_late(self, refused: list[int], claimed: Iterable[TraceKey]) -> None:
        """Release the originals unchanged and send the carriers after them."""
        try:
            await self._thread.run(self._store.rewrites_refused, refused)
        except StoreError:  # the store's disk is full too, but the originals must not wait for it
            for key in claimed:
                await self._held.release_held(key)
            await self._thread.insist(self._store.rewrites_refused, refused)


def _answer(decided: Decided | StoreError | None) -> _Answer:
    if isinstance(decided, StoreError):
        return _Answer.REFUSED
    return _Answer.OUTDATED if decided is None else _Answer.COMMITTED


def _apart(several: Sequence[_Asked]) -> Iterable[int]:
    """Yield the positions of analyses that share no trace with an earlier one; the rest is outdated."""
    taken: set[TraceKey] = set()
    for at, one in enumerate(several):
        if taken.isdisjoint(one.analysed.seen):
            yield at
        taken.update(one.analysed.seen)


EVICTED: Final = "evicted: its spans were dropped before its analysis"


class ErrorVerdicts:
    """Records ``error`` verdicts for traces that could not be analysed."""

    def __init__(
        self,
        *,
        source: TraceSource,
        store: RunStore,
        thread: StoreThread,
        analyst: Analyst,
        committer: Committer,
        leaving: Leaving,
    ) -> None:
        self._source: Final = source
        self._store: Final = store
        self._thread: Final = thread
        self._analyst: Final = analyst
        self._committer: Final = committer
        self._leaving: Final = leaving

    async def record(self, key: TraceKey, reason: str) -> None:
        """Record an ``error`` verdict for a trace; a previous final verdict stands."""
        ((rows, _),) = await self._source.read_whole([key])
        upto = max((seq for seq, _ in rows), default=0)
        async with self._committer.turn:
            known = await self._thread.run(self._store.standing, [key], key.tenant, [key.trace_id])
            await self._commit([key], [known], reason, times=known.seen[key][0] + 1, upto=upto)

    async def record_evicted(self, keys: Iterable[TraceKey]) -> None:
        """Record, in one transaction, traces whose spans were evicted before any analysis."""
        tenants: defaultdict[Tenant, list[TraceKey]] = defaultdict(list)
        for key in keys:
            tenants[key.tenant].append(key)
        async with self._committer.turn:
            known = [
                await self._thread.run(self._store.standing, own, tenant, [key.trace_id for key in own])
                for tenant, own in tenants.items()
            ]
            lost = [key for one in known for key, (analyses, _) in one.seen.items() if not analyses]
            await self._commit(lost, known, EVICTED)

    async def _commit(
        self,
        keys: Sequence[TraceKey],
        known: Iterable[Standing],
        reason: str,
        *,
        times: int = 1,
        upto: int = 0,
    ) -> None:
        previous = {
            (one.tenant, run_id): one for standing in known for run_id, one in standing.verdicts.items()
        }
        decisions = [
            self._excused(key, reason, before)
            for key in keys
            if (before := previous.get(key)) is None or before.is_provisional
        ]
        verdicts = tuple(write_back(decision, self._leaving.policy).verdict for decision in decisions)
        analysed = tuple((key, upto) for key in keys)
        await self._thread.insist(
            self._store.commit, Commit(analysed=analysed, times=times, verdicts=verdicts)
        )
        self._leaving.report(zip(map(summary_of, decisions), verdicts, strict=True))

    def _excused(self, key: TraceKey, reason: str, previous: StoredVerdict | None) -> Decision:
        trajectory = Trajectory(run_id=key.trace_id, steps=(), complete=False, root_trace_id=key.trace_id)
        analysis = self._analyst.excuse(trajectory, reason)
        return Decision(
            run=Run(trace=Trace(spans=(), tenant=key.tenant), trajectory=trajectory),
            attribution=analysis.attribution,
            document=analysis.document,
            previous=previous,
            tenant=key.tenant,
            now_ns=self._leaving.wall_ns(),
        )
