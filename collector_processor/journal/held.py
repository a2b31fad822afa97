"""Letting rows go on that waited for a verdict: as they are, or rewritten. A shell.

That they go on is durable before anybody is told: they must not be sent again as something else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from collector_processor.assembler import TraceKey
from collector_processor.journal.accounts import Accounts
from collector_processor.journal.chunks import Queue, State, by_segment
from collector_processor.journal.commands import Mark, Rewrite
from collector_processor.journal.dispatch import Dispatch
from collector_processor.otlp import RefusedError, Signal


class HeldRows:
    """Lives on one event loop."""

    def __init__(
        self, accounts: Accounts, dispatch: Dispatch, on_released: Callable[[Queue, int], None]
    ) -> None:
        """Begin.

        Args:
            accounts: know which rows are held.
            dispatch: tells the writer.
            on_released: told that rows of a queue, from a seq on, are pending now.
        """
        self._accounts: Final = accounts
        self._dispatch: Final = dispatch
        self._on_released: Final = on_released

    def release(self, key: TraceKey) -> list[asyncio.Future[None]]:
        """Let the trace's held rows go on as they are; each future is done when the disk knows of some."""
        held = self._accounts.held(key)
        self._accounts.let_go(key, held)
        queue = Queue(Signal.TRACES, key.tenant)
        futures: list[asyncio.Future[None]] = []
        for number, seqs in by_segment(sorted(held)).items():
            futures.append(self._dispatch.word())
            done = partial(self._released, futures[-1], queue, seqs[0])
            self._dispatch.now(Mark(segment=number, seqs=seqs, state=State.PENDING, done=done))
        return futures

    async def rewrite(self, seq: int, body: bytes) -> None:
        """Let one held row go on as ``body``; nothing happens if it is gone, or went on already.

        Raises:
            RefusedError: the disk refuses, or the writer has ended; the row is still held.
        """
        key = self._accounts.holder(seq)
        if key is None:
            return
        future = self._dispatch.answer()

        def done(refused: RefusedError | None) -> None:
            if refused is not None:
                if not future.done():
                    future.set_exception(refused)
                return
            self._accounts.let_go(key, (seq,))
            self._released(future, Queue(Signal.TRACES, key.tenant), seq)

        self._dispatch.now(Rewrite(seq=seq, body=body, done=done))
        await future

    def _released(self, future: asyncio.Future[None], queue: Queue, seq: int) -> None:
        self._on_released(queue, seq)
        if not future.done():
            future.set_result(None)
