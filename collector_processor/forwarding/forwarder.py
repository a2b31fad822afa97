"""Forwarder of journal rows to the backend: each row is sent until it is accepted or permanently refused.

Each signal of each tenant has a send queue of its own, so that a throttled tenant or a failing signal delays
only itself. New rows are sent from memory; a queue that falls behind reads its backlog from the journal, in
order, until it has caught up. Small neighbouring rows are sent in one request; large ones are split between
items to the backend's limit.

A request that the backend permanently refuses is bisected until the bad item is alone, and only that counts
as rejected. If the backend has no service for a signal, its items are counted separately, and it is retried
after a while. Accepted items are not sent again by this process; after a crash, rows not yet marked as done
are (at least once).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from collector_processor.core.disk import patiently
from collector_processor.forwarding.ledger import Ledger
from collector_processor.journal import Journal
from collector_processor.journal.chunks import MEBIBYTE, Backlog, Chunk, Queue
from collector_processor.otlp import (
    Delivered,
    Exporter,
    NoSuchService,
    Rejected,
    Setback,
    Signal,
    TryLater,
    setback_of,
)
from collector_processor.wire.scan import item_count
from collector_processor.wire.split import halve, split_by_size

logger = logging.getLogger(__name__)


_SETBACK_MESSAGES: Final[Mapping[Setback, str]] = {
    Setback.AWAY: "backend away",
    Setback.ASKED_TO_WAIT: "backend asked to wait",
    Setback.FAILING: "backend returns errors: requests are kept and retried",
    Setback.NO_SERVICE: "backend has no such service at the moment: requests are kept and retried",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwarderLimits:
    """Limits and waits of the forwarder."""

    max_in_flight: int = 8
    """Concurrent requests of one send queue."""
    eager_in_flight: int = 1
    """With this many requests in flight, another one is started only for a full batch."""
    batch_bytes: int = MEBIBYTE
    """Neighbouring rows are sent in one request up to this size."""
    queue_memory_bytes: int = 32 * MEBIBYTE
    """Bytes of bodies kept in memory for one queue; rows beyond it are read back from the journal."""
    memory_bytes: int = 128 * MEBIBYTE
    """The same bound for all queues together; each queue may always hold one request."""
    first_wait_s: float = 0.5
    longest_wait_s: float = 30.0
    no_service_s: float = 300.0
    """Seconds for which a signal's items are dropped, before a retry, if the backend does not take it."""
    futile_sends: int = 48
    """Refusals while bisecting a request, without a success, after which the rest is rejected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Clock, sleep and randomness; replaced in tests."""

    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    uniform: Callable[[float, float], float] = random.uniform
    now: Callable[[], float] = monotonic


@dataclass(slots=True)
class _Tally:
    """Outcomes of one request's parts."""

    delivered: int = 0
    """Successful sends."""
    refused: int = 0
    """Sends that were permanently refused."""
    rejected: int = 0
    """Items rejected."""
    unsupported: int = 0
    """Items dropped because the backend has no service for their signal."""
    reason: str = ""


class Forwarder:
    """Forwards rows; used on one event loop, where ``run`` does the work."""

    def __init__(
        self,
        journal: Journal,
        ledger: Ledger,
        exporters: Mapping[Signal, Exporter],
        limits: ForwarderLimits | None = None,
        environment: Environment | None = None,
    ) -> None:
        """Create it; items of signals without an exporter are counted as kept and not forwarded."""
        self._journal: Final = journal
        self._ledger: Final = ledger
        self._exporters: Final = exporters
        self._limits: Final = limits or ForwarderLimits()
        self._environment: Final = environment or Environment()
        self._send_queues: dict[Queue, SendQueue] = {}
        self._memory_bytes = 0
        self._no_service_until: dict[Signal, float] = {}
        self._was_delivered: set[Signal] = set()
        self._group: asyncio.TaskGroup | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped: Final = asyncio.Event()
        self._idle: Final = asyncio.Event()
        self._idle.set()
        journal.on_released = self.released

    def offer(self, chunk: Chunk) -> None:
        """Take a durable row; never blocks. Rows must come in the order of their seqs."""
        if chunk.queue.signal not in self._exporters:
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
                kept = [chunk for chunk in send_queue.memory if chunk.seq not in unwanted]
                send_queue.memory.clear()
                send_queue.memory.extend(kept)
                send_queue.queued_bytes = sum(chunk.size for chunk in kept)
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
            send_queue = self._send_queues[queue] = SendQueue(key=queue)
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
        signal = send_queue.key.signal
        if signal not in self._exporters:
            self._keep_all(send_queue)
        while send_queue.may_send(self._limits):
            send_queue.in_flight += 1
            self._start(self._forward(send_queue, self._take(send_queue)))
        if send_queue.is_behind and not send_queue.is_reading and not send_queue.memory:
            send_queue.is_reading = True
            self._start(self._read(send_queue))
        if send_queue.is_idle:
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

        backlog = await patiently(read, self._environment.sleep)
        if backlog.lost:
            self._ledger.settle(send_queue.key.signal, lost=sum(chunk.items for chunk in backlog.lost))
            self._journal.mark_done(backlog.lost)
        for chunk in backlog.chunks:
            self._remember(send_queue, chunk)
        send_queue.has_read(backlog.upto_seq, is_more=backlog.is_more)
        self._pump(send_queue)

    # Requests.

    async def _forward(self, send_queue: SendQueue, chunks: list[Chunk]) -> None:
        signal = send_queue.key.signal
        most = self._exporters[signal].max_bytes
        body = chunks[0].body if len(chunks) == 1 else b"".join(chunk.body for chunk in chunks)
        parts = deque(await asyncio.to_thread(split_by_size, body, most) if len(body) > most else (body,))
        tally = _Tally()
        while parts:
            await self._send(send_queue, chunks[0].hops, parts, tally)
        items = sum(chunk.items for chunk in chunks)
        rejected = min(tally.rejected, items)
        if rejected:
            logger.warning(
                "backend rejected items for good: they are not retried",
                extra={"signal": signal.value, "items": rejected, "reason": tally.reason},
            )
        unsupported = min(tally.unsupported, items - rejected)
        self._ledger.settle(
            signal, forwarded=items - rejected - unsupported, rejected=rejected, unsupported=unsupported
        )
        self._done(send_queue, chunks)
        send_queue.in_flight -= 1
        self._pump(send_queue)

    async def _send(
        self, send_queue: SendQueue, hops: tuple[str, ...], parts: deque[bytes], tally: _Tally
    ) -> None:
        """Send the first of ``parts``; put it back if it must be retried or bisected."""
        signal = send_queue.key.signal
        if self._environment.now() < self._no_service_until.get(signal, float("-inf")):
            tally.unsupported += sum(item_count(signal, part) for part in parts)
            parts.clear()
            return
        part = parts.popleft()
        outcome = await self._exporters[signal].send(signal, part, send_queue.key.tenant, hops)
        setback = setback_of(outcome)
        if setback is not None:
            self._ledger.setbacks[signal, setback] += 1
        match outcome:
            case Delivered(rejected=rejected, message=message):
                tally.delivered += 1
                tally.rejected += rejected
                tally.reason = message if rejected else tally.reason
                self._recover(send_queue, signal)
            case TryLater():
                parts.appendleft(part)
                await self._wait(send_queue, outcome)
            case Rejected(reason=reason):
                tally.refused += 1
                tally.reason = reason
                self._bisect(signal, part, parts, tally)
            case NoSuchService(reason=reason):
                parts.appendleft(part)
                if self._is_temporary(signal):
                    await self._wait(send_queue, outcome)
                else:
                    self._drop_signal(signal, reason)

    def _bisect(self, signal: Signal, part: bytes, parts: deque[bytes], tally: _Tally) -> None:
        """Put both halves of a refused part in front, or count its only item as rejected."""
        halves = halve(part)
        if halves is None:
            tally.rejected += item_count(signal, part)
        elif not tally.delivered and tally.refused >= self._limits.futile_sends:
            # Not a single bad item: the backend refuses everything (for example, wrong credentials).
            tally.rejected += item_count(signal, part) + sum(item_count(signal, other) for other in parts)
            parts.clear()
        else:
            parts.extendleft(reversed(halves))

    def _is_temporary(self, signal: Signal) -> bool:
        """Return whether "no such service" must be temporary, such as an ingress during a rollout.

        True for traces, which every backend takes, and for signals that this backend accepted before.
        """
        return signal is Signal.TRACES or signal in self._was_delivered

    def _drop_signal(self, signal: Signal, reason: str) -> None:
        if signal not in self._no_service_until:
            logger.warning(
                "backend does not take this signal: its items are dropped",
                extra={"signal": signal.value, "reason": reason},
            )
        self._no_service_until[signal] = self._environment.now() + self._limits.no_service_s

    def _recover(self, send_queue: SendQueue, signal: Signal) -> None:
        """Record a success, and log it after a setback."""
        self._no_service_until.pop(signal, None)
        self._was_delivered.add(signal)
        send_queue.failures = 0
        if send_queue.logged is not None:
            send_queue.logged = None
            logger.info("backend accepts requests again", extra={"signal": signal.value})

    async def _wait(self, send_queue: SendQueue, outcome: TryLater | NoSuchService) -> None:
        """Sleep for the backend's retry delay, else exponentially longer; the queue starts no requests."""
        self._log_once(send_queue, outcome)
        requested_wait_s = outcome.requested_wait_s if isinstance(outcome, TryLater) else None
        limits = self._limits
        # Requests in flight fail together: they count as one failure.
        ceiling = min(limits.longest_wait_s, limits.first_wait_s * 2 ** min(send_queue.failures, 16))
        send_queue.failures += not send_queue.waiting
        send_queue.waiting += 1
        try:
            own_s = self._environment.uniform(ceiling / 2, ceiling)
            await self._environment.sleep(own_s if requested_wait_s is None else requested_wait_s)
        finally:
            send_queue.waiting -= 1

    def _log_once(self, send_queue: SendQueue, outcome: TryLater | NoSuchService) -> None:
        """Log a setback, once until the cause changes or the backend accepts again."""
        setback = setback_of(outcome)
        if setback is None or setback is send_queue.logged:
            return
        send_queue.logged = setback
        extra: dict[str, object] = {"signal": send_queue.key.signal.value, "reason": outcome.reason}
        if isinstance(outcome, TryLater) and outcome.requested_wait_s is not None:
            extra["wait_s"] = outcome.requested_wait_s
        logger.warning(_SETBACK_MESSAGES[setback], extra=extra)

    def _keep_all(self, send_queue: SendQueue) -> None:
        """Count the rows of a signal without an exporter as kept."""
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
    failures: int = 0
    """Failures since the last success; concurrent ones count as one."""
    logged: Setback | None = None
    """The cause logged last for a backend that accepts nothing; ``None`` while it accepts."""

    @property
    def is_idle(self) -> bool:
        """Whether memory and journal hold nothing more to send."""
        return not (self.memory or self.in_flight or self.is_behind or self.is_reading)

    def may_send(self, limits: ForwarderLimits) -> bool:
        """Return whether to start a request; while one is in flight, small rows wait to be sent together."""
        if not self.memory or self.waiting or self.in_flight >= limits.max_in_flight:
            return False
        return self.in_flight < limits.eager_in_flight or self.queued_bytes >= limits.batch_bytes

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
