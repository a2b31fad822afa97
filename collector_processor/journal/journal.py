"""The durable buffer between acknowledging and forwarding.

Who does what: the event loop keeps the accounts and decides; the writer's
thread commits; the keeper's thread reads, compacts and deletes. Segments are
written in order and deleted whole once nothing in them is needed; one in which
little is needed (a throttled tenant's rows, a few agent traces) is compacted
first. Only rows not yet forwarded may cause a refusal; what is kept for
analysis is evicted instead, the longest silent trace first, and where the disk
is full, whatever keeps the oldest segment.

Durable means: committed with ``synchronous=FULL`` before ``append`` returns.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Container, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from collector_processor.assembler import TraceKey
from collector_processor.journal.accounts import Accounts, TraceRows
from collector_processor.journal.chunks import (
    Backlog,
    Chunk,
    Entry,
    JournalError,
    JournalLimits,
    Queue,
    SegmentSummary,
    State,
    Totals,
    Wanted,
    segment_of,
)
from collector_processor.journal.commands import (
    Append,
    Command,
    Detach,
    Forget,
    Mark,
    Relieve,
    Rewrite,
    Settle,
    Stop,
)
from collector_processor.journal.directory import SegmentDirectory
from collector_processor.journal.keeper import DirectoryLock, JournalKeeper
from collector_processor.journal.reserve import Measure, measure_space
from collector_processor.journal.segments import SegmentFile
from collector_processor.journal.writer import JournalWriter, WriterEvents
from collector_processor.notes import TraceArrival
from collector_processor.otlp import RefusedError, Signal, Tenant
from semconv.model import TraceId

logger = logging.getLogger(__name__)

T = TypeVar("T")

_FAILED: Final = "the journal's writer has failed"
_FAILED_RETRY_S: Final = 60.0
"""What we ask of clients when only a restart helps."""
_NUDGE_S: Final = 0.05
"""How long what was forwarded may wait to be noted, if no request comes meanwhile."""
_TIDY_DELAY_S: Final = 0.2
"""How long deletions and compactions may wait for company."""


class Journal:
    """Lives on one event loop; make it with ``open_journal``."""

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
        self._keeper_thread: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal-keeper")
        self._writer: Final = JournalWriter(
            directory,
            next_segment,
            limits,
            self._post,
            WriterEvents(rotated=self._retired, failed=self._failed),
        )
        self._accounts: Final = Accounts(limits)
        self._recovered: tuple[TraceArrival, ...] = ()
        self._settled: set[int] = set()
        """Rows that are done, though the disk does not say so yet."""
        self._written: set[int] = set()
        """Rows of ``_settled`` that the disk knows by now, while a read may have seen it before."""
        self._reads = 0
        self._waiting: list[Command] = []
        """What the writer is told with the next request, or after a moment."""
        self._nudge: asyncio.TimerHandle | None = None
        self._tidying: asyncio.TimerHandle | None = None
        self._chores: set[asyncio.Task[None]] = set()
        self._asking: Final[set[asyncio.Future[Any]]] = set()
        """Who waits for the writer, and is told if it fails."""
        self._awaiting: Final[set[asyncio.Future[None]]] = set()
        """Who waits for it, and just goes on if it fails: the next start does what it was to do."""
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
        self._tidy_soon()

    def _post(self, callback: Callable[[], None]) -> None:
        """Run something on the event loop; called from other threads."""
        self._loop.call_soon_threadsafe(callback)

    # Writing.

    def _submit(self, *commands: Command) -> None:
        """Give the writer commands, and with them those that waited for company."""
        if self._nudge is not None:
            self._nudge.cancel()
            self._nudge = None
        waiting, self._waiting = self._waiting, []
        for command in (*waiting, *commands):
            self._writer.submit(command)

    def _submit_soon(self, command: Command) -> None:
        """Let a command wait for company: to wake the writer's thread costs more than its work."""
        self._waiting.append(command)
        if self._nudge is None and not self._is_closed:
            self._nudge = self._loop.call_later(_NUDGE_S, self._submit)

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
        if self._is_closed or self.failure.done():
            raise RefusedError("the journal takes nothing any more", retry_after_s=_FAILED_RETRY_S)
        rows = tuple(entries)
        self._accounts.admit(rows)
        future: asyncio.Future[tuple[Chunk, ...]] = self._loop.create_future()

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

        self._asking.add(future)
        future.add_done_callback(self._asking.discard)
        self._submit(Append(entries=rows, done=done))
        return await future

    def _evict_over_quota(self) -> None:
        if self._accounts.is_over_quota:
            self._evict(self._accounts.overdue(0))

    def _make_room(self) -> None:
        """The disk refuses: what is kept for analysis goes, a segment's worth at a time, and a WAL."""
        self._evict(self._accounts.in_the_way())
        self._write_back_one(math.inf)

    def mark_done(self, chunks: Iterable[Chunk]) -> None:
        """Note that rows need no forwarding any more. Written soon, not at once."""
        by_segment: defaultdict[int, list[int]] = defaultdict(list)
        for chunk in chunks:
            self._accounts.settled(chunk)
            self._settled.add(chunk.seq)
            by_segment[segment_of(chunk.seq)].append(chunk.seq)
        for number, seqs in by_segment.items():
            done = partial(self._wrote, tuple(seqs))
            self._submit_soon(Mark(segment=number, seqs=tuple(seqs), state=State.DONE, done=done))
        self._tidy_soon()

    def _wrote(self, seqs: tuple[int, ...]) -> None:
        """Stop remembering rows that the disk knows to be done, once no read is under way."""
        self._written.update(seqs)
        if not self._reads:
            self._settled -= self._written
            self._written.clear()

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
            skip=frozenset((*self._settled, *skip)),
        )
        backlog = await self._keep(partial(self._keeper.waiting, wanted))
        settled = self._settled
        return replace(
            backlog,
            chunks=tuple(chunk for chunk in backlog.chunks if chunk.seq not in settled),
            lost=tuple(chunk for chunk in backlog.lost if chunk.seq not in settled),
        )

    async def _keep(self, work: Callable[[], T]) -> T:
        """Run ``work`` on the keeper's thread."""
        self._reads += 1
        try:
            return await self._loop.run_in_executor(self._keeper_thread, work)
        finally:
            self._reads -= 1
            self._wrote(())

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
        return await self._keep(partial(self._keeper.whole, wanted))

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
        return await self._keep(partial(self._keeper.fragments, signal, key.trace_id, wanted))

    async def release_held(self, key: TraceKey) -> None:
        """Let the trace's held rows go on as they are."""
        await asyncio.gather(*self._release(key))

    def _release(self, key: TraceKey) -> list[asyncio.Future[None]]:
        held = self._accounts.held(key)
        self._accounts.let_go(key, held)
        queue = Queue(Signal.TRACES, key.tenant)
        futures: list[asyncio.Future[None]] = []
        by_segment: defaultdict[int, list[int]] = defaultdict(list)
        for seq in sorted(held):
            by_segment[segment_of(seq)].append(seq)
        for number, seqs in by_segment.items():
            futures.append(self._writers_word())
            done = partial(self._released, futures[-1], queue, seqs[0])
            self._submit(Mark(segment=number, seqs=tuple(seqs), state=State.PENDING, done=done))
        return futures

    def _released(self, future: asyncio.Future[None], queue: Queue, seq: int) -> None:
        self.on_released(queue, seq)
        if not future.done():
            future.set_result(None)

    async def rewrite_held(self, seq: int, body: bytes) -> None:
        """Let one held row go on as ``body``; nothing happens if it is gone, or went on already.

        Raises:
            RefusedError: the disk refuses; the row is still held.
        """
        key = self._accounts.holder(seq)
        if key is None:
            return
        if self.failure.done():
            raise RefusedError(_FAILED, retry_after_s=_FAILED_RETRY_S)
        future: asyncio.Future[None] = self._loop.create_future()
        self._asking.add(future)
        future.add_done_callback(self._asking.discard)

        def done(refused: RefusedError | None) -> None:
            if refused is not None:
                if not future.done():
                    future.set_exception(refused)
                return
            self._accounts.let_go(key, (seq,))
            self._released(future, Queue(Signal.TRACES, key.tenant), seq)

        self._submit(Rewrite(seq=seq, body=body, done=done))
        await future

    def forget(self, key: TraceKey) -> None:
        """Stop keeping a trace for analysis; what of it is not forwarded yet still goes on."""
        self._release(key)
        trace = self._accounts.forget(key)
        by_segment: defaultdict[int, list[int]] = defaultdict(list)
        for seq in trace.seqs():
            by_segment[segment_of(seq)].append(seq)
        for number, seqs in by_segment.items():
            self._submit(Forget(segment=number, seqs=tuple(seqs), trace_id=key.trace_id))
        self._tidy_soon()

    def expire(self, now_ns: int) -> None:
        """Evict traces that were silent for too long; to be called now and then."""
        self._evict(self._accounts.overdue(now_ns))

    def _evict(self, keys: Sequence[TraceKey]) -> None:
        for key in keys:
            self.forget(key)
        if keys:
            self.on_evicted(tuple(keys))

    # Tidying.

    def _retired(self, number: int) -> None:
        self._accounts.retired(number, self._loop.time())
        self._tidy_soon()

    def _tidy_soon(self) -> None:
        if self._tidying is None and not self._is_closed:
            self._tidying = self._loop.call_later(_TIDY_DELAY_S, self.tidy)

    def tidy(self) -> None:
        """Start deleting what nobody needs and compacting what few need."""
        self._tidying = None
        for number in self._accounts.take_deletable():
            self._submit(Detach(segment=number, done=partial(self._delete, number)))
        now = self._loop.time()
        compactable = self._accounts.take_compactable(now)
        if compactable is not None:
            self._start(self._compact(*compactable))
        elif not self._write_back_one(now) and self._accounts.may_tidy_later:
            self._tidy_soon()

    def _write_back_one(self, now: float) -> bool:
        number = self._accounts.take_unwritten(now)
        if number is not None:
            self._start(self._write_back(number))
        return number is not None

    def _start(self, chore: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(chore)
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)

    def _delete(self, number: int, writers: SegmentFile | None) -> None:
        self._start(self._deleted(number, writers))

    async def _deleted(self, number: int, writers: SegmentFile | None) -> None:
        await self._keep(partial(self._keeper.delete, number, writers))
        self._accounts.deleted(number)
        self._settled = {seq for seq in self._settled if segment_of(seq) != number}

    async def _compact(self, number: int, retained: Mapping[int, frozenset[TraceId]]) -> None:
        written = self._writers_word()
        self._submit(Settle(segment=number, done=partial(written.set_result, None)))
        await written
        try:
            stored = await self._keep(partial(self._keeper.compact, number, retained))
        except sqlite3.Error as error:
            logger.warning("journal segment cannot be compacted", extra={"reason": str(error)})
            stored = 0  # not tried again
        self._accounts.compacted(number, stored)
        self._submit_soon(Relieve(segment=number))
        self._tidy_soon()

    async def _write_back(self, number: int) -> None:
        try:
            await self._keep(partial(self._keeper.write_back, number))
        except sqlite3.Error as error:  # the WAL stays, and so does what is owed
            logger.warning("journal segment cannot be written back", extra={"reason": str(error)})
        else:
            self._submit_soon(Relieve(segment=number))
        self._accounts.written_back(number)
        self._tidy_soon()

    # The end.

    @property
    def commits(self) -> int:
        """Transactions that stored rows, since the start."""
        return self._writer.commits

    def _failed(self, error: BaseException) -> None:
        refused = RefusedError(_FAILED, retry_after_s=_FAILED_RETRY_S)
        for asking in tuple(self._asking):
            if not asking.done():
                asking.set_exception(refused)
        for waiting in tuple(self._awaiting):
            if not waiting.done():
                waiting.set_result(None)
        if not self.failure.done():
            self.failure.set_exception(error)

    def _writers_word(self) -> asyncio.Future[None]:
        """Return what is to be resolved when the writer is through with something, or fails."""
        future: asyncio.Future[None] = self._loop.create_future()
        if self.failure.done():
            future.set_result(None)
        self._awaiting.add(future)
        future.add_done_callback(self._awaiting.discard)
        return future

    async def close(self) -> None:
        """Write what is queued, close the files, let others in."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._tidying is not None:
            self._tidying.cancel()
        await asyncio.gather(*self._chores)  # they wait for the writer: before it stops
        self._submit(Stop())
        await self._loop.run_in_executor(None, self._writer.join)
        await asyncio.sleep(0)  # what the writer had to say
        await asyncio.gather(*self._chores)
        await self._keep(self._keeper.close)
        self._keeper_thread.shutdown()
        self._lock.release()
        self.failure.cancel()


class _Known:
    """The trace ids of one tenant that are known as agents'."""

    def __init__(self, traces: Container[TraceKey], tenant: Tenant) -> None:
        self._traces: Final = traces
        self._tenant: Final = tenant

    def __contains__(self, trace_id: object) -> bool:
        return (self._tenant, trace_id) in self._traces


async def open_journal(
    path: Path,
    limits: JournalLimits | None = None,
    make_segment: Callable[[Path, int], SegmentFile] = SegmentFile,
    measure: Measure = measure_space,
) -> Journal:
    """Open the journal in a directory of its own, or make it; everything acknowledged is there again.

    Raises:
        JournalError: another process uses it, a newer version wrote it, or it cannot be made.
    """
    directory = SegmentDirectory(path=path, make=make_segment, measure=measure)
    loop = asyncio.get_running_loop()
    lock = await loop.run_in_executor(None, _lock, path)
    keeper = JournalKeeper(directory)
    try:
        summaries = await loop.run_in_executor(None, keeper.recover)
    except BaseException:
        keeper.close()
        lock.release()
        raise
    return Journal(directory, keeper, lock, summaries, limits or JournalLimits())


def _lock(path: Path) -> DirectoryLock:
    try:
        path.mkdir(parents=True, exist_ok=True)
        return DirectoryLock(path)
    except OSError as error:
        raise JournalError(f"the journal cannot be kept in {path}: {error.strerror}") from error


def is_in_use(path: Path) -> bool:
    """Whether a running process has the journal in this directory."""
    return DirectoryLock.is_taken(path)


def _ignore_released(queue: Queue, seq: int) -> None:
    """Nobody forwards yet."""


def _ignore_evicted(keys: tuple[TraceKey, ...]) -> None:
    """Nobody analyses yet."""
