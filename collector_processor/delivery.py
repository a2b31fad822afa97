"""The outbox's way out: carriers and evaluation logs to the backend, until it has them.

At least once, in order, the same bytes each time. Each signal has its own loop:
a backend that takes no logs (Jaeger) or is throttled on one signal holds up
that signal only.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from collector_processor.otlp import Delivered, Exporter, SendOutcome, Signal, TryLater
from collector_processor.runstore import Outgoing

logger = logging.getLogger(__name__)

FIRST_WAIT_S: Final = 0.5
LONGEST_WAIT_S: Final = 30.0
Read = Callable[[Signal], Awaitable[list[Outgoing]]]
Forget = Callable[[list[int]], Awaitable[None]]


class OutboxDelivery:
    """Sends one signal's outbox entries until cancelled."""

    def __init__(
        self,
        signal: Signal,
        *,
        read: Read,
        forget: Forget,
        exporters: Mapping[Signal, Exporter],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Make the loop of one signal.

        Args:
            signal: what it sends.
            read: returns undelivered entries of the signal, oldest first.
            forget: strikes delivered entries out.
            exporters: where each signal goes; one that is missing goes nowhere, its
                entries are struck out (the store keeps the verdicts).
            sleep: waits between tries.
        """
        self.signal: Final = signal
        self._read: Final = read
        self._forget: Final = forget
        self._exporter: Final = exporters.get(signal)
        self._sleep: Final = sleep
        self._wake: Final = asyncio.Event()
        self.sent: int = 0
        self.refused: int = 0

    def wake(self) -> None:
        """Say that there may be something to send."""
        self._wake.set()

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            self._wake.clear()
            while await self.send_some():
                pass
            await self._wake.wait()

    async def drain(self, deadline_s: float) -> None:
        """Send what there is until the deadline; what is left is sent after the next start."""
        try:
            async with asyncio.timeout(deadline_s):
                while await self.send_some():
                    pass
        except TimeoutError:
            logger.warning("stopped before every verdict was delivered", extra={"signal": self.signal.value})

    async def send_some(self) -> bool:
        """Send one batch; return whether there was any."""
        entries = await self._read(self.signal)
        for entry in entries:
            await self._send(entry)
            await self._forget([entry.id])
        return bool(entries)

    async def _send(self, entry: Outgoing) -> None:
        if self._exporter is None:
            return
        wait = FIRST_WAIT_S
        while True:
            outcome = await self._exporter.send(entry.signal, entry.body, entry.tenant, ())
            if not isinstance(outcome, TryLater):
                self._count(outcome)
                return
            pause = outcome.after_s if outcome.after_s is not None else wait * random.uniform(0.5, 1.0)  # noqa: S311 - jitter
            await self._sleep(pause)
            wait = min(2 * wait, LONGEST_WAIT_S)

    def _count(self, outcome: SendOutcome) -> None:
        if isinstance(outcome, Delivered) and not outcome.rejected:
            self.sent += 1
            return
        self.refused += 1
        if self.refused == 1:
            logger.warning(
                "backend refused a verdict", extra={"signal": self.signal.value, "outcome": str(outcome)}
            )
