"""Prepares traces in a pool of worker processes, or in threads of this process. Not pure.

A thread shares the interpreter with the receivers: one search in a hostile text of some hundred bytes could
hold both without end. So a trace is prepared in a thread only while no process can be started, or if it is
too large for one.

If a process ends, its unanswered traces go to another. The trace it was working on comes last, alone, so that
a trace that crashes processes is identified and affects no other. A trace that used up its CPU time is not
retried.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import cache, partial
from time import monotonic
from typing import Final, TypeAlias, TypeVar

from analyzer.analyses.consulting import ThreadSteps
from analyzer.analyses.job_client import JobAnalyst
from analyzer.analyses.local_analyst import LocalAnalyst
from analyzer.analyses.pool import TRIES, Pool
from analyzer.analyses.prepared import Look, Prepare, Prepared, TraceBytes, passed_by, prepare_each
from analyzer.analyses.worker_process import (
    OVER_CPU_TIME,
    WorkerLostError,
    WorkerProcess,
    command_of,
    worker_settings,
)
from collector_processor.core.analysis import AnalysisLostError, Analyst
from collector_processor.core.fair import Batcher, Turns
from collector_processor.otlp import Tenant
from collector_processor.rebuild.redaction import Cleaner
from collector_processor.settings import Settings
from collector_processor.settings.machine import usable_cores

logger = logging.getLogger(__name__)

LARGE_BYTES: Final = 1 << 20
"""Larger traces are prepared alone, one at a time, tenants in turn, so that others do not wait for them."""
LARGEST_BYTES: Final = 64 << 20
"""Larger traces are prepared in a thread: a process would need several times their memory."""
_MOST_TOGETHER: Final = 8
"""Number of traces sent to a worker process at once."""
LONG_S: Final = 1.0
"""Seconds that a trace may take without being charged to its tenant; most take some hundredths."""
FORGET_S: Final = 60.0
"""Seconds after which half of what tenants were charged is forgotten."""

Answer: TypeAlias = Prepared | AnalysisLostError | None
"""``None`` if an exception was raised or a text is not Unicode; a second try in a thread shows which."""


def _can_travel(trace: TraceBytes) -> bool:
    try:
        trace.key.tenant.encode()
    except UnicodeEncodeError:
        return False
    return trace.byte_count <= LARGEST_BYTES


def _over_cpu_time(trace: TraceBytes) -> AnalysisLostError:
    logger.error("analysis exceeded its CPU time", extra={"trace_id": trace.key.trace_id})
    return AnalysisLostError(OVER_CPU_TIME)


class Executor:
    """Prepares traces; used on one event loop."""

    def __init__(self, preparer: Prepare, pool: Pool, *, now: Callable[[], float] = monotonic) -> None:
        """Prepare traces in a pool.

        Args:
            preparer: used in threads.
            pool: the worker processes.
            now: returns seconds.
        """
        self._preparer: Final = preparer
        self._pool: Final = pool
        self._now: Final = now
        self._large: Final = Turns(1)
        self._largest: Final = Turns(1)
        """For traces too large for a process: one may take minutes, and smaller traces do not wait."""
        self._charges: dict[Tenant, float] = {}
        """Seconds that long traces took, by tenant: its next ones wait until others have none."""
        self._halved = now()
        self._batched: Final = Batcher(
            self._prepare_all,
            most=_MOST_TOGETHER,
            at_once=lambda: max(1, pool.size),
            charged=lambda trace: self._charges.get(trace.key.tenant, 0.0),
        )

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
        self._pool.counters.count(found)
        if isinstance(found, AnalysisLostError):
            raise found
        return found

    async def _found(self, trace: TraceBytes) -> Prepared | AnalysisLostError:
        found: Answer = None
        if _can_travel(trace):
            is_large = trace.byte_count > LARGE_BYTES
            found = (await self._by_process([trace]))[0] if is_large else await self._batched(trace)
        return await asyncio.to_thread(self._preparer, trace) if found is None else found

    async def _prepare_all(self, traces: Sequence[TraceBytes]) -> Sequence[Answer]:
        began = self._now()
        answers: Sequence[Answer] = ()
        try:
            if self._pool.size:
                answers = await self._by_process(traces)
            else:
                answers = await asyncio.to_thread(prepare_each, self._preparer, traces)
            return answers
        finally:
            ended = self._now()
            self._charge(traces, answers, began, ended)
            self._pool.counters.busy_s += ended - began

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
        return await self._pool.prepare(traces, is_large=traces[0].byte_count > LARGE_BYTES)


AnyAnalyst = TypeVar("AnyAnalyst", bound=Analyst)

COMMAND: Final = command_of("analyzer.analyses.worker_start")
MOST_PROCESSES: Final = 8
"""Limit of the default; the setting may exceed it."""


def open_pool(settings: Settings, analyst: Analyst) -> Pool:
    """Return the pool of worker processes; none is started yet."""
    return Pool(_start_worker(settings, analyst), size=processes(settings))


def open_executor(settings: Settings, analyst: Analyst, cleaner: Cleaner, pool: Pool) -> Executor:
    """Return the executor that prepares traces, in threads and in worker processes."""

    @cache
    def preparer() -> Prepare:
        from analyzer.analyses.prepare import preparer_of  # noqa: PLC0415 - all that judges a run; in a thread

        return preparer_of(settings, analyst, _look_of(analyst), cleaner)

    def prepare(trace: TraceBytes) -> Prepared:
        return preparer()(trace)

    return Executor(prepare, pool)


def stepping_in(pool: Pool, analyst: AnyAnalyst) -> AnyAnalyst:
    """Return the analyst with the steps of its analyses in the pool."""
    if not isinstance(analyst, LocalAnalyst):
        return analyst
    return analyst.in_steps(lambda begin: partial(pool.step, instead=ThreadSteps(begin)))


def processes(settings: Settings, cores: Callable[[], float] = usable_cores) -> int:
    """Return the number of worker processes, without the one for large traces.

    By default one fewer than cores, 1 to 8, and not above ``concurrency``.
    """
    if settings.analysis_processes is not None:
        return settings.analysis_processes
    return max(1, min(MOST_PROCESSES, settings.concurrency, int(cores()) - 1))


def _look_of(analyst: Analyst) -> Look:
    match analyst:
        case JobAnalyst():
            return passed_by(analyst.local.unasked)
        case LocalAnalyst():
            return analyst.unasked
        case _:
            return lambda _trajectory: None


def _start_worker(settings: Settings, analyst: Analyst) -> Callable[[], Awaitable[WorkerProcess]] | None:
    """Return a function that starts worker processes; ``None`` for an analyst that they do not know."""
    local = analyst.local if isinstance(analyst, JobAnalyst) else analyst
    if not isinstance(local, LocalAnalyst):
        return None
    return partial(WorkerProcess.start, worker_settings(settings, local.ranker), COMMAND)
