"""The durable buffer between acknowledging and forwarding.

Who does what: the event loop keeps the accounts and decides; the writer's
thread commits; the keeper's thread reads, compacts and deletes. Segments are
written in order; how they go says ``reclaiming``. Only rows not yet forwarded
may cause a refusal; what is kept for analysis is evicted instead, the longest
silent trace first, and where the disk is full, whatever keeps the oldest segment.

Durable means: committed with ``synchronous=FULL`` before ``append`` returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from collector_processor.assembler import TraceKey
from collector_processor.journal.accounts import Accounts, TraceRows
from collector_processor.journal.chunks import (
    Backlog,
    Chunk,
    Entry,
    JournalLimits,
    Queue,
    QueueLook,
    SegmentSummary,
    State,
    Totals,
    Wanted,
    by_segment,
)
from collector_processor.journal.commands import Append, Forget, Mark, Stop
from collector_processor.journal.directory import SegmentDirectory
from collector_processor.journal.dispatch import ENDED_RETRY_S, Dispatch
from collector_processor.journal.held import HeldRows
from collector_processor.journal.keeper import DirectoryLock, JournalKeeper
from collector_processor.journal.reads import Reads
from collector_processor.journal.reclaiming import Reclaimer
from collector_processor.journal.writer import JournalWriter, WriterEvents
from collector_processor.notes import TraceArrival
from collector_processor.otlp import RefusedError, Signal, Tenant
from semconv.model import TraceId


class Journal:
    """Lives on one event loop; ``open_journal`` makes it."""

    def __init__(
        self,
        directory: SegmentDirectory,
        keeper: JournalKeeper,
        lock: DirectoryLock,
        summaries: Sequence[SegmentSummary],
        limits: JournalLimits,
    ) -> None:
        loop = asyncio.get_running_loop()
        next_segment = directory.next_number()
        self._loop: Final = loop
        self._keeper: Final = keeper
        self._lock: Final = lock
        self._accounts: Final = Accounts(limits)
        self._reads: Final = Reads()
        self._writer: Final = JournalWriter(
            directory,
            next_segment,
            limits,
            self._post,
            WriterEvents(rotated=self._retired, failed=self._failed),
        )
        self._dispatch: Final = Dispatch(self._writer.submit)
        self._reclaimer: Final = Reclaimer(self._accounts.segments, self._dispatch, self._reads, keeper)
        self._held: Final = HeldRows(self._accounts, self._dispatch, self._released)
        self._recovered: tuple[TraceArrival, ...] = ()
        self._is_closed = False
        self.failure: Final[asyncio.Future[None]] = loop.create_future()
        """Raises, to whoever awaits it, if the writer fails by a fault of ours; cancelled by ``close``."""
        self.on_released: Callable[[Queue, int], None] = _ignore_released
        """Told that held rows of a queue, from a seq on, are pending now."""
        self.on_evicted: Callable[[tuple[TraceKey, ...]], None] = _ignore_evicted
        """Told which traces lost their spans before they were analysed."""
        self._restore(summaries)
        self._writer.start()

    def _restore(self, summaries: Iterable[SegmentSummary]) -> None:
        arrivals: list[TraceArrival] = []
        for summary in summaries:
            self._accounts.restore(summary)
            arrivals += [
                TraceArrival(
                    seq=entry.seq,
                    signal=entry.signal,
                    tenant=entry.tenant,
                    trace_id=entry.note.trace_id,
                    received_ns=entry.received_ns,
                    byte_count=entry.note.byte_count,
                    notes=entry.note.spans,
                    is_held=entry.state is State.HELD,
                )
                for entry in summary.index
            ]
        self._recovered = tuple(arrivals)
        self._reclaimer.soon()

    def _post(self, callback: Callable[[], None]) -> None:
        """Run something on the event loop; called from other threads."""
        self._loop.call_soon_threadsafe(callback)

    def _retired(self, number: int) -> None:
        self._reclaimer.retired(number)

    def _released(self, queue: Queue, seq: int) -> None:
        self.on_released(queue, seq)

    # Writing.

    async def append(
        self, entries: Sequence[Entry], then: Callable[[tuple[Chunk, ...]], None] | None = None
    ) -> tuple[Chunk, ...]:
        """Store rows in one commit; return them once they are durable.

        Args:
            entries: the rows of one request.
            then: called with the rows as soon as they are durable, in the order of
                commits, even if the caller was cancelled meanwhile.

        Raises:
            RefusedError: there is no room, or the disk refuses; nothing was stored.
        """
        if self._is_closed or self._dispatch.has_ended:
            raise RefusedError("the journal takes nothing any more", retry_after_s=ENDED_RETRY_S)
        rows = tuple(entries)
        self._accounts.admit(rows)
        future: asyncio.Future[tuple[Chunk, ...]] = self._dispatch.answer()

        def done(answer: tuple[int, ...] | RefusedError) -> None:
            if isinstance(answer, RefusedError):
                self._accounts.cancel(rows)
                if not future.done():
                    future.set_exception(answer)
                self._make_room()
                return
            chunks = self._accounts.stored(rows, answer)
            if then is not None:
                then(chunks)
            if not future.done():
                future.set_result(chunks)
            self._evict_over_quota()

        self._dispatch.now(Append(entries=rows, done=done))
        return await future

    def _evict_over_quota(self) -> None:
        if self._accounts.is_over_quota:
            self._evict(self._accounts.overdue(0))

    def _make_room(self) -> None:
        """The disk refuses: what is kept for analysis goes, a segment's worth at a time, and a WAL."""
        self._evict(self._accounts.segments.in_the_way())
        self._reclaimer.make_room()

    def mark_done(self, chunks: Iterable[Chunk]) -> None:
        """Note that rows need no forwarding any more. Written soon, not at once."""
        seqs: list[int] = []
        for chunk in chunks:
            self._accounts.settled(chunk)
            self._reads.finish(chunk.seq)
            seqs.append(chunk.seq)
        for number, those in by_segment(seqs).items():
            done = partial(self._reads.written, those)
            self._dispatch.soon(Mark(segment=number, seqs=those, state=State.DONE, done=done))
        self._reclaimer.soon()

    # Reading for the forwarder.

    @property
    def waiting(self) -> Mapping[Queue, Totals]:
        """What is not forwarded yet, pending and held, for each queue."""
        return self._accounts.waiting

    @property
    def lost(self) -> Mapping[Signal, int]:
        """Items that an earlier process acknowledged, and of which there is only a note."""
        return self._keeper.lost

    def held_items(self, signal: Signal) -> int:
        """Return how many of a signal's items are in the journal and not forwarded."""
        return sum(totals.items for queue, totals in self.waiting.items() if queue.signal is signal)

    def look(self, signal: Signal) -> QueueLook:
        """Return the queue of one signal: size, capacity and age."""
        return self._accounts.look(signal)

    async def read_pending(
        self, queue: Queue, after_seq: int, max_bytes: int, skip: Iterable[int] = ()
    ) -> Backlog:
        """Read a queue's pending rows in order.

        Args:
            queue: whose.
            after_seq: where to go on.
            max_bytes: how much to read; at least one row comes, if there is one.
            skip: rows that the caller has already.
        """
        wanted = Wanted(
            queue=queue,
            after_seq=after_seq,
            upto_seq=self._accounts.last_seq,  # a row is read only once its writer knows of it
            max_bytes=max_bytes,
            skip=frozenset((*self._reads.done, *skip)),
        )
        with self._reads.reading():
            backlog = await self._reads.run(partial(self._keeper.waiting, wanted))
            done = self._reads.done
            return replace(
                backlog,
                chunks=tuple(chunk for chunk in backlog.chunks if chunk.seq not in done),
                lost=tuple(chunk for chunk in backlog.lost if chunk.seq not in done),
            )

    # Agent traces.

    def knows(self, tenant: Tenant) -> Container[TraceId]:
        """Return the tenant's agent traces, to be asked whether a trace id is among them."""
        return _Known(self._accounts.traces, tenant)

    def agent_traces(self) -> tuple[TraceArrival, ...]:
        """Return, once, what an earlier process recorded of agent traces, in order."""
        recovered, self._recovered = self._recovered, ()
        return recovered

    async def read_trace(self, key: TraceKey) -> tuple[tuple[int, bytes], ...]:
        """Return the trace's rows, each with only that trace's spans; empty once reclaimed."""
        return await self._fragments(Signal.TRACES, key, self._rows(key).rows)

    async def read_logs(self, key: TraceKey) -> tuple[tuple[int, bytes], ...]:
        """Return the trace's rows of log requests, each with only that trace's records."""
        return await self._fragments(Signal.LOGS, key, self._rows(key).logs)

    async def read_whole(
        self, keys: Sequence[TraceKey]
    ) -> Sequence[tuple[tuple[tuple[int, bytes], ...], tuple[tuple[int, bytes], ...]]]:
        """Return, for each trace, what ``read_trace`` and ``read_logs`` return; read in one go."""
        found = [(key.trace_id, self._rows(key)) for key in keys]
        wanted = [(trace_id, tuple(rows.rows), tuple(rows.logs)) for trace_id, rows in found]
        return await self._reads.run(partial(self._keeper.whole, wanted))

    async def held_rows(self, key: TraceKey) -> tuple[tuple[int, bytes], ...]:
        """Return the trace's rows that wait for a verdict."""
        return await self._fragments(Signal.TRACES, key, self._accounts.held(key))

    def _rows(self, key: TraceKey) -> TraceRows:
        return self._accounts.traces.get(key) or TraceRows(key=key)

    async def _fragments(
        self, signal: Signal, key: TraceKey, seqs: Iterable[int]
    ) -> tuple[tuple[int, bytes], ...]:
        wanted = tuple(seqs)
        if not wanted:
            return ()
        return await self._reads.run(partial(self._keeper.fragments, signal, key.trace_id, wanted))

    async def release_held(self, key: TraceKey) -> None:
        """Let the trace's held rows go on as they are."""
        await asyncio.gather(*self._held.release(key))

    async def rewrite_held(self, seq: int, body: bytes) -> None:
        """Let one held row go on as ``body``; nothing happens if it is gone, or went on already.

        Raises:
            RefusedError: the disk refuses; the row is still held.
        """
        await self._held.rewrite(seq, body)

    def forget(self, key: TraceKey) -> None:
        """Stop keeping a trace for analysis; what of it is not forwarded yet still goes on."""
        self._held.release(key)
        trace = self._accounts.forget(key)
        for number, seqs in by_segment(trace.seqs()).items():
            self._dispatch.now(Forget(segment=number, seqs=seqs, trace_id=key.trace_id))
        self._reclaimer.soon()

    def expire(self, now_ns: int) -> None:
        """Evict traces that were silent for too long; to be called now and then."""
        self._evict(self._accounts.overdue(now_ns))

    def _evict(self, keys: Sequence[TraceKey]) -> None:
        for key in keys:
            self.forget(key)
        if keys:
            self.on_evicted(tuple(keys))

    def tidy(self) -> None:
        """Start deleting what nobody needs and compacting what few need, which comes by itself, now."""
        self._reclaimer.tidy()

    # The end.

    @property
    def commits(self) -> int:
        """Transactions that stored rows, since the start."""
        return self._writer.commits

    def _failed(self, error: BaseException) -> None:
        self._dispatch.ended()
        if not self.failure.done():
            self.failure.set_exception(error)

    async def close(self) -> None:
        """Write what is queued, close the files, let others in."""
        if self._is_closed:
            return
        self._is_closed = True
        self._reclaimer.close()
        self._dispatch.close()
        await self._reclaimer.finish()  # its chores wait for the writer: before that stops
        self._dispatch.now(Stop())
        await self._loop.run_in_executor(None, self._writer.join)
        await asyncio.sleep(0)  # what the writer had to say
        await self._reclaimer.finish()
        self._dispatch.ended()
        await self._reads.run(self._keeper.close)
        self._reads.close()
        self._lock.release()
        self.failure.cancel()


class _Known:
    """The trace ids of one tenant that are known as agents'."""

    def __init__(self, traces: Container[TraceKey], tenant: Tenant) -> None:
        self._traces: Final = traces
        self._tenant: Final = tenant

    def __contains__(self, trace_id: object) -> bool:
        return (self._tenant, trace_id) in self._traces


def _ignore_released(queue: Queue, seq: int) -> None:
    """Nobody forwards yet."""


def _ignore_evicted(keys: tuple[TraceKey, ...]) -> None:
    """Nobody analyses yet."""
