"""Fixed pool of worker processes: they prepare traces and run steps of analyses that ask a model. Not pure.

Each slot of the pool starts its process for its first work, starts another one after a process ended, and
stops it after ten idle minutes. A process does one thing at a time. Large traces, which take long, have a
slot of their own, so that nothing else waits for them.

Traces go to the slot with the least work. The steps of one analysis go to one slot, chosen by the analysis's
id: its process keeps the analysis between two answers of the model.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from time import monotonic
from typing import Final, Protocol, TypeAlias

from analyzer.analyses.codec import StepAsked, read_result, write_step
from analyzer.analyses.consulting import Order, Stepping, StepResult
from analyzer.analyses.prepared import Prepared, ToAsk, TraceBytes
from analyzer.analyses.worker_process import OVER_CPU_TIME, WorkerLostError
from analyzer.inquiry.method import Answer
from collector_processor.core.analysis import AnalysisLostError

logger = logging.getLogger(__name__)

IDLE_S: Final = 600.0
"""Idle seconds after which a process is stopped."""
RETRY_S: Final = 60.0
"""Seconds between attempts if a process cannot be started."""
TRIES: Final = 2
"""Number of processes that one trace may crash when it is alone, and that one step may crash."""


class Outcome(StrEnum):
    """Outcome of a trace's preparation. The values are the labels of ``blamespan_traces_prepared``."""

    ANALYSED = "analysed"
    """The analysis was done in the same step."""
    OPEN = "open"
    """A model or an analyzer half is asked next, or the spans are unreadable."""
    LOST = "lost"
    """The trace crashed worker processes or used up its CPU time."""


@dataclass(slots=True, kw_only=True)
class PoolCounters:
    """Counts since the start; used from one event loop."""

    traces: Counter[Outcome] = field(default_factory=Counter)
    busy_s: float = 0.0
    """Seconds of preparation, summed over worker processes."""
    processes: int = 0
    """Number of processes running now."""
    started: int = 0
    ended: int = 0
    """Number of processes that crashed or were killed; idle ones that were stopped are not counted."""

    def count(self, prepared: Prepared | AnalysisLostError) -> None:
        """Count a trace."""
        self.traces[outcome_of(prepared)] += 1


def outcome_of(prepared: Prepared | AnalysisLostError) -> Outcome:
    """Return the outcome of a trace's preparation."""
    if isinstance(prepared, AnalysisLostError):
        return Outcome.LOST
    is_open = prepared.fault or any(isinstance(run, ToAsk) for run in prepared.runs)
    return Outcome.OPEN if is_open else Outcome.ANALYSED


class Worker(Protocol):
    """A worker process; see ``WorkerProcess``."""

    @property
    def pid(self) -> int:
        """Its process id."""
        ...

    async def prepare(self, traces: Sequence[TraceBytes]) -> list[Prepared | None]:
        """Prepare each trace.

        Raises:
            WorkerLostError: the process ended.
        """
        ...

    async def exchange(self, message: bytes) -> bytes:
        """Send a message and return the answer.

        Raises:
            WorkerLostError: the process ended.
        """
        ...

    async def end(self) -> None:
        """End the process."""
        ...


StartWorker: TypeAlias = Callable[[], Awaitable[Worker]]
"""Starts a process; raises ``WorkerLostError`` if it cannot."""


@dataclass(eq=False, slots=True)
class _Slot:
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    worker: Worker | None = None
    load: int = 0
    """Number of tasks that use it or wait for it."""
    retirement: asyncio.TimerHandle | None = None


class Pool:
    """A fixed number of slots for worker processes; used on one event loop."""

    def __init__(
        self, start: StartWorker | None = None, *, size: int = 1, now: Callable[[], float] = monotonic
    ) -> None:
        """Create a pool without processes.

        Args:
            start: starts a process; ``None`` for none at all.
            size: number of slots, besides the one for large traces; at least 1.
            now: returns seconds.
        """
        self._start = start
        self._now: Final = now
        self._slots: Final = tuple(_Slot() for _ in range(size))
        self._large: Final = _Slot()
        self._not_before = float("-inf")
        self._is_closed = False
        self._ending: Final[set[asyncio.Task[None]]] = set()
        self.counters: Final = PoolCounters()

    @property
    def size(self) -> int:
        """Number of slots without the one for large traces; if no process can be started, those with one."""
        return len(self._usable())

    async def prepare(
        self, traces: Sequence[TraceBytes], *, is_large: bool = False
    ) -> Sequence[Prepared | None]:
        """Prepare traces in one process; ``None`` for each that must be prepared in a thread.

        Raises:
            WorkerLostError: the process ended; the error holds the answers before that.
        """
        slots = (self._large,) if is_large else self._usable() or self._slots
        async with self._worker(min(slots, key=lambda slot: (slot.load, slot.worker is None))) as worker:
            return [None] * len(traces) if worker is None else await worker.prepare(traces)

    async def step(self, order: Order, answers: Sequence[Answer], *, instead: Stepping) -> StepResult:
        """Run a step of an analysis; ``instead`` runs it if no process can be started.

        Raises:
            AnalysisLostError: it used up its CPU time, or crashed processes.
        """
        for _ in range(TRIES):
            try:
                result = await self._step(order, answers)
            except WorkerLostError as error:
                if error.used_up_cpu:
                    raise AnalysisLostError(OVER_CPU_TIME) from error
            else:
                return await instead(order, answers) if result is None else result
        raise AnalysisLostError(f"the analysis crashed its worker process {TRIES} times")

    async def _step(self, order: Order, answers: Sequence[Answer]) -> StepResult | None:
        async with self._worker(self._slot_of(order, answers)) as worker:
            if worker is None:
                return None
            # The process knows the order from the first step, unless it was started since.
            for given in (None, order) if answers else (order,):
                message = await asyncio.to_thread(write_step, StepAsked.of(order.id, given, answers))
                if (result := read_result(await worker.exchange(message))) is not None:
                    return result
        raise WorkerLostError("the process does not know an order that it was sent")

    def _slot_of(self, order: Order, answers: Sequence[Answer]) -> _Slot:
        """Return the order's own slot; for a first step, an idle process rather than starting one."""
        own = self._slots[zlib.crc32(order.id.encode()) % len(self._slots)]
        if answers or own.worker is not None:
            return own
        return next((slot for slot in self._slots if slot.worker is not None and not slot.load), own)

    async def start_ahead(self) -> None:
        """Start a process if none runs, so that the next task need not wait for it."""
        if all(slot.worker is None for slot in self._slots):
            async with self._worker(self._slots[0]):
                pass

    async def close(self) -> None:
        """Stop all processes, including busy ones; no other is started."""
        self._start, self._is_closed = None, True
        await asyncio.gather(*map(self._end, (*self._slots, self._large)))
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _usable(self) -> Sequence[_Slot]:
        if self._start is not None and self._now() >= self._not_before:
            return self._slots
        return [slot for slot in self._slots if slot.worker is not None]

    @asynccontextmanager
    async def _worker(self, slot: _Slot) -> AsyncIterator[Worker | None]:
        """Wait for a slot and yield its process; ``None`` if none can be started."""
        slot.load += 1
        try:
            async with slot.turn:
                if slot.retirement is not None:
                    slot.retirement.cancel()
                slot.worker = slot.worker or await self._started()
                try:
                    yield slot.worker
                except WorkerLostError as error:
                    self.counters.ended += 1
                    logger.warning("worker process ended", extra={"reason": str(error)})
                    await self._end(slot)
                    raise
                finally:
                    if slot.worker is not None:
                        loop = asyncio.get_running_loop()
                        slot.retirement = loop.call_later(IDLE_S, self._retire, slot)
        finally:
            slot.load -= 1

    async def _started(self) -> Worker | None:
        if self._start is None or self._now() < self._not_before:
            return None
        try:
            worker = await self._start()
        except WorkerLostError as error:
            logger.warning(
                "cannot start a worker process: analysing in threads", extra={"reason": str(error)}
            )
            self._not_before = self._now() + RETRY_S
            return None
        if self._is_closed:
            await worker.end()
            return None
        logger.info("worker process started", extra={"pid": worker.pid})
        self.counters.started += 1
        self.counters.processes += 1
        return worker

    def _retire(self, slot: _Slot) -> None:
        if slot.load:
            return
        task = asyncio.create_task(self._end(slot))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _end(self, slot: _Slot) -> None:
        worker, slot.worker = slot.worker, None
        if slot.retirement is not None:
            slot.retirement.cancel()
        if worker is not None:
            self.counters.processes -= 1
            await worker.end()
