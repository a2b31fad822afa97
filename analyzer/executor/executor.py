"""Decides where traces are prepared: in worker processes, or in threads of this process. Not pure.

A thread shares the interpreter with the receivers: one search in a hostile text of some hundred bytes could
hold both without end. So a trace is prepared in a thread only if no process may or can be started, or if it
is too large for one. The first process is started for the first trace, another one whenever all have been
busy half of the time, and one for traces larger than 1 MiB. Each is stopped after ten idle minutes.

If a process ends, its unanswered traces go to another. The trace it was working on comes last, alone, so that
a trace that crashes processes is identified and affects no other. A trace that used up its CPU time is not
retried.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from time import monotonic
from typing import Final, Protocol, TypeAlias

from analyzer.executor.worker_process import TRACE_CPU_S, WorkerLostError
from collector_processor.core.analysis import AnalysisLostError
from collector_processor.core.fair import Turns
from collector_processor.otlp import Tenant
from collector_processor.pipeline.batcher import Batcher
from collector_processor.pipeline.prepare import Prepared, Preparer, ToAsk, TraceBytes


class Outcome(StrEnum):
    """Outcome of a trace's preparation. The values are the labels of ``blamespan_traces_prepared``."""

    ANALYSED = "analysed"
    """The analysis was done in the same step."""
    OPEN = "open"
    """A model or an analyzer half is asked next, or the spans are unreadable."""
    LOST = "lost"
    """The trace crashed worker processes or used up its CPU time."""


@dataclass(slots=True, kw_only=True)
class ExecutorCounters:
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


logger = logging.getLogger(__name__)

LARGE_BYTES: Final = 1 << 20
"""Larger traces are prepared alone, one at a time, tenants in turn, so that others do not wait for them."""
LARGEST_BYTES: Final = 64 << 20
"""Larger traces are prepared in a thread: a process would need several times their memory."""
_MOST_TOGETHER: Final = 8
"""Number of traces sent to a worker process at once."""
WINDOW_S: Final = 10.0
FULL_S: Final = 5.0
"""Seconds in a window with all processes busy, after which another is started."""
IDLE_S: Final = 600.0
"""Idle seconds after which a process is stopped."""
LONG_S: Final = 1.0
"""Seconds that a trace may take without being charged to its tenant; most take some hundredths."""
FORGET_S: Final = 60.0
"""Seconds after which half of what tenants were charged is forgotten."""
RETRY_S: Final = 60.0
"""Seconds between attempts if a process cannot be started."""
TRIES: Final = 2
"""Number of processes that one trace may crash when it is alone."""

Answer: TypeAlias = Prepared | AnalysisLostError | None
"""``None`` if an exception was raised or a text is not Unicode; a second try in a thread shows which."""


class Worker(Protocol):
    """A worker process."""

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

    async def end(self) -> None:
        """End the process."""
        ...


StartWorker: TypeAlias = Callable[[], Awaitable[Worker]]
"""Starts a process; raises ``WorkerLostError`` if it cannot."""


def prepare_each(preparer: Preparer, traces: Sequence[TraceBytes]) -> list[Prepared | None]:
    """Prepare several traces; ``None`` for those that raised an exception."""
    return [_prepared(preparer, trace) for trace in traces]


def _prepared(preparer: Preparer, trace: TraceBytes) -> Prepared | None:
    try:
        return preparer(trace)
    except Exception:
        logger.debug("preparation failed", extra={"trace_id": trace.key.trace_id}, exc_info=True)
        return None


def _can_travel(trace: TraceBytes) -> bool:
    try:
        trace.key.tenant.encode()
    except UnicodeEncodeError:
        return False
    return trace.byte_count <= LARGEST_BYTES


def _over_cpu_time(trace: TraceBytes) -> AnalysisLostError:
    logger.error("analysis exceeded its CPU time", extra={"trace_id": trace.key.trace_id})
    return AnalysisLostError(f"the analysis was stopped: it used more than {TRACE_CPU_S:g} s of CPU time")


class Executor:
    """Prepares traces; used on one event loop."""

    def __init__(
        self,
        preparer: Preparer,
        start_worker: StartWorker | None = None,
        *,
        most_workers: int = 1,
        now: Callable[[], float] = monotonic,
        counters: ExecutorCounters | None = None,
    ) -> None:
        """Start without a process.

        Args:
            preparer: used in threads.
            start_worker: starts processes; ``None`` to use threads only.
            most_workers: maximum number of processes.
            now: returns seconds.
            counters: its counters; by default a new object.
        """
        self._preparer: Final = preparer
        self._start_worker = start_worker
        self._most_workers: Final = most_workers
        self._now: Final = now
        self._workers: Final[list[Worker]] = []
        self._idle: Final[list[Worker]] = []
        """Idle processes of ``_workers``; the last one was busy most recently."""
        self._retirements: Final[dict[Worker, asyncio.TimerHandle]] = {}
        self._large: Final = Turns(1)
        self._largest: Final = Turns(1)
        """For traces too large for a process: one may take minutes, and smaller traces do not wait."""
        self._starting: asyncio.Task[None] | None = None
        self._not_before = 0.0
        self._busy = 0
        """Number of batches in progress."""
        self._full_since: float | None = None
        """Time since which every process, or the only thread, has a batch."""
        self._window_began = now()
        self._full_s = 0.0
        self._ending: Final[set[asyncio.Task[None]]] = set()
        self._charges: dict[Tenant, float] = {}
        """Seconds that long traces took, by tenant: its next ones wait until others have none."""
        self._halved = now()
        self._batched: Final = Batcher(
            self._prepare_all,
            most=_MOST_TOGETHER,
            at_once=self._slots,
            charged=lambda trace: self._charges.get(trace.key.tenant, 0.0),
        )
        self.counters: Final = counters or ExecutorCounters()

    async def __call__(self, trace: TraceBytes) -> Prepared:
        """Prepare a trace.

        Raises:
            AnalysisLostError: it crashed worker processes, or used up its CPU time.
        """
        if trace.byte_count <= LARGE_BYTES:
            found = await self._found(trace)
        else:
            turns = self._large if _can_travel(trace) else self._largest
            async with turns.turn(trace.key.tenant):
                found = await self._found(trace)
        self.counters.count(found)
        if isinstance(found, AnalysisLostError):
            raise found
        return found

    async def _found(self, trace: TraceBytes) -> Prepared | AnalysisLostError:
        found: Answer = None
        if _can_travel(trace):
            is_large = trace.byte_count > LARGE_BYTES
            found = (await self._by_process([trace]))[0] if is_large else await self._batched(trace)
        return await asyncio.to_thread(self._preparer, trace) if found is None else found

    async def close(self) -> None:
        """Stop all processes; no other is started."""
        self._start_worker = None
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        await asyncio.gather(*map(self._dismiss, tuple(self._workers)))
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _slots(self) -> int:
        return max(1, len(self._workers))

    async def _prepare_all(self, traces: Sequence[TraceBytes]) -> Sequence[Answer]:
        began = self._now()
        self._busy += 1
        if self._busy >= self._slots():
            self._full_since = began
        answers: Sequence[Answer] = ()
        try:
            if self._start_worker is not None and began >= self._not_before:
                answers = await self._by_process(traces)
            else:
                answers = await asyncio.to_thread(prepare_each, self._preparer, traces)
            return answers
        finally:
            ended = self._now()
            self._charge(traces, answers, began, ended)
            self._busy -= 1
            self.counters.busy_s += ended - began
            if self._full_since is not None:
                self._was_full(self._full_since, ended)
                self._full_since = None

    def _charge(
        self, traces: Sequence[TraceBytes], answers: Sequence[Answer], began: float, ended: float
    ) -> None:
        """Charge tenants for traces that were lost, or that took long and were of one tenant."""
        took_s = ended - began
        if ended - self._halved >= FORGET_S:
            self._halved = ended
            self._charges = {name: s / 2 for name, s in self._charges.items() if s >= 2 * LONG_S}
        tenants = [trace.key.tenant for trace in traces]
        lost = [isinstance(answer, AnalysisLostError) for answer in answers]
        if any(lost):
            charged = [tenant for tenant, is_lost in zip(tenants, lost, strict=True) if is_lost]
        else:
            charged = tenants if len(set(tenants)) == 1 and took_s > LONG_S * len(traces) else []
        for tenant in charged:
            self._charges[tenant] = self._charges.get(tenant, 0.0) + took_s / len(charged)

    def _was_full(self, began: float, ended: float) -> None:
        """Count the time in which all processes were busy; start another one if it was long."""
        if began - self._window_began > WINDOW_S:
            self._window_began, self._full_s = began, 0.0
        self._full_s += ended - began
        has_room = 0 < len(self._workers) < self._most_workers and self._starting is None
        if self._full_s >= FULL_S and has_room and self._start_worker is not None:
            self._window_began, self._full_s = ended, 0.0
            self._starting = asyncio.create_task(self._begin())

    async def _begin(self) -> None:
        """Start another process; those already running continue meanwhile."""
        try:
            if self._now() >= self._not_before and (worker := await self._start()):
                self._rest(worker)
        finally:
            self._starting = None

    async def _start(self) -> Worker | None:
        try:
            worker = None if self._start_worker is None else await self._start_worker()
        except WorkerLostError as error:
            logger.warning(
                "cannot start a worker process: analysing in threads", extra={"reason": str(error)}
            )
            self._not_before = self._now() + RETRY_S
            return None
        if worker is not None:
            logger.info("worker process started", extra={"pid": worker.pid})
            self._workers.append(worker)
            self.counters.started += 1
            self.counters.processes = len(self._workers)
        return worker

    async def _by_process(self, traces: Sequence[TraceBytes]) -> Sequence[Answer]:
        """Prepare in a process, and in others if it ends; traces that ended one come last."""
        found: dict[int, Answer] = {}
        waiting, suspects = range(len(traces)), list[int]()
        while waiting:
            try:
                answers = await self._ask([traces[at] for at in waiting])
            except WorkerLostError as error:
                answers = error.answers
                suspect = waiting[len(answers)]
                if error.used_up_cpu:
                    found[suspect] = _over_cpu_time(traces[suspect])
                else:
                    suspects.append(suspect)
            found |= zip(waiting, answers, strict=False)
            waiting = waiting[len(answers) + 1 :]
        for suspect in suspects:
            found[suspect] = await self._by_itself(traces[suspect])
        return [found[at] for at in range(len(traces))]

    async def _by_itself(self, trace: TraceBytes) -> Answer:
        """Prepare, alone, a trace that ended a process."""
        for _ in range(TRIES):
            try:
                (answer,) = await self._ask([trace])
            except WorkerLostError as error:
                if error.used_up_cpu:
                    return _over_cpu_time(trace)
            else:
                return answer
        logger.error("trace crashes worker processes", extra={"trace_id": trace.key.trace_id})
        return AnalysisLostError(f"the analysis crashed its worker process {TRIES + 1} times")

    async def _ask(self, traces: Sequence[TraceBytes]) -> Sequence[Prepared | None]:
        """Prepare in an idle process or a new one; ``None`` for each trace if none can be started.

        Raises:
            WorkerLostError: it ended.
        """
        worker = self._idle.pop() if self._idle else await self._start()
        if worker is None:
            return [None] * len(traces)  # perhaps there is no memory for another process: threads need none
        if timer := self._retirements.pop(worker, None):
            timer.cancel()
        try:
            answers = await worker.prepare(traces)
        except WorkerLostError as error:
            self.counters.ended += 1
            logger.warning("worker process ended", extra={"reason": str(error), "traces": len(traces)})
            await self._dismiss(worker)
            raise
        self._rest(worker)
        return answers

    def _rest(self, worker: Worker) -> None:
        """Mark a process as idle, and stop it if it stays idle."""
        if worker in self._workers:
            self._idle.append(worker)
            loop = asyncio.get_running_loop()
            self._retirements[worker] = loop.call_later(IDLE_S, self._retire, worker)

    def _retire(self, worker: Worker) -> None:
        task = asyncio.create_task(self._dismiss(worker))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _dismiss(self, worker: Worker) -> None:
        if worker not in self._workers:
            return
        self._workers.remove(worker)
        self.counters.processes = len(self._workers)
        if worker in self._idle:
            self._idle.remove(worker)
        if timer := self._retirements.pop(worker, None):
            timer.cancel()
        await worker.end()
