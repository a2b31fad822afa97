"""How the event loop tells the journal's writer what to do, and who waits for it. A shell.

To wake the writer's thread costs more than most of its work, so what can wait goes with the next request.
Nobody waits for a writer that has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from collector_processor.journal.commands import Command
from collector_processor.otlp import RefusedError

_NUDGE_S: Final = 0.05
"""How long a command may wait, if no request comes meanwhile."""
_FAILED: Final = "the journal's writer has failed"
ENDED_RETRY_S: Final = 60.0
"""What we ask of clients when only a restart helps."""


class Dispatch:
    """Lives on one event loop."""

    def __init__(self, submit: Callable[[Command], None]) -> None:
        """Begin with nothing to tell.

        Args:
            submit: gives the writer a command.
        """
        self._loop: Final = asyncio.get_running_loop()
        self._submit: Final = submit
        self._waiting: list[Command] = []
        self._nudge: asyncio.TimerHandle | None = None
        self._asking: Final[set[asyncio.Future[Any]]] = set()
        """Who is told if the writer ends before it answers."""
        self._awaiting: Final[set[asyncio.Future[None]]] = set()
        """Who just goes on then: the next start does what the writer was to do."""
        self._is_closed = False
        self.has_ended = False

    def now(self, *commands: Command) -> None:
        """Give the writer commands, and before them those that waited for company."""
        if self._nudge is not None:
            self._nudge.cancel()
            self._nudge = None
        waiting, self._waiting = self._waiting, []
        for command in (*waiting, *commands):
            self._submit(command)

    def soon(self, command: Command) -> None:
        """Let a command wait for company."""
        self._waiting.append(command)
        if self._nudge is None and not self._is_closed:
            self._nudge = self._loop.call_later(_NUDGE_S, self.now)

    def close(self) -> None:
        """Tell nothing any more unless asked to."""
        self._is_closed = True

    # Who waits for the writer.

    def answer(self) -> asyncio.Future[Any]:
        """Return what is to be resolved with the writer's answer; it raises if the writer ends before.

        Raises:
            RefusedError: it has ended already.
        """
        if self.has_ended:
            raise _refused()
        future: asyncio.Future[Any] = self._loop.create_future()
        self._asking.add(future)
        future.add_done_callback(self._asking.discard)
        return future

    def word(self) -> asyncio.Future[None]:
        """Return what is to be resolved when the writer is through with something, or ends."""
        future: asyncio.Future[None] = self._loop.create_future()
        if self.has_ended:
            future.set_result(None)
        self._awaiting.add(future)
        future.add_done_callback(self._awaiting.discard)
        return future

    def ended(self) -> None:
        """Let nobody wait any more: the writer has ended, by a fault of ours or since it was told to."""
        self.has_ended = True
        for asking in tuple(self._asking):
            if not asking.done():
                asking.set_exception(_refused())
        for waiting in tuple(self._awaiting):
            if not waiting.done():
                waiting.set_result(None)


def _refused() -> RefusedError:
    return RefusedError(_FAILED, retry_after_s=ENDED_RETRY_S)
