"""The slow lane in memory except for its store, with a scripted journal, analyst and clock."""

from __future__ import annotations

import asyncio
import errno
import json
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from analyzer.analyses.commit import Committer, Leaving
from analyzer.analyses.early import EarlyWarning
from analyzer.analyses.examine import Examiner, owns_all
from analyzer.analyses.load import Prepare, Rows
from analyzer.analyses.prepare import Preparer
from analyzer.analyses.prepared import Look, Prepared, TraceBytes, keeping
from analyzer.analyses.scheduler import Pipeline, PipelineLimits
from collector_processor.assembly.assembler import AssemblerLimits
from collector_processor.core.analysis import NOTHING_EARNED, Analysis, Analyst, Earned
from collector_processor.core.disk import StoreError
from collector_processor.core.records import Commit, StoredVerdict, VerdictSummary
from collector_processor.otlp import NO_TENANT, RefusedError, Signal, Tenant, TraceKey
from collector_processor.rebuild.decode import decode
from collector_processor.rebuild.encode import encode
from collector_processor.rebuild.redaction import Cleaner, make_redactor
from collector_processor.settings import load_settings
from collector_processor.store.database.connection import StoreThread
from collector_processor.store.verdicts import RunStore
from collector_processor.wire.facts import TraceArrival
from collector_processor.wire.scan import scan_request
from collector_processor.writeback.annotate import CarrierPolicy
from semconv.model import Abstention, Attribution, Blame, Span, Status, TraceId, Trajectory

LIMITS = AssemblerLimits(root_grace_s=2, idle_close_s=60, max_silence_s=3600)
Say = int | str | Exception | None
"""A step to blame, a reason for abstaining, an error to raise, or no failure."""


class _EveryTrace:
    """The traces whose notes are needed, including those of plain spans and records."""

    def __contains__(self, _trace_id: object) -> bool:
        return True


class MemorySource:
    """A ``HeldTraces``: rows by trace, and the forwarded ones, in order."""

    def __init__(self) -> None:
        self.rows: defaultdict[TraceKey, dict[int, bytes]] = defaultdict(dict)
        self.logs: defaultdict[TraceKey, dict[int, bytes]] = defaultdict(dict)
        self.held: defaultdict[TraceKey, set[int]] = defaultdict(set)
        self.arrivals: list[TraceArrival] = []
        self.sent: list[tuple[int, bytes]] = []
        self.before_rewrite: Callable[[], Awaitable[None]] | None = None
        self.before_release: Callable[[], Awaitable[None]] | None = None
        self.rewrite_refusals = 0
        """Replacements that fail because the disk is full."""
        self.read_refusals = 0
        """Reads that fail because there is no file descriptor."""
        self.seq = 0

    def store(
        self,
        body: bytes,
        *,
        signal: Signal = Signal.TRACES,
        is_held: bool = False,
        tenant: Tenant = NO_TENANT,
    ) -> TraceArrival:
        (note,) = scan_request(signal, body, known=_EveryTrace()).traces
        key = TraceKey(tenant, note.trace_id)
        self.seq += 1
        (self.rows if signal is Signal.TRACES else self.logs)[key][self.seq] = body
        if is_held:
            self.held[key].add(self.seq)
        arrival = TraceArrival(
            seq=self.seq,
            key=key,
            received_ns=self.seq,
            byte_count=len(body),
            notes=note.spans,
            is_held=is_held,
        )
        self.arrivals.append(arrival)
        return arrival

    def forget(self, key: TraceKey) -> None:
        """Evict the trace, as the journal does: its held rows are forwarded."""
        self._let_go(key)
        self.rows.pop(key, None)
        self.logs.pop(key, None)
        self.arrivals = [arrival for arrival in self.arrivals if arrival.key.trace_id != key.trace_id]

    def known(self) -> list[TraceArrival]:
        """What a restarted process receives."""
        return [
            TraceArrival(
                seq=one.seq,
                key=one.key,
                received_ns=one.received_ns,
                byte_count=one.byte_count,
                notes=one.notes,
                is_held=one.seq in self.held[one.key],
            )
            for one in self.arrivals
        ]

    async def read_trace(self, key: TraceKey) -> tuple[tuple[int, bytes], ...]:
        self._open_file()
        return tuple(self.rows.get(key, {}).items())

    async def read_logs(self, key: TraceKey) -> tuple[tuple[int, bytes], ...]:
        return tuple(self.logs.get(key, {}).items())

    async def read_whole(self, keys: Sequence[TraceKey]) -> list[tuple[Rows, Rows]]:
        return [(await self.read_trace(key), await self.read_logs(key)) for key in keys]

    async def held_rows(self, key: TraceKey) -> tuple[tuple[int, bytes], ...]:
        self._open_file()
        return tuple((seq, self.rows[key][seq]) for seq in sorted(self.held[key]))

    async def release_held(self, key: TraceKey) -> None:
        if self.before_release is not None:
            await self.before_release()
        self._let_go(key)

    async def rewrite_held(self, seq: int, body: bytes) -> None:
        if self.before_rewrite is not None:
            await self.before_rewrite()
        for key, held in self.held.items():
            if seq in held and self.rewrite_refusals:
                self.rewrite_refusals -= 1
                raise RefusedError("cannot write to the journal: disk full", retry_after_s=1)
            if seq in held:
                held.discard(seq)
                self.rows[key][seq] = body
                self.sent.append((seq, body))

    def _open_file(self) -> None:
        if self.read_refusals:
            self.read_refusals -= 1
            raise OSError(errno.EMFILE, "Too many open files")

    def _let_go(self, key: TraceKey) -> None:
        self.sent += [(seq, self.rows[key][seq]) for seq in sorted(self.held[key])]
        self.held[key].clear()


class ScriptedAnalyst:
    """Gives scripted answers, and repeats the last one; can be made to wait."""

    def __init__(self, *answers: Say) -> None:
        self.answers: list[Say] = list(answers or (0,))
        self.asked: list[Trajectory] = []
        self.glances: list[Trajectory] = []
        self.running = 0
        self.most_running = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.was_asked = asyncio.Event()

    async def analyse(self, trajectory: Trajectory, _earned: Earned = NOTHING_EARNED) -> Analysis:
        self.asked.append(trajectory)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        self.was_asked.set()
        try:
            await self.may_answer.wait()
        finally:
            self.running -= 1
        return _analysis(trajectory, self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])

    def glance(self, trajectory: Trajectory) -> Analysis:
        self.glances.append(trajectory)
        return _analysis(trajectory, 0)


def _analysis(trajectory: Trajectory, answer: Say) -> Analysis:
    if isinstance(answer, Exception):
        raise answer
    if isinstance(answer, int):
        agent = trajectory.steps[answer].agent
        verdict: Blame | Abstention = Blame(agent=agent, step=answer, reason="scripted", confidence=0.9)
    elif answer is None:
        verdict = Abstention(status=Status.NO_FAILURE, reason="it did its task")
    else:
        verdict = Abstention(status=Status.UNDETERMINED, reason=answer)
    return _documented(Attribution(run_id=trajectory.run_id, verdict=verdict, method="scripted"))


def _documented(attribution: Attribution) -> Analysis:
    document = {"status": attribution.status.value}
    if isinstance(attribution.verdict, Abstention):
        document["reason"] = attribution.verdict.reason
    return Analysis(attribution=attribution, document=json.dumps(document))


KEPT = keeping(load_settings({}))


def preparing(analyst: Analyst, unasked: Look = lambda _: None) -> Prepare:
    """Prepare on the event loop, and leave all runs to the analyst that ``unasked`` leaves open."""
    preparer = Preparer(unasked=unasked, glance=analyst.glance, kept=KEPT, cleaner=Cleaner(make_redactor(())))

    async def prepare(trace: TraceBytes) -> Prepared:
        return preparer(trace)

    return prepare


class FullStore(RunStore):
    """A store whose disk is full for a number of commits of verdicts."""

    refusals = 0
    commits = 0
    read_refusals = 0
    """Reads that fail too, because the disk cannot be read."""
    rewrites_unread = 0
    """Reads of unfinished replacements that fail too."""

    def commit_all(self, commits: Iterable[Commit]) -> None:
        if self.refusals:
            self.refusals -= 1
            raise StoreError("the store cannot write: database or disk is full")
        super().commit_all(commits)
        self.commits += 1

    def seen(self, keys: Iterable[TraceKey]) -> Mapping[TraceKey, tuple[int, int]]:
        if self.read_refusals:
            self.read_refusals -= 1
            raise OSError(errno.EIO, "Input/output error")
        return super().seen(keys)

    def rewrites(self) -> list[tuple[int, bytes]]:
        if self.rewrites_unread:
            self.rewrites_unread -= 1
            raise OSError(errno.EIO, "Input/output error")
        return super().rewrites()


@dataclass
class SlowLane:
    """One process's slow lane; ``restarted`` is the next process's."""

    path: Path
    analyst: ScriptedAnalyst
    source: MemorySource = field(default_factory=MemorySource)
    hold_max_s: float | None = None
    limits: AssemblerLimits = LIMITS
    concurrency: int = 16
    rewrites_max_s: float = 60.0
    releases_max_s: float = 60.0
    now: float = 1000.0
    wakes: int = 0
    announced: list[StoredVerdict] = field(default_factory=list)
    """Verdicts announced once durable, in order."""
    pauses: list[float] = field(default_factory=list)
    """How long it waited for the disk, each time."""
    on_pause: Callable[[float], None] = lambda _: None
    early: EarlyWarning | None = None
    owns: Callable[[TraceKey], bool] = owns_all

    def __post_init__(self) -> None:
        self.store = FullStore(self.path / "runs.sqlite")
        self.thread = StoreThread(self._pause)
        committer = Committer(
            source=self.source,
            store=self.store,
            thread=self.thread,
            leaving=Leaving(
                policy=CarrierPolicy(),
                wall_ns=lambda: int(self.now * 1e9),
                wake_outbox=self._woken,
                tell=self._hear,
            ),
        )
        self.examiner = Examiner(
            committer=committer,
            prepare=preparing(self.analyst),
            analyst=self.analyst,
            kept=KEPT,
            early=self.early,
            owns=self._owns,
        )
        limits = PipelineLimits(
            assembler=self.limits,
            hold_max_s=self.hold_max_s,
            concurrency=self.concurrency,
            rewrites_max_s=self.rewrites_max_s,
            releases_max_s=self.releases_max_s,
        )
        self.pipeline = Pipeline(self.examiner, limits, lambda: self.now, self._pause)

    def _owns(self, key: TraceKey) -> bool:
        return self.owns(key)

    async def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.on_pause(seconds)

    def _hear(self, _gist: VerdictSummary, verdict: StoredVerdict) -> None:
        assert self.store.current(verdict.tenant, verdict.run_id) == verdict, (
            "announced before it was durable"
        )
        self.announced.append(verdict)

    def _woken(self) -> None:
        self.wakes += 1

    def receive(self, *spans: Span, tenant: Tenant = NO_TENANT) -> TraceArrival:
        """Receive spans of one trace, as the intake does: held if the pipeline says so."""
        key = TraceKey(tenant, spans[0].trace_id)
        arrival = self.source.store(encode(spans), is_held=self.pipeline.holds(key), tenant=tenant)
        self.pipeline.feed(arrival)
        return arrival

    async def pass_time(self, seconds: float) -> None:
        """Run for ``seconds`` of the clock until nothing is pending."""
        await self.pipeline.turn()
        self.now += seconds
        await self.pipeline.turn()
        await self.pipeline.settle()

    def evict(self, trace_id: TraceId) -> None:
        key = TraceKey(NO_TENANT, trace_id)
        self.source.forget(key)
        self.pipeline.evicted((key,))

    async def reach_rewriting(self) -> None:
        """Run until a verdict is committed, and hang before anything of it is written back."""
        reached = asyncio.Event()

        async def hang() -> None:
            reached.set()
            await asyncio.Event().wait()

        self.source.before_rewrite = hang
        await self.pipeline.turn()
        self.now += LIMITS.root_grace_s
        await self.pipeline.turn()
        await reached.wait()

    async def die(self) -> None:
        """End without finishing anything."""
        self.pipeline._queue.clear()
        for task in self.pipeline._tasks:  # a killed process drains nothing
            task.cancel()
        await asyncio.gather(*self.pipeline._tasks, return_exceptions=True)
        self.close()

    async def restarted(self) -> SlowLane:
        await self.die()
        self.source.before_rewrite = None
        after = SlowLane(path=self.path, analyst=self.analyst, source=self.source, hold_max_s=self.hold_max_s)
        await after.pipeline.recover(self.source.known())
        return after

    def close(self) -> None:
        self.thread.close()
        self.store.close()

    def written(self) -> list[Span]:
        """Return the spans that verdicts have put on their way to the backend, in order."""
        return [span for entry in self.store.outbox(Signal.TRACES) for span in decode(entry.body).spans]


def written_names(spans: Iterable[Span]) -> list[str]:
    return [span.name for span in spans]
