"""Who drafts: a thread of this process, and while there is much to do a process beside it. A shell.

A thread shares the interpreter with those who acknowledge spans; a process does not, and costs
memory. So it is started when analyses take a tenth of the time, and ended when there were none
for a while. What a process is given is not gone with it: what it has not answered is given to the
next. The trace that it was at comes last then, and by itself, so that one of which processes die is
found, and no other has to suffer for it; one that took all the time there is, is not tried again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import Final, Protocol, TypeAlias

from analyzer.drafting.drafter import Drafter
from analyzer.drafting.tally import DraftTally
from analyzer.drafting.worker_process import TRACE_CPU_S, WorkerLostError
from collector_processor.draft import AnalysisLostError, Draft, Drafted, LoneTrace

logger = logging.getLogger(__name__)

WINDOW_S: Final = 10.0
MUCH_S: Final = 1.0
"""Of a window: if threads drafted for so long, a process is started."""
IDLE_S: Final = 600.0
"""After which a process that has nothing to do is ended."""
RETRY_S: Final = 60.0
"""After which another process is started where none could be."""
TRIES: Final = 2
"""Processes that may die of one trace by itself."""
THREAD_S: Final = 30.0
"""After which a thread is not waited for any more: a few traces take it seconds."""


class Worker(Protocol):
    """A process that drafts."""

    @property
    def pid(self) -> int:
        """Its id."""
        ...

    async def draft(self, traces: Sequence[LoneTrace]) -> list[Draft | None]:
        """Return a draft for each.

        Raises:
            WorkerLostError: it ended.
        """
        ...

    async def end(self) -> None:
        """Let it go."""
        ...


StartWorker: TypeAlias = Callable[[], Awaitable[Worker]]
"""Starts a process; raises ``WorkerLostError`` where none can be had."""


def draft_each(drafter: Drafter, traces: Sequence[LoneTrace]) -> list[Draft | None]:
    """Draft several; one that a fault of ours stops goes the long way, which says what it is."""
    return [_draft(drafter, trace) for trace in traces]


def _endless(trace: LoneTrace) -> AnalysisLostError:
    logger.error("analysis has no end", extra={"trace_id": trace.key.trace_id})
    return AnalysisLostError(f"its analysis took {TRACE_CPU_S:g} s of CPU time, and was ended")


def _draft(drafter: Drafter, trace: LoneTrace) -> Draft | None:
    try:
        return drafter(trace)
    except Exception:
        logger.debug("draft failed", extra={"trace_id": trace.key.trace_id}, exc_info=True)
        return None


class DraftExecutor:
    """Drafts one batch at a time; lives on one event loop."""

    def __init__(
        self,
        drafter: Drafter,
        start_worker: StartWorker | None = None,
        *,
        now: Callable[[], float] = monotonic,
        tally: DraftTally | None = None,
    ) -> None:
        """Begin without a process.

        Args:
            drafter: what a thread drafts with.
            start_worker: starts processes; ``None`` for none ever.
            now: seconds.
            tally: where it counts; by default one of its own.
        """
        self._drafter: Final = drafter
        self._start_worker = start_worker
        self._now: Final = now
        self._worker: Worker | None = None
        self._starting: asyncio.Task[None] | None = None
        self._not_before = 0.0
        self._window_began = now()
        self._busy_s = 0.0
        self._idle: asyncio.TimerHandle | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self.tally: Final = tally or DraftTally()

    async def __call__(self, traces: Sequence[LoneTrace]) -> Sequence[Drafted]:
        """Return a draft for each."""
        began = self._now()
        if self._worker is None:
            drafted = await self._by_thread(traces)
        else:
            self._put_off_end()
            drafted = await self._by_process(traces)
        self.tally.busy_s += self._now() - began
        self.tally.count(drafted)
        return drafted

    async def close(self) -> None:
        """End the process, if there is one; no other is started."""
        self._start_worker = None
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        await self._dismiss()
        await asyncio.gather(*self._ending, return_exceptions=True)

    async def _by_thread(self, traces: Sequence[LoneTrace]) -> Sequence[Drafted]:
        began = self._now()
        drafting = asyncio.ensure_future(asyncio.to_thread(draft_each, self._drafter, traces))
        await asyncio.wait([drafting], timeout=None if self._start_worker is None else THREAD_S)
        if not drafting.done():
            return await self._instead_of_thread(traces)
        drafts = drafting.result()
        if began - self._window_began > WINDOW_S:
            self._window_began, self._busy_s = began, 0.0
        self._busy_s += self._now() - began
        has_one = self._worker is not None or self._starting is not None  # it may be there by now
        if self._busy_s >= MUCH_S and self._start_worker is not None and not has_one:
            self._starting = asyncio.create_task(self._begin(self._start_worker))
        return drafts

    async def _instead_of_thread(self, traces: Sequence[LoneTrace]) -> Sequence[Drafted]:
        """Have a process find out what keeps a thread, which nobody can end, so long."""
        keys = [trace.key.trace_id for trace in traces]
        logger.error("a thread does not come back from an analysis", extra={"trace_ids": keys})
        if self._starting is not None:
            await asyncio.wait([self._starting])
        return await self._by_process(traces)

    async def _begin(self, start_worker: StartWorker) -> None:
        """Start a process beside the thread, which goes on meanwhile."""
        try:
            if self._now() >= self._not_before:
                await self._start(start_worker)
        finally:
            self._starting = None

    async def _start(self, start_worker: StartWorker) -> Worker | None:
        try:
            worker = await start_worker()
        except WorkerLostError as error:
            logger.warning("no process for analyses", extra={"reason": str(error)})
            self._not_before = self._now() + RETRY_S
            return None
        logger.info("analyses have a process of their own", extra={"pid": worker.pid})
        self._worker = worker
        self.tally.started += 1
        self.tally.processes = 1
        self._put_off_end()
        return worker

    async def _by_process(self, traces: Sequence[LoneTrace]) -> Sequence[Drafted]:
        """Draft by the process, and by others where it ends; those that it ended at come last."""
        drafted: dict[int, Drafted] = {}
        waiting, suspects = range(len(traces)), list[int]()
        while waiting:
            try:
                drafts = await self._ask([traces[at] for at in waiting])
            except WorkerLostError as error:
                drafts = error.drafted
                suspect = waiting[len(drafts)]
                if error.had_no_end:
                    drafted[suspect] = _endless(traces[suspect])
                else:
                    suspects.append(suspect)
            drafted |= zip(waiting, drafts, strict=False)
            waiting = waiting[len(drafts) + 1 :]
        for suspect in suspects:
            drafted[suspect] = await self._by_itself(traces[suspect])
        return [drafted[at] for at in range(len(traces))]

    async def _by_itself(self, trace: LoneTrace) -> Drafted:
        """Draft what a process ended at."""
        for _ in range(TRIES):
            try:
                (draft,) = await self._ask([trace])
            except WorkerLostError as error:
                if error.had_no_end:
                    return _endless(trace)
            else:
                return draft
        logger.error("trace ends the process that analyses it", extra={"trace_id": trace.key.trace_id})
        return AnalysisLostError(f"its analysis ended the process that did it, {TRIES} times")

    async def _ask(self, traces: Sequence[LoneTrace]) -> Sequence[Draft | None]:
        """Have the process draft, or another; nothing is drafted where none can be had.

        Raises:
            WorkerLostError: it ended.
        """
        worker = self._worker
        if worker is None and self._start_worker is not None:
            worker = await self._start(self._start_worker)
        if worker is None:
            return [None] * len(traces)  # no memory for another process, perhaps: the long way needs none
        try:
            return await worker.draft(traces)
        except WorkerLostError as error:
            self.tally.ended += 1
            logger.warning("process of analyses ended", extra={"reason": str(error), "traces": len(traces)})
            await self._dismiss()
            raise

    async def _dismiss(self) -> None:
        worker, self._worker = self._worker, None
        self.tally.processes = 0
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if worker is not None:
            await worker.end()

    def _put_off_end(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(IDLE_S, self._retire)

    def _retire(self) -> None:
        task = asyncio.create_task(self._dismiss())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
