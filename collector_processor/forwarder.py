"""From the journal to the backend: every row, until it is there or refused for good.

Each signal of each tenant has a lane of its own, so that a throttled tenant or
a dead signal holds up only itself. Fresh rows are sent from memory; a lane that
falls behind stops taking them there and reads its backlog from the journal, in
order, until it has caught up. Neighbouring small rows go in one request, large
ones are cut between items to what the backend takes.

What the backend refuses for good is cut in halves until the bad item stands
alone, and only that is counted as rejected. A signal that the backend has no
service for is counted separately and not retried for a while. What was accepted is not sent
again, as long as this process lives; after a crash, rows that were not yet
noted as done are (at least once).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Final

from collector_processor.journal import Journal
from collector_processor.journal.chunks import Backlog, Chunk, Queue
from collector_processor.lanes import ForwarderLimits, Lane
from collector_processor.ledger import Ledger
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
from collector_processor.store_thread import patiently
from collector_processor.survey import item_count
from collector_processor.wire import halve, split_by_size

logger = logging.getLogger(__name__)


_TOLD: Final[Mapping[Setback, str]] = {
    Setback.AWAY: "backend away",
    Setback.ASKED_TO_WAIT: "backend asked to wait",
    Setback.FAILING: "backend cannot take requests now",
    Setback.NO_SERVICE: "backend has no such service now, and is asked again",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Time and chance, handed in."""

    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    uniform: Callable[[float, float], float] = random.uniform
    now: Callable[[], float] = monotonic


@dataclass(slots=True)
class _Tally:
    """What became of one request's parts."""

    delivered: int = 0
    """Sends that succeeded."""
    refused: int = 0
    """Sends that were refused for good."""
    rejected: int = 0
    """Items that were."""
    unsupported: int = 0
    """Items dropped because the backend has no service for their signal."""
    reason: str = ""


class Forwarder:
    """Lives on one event loop; ``run`` does the work."""

    def __init__(
        self,
        journal: Journal,
        ledger: Ledger,
        exporters: Mapping[Signal, Exporter],
        limits: ForwarderLimits | None = None,
        surroundings: Surroundings | None = None,
    ) -> None:
        """Make it; a signal without an exporter is kept, not forwarded."""
        self._journal: Final = journal
        self._ledger: Final = ledger
        self._exporters: Final = exporters
        self._limits: Final = limits or ForwarderLimits()
        self._around: Final = surroundings or Surroundings()
        self._lanes: dict[Queue, Lane] = {}
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
        """Take a row that is durable. Never blocks; rows come in the order of their seqs."""
        if chunk.queue.signal not in self._exporters:
            self._ledger.settle(chunk.queue.signal, kept=chunk.items)
            self._journal.mark_done((chunk,))
            return
        lane = self._lane(chunk.queue)
        if lane.is_behind or not self._has_room(lane, chunk.size):
            lane.fall_behind(chunk.seq)
        else:
            self._remember(lane, chunk)
        self._pump_soon(lane)

    def released(self, queue: Queue, seq: int) -> None:
        """Take note that rows of the journal from ``seq`` on may be sent now."""
        lane = self._lane(queue)
        lane.fall_behind(seq)
        self._pump(lane)

    def resume(self) -> None:
        """Take up what an earlier process left in the journal."""
        for queue in tuple(self._journal.waiting):
            self.released(queue, 1)

    async def run(self) -> None:
        """Send until drained or cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            for lane in tuple(self._lanes.values()):
                self._pump(lane)
            await self._stopped.wait()

    async def drain(self, deadline_s: float) -> None:
        """Send what there is until the deadline, then stop; what is left stays in the journal."""
        if self._stopped.is_set():
            return
        try:
            async with asyncio.timeout(deadline_s):
                await self._idle.wait()
        except TimeoutError:
            logger.warning("stopped before everything was forwarded")
        self._group = None
        for task in tuple(self._tasks):
            task.cancel()
        self._stopped.set()

    # Lanes.

    def _lane(self, queue: Queue) -> Lane:
        lane = self._lanes.get(queue)
        if lane is None:
            lane = self._lanes[queue] = Lane(queue=queue)
            self._idle.clear()
        return lane

    def _has_room(self, lane: Lane, size: int) -> bool:
        limits = self._limits
        if lane.memory_bytes + size > limits.lane_memory_bytes:
            return not lane.memory_bytes
        return self._memory_bytes + size <= limits.memory_bytes or not lane.memory_bytes

    def _remember(self, lane: Lane, chunk: Chunk) -> None:
        lane.memory.append(chunk)
        lane.queued_bytes += chunk.size
        lane.known.add(chunk.seq)
        lane.memory_bytes += chunk.size
        self._memory_bytes += chunk.size

    def _pump_soon(self, lane: Lane) -> None:
        """Start what can be started once the rows of this commit are all offered: they go together."""
        if not lane.is_due:
            lane.is_due = True
            asyncio.get_running_loop().call_soon(self._pump, lane)

    def _pump(self, lane: Lane) -> None:
        """Start whatever can be started."""
        lane.is_due = False
        if self._group is None:
            return
        signal = lane.queue.signal
        if signal not in self._exporters:
            self._keep_all(lane)
        while lane.may_send(self._limits):
            lane.in_flight += 1
            self._start(self._ship(lane, self._take(lane)))
        if lane.is_behind and not lane.is_reading and not lane.memory:
            lane.is_reading = True
            self._start(self._read(lane))
        if lane.is_idle:
            self._lanes.pop(lane.queue, None)
            if not self._lanes:
                self._idle.set()

    def _start(self, work: Coroutine[None, None, None]) -> None:
        assert self._group is not None
        task = self._group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _take(self, lane: Lane) -> list[Chunk]:
        """Take neighbouring rows for one request; all came the same way."""
        chunks = [lane.memory.popleft()]
        size = chunks[0].size
        while lane.memory and lane.memory[0].hops == chunks[0].hops:
            size += lane.memory[0].size
            if size > self._limits.batch_bytes:
                break
            chunks.append(lane.memory.popleft())
        lane.queued_bytes -= sum(chunk.size for chunk in chunks)
        return chunks

    async def _read(self, lane: Lane) -> None:
        """Read a part of the lane's backlog."""
        room = self._limits.lane_memory_bytes // 2

        async def read() -> Backlog:
            return await self._journal.read_pending(lane.queue, lane.cursor, room, lane.known)

        backlog = await patiently(read, self._around.sleep)
        if backlog.lost:
            self._ledger.settle(lane.queue.signal, lost=sum(chunk.items for chunk in backlog.lost))
            self._journal.mark_done(backlog.lost)
        for chunk in backlog.chunks:
            self._remember(lane, chunk)
        lane.has_read(backlog.upto_seq, is_more=backlog.is_more)
        self._pump(lane)

    # One request.

    async def _ship(self, lane: Lane, chunks: list[Chunk]) -> None:
        signal = lane.queue.signal
        body = chunks[0].body if len(chunks) == 1 else b"".join(chunk.body for chunk in chunks)
        parts = deque(split_by_size(body, self._exporters[signal].max_bytes))
        tally = _Tally()
        while parts:
            await self._send(lane, chunks[0].hops, parts, tally)
        items = sum(chunk.items for chunk in chunks)
        rejected = min(tally.rejected, items)
        if rejected:
            logger.warning(
                "backend rejected for good",
                extra={"signal": signal.value, "items": rejected, "reason": tally.reason},
            )
        unsupported = min(tally.unsupported, items - rejected)
        self._ledger.settle(
            signal,
            forwarded=items - rejected - unsupported,
            rejected=rejected,
            unsupported=unsupported,
        )
        self._done(lane, chunks)
        lane.in_flight -= 1
        self._pump(lane)

    async def _send(self, lane: Lane, hops: tuple[str, ...], parts: deque[bytes], tally: _Tally) -> None:
        """Send the first of ``parts``; put back what must be sent again, or in halves."""
        signal = lane.queue.signal
        if self._has_no_service(signal):
            tally.unsupported += sum(item_count(signal, part) for part in parts)
            parts.clear()
            return
        part = parts.popleft()
        outcome = await self._exporters[signal].send(signal, part, lane.queue.tenant, hops)
        setback = setback_of(outcome)
        if setback is not None:
            self._ledger.setbacks[signal, setback] += 1
        match outcome:
            case Delivered(rejected=rejected, message=message):
                tally.delivered += 1
                tally.rejected += rejected
                tally.reason = message if rejected else tally.reason
                self._recover(lane, signal)
            case TryLater():
                parts.appendleft(part)
                await self._wait(lane, outcome)
            case Rejected(reason=reason):
                tally.refused += 1
                tally.reason = reason
                self._bisect(signal, part, parts, tally)
            case NoSuchService(reason=reason):
                parts.appendleft(part)
                if self._must_be_there(signal):
                    await self._wait(lane, outcome)
                else:
                    self._drop_signal(signal, reason)

    def _bisect(self, signal: Signal, part: bytes, parts: deque[bytes], tally: _Tally) -> None:
        """Put both halves of what was refused in front, or count it as rejected."""
        halves = halve(part)
        if halves is None:
            tally.rejected += item_count(signal, part)
        elif not tally.delivered and tally.refused >= self._limits.futile_sends:
            # It is not one bad item: the backend refuses all we send (wrong credentials, say).
            tally.rejected += item_count(signal, part) + sum(item_count(signal, other) for other in parts)
            parts.clear()
        else:
            parts.extendleft(reversed(halves))

    def _must_be_there(self, signal: Signal) -> bool:
        """Whether "no such service" can only be a passing fault, such as an ingress during a rollout.

        Traces are what the backend is there for; and what it took before, it takes again.
        """
        return signal is Signal.TRACES or signal in self._was_delivered

    def _has_no_service(self, signal: Signal) -> bool:
        return self._around.now() < self._no_service_until.get(signal, float("-inf"))

    def _drop_signal(self, signal: Signal, reason: str) -> None:
        if signal not in self._no_service_until:
            logger.warning(
                "backend does not take this signal", extra={"signal": signal.value, "reason": reason}
            )
        self._no_service_until[signal] = self._around.now() + self._limits.no_service_s

    def _recover(self, lane: Lane, signal: Signal) -> None:
        """Note that the backend takes things (again)."""
        self._no_service_until.pop(signal, None)
        self._was_delivered.add(signal)
        lane.failures = 0
        if lane.told is not None:
            lane.told = None
            logger.info("backend takes requests again", extra={"signal": signal.value})

    async def _wait(self, lane: Lane, outcome: TryLater | NoSuchService) -> None:
        """Sleep as long as the backend wishes, else ever longer; nothing new starts in this lane."""
        self._tell(lane, outcome)
        wish_s = outcome.wish_s if isinstance(outcome, TryLater) else None
        limits = self._limits
        # Requests in flight fail together: a round of them counts as one failure.
        ceiling = min(limits.longest_wait_s, limits.first_wait_s * 2 ** min(lane.failures, 16))
        lane.failures += not lane.waiting
        lane.waiting += 1
        try:
            own_s = self._around.uniform(ceiling / 2, ceiling)
            await self._around.sleep(own_s if wish_s is None else wish_s)
        finally:
            lane.waiting -= 1

    def _tell(self, lane: Lane, outcome: TryLater | NoSuchService) -> None:
        """Log why the backend accepts nothing, once for each cause."""
        setback = setback_of(outcome)
        if setback is None or setback is lane.told:
            return
        lane.told = setback
        told: dict[str, object] = {"signal": lane.queue.signal.value, "reason": outcome.reason}
        if isinstance(outcome, TryLater) and outcome.wish_s is not None:
            told["wait_s"] = outcome.wish_s
        logger.warning(_TOLD[setback], extra=told)

    def _keep_all(self, lane: Lane) -> None:
        """Settle rows of a signal that goes nowhere."""
        chunks = list(lane.memory)
        lane.memory.clear()
        lane.queued_bytes = 0
        self._ledger.settle(lane.queue.signal, kept=sum(chunk.items for chunk in chunks))
        self._done(lane, chunks)

    def _done(self, lane: Lane, chunks: Sequence[Chunk]) -> None:
        for chunk in chunks:
            lane.known.discard(chunk.seq)
            lane.memory_bytes -= chunk.size
            self._memory_bytes -= chunk.size
        self._journal.mark_done(chunks)
