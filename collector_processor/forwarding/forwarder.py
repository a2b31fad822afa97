"""Forwarder of journal rows to the backend: each row is sent until it is accepted or permanently refused.

Each signal of each tenant has a send queue of its own, so that a throttled tenant or a failing signal delays
only itself. New rows are sent from memory; a queue that falls behind reads its backlog from the journal, in
order, until it has caught up. Small neighbouring rows are sent in one request; large ones are split between
items to the backend's limit.

``sender`` sends them, retries and bisects. Accepted items are not sent again by this process; after a crash,
rows not yet marked as done are (at least once).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from collector_processor.core.disk import patiently
from collector_processor.core.fair import Pace
from collector_processor.forwarding.ledger import Ledger
from collector_processor.forwarding.sender import Part, Sender, Sending
from collector_processor.journal import Journal
from collector_processor.journal.chunks import MEBIBYTE, Backlog, Chunk, Queue
from collector_processor.otlp import Signal
from collector_processor.wire.scan import item_count
from collector_processor.wire.split import halve, split_by_size

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwarderLimits:
    """Limits and waits of the forwarder."""

    max_in_flight: int = 8
    """Concurrent requests of one send queue."""
    eager_in_flight: int = 1
    """With this many requests in flight, another one is started only for a full batch."""
    apart_s: float = 0.1
    """Seconds between the starts of two requests that are no full batch: ten rows cost no more than one."""
    batch_bytes: int = MEBIBYTE
    """Neighbouring rows are sent in one request up to this size."""
    queue_memory_bytes: int = 32 * MEBIBYTE
    """Bytes of bodies kept in memory for one queue; rows beyond it are read back from the journal."""
    memory_bytes: int = 128 * MEBIBYTE
    """The same bound for all queues together; each queue may always hold one request."""


@dataclass(frozen=True, slots=True)
class _Rows:
    """Export requests of one or more rows; bisected between items."""

    signal: Signal
    body: bytes

    @property
    def items(self) -> int:
        """Number of spans, log records or data points."""
        return item_count(self.signal, self.body)

    def halves(self) -> tuple[_Rows, _Rows] | None:
        """Return two requests with half of the items each."""
        halves = halve(self.body)
        return halves and (_Rows(self.signal, halves[0]), _Rows(self.signal, halves[1]))


class Forwarder:
    """Forwards rows; used on one event loop, where ``run`` does the work."""

    def __init__(
        self,
        journal: Journal,
        ledger: Ledger,
        senders: Mapping[Signal, Sender],
        limits: ForwarderLimits | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Create it; items of signals without a sender are counted as kept and not forwarded."""
        self._journal: Final = journal
        self._ledger: Final = ledger
        self._senders: Final = senders
        self._limits: Final = limits or ForwarderLimits()
        self._sleep: Final = sleep
        self._send_queues: dict[Queue, SendQueue] = {}
        self._memory_bytes = 0
        self._group: asyncio.TaskGroup | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped: Final = asyncio.Event()
        self._idle: Final = asyncio.Event()
        self._idle.set()
        journal.on_released = self.released

    def offer(self, chunk: Chunk) -> None:
        """Take a durable row; never blocks. Rows must come in the order of their seqs."""
        if chunk.queue.signal not in self._senders:
            self._ledger.settle(chunk.queue.signal, kept=chunk.items)
            self._journal.mark_done((chunk,))
            return
        send_queue = self._send_queue(chunk.queue)
        if send_queue.is_behind or not self._has_room(send_queue, chunk.size):
            send_queue.fall_behind(chunk.seq)
        else:
            self._remember(send_queue, chunk)
        self._pump_soon(send_queue)

    def released(self, queue: Queue, seq: int) -> None:
        """Record that the journal's rows from ``seq`` onwards may be sent now."""
        send_queue = self._send_queue(queue)
        send_queue.fall_behind(seq)
        self._pump(send_queue)

    def discard(self, seqs: Iterable[int]) -> frozenset[int]:
        """Stop sending these rows; return those that are not under way to the backend."""
        unwanted, found = frozenset(seqs), set[int]()
        for send_queue in self._send_queues.values():
            dropped = [chunk for chunk in send_queue.memory if chunk.seq in unwanted]
            if dropped:
                chunks = [chunk for chunk in send_queue.memory if chunk.seq not in unwanted]
                send_queue.memory.clear()
                send_queue.memory.extend(chunks)
                send_queue.queued_bytes = sum(chunk.size for chunk in chunks)
            for chunk in dropped:
                send_queue.known.discard(chunk.seq)
                send_queue.memory_bytes -= chunk.size
                self._memory_bytes -= chunk.size
            found |= unwanted & send_queue.known
        return unwanted - found

    def resume(self) -> None:
        """Send the rows that an earlier process left in the journal."""
        for queue in tuple(self._journal.waiting):
            self.released(queue, 1)

    async def run(self) -> None:
        """Send until drained or cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            for send_queue in tuple(self._send_queues.values()):
                self._pump(send_queue)
            await self._stopped.wait()

    async def drain(self, deadline_s: float) -> None:
        """Send until nothing is left or the deadline, in seconds; the rest stays in the journal."""
        if self._stopped.is_set():
            return
        try:
            async with asyncio.timeout(deadline_s):
                await self._idle.wait()
        except TimeoutError:
            logger.warning("stopped before everything was forwarded: the rest is sent after the next start")
        self._group = None
        for task in tuple(self._tasks):
            task.cancel()
        self._stopped.set()

    # Send queues.

    def _send_queue(self, queue: Queue) -> SendQueue:
        send_queue = self._send_queues.get(queue)
        if send_queue is None:
            send_queue = self._send_queues[queue] = SendQueue(key=queue, pace=Pace(self._limits.apart_s))
            self._idle.clear()
        return send_queue

    def _has_room(self, send_queue: SendQueue, size: int) -> bool:
        limits = self._limits
        if send_queue.memory_bytes + size > limits.queue_memory_bytes:
            return not send_queue.memory_bytes
        return self._memory_bytes + size <= limits.memory_bytes or not send_queue.memory_bytes

    def _remember(self, send_queue: SendQueue, chunk: Chunk) -> None:
        send_queue.memory.append(chunk)
        send_queue.queued_bytes += chunk.size
        send_queue.known.add(chunk.seq)
        send_queue.memory_bytes += chunk.size
        self._memory_bytes += chunk.size

    def _pump_soon(self, send_queue: SendQueue) -> None:
        """Schedule ``_pump`` for when all rows of this commit are offered, so that they are sent together."""
        if not send_queue.is_due:
            send_queue.is_due = True
            asyncio.get_running_loop().call_soon(self._pump, send_queue)

    def _pump(self, send_queue: SendQueue) -> None:
        """Start the requests and reads that may start now."""
        send_queue.is_due = False
        if self._group is None:
            return
        if send_queue.key.signal not in self._senders:
            self._keep_all(send_queue)
        pace = send_queue.pace
        is_early = pace.early_s > 0
        while send_queue.may_send(self._limits, is_early=is_early):
            send_queue.in_flight += 1
            self._start(self._forward(send_queue, self._take(send_queue)))
            if not send_queue.memory:  # rows that are left cannot be sent together
                pace.begin()
        if send_queue.is_behind and not send_queue.is_reading and not send_queue.memory:
            send_queue.is_reading = True
            self._start(self._read(send_queue))
        if is_early:
            if not pace.is_timed:
                pace.then(partial(self._pump, send_queue))
        elif send_queue.is_idle and not pace.is_timed:  # else the timer would remove a newer queue
            self._send_queues.pop(send_queue.key, None)
            if not self._send_queues:
                self._idle.set()

    def _start(self, work: Coroutine[None, None, None]) -> None:
        assert self._group is not None
        task = self._group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _take(self, send_queue: SendQueue) -> list[Chunk]:
        """Take neighbouring rows with equal hops for one request."""
        chunks = [send_queue.memory.popleft()]
        size = chunks[0].size
        while send_queue.memory and send_queue.memory[0].hops == chunks[0].hops:
            size += send_queue.memory[0].size
            if size > self._limits.batch_bytes:
                break
            chunks.append(send_queue.memory.popleft())
        send_queue.queued_bytes -= sum(chunk.size for chunk in chunks)
        return chunks

    async def _read(self, send_queue: SendQueue) -> None:
        """Read a part of the queue's backlog."""
        room = self._limits.queue_memory_bytes // 2

        async def read() -> Backlog:
            return await self._journal.read_pending(send_queue.key, send_queue.cursor, room, send_queue.known)

        backlog = await patiently(read, self._sleep)
        if backlog.lost:
            self._ledger.settle(send_queue.key.signal, lost=sum(chunk.items for chunk in backlog.lost))
            self._journal.mark_done(backlog.lost)
        for chunk in backlog.chunks:
            self._remember(send_queue, chunk)
        send_queue.has_read(backlog.upto_seq, is_more=backlog.is_more)
        self._pump(send_queue)

    # Requests.

    async def _forward(self, send_queue: SendQueue, chunks: list[Chunk]) -> None:
        signal, tenant = send_queue.key
        sender = self._senders[signal]
        most = sender.max_bytes
        body = chunks[0].body if len(chunks) == 1 else b"".join(chunk.body for chunk in chunks)
        bodies = await asyncio.to_thread(split_by_size, body, most) if len(body) > most else (body,)
        parts = deque[Part](_Rows(signal, each) for each in bodies)
        sending = Sending(parts=parts, tenant=tenant, hops=chunks[0].hops)
        while parts:
            wait_s = await sender.attempt(sending)
            if wait_s:  # the queue starts no requests meanwhile
                send_queue.waiting += 1
                try:
                    await self._sleep(wait_s)
                finally:
                    send_queue.waiting -= 1
        self._settle(signal, sending, sum(chunk.items for chunk in chunks))
        self._done(send_queue, chunks)
        send_queue.in_flight -= 1
        self._pump(send_queue)

    def _settle(self, signal: Signal, sending: Sending, items: int) -> None:
        """Count the items of a request."""
        rejected = min(sending.rejected, items)
        if rejected:
            logger.warning(
                "backend rejected items for good: they are not retried",
                extra={"signal": signal.value, "items": rejected, "reason": sending.reason},
            )
        unsupported = min(sending.unsupported, items - rejected)
        self._ledger.settle(
            signal, forwarded=items - rejected - unsupported, rejected=rejected, unsupported=unsupported
        )

    def _keep_all(self, send_queue: SendQueue) -> None:
        """Count the rows of a signal without a sender as kept."""
        chunks = list(send_queue.memory)
        send_queue.memory.clear()
        send_queue.queued_bytes = 0
        self._ledger.settle(send_queue.key.signal, kept=sum(chunk.items for chunk in chunks))
        self._done(send_queue, chunks)

    def _done(self, send_queue: SendQueue, chunks: Sequence[Chunk]) -> None:
        for chunk in chunks:
            send_queue.known.discard(chunk.seq)
            send_queue.memory_bytes -= chunk.size
            self._memory_bytes -= chunk.size
        self._journal.mark_done(chunks)


@dataclass(slots=True)
class SendQueue:
    """Rows of one signal and tenant on their way to the backend; modified by the forwarder."""

    key: Queue
    pace: Pace
    """While a request would be early, only a full batch is sent."""
    memory: deque[Chunk] = field(default_factory=deque)
    """Rows to be sent next."""
    queued_bytes: int = 0
    """Bytes of ``memory``."""
    memory_bytes: int = 0
    """Bytes of ``memory`` and of requests in flight."""
    known: set[int] = field(default_factory=set)
    """Seqs of rows in memory or in flight."""
    is_due: bool = False
    """Whether a call of ``_pump`` is scheduled."""
    in_flight: int = 0
    waiting: int = 0
    """Requests in flight that wait for their retry."""
    is_behind: bool = False
    """Whether the journal has rows after ``cursor`` that are not in memory."""
    cursor: int = 0
    is_reading: bool = False
    missed: int | None = None
    """The lowest row that was added to the backlog while it was being read."""

    @property
    def is_idle(self) -> bool:
        """Whether memory and journal hold nothing more to send."""
        return not (self.memory or self.in_flight or self.is_behind or self.is_reading)

    def may_send(self, limits: ForwarderLimits, *, is_early: bool) -> bool:
        """Return whether to start a request; small rows wait to be sent together.

        They wait while a request is in flight, and while it is too early after the last one.
        """
        if not self.memory or self.waiting or self.in_flight >= limits.max_in_flight:
            return False
        is_eager = self.in_flight < limits.eager_in_flight and not is_early
        return is_eager or self.queued_bytes >= limits.batch_bytes

    def fall_behind(self, seq: int) -> None:
        """Mark rows from ``seq`` onwards to be read back from the journal."""
        self.cursor = min(self.cursor, seq - 1) if self.is_behind else seq - 1
        self.is_behind = True
        if self.is_reading:
            self.missed = seq if self.missed is None else min(self.missed, seq)

    def has_read(self, upto_seq: int, *, is_more: bool) -> None:
        """Continue after the rows just read, or earlier if rows were added meanwhile."""
        missed, self.missed, self.is_reading = self.missed, None, False
        if missed is not None and missed <= upto_seq:
            self.cursor = missed - 1
        else:
            self.cursor = upto_seq
            self.is_behind = is_more or missed is not None
