"""Durable buffer between acknowledging and forwarding: the journal.

The event loop keeps the accounts and decides; the writer's thread commits; the keeper's thread reads, thins
and deletes. Segments are written in order. Requests are refused only because of rows not forwarded yet.
Traces kept for analysis are evicted instead: the oldest first, and on a full disk those that keep the oldest
segment.

Durable means: written and flushed to the disk (``fdatasync``) before ``append`` returns.

``Reclaimer`` deletes a segment once none of its rows is needed. A segment with few needed rows (a throttled
tenant's, a few agent traces) is thinned first: the keeper writes its log anew with these rows. Failures are
logged once and retried.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Container, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from collector_processor.core.disk import Condition
from collector_processor.journal.accounts import Accounts, KnownTraces, TraceRows
from collector_processor.journal.chunks import (
    Backlog,
    Chunk,
    DiskFullError,
    Entry,
    JournalLimits,
    Queue,
    QueueLook,
    State,
    Totals,
    by_segment,
    commits_of,
    segment_of,
)
from collector_processor.journal.directory import DirectoryLock, SegmentDirectory
from collector_processor.journal.dispatch import (
    ENDED_RETRY_S,
    Append,
    Deliveries,
    Detach,
    Dispatch,
    Flush,
    HeldRows,
    Note,
    SkipTo,
    Stop,
    Stored,
)
from collector_processor.journal.keeper import JournalKeeper, Reads
from collector_processor.journal.log_format import DONE_ROW, SIGNALS, Kind, positions
from collector_processor.journal.recovery import RecoveredSegment
from collector_processor.journal.segment_accounts import Place, SegmentAccount, SegmentAccounts
from collector_processor.journal.writer import JournalWriter, WriterEvents
from collector_processor.otlp import RefusedError, Signal, Tenant, TraceKey
from collector_processor.wire.facts import TraceArrival
from semconv.model import TraceId

logger = logging.getLogger(__name__)

_DELAY_S: Final = 0.2
"""Seconds between a change and the next search for segments to delete or thin."""
_RETRY_S: Final = 5.0
"""Seconds before a segment is thinned again if the disk refused."""


class Reclaimer:
    """Decides on the event loop; the keeper's thread does the work."""

    def __init__(
        self, segments: SegmentAccounts, dispatch: Dispatch, reads: Reads, keeper: JournalKeeper
    ) -> None:
        """Create it inside the running loop."""
        self._loop: Final = asyncio.get_running_loop()
        self._segments: Final = segments
        self._dispatch: Final = dispatch
        self._reads: Final = reads
        self._keeper: Final = keeper
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: Final[set[asyncio.Task[None]]] = set()
        self._is_refused = False
        """Whether the last task failed; consecutive failures are logged once."""
        self._is_closed = False

    def soon(self) -> None:
        """Call ``tidy`` after a short delay."""
        if self._timer is None and not self._is_closed:
            self._timer = self._loop.call_later(_DELAY_S, self.tidy)

    def retired(self, number: int) -> None:
        """Record that a segment accepts no more rows."""
        self._segments.retired(number, self._loop.time())
        self.soon()

    def tidy(self) -> None:
        """Start deleting unneeded segments; then thin at most one."""
        self._timer = None
        for number in self._segments.take_deletable():
            self._dispatch.now(Detach(segment=number, done=partial(self._detached, number)))
        segment = self._segments.take_thinnable(self._loop.time())
        if segment is not None:
            self._start(self._thin(segment))
        elif self._segments.may_tidy_later:
            self.soon()

    def _start(self, chore: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(chore)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _detached(self, number: int) -> None:
        self._start(self._delete(self._segments.at(number)))

    async def _delete(self, segment: SegmentAccount) -> None:
        try:
            await self._reads.run(partial(self._keeper.delete, segment.number, segment.version))
        except OSError as error:
            self._refused(segment, "deleted", error)
            return
        self._is_refused = False
        self._segments.deleted(segment.number)

    async def _thin(self, segment: SegmentAccount) -> None:
        number, version = segment.number, segment.version
        written: asyncio.Future[None] = self._dispatch.completion()
        is_flushed = False

        def flushed(answer: bool) -> None:  # noqa: FBT001 - a callback
            nonlocal is_flushed
            is_flushed = answer
            if not written.done():
                written.set_result(None)

        # Rows that are left out were done by now. Their marks must be durable, or they would count as lost.
        keep = segment.to_keep()
        self._dispatch.now(Flush(segment=number, done=flushed))
        await written
        if not is_flushed:
            self._refused(segment, "thinned", OSError("its marks cannot be written"))
            return
        try:
            offsets = await self._reads.run(partial(self._keeper.thin, number, version, keep))
        except OSError as error:
            self._refused(segment, "thinned", error)
        else:
            self._is_refused = False
            self._segments.thinned(number, keep, offsets)
            await self._reads.run(partial(self._keeper.drop_log, number, version))
        self.soon()

    def _refused(self, segment: SegmentAccount, what: str, error: OSError) -> None:
        if not self._is_refused:
            logger.warning("journal segment cannot be %s", what, extra={"reason": str(error)})
        self._is_refused = True
        self._segments.give_back(segment.number, self._loop.time() + _RETRY_S)
        self.soon()

    def close(self) -> None:
        """Stop starting tasks."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    async def finish(self) -> None:
        """Wait for the running tasks."""
        while self._tasks:
            await asyncio.gather(*self._tasks)


def _do_nothing(_chunk: Chunk, _entry: Entry) -> Iterator[None]:
    """Ignore a durable row."""
    yield from ()


def _ignore(*_facts: object) -> None:
    """Do nothing: no other part needs to know."""


async def _at_once() -> None:
    """Return without waiting."""


def _complete(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Journal:
    """Journal in one directory; used on one event loop, created by ``open_journal`` (``opening``)."""

    def __init__(
        self,
        directory: SegmentDirectory,
        lock: DirectoryLock,
        recovered: Sequence[RecoveredSegment],
        limits: JournalLimits,
    ) -> None:
        loop = asyncio.get_running_loop()
        salts = {segment.number: segment.salt for segment in recovered if segment.salt is not None}
        self._loop: Final = loop
        self._keeper: Final = JournalKeeper(directory, salts)
        self._lock: Final = lock
        self._accounts: Final = Accounts(limits)
        self._reads: Final = Reads()
        self._deliveries: Final = Deliveries(loop)
        self._writer: Final = JournalWriter(
            directory,
            salts,
            limits,
            self._deliveries,
            WriterEvents(rotated=self._retired, failed=self._failed),
        )
        self._dispatch: Final = Dispatch(self._writer.submit)
        self._reclaimer: Final = Reclaimer(self._accounts.segments, self._dispatch, self._reads, self._keeper)
        self._held: Final = HeldRows(self._accounts, self._dispatch, self._released)
        self._recovered: tuple[TraceArrival, ...] = ()
        self._lost: Final[Counter[Signal]] = Counter()
        self._is_closed = False
        self.failure: Final[asyncio.Future[None]] = loop.create_future()
        """Raises the error if the writer fails because of a bug; cancelled by ``close``."""
        self.on_released: Callable[[Queue, int], None] = _ignore
        """Called when held rows of a queue have become pending, with the first seq."""
        self.on_evicted: Callable[[tuple[TraceKey, ...]], None] = _ignore
        """Called with traces that were evicted before they were analysed."""
        self.on_done: Callable[[Sequence[Chunk]], None] = _ignore
        """Called with rows that were forwarded or permanently rejected."""
        self.until_whole: Callable[[], Awaitable[None]] = _at_once
        """Awaited before traces are read for their analysis: parts of them may still come from elsewhere."""
        self._restore(recovered)
        self._writer.start()

    def _restore(self, recovered: Iterable[RecoveredSegment]) -> None:
        arrivals: list[TraceArrival] = []
        for segment in recovered:
            self._accounts.restore(segment)
            self._lost.update(segment.lost)
            arrivals += [entry.arrival for entry in segment.index]
        self._recovered = tuple(arrivals)
        self._reclaimer.soon()

    def _retired(self, number: int) -> None:
        self._reclaimer.retired(number)

    def _released(self, queue: Queue, seq: int) -> None:
        self.on_released(queue, seq)

    # Writing.

    async def append(
        self, entries: Sequence[Entry], then: Callable[[Chunk, Entry], Iterator[None]] = _do_nothing
    ) -> tuple[Chunk, ...]:
        """Store rows; return them once they are durable.

        Rows with very many traces take several commits, so that small requests are stored in between.

        Args:
            entries: the rows of one request.
            then: called with each row as soon as it is durable, even if the caller was cancelled meanwhile,
                in the order of commits where requests share a trace; it yields between its steps.

        Raises:
            RefusedError: the journal is full, or the disk refuses; at most the first commits were stored.
        """
        if self._is_closed or self._dispatch.has_ended:
            raise RefusedError("the journal is closed", retry_after_s=ENDED_RETRY_S)
        rows = tuple(entries)
        self._accounts.admit(rows)
        parts = tuple(commits_of(rows))
        return await (self._commit(rows, then) if len(parts) < 2 else self._commit_all(parts, then))

    async def _commit_all(
        self, parts: Sequence[tuple[Entry, ...]], then: Callable[[Chunk, Entry], Iterator[None]]
    ) -> tuple[Chunk, ...]:
        """Store admitted rows, each part once the one before is durable, up to the first refusal."""
        begun, handed = 0, list[asyncio.Future[tuple[Chunk, ...]]]()
        try:
            for part in parts:
                begun += 1
                durable: asyncio.Future[None] = self._loop.create_future()
                handed.append(self._commit(part, then, partial(durable.set_result, None)))
                await asyncio.wait((durable, handed[-1]), return_when=asyncio.FIRST_COMPLETED)
                if not durable.done():
                    break
        finally:
            self._accounts.cancel(entry for part in parts[begun:] for entry in part)
        await asyncio.wait(handed)  # what is stored is handed on before a refusal is told
        return tuple(chunk for part in handed for chunk in part.result())

    def _commit(
        self,
        rows: tuple[Entry, ...],
        then: Callable[[Chunk, Entry], Iterator[None]],
        is_durable: Callable[[], None] = _ignore,
    ) -> asyncio.Future[tuple[Chunk, ...]]:
        """Store admitted rows in one commit; they are durable before they are handed on."""
        future: asyncio.Future[tuple[Chunk, ...]] = self._dispatch.answer()

        def done(answer: Sequence[Stored] | RefusedError) -> Iterator[None] | None:
            if not isinstance(answer, RefusedError):
                is_durable()
                return hand_on(answer)
            self._accounts.cancel(rows)
            if not future.done():
                future.set_exception(answer)
            if isinstance(answer, DiskFullError):
                self._make_room()
            return None

        def hand_on(places: Sequence[Stored]) -> Iterator[None]:
            chunks: list[Chunk] = []
            for entry, (seq, offset) in zip(rows, places, strict=True):
                chunks.append((yield from self._accounts.stored(entry, seq, offset)))
                yield from then(chunks[-1], entry)
            if not future.done():
                future.set_result(tuple(chunks))
            self._evict_over_quota()

        self._dispatch.now(Append(entries=rows, done=done))
        return future

    def _evict_over_quota(self) -> None:
        if self._accounts.is_over_quota:
            self._evict(self._accounts.overdue(0))

    def _make_room(self) -> None:
        """Free disk space: evict the traces that keep the oldest segment."""
        self._evict(self._accounts.segments.blocking_traces())

    def mark_done(self, chunks: Iterable[Chunk]) -> None:
        """Record that rows were forwarded or permanently rejected; written to disk after a short delay."""
        several = tuple(chunks)
        self.on_done(several)
        rows: defaultdict[int, list[bytes]] = defaultdict(list)
        for chunk in several:
            self._accounts.settled(chunk)
            signal = SIGNALS.index(chunk.queue.signal)
            rows[segment_of(chunk.seq)].append(
                DONE_ROW.pack(chunk.seq & 0xFFFF_FFFF, signal, min(chunk.items, 0xFFFF_FFFF))
            )
        for number, packed in rows.items():
            self._dispatch.soon(Note(segment=number, kind=Kind.DONE, body=b"".join(packed)))
        self._reclaimer.soon()

    # Reading for the forwarder.

    @property
    def waiting(self) -> Mapping[Queue, Totals]:
        """Pending and held rows, by queue."""
        return self._accounts.waiting

    @property
    def lost(self) -> Mapping[Signal, int]:
        """Items that an earlier process acknowledged and that are missing from their segment."""
        return self._lost

    def held_items(self, signal: Signal) -> int:
        """Return how many of a signal's items are in the journal and not forwarded."""
        return sum(totals.items for queue, totals in self.waiting.items() if queue.signal is signal)

    def look(self, signal: Signal) -> QueueLook:
        """Return the state of one signal's queue: size, capacity and age."""
        return self._accounts.look(signal)

    async def read_pending(
        self, queue: Queue, after_seq: int, max_bytes: int, skip: Iterable[int] = ()
    ) -> Backlog:
        """Read a queue's pending rows in order.

        Args:
            queue: the signal and tenant.
            after_seq: the last seq that was read.
            max_bytes: bytes to read; at least one row is read, if there is one.
            skip: rows that the caller already has.
        """
        rows, upto, is_more = self._accounts.pending(queue, after_seq, max_bytes, frozenset(skip))
        segments = self._accounts.segments
        places = [place for row in rows if (place := segments.place(queue, row.seq))]
        found = await self._reads.run(partial(self._keeper.rows, places))
        chunks, lost = list[Chunk](), list[Chunk]()
        for row, stored in zip(rows, found, strict=True):
            if segments.state(queue, row.seq) is not State.PENDING:
                continue  # done meanwhile
            hops, body = stored or ((), b"")
            chunk = Chunk(seq=row.seq, queue=queue, hops=hops, items=row.items, size=row.size, body=body)
            (lost if stored is None else chunks).append(chunk)
        return Backlog(chunks=tuple(chunks), lost=tuple(lost), upto_seq=upto, is_more=is_more)

    # Agent traces.

    def knows(self, tenant: Tenant) -> Container[TraceId]:
        """Return a container of the trace ids of the tenant's agent traces."""
        return KnownTraces(self._accounts.traces, tenant)

    def agent_traces(self) -> tuple[TraceArrival, ...]:
        """Return the agent traces that an earlier process recorded, in order; empty when called again."""
        recovered, self._recovered = self._recovered, ()
        return recovered

    async def read_whole(
        self, keys: Sequence[TraceKey]
    ) -> Sequence[tuple[tuple[tuple[int, bytes], ...], tuple[tuple[int, bytes], ...]]]:
        """Return, in one read, each trace's rows with spans and rows with logs."""
        await self.until_whole()
        found = [(key.trace_id, self._accounts.traces.get(key) or TraceRows(key=key)) for key in keys]
        wanted = [
            (
                trace_id,
                self._places(Queue(Signal.TRACES, rows.key.tenant), rows.rows),
                self._places(Queue(Signal.LOGS, rows.key.tenant), rows.logs),
            )
            for trace_id, rows in found
        ]
        return await self._reads.run(partial(self._keeper.whole, wanted))

    async def read_rows(
        self, signal: Signal, wanted: Sequence[tuple[int, TraceId]]
    ) -> Mapping[tuple[int, TraceId], bytes]:
        """Return one trace's part of each row; rows that cannot be read are left out."""
        places = [
            (place, trace_id)
            for seq, trace_id in wanted
            if (place := self._accounts.segments.find(signal, seq))
        ]

        def read() -> dict[tuple[int, TraceId], bytes]:
            return {
                (seq, trace_id): body
                for place, trace_id in places
                for seq, body in self._keeper.fragments(signal, trace_id, (place,))
            }

        return await self._reads.run(read)

    def _places(self, queue: Queue, seqs: Iterable[int]) -> tuple[Place, ...]:
        """Return where rows are, in order, without those that are gone."""
        found = (self._accounts.segments.place(queue, seq) for seq in sorted(seqs))
        return tuple(place for place in found if place is not None)

    async def held_rows(self, key: TraceKey) -> tuple[tuple[int, bytes], ...]:
        """Return the trace's rows that wait for a verdict."""
        held = self._places(Queue(Signal.TRACES, key.tenant), self._accounts.held(key))
        if not held:
            return ()
        return await self._reads.run(partial(self._keeper.fragments, Signal.TRACES, key.trace_id, held))

    async def release_held(self, key: TraceKey) -> None:
        """Release the trace's held rows unchanged; return when that is durable."""
        await asyncio.gather(*self._held.release(key))

    async def rewrite_held(self, seq: int, body: bytes) -> None:
        """Release one held row with ``body`` as its new body; no effect if the row is gone or was released.

        Raises:
            RefusedError: the disk refuses; the row is still held.
        """
        await self._held.rewrite(seq, body)

    def forget(self, key: TraceKey) -> None:
        """Stop keeping a trace for analysis; its rows not forwarded yet are still forwarded."""
        self._held.release(key)
        trace = self._accounts.forget(key)
        for number, seqs in by_segment(trace.seqs()).items():
            body = bytes.fromhex(key.trace_id) + positions(seqs)
            self._dispatch.now(Note(segment=number, kind=Kind.FORGOTTEN, body=body))
        self._reclaimer.soon()

    def expire(self, now_ns: int) -> None:
        """Evict traces beyond the age limit; call it periodically."""
        self._evict(self._accounts.overdue(now_ns))

    def _evict(self, keys: Sequence[TraceKey]) -> None:
        for key in keys:
            self.forget(key)
        if keys:
            self.on_evicted(tuple(keys))

    def tidy(self) -> None:
        """Start deleting and thinning segments now, without waiting for the timer."""
        self._reclaimer.tidy()

    # Segments.

    @property
    def next_segment(self) -> int:
        """Number above those of all segments in use; rows that are stored later have higher seqs."""
        return self._writer.next_segment

    async def skip_to(self, segment: int) -> None:
        """Store further rows in segments with at least this number."""
        future = self._dispatch.completion()
        self._dispatch.now(SkipTo(segment=segment, done=partial(_complete, future)))
        await future

    # Closing.

    @property
    def condition(self) -> Condition:
        """Whether the disk takes new rows."""
        return self._writer.condition

    @property
    def commits(self) -> int:
        """Transactions that stored rows, since the start."""
        return self._writer.commits

    def _failed(self, error: BaseException) -> None:
        self._dispatch.ended()
        if not self.failure.done():
            self.failure.set_exception(error)

    async def close(self) -> None:
        """Write the queued commands, close the files, release the lock."""
        if self._is_closed:
            return
        self._is_closed = True
        self._reclaimer.close()
        self._dispatch.close()
        await self._reclaimer.finish()  # its tasks wait for the writer, so close it before the writer stops
        self._dispatch.now(Stop())
        await self._loop.run_in_executor(None, self._writer.join)
        await self._deliveries.finish()
        await self._reclaimer.finish()
        self._dispatch.ended()
        await self._reads.run(self._keeper.close)
        self._reads.close()
        self._lock.release()
        self.failure.cancel()
