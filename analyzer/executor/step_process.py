"""Worker process for the steps of analyses that ask a model: both sides. Not pure."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from analyzer.executor.codec import StepAsked, read_result, read_step, write_result, write_step
from analyzer.executor.consulting import MOST_HELD, Begin, Order, Stepper, Stepping, StepResult
from analyzer.executor.worker_process import TRACE_CPU_S, WorkerLostError
from analyzer.inquiry.method import Answer
from collector_processor.core.analysis import AnalysisLostError
from semconv.model import Attribution

logger = logging.getLogger(__name__)

TRIES: Final = 2
"""Number of processes that one step may crash."""
IDLE_S: Final = 600.0
"""Idle seconds after which the process is stopped."""


class StepServer:
    """The worker's side: answers the messages of ``ProcessSteps``."""

    def __init__(self, begin: Begin) -> None:
        """Start without analyses."""
        self._stepper: Final = Stepper(begin)
        self._orders: Final[OrderedDict[str, Order]] = OrderedDict()

    def __call__(self, message: bytes) -> bytes:
        """Answer a message; an order from an earlier message is identified by its id.

        Raises:
            ValueError: it is not such a message.
        """
        asked = read_step(message)
        order = asked.order or self._orders.get(asked.id)
        if order is None:
            return write_result(None)
        self._orders[asked.id] = order
        self._orders.move_to_end(asked.id)
        if len(self._orders) > MOST_HELD:
            self._orders.popitem(last=False)
        result = self._stepper.step(order, asked.answers())
        if isinstance(result, Attribution):
            del self._orders[asked.id]
        return write_result(result)


class StepWorker(Protocol):
    """A worker process that runs steps."""

    async def exchange(self, message: bytes) -> bytes:
        """Send a message and return the answer.

        Raises:
            WorkerLostError: the process ended.
        """
        ...

    async def end(self) -> None:
        """Stop the process."""
        ...


class ProcessSteps:
    """Runs steps one at a time in a worker process of their own, which the first step starts.

    If no process can be started, steps run in threads.
    """

    def __init__(self, start: Callable[[], Awaitable[StepWorker]], instead: Stepping) -> None:
        """Start without a process; ``start`` may raise ``WorkerLostError``."""
        self._start: Final = start
        self._instead: Final = instead
        self._worker: StepWorker | None = None
        self._sent: Final[set[str]] = set()
        """Orders that the process has received."""
        self._turn: Final = asyncio.Lock()
        self._retirement: asyncio.TimerHandle | None = None
        self._ending: Final[set[asyncio.Task[None]]] = set()

    async def __call__(self, order: Order, answers: Sequence[Answer]) -> StepResult:
        """Run a step.

        Raises:
            AnalysisLostError: it used up its CPU time, or crashed processes.
        """
        async with self._turn:
            if self._retirement is not None:
                self._retirement.cancel()
            try:
                return await self._repeated(order, answers)
            finally:
                loop = asyncio.get_running_loop()
                self._retirement = loop.call_later(IDLE_S, self._retire)

    async def close(self) -> None:
        """Stop the process."""
        if self._retirement is not None:
            self._retirement.cancel()
        await self._end()
        await asyncio.gather(*self._ending, return_exceptions=True)

    async def _repeated(self, order: Order, answers: Sequence[Answer]) -> StepResult:
        for _ in range(TRIES):
            try:
                self._worker = self._worker or await self._start()
            except WorkerLostError as error:
                logger.warning(
                    "cannot start a worker process: analysing in threads", extra={"reason": str(error)}
                )
                return await self._instead(order, answers)
            try:
                return await self._exchanged(self._worker, order, answers)
            except WorkerLostError as error:
                logger.warning("worker process ended", extra={"reason": str(error)})
                await self._end()
                if error.used_up_cpu:
                    reason = f"the analysis was stopped: it used more than {TRACE_CPU_S:g} s of CPU time"
                    raise AnalysisLostError(reason) from error
        raise AnalysisLostError(f"the analysis crashed its worker process {TRIES} times")

    async def _exchanged(self, worker: StepWorker, order: Order, answers: Sequence[Answer]) -> StepResult:
        for known in (order.id in self._sent, False):
            asked = StepAsked.of(order.id, None if known else order, answers)
            message = await asyncio.to_thread(write_step, asked)
            result = read_result(await worker.exchange(message))
            if result is not None:
                self._sent.add(order.id)
                if isinstance(result, Attribution):
                    self._sent.discard(order.id)
                return result
        raise WorkerLostError("the process does not know an order that it was sent")

    def _retire(self) -> None:
        task = asyncio.create_task(self._end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _end(self) -> None:
        worker, self._worker = self._worker, None
        self._sent.clear()
        if worker is not None:
            await worker.end()
