"""Step 3 of a verdict: decides under a lock, commits many decisions in one transaction, sends. Not pure.

``decide`` alone is pure. It is called with the store's state under the lock of all commits, so that nothing
changes between a decision and its commit. If the traces were analysed meanwhile, nothing is decided, and the
caller loads them again.

Nothing leaves before it is committed. Held originals are rewritten after the commit, so that a crash in
between repeats the same bytes. Traces that cannot be analysed get the verdict ``error``, which writes
nothing into them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final, ParamSpec, TypeAlias, TypeVar

from analyzer.analyses.load import HeldTraces, Loaded
from analyzer.analyses.prepared import Changed, Open, RebuiltRun
from analyzer.inquiry.verdict import error_analysis
from collector_processor.core.analysis import Analysis, Keep, KeptRun
from collector_processor.core.disk import STORE_RETRY_S, StoreError
from collector_processor.core.fair import Batcher
from collector_processor.core.records import (
    Commit,
    Outgoing,
    Place,
    RunIdentity,
    Standing,
    StoredVerdict,
    VerdictSummary,
)
from collector_processor.core.runs import Run
from collector_processor.otlp import RefusedError, Tenant, TraceKey
from collector_processor.store.database.connection import StoreThread
from collector_processor.store.verdicts import RunStore
from collector_processor.writeback.annotate import CarrierPolicy
from collector_processor.writeback.outgoing import Decision, WriteBack, provisional, summary_of, write_back
from semconv.model import Trace, Trajectory

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

_MOST_COMMITTED: Final = 32
_APART_S: Final = 0.03
"""Seconds between two commits: each writes dozens of pages and flushes them, for one run or for several."""
EVICTED: Final = "evicted: its spans were dropped before its analysis"

Claim: TypeAlias = Callable[[TraceKey], bool]
"""Stops the hold deadline of a trace; returns ``False`` if no span of it is held."""


def report_nothing(_summary: VerdictSummary, _verdict: StoredVerdict) -> None:
    """Do nothing."""


async def keep_nothing(_runs: Sequence[tuple[Tenant, KeptRun]]) -> None:
    """Store no run."""


def count_nothing(_redacted: Mapping[str, int]) -> None:
    """Count no secrets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """The policy for carriers, and the callbacks before and after a commit."""

    policy: CarrierPolicy
    wall_ns: Callable[[], int]
    wake_outbox: Callable[[], None]
    tell: Callable[[VerdictSummary, StoredVerdict], None] = report_nothing
    """Called with each final verdict once it is durable; it must be quick and must not raise."""
    keep: Keep = keep_nothing
    count_redacted: Callable[[Mapping[str, int]], None] = count_nothing


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
    policy = policy.remembering()
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
        source: HeldTraces,
        store: RunStore,
        thread: StoreThread,
        leaving: Leaving,
    ) -> None:
        self.source: Final = source
        self.store: Final = store
        self.thread: Final = thread
        self.leaving: Final = leaving
        self._commit: Final = Batcher(self._commit_all, most=_MOST_COMMITTED, apart_s=_APART_S)
        self.turn: Final = asyncio.Lock()
        """Held from reading the store until the commit: traces of one run may be analysed concurrently."""

    async def in_db(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Make one call on the store's thread."""
        return await self.thread.run(call, *args, **kwargs)

    async def in_turn(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Make a call that may commit verdicts on the store's thread; meanwhile no analysis commits."""
        async with self.turn:
            return await self.thread.run(call, *args, **kwargs)

    def committed(self, verdicts: Iterable[tuple[VerdictSummary, StoredVerdict]]) -> None:
        """Report verdicts that were committed through ``in_turn``, and start sending their spans."""
        self._report(verdicts)
        self.leaving.wake_outbox()

    def _report(self, verdicts: Iterable[tuple[VerdictSummary, StoredVerdict]]) -> None:
        for summary, verdict in verdicts:
            self.leaving.tell(summary, verdict)

    async def finish_rewrites(self) -> None:
        """Apply rewrites that were committed but perhaps not carried out."""
        refused = await self._rewrite(await self.thread.run(self.store.rewrites))
        await self.thread.insist(self.store.rewrites_refused, refused)

    async def commit_if_unchanged(
        self, analysed: AnalysedTraces, kept: Sequence[KeptRun], claim: Claim
    ) -> bool:
        """Commit; ``False`` if the traces were analysed meanwhile, or (after a pause) the disk is full."""
        answer = await self._commit(_Asked(analysed=analysed, kept=kept, claim=claim))
        if answer is _Answer.REFUSED:
            await self.thread.pause(STORE_RETRY_S)
        return answer is _Answer.COMMITTED

    async def _commit_all(self, several: Sequence[_Asked]) -> Sequence[_Answer]:
        # Before the verdicts: a run must be stored before its verdict can be labelled.
        await self.leaving.keep([(one.analysed.tenant, run) for one in several for run in one.kept])
        answers = dict.fromkeys(range(len(several)), _Answer.OUTDATED)
        unheld: list[int] = []
        async with self.turn:
            for at in _apart(several):
                traces = several[at].analysed
                if claimed := [key for key in traces.upto if several[at].claim(key)]:
                    answers[at] = await self._commit_held(traces, claimed)
                else:
                    unheld.append(at)
            decided = await self._decide_and_commit([several[at].analysed for at in unheld], {})
            answers |= {at: _answer(one) for at, one in zip(unheld, decided, strict=True)}
        self.leaving.wake_outbox()
        for at, answer in answers.items():
            if answer is _Answer.COMMITTED:
                self.leaving.count_redacted(several[at].analysed.redacted)
        return list(answers.values())

    async def _decide_and_commit(
        self, several: Sequence[AnalysedTraces], held: Mapping[int, bytes]
    ) -> Sequence[Decided | StoreError | None]:
        """Commit all decisions in one transaction, then report the verdicts; ``None`` if outdated."""
        if not several:
            return ()
        now_ns = self.leaving.wall_ns()
        try:
            decided = await self.thread.run(self._decide_in_db, several, held, now_ns)
        except StoreError as error:
            logger.warning("verdict waits for the store", extra={"reason": str(error)})
            return [error] * len(several)
        self._report(pair for one in decided if one for pair in one.verdicts)
        return decided

    def _decide_in_db(
        self, several: Sequence[AnalysedTraces], held: Mapping[int, bytes], now_ns: int
    ) -> Sequence[Decided | None]:
        """Decide and commit in one call on the store's thread, which costs less than two."""
        decided: list[Decided | None] = []
        with self.store.transaction():  # other processors of a Kafka topic may commit to the same store
            for traces in several:
                run_ids = [run.run.identity.run_id for run, _ in traces.runs]
                standing = self.store.standing(tuple(traces.seen), traces.tenant, run_ids)
                decided.append(decide(traces, standing, self.leaving.policy, now_ns, held))
            if commits := [one.commit for one in decided if one]:
                self.store.commit_all(commits)
        return decided

    async def _commit_held(self, analysed: AnalysedTraces, claimed: Sequence[TraceKey]) -> _Answer:
        """Commit one analysis whose originals are held, and rewrite the originals."""
        held: dict[int, bytes] = {}
        for key in claimed:
            held |= dict(await self.source.held_rows(key))
        (decided,) = await self._decide_and_commit([analysed], held)
        if isinstance(decided, StoreError):  # telemetry does not wait for our disk; carriers follow
            for key in claimed:
                await self.source.release_held(key)
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
                await self.source.rewrite_held(seq, body)
            except RefusedError as error:
                logger.warning("carriers follow the original spans", extra={"reason": str(error)})
                refused.append(seq)
            else:
                done.append(seq)
        if done:
            await self.thread.insist(self.store.rewritten, done)
        return refused

    async def _follow_late(self, refused: list[int], claimed: Iterable[TraceKey]) -> None:
        """Release the originals unchanged and send the carriers after them."""
        try:
            await self.thread.run(self.store.rewrites_refused, refused)
        except StoreError:  # the store's disk is full too, but the originals must not wait for it
            for key in claimed:
                await self.source.release_held(key)
            await self.thread.insist(self.store.rewrites_refused, refused)

    async def commit_provisionally(self, tenant: Tenant, loaded: Loaded, runs: Sequence[Open]) -> None:
        """Commit provisional verdicts, unless the traces were analysed after they were read."""
        async with self.turn:
            run_ids = [one.run.identity.run_id for one in runs]
            standing = await self.thread.run(self.store.standing, tuple(loaded.seen), tenant, run_ids)
            if standing.seen != loaded.seen:
                return
            commit = await asyncio.to_thread(
                decide_provisionally, tenant, runs, standing.verdicts, self.leaving.wall_ns()
            )
            await self.thread.insist(self.store.commit, commit)

    async def give_up(self, key: TraceKey, reason: str) -> None:
        """Record an ``error`` verdict for a trace; a previous final verdict stands."""
        ((rows, _),) = await self.source.read_whole([key])
        upto = max((seq for seq, _ in rows), default=0)
        async with self.turn:
            standing = await self.thread.run(self.store.standing, [key], key.tenant, [key.trace_id])
            await self._commit_errors([key], [standing], reason, times=standing.seen[key][0] + 1, upto=upto)

    async def give_up_evicted(self, keys: Iterable[TraceKey]) -> None:
        """Record, in one transaction, traces whose spans were evicted before any analysis."""
        tenants: defaultdict[Tenant, list[TraceKey]] = defaultdict(list)
        for key in keys:
            tenants[key.tenant].append(key)
        async with self.turn:
            standings = [
                await self.thread.run(self.store.standing, own, tenant, [key.trace_id for key in own])
                for tenant, own in tenants.items()
            ]
            lost = [
                key for standing in standings for key, (analyses, _) in standing.seen.items() if not analyses
            ]
            await self._commit_errors(lost, standings, EVICTED)

    async def _commit_errors(
        self,
        keys: Sequence[TraceKey],
        standings: Iterable[Standing],
        reason: str,
        *,
        times: int = 1,
        upto: int = 0,
    ) -> None:
        previous = {
            (one.tenant, run_id): one for standing in standings for run_id, one in standing.verdicts.items()
        }
        decisions = [
            self._excused(key, reason, before)
            for key in keys
            if (before := previous.get(key)) is None or before.is_provisional
        ]
        verdicts = tuple(write_back(decision, self.leaving.policy).verdict for decision in decisions)
        analysed = tuple((key, upto) for key in keys)
        await self.thread.insist(self.store.commit, Commit(analysed=analysed, times=times, verdicts=verdicts))
        self._report(zip(map(summary_of, decisions), verdicts, strict=True))

    def _excused(self, key: TraceKey, reason: str, previous: StoredVerdict | None) -> Decision:
        trajectory = Trajectory(run_id=key.trace_id, steps=(), complete=False, root_trace_id=key.trace_id)
        analysis = error_analysis(trajectory, reason)
        return Decision(
            run=Run(trace=Trace(spans=(), tenant=key.tenant), trajectory=trajectory),
            attribution=analysis.attribution,
            document=analysis.document,
            previous=previous,
            tenant=key.tenant,
            now_ns=self.leaving.wall_ns(),
        )


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
