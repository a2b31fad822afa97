"""Receivers that keep a program's telemetry in memory, and pass it on where the program sent it. Not pure."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from collector_processor.exporters import open_exporters
from collector_processor.otlp import (
    Address,
    Arrival,
    Exporter,
    Receipt,
    RefusedError,
    Signal,
    TryLater,
)
from collector_processor.otlp.destination import Destination
from collector_processor.receivers import AdmissionRules, GrpcReceiver, HttpReceiver

_FREE: Final = Address(host="127.0.0.1", port=0)
_MOST_BYTES: Final = 512 << 20
"""Bytes of telemetry that are kept; beyond it requests are refused."""
_PAUSE_S: Final = 0.5
_LAST_S: Final = 10.0
"""Seconds after the program's end for what its own backend has not taken yet."""
_STOP_S: Final = 1.0


class Collected:
    """The telemetry of one program; a sink of receivers."""

    def __init__(self, own: Exporter | None) -> None:
        """Start with nothing; ``own`` sends to the program's own backend."""
        self._own: Final = own
        self._bodies: Final[list[tuple[Signal, bytes]]] = []
        self._bytes = 0
        self._waiting: Final[asyncio.Queue[Arrival]] = asyncio.Queue()
        self.undelivered = 0
        """Requests that the program's own backend did not take."""
        self.why = ""
        """Why it did not take the last of them."""

    def bodies(self, signal: Signal) -> tuple[bytes, ...]:
        """Return the requests of a signal in the order of their arrival."""
        return tuple(body for kind, body in self._bodies if kind is signal)

    async def accept(self, arrival: Arrival) -> Receipt:
        """Keep a request.

        Raises:
            RefusedError: too much is kept already.
        """
        if self._bytes + len(arrival.body) > _MOST_BYTES:
            raise RefusedError(f"{_MOST_BYTES} bytes are kept already", retry_after_s=60.0)
        if arrival.signal is not Signal.METRICS:
            self._bytes += len(arrival.body)
            self._bodies.append((arrival.signal, arrival.body))
        if self._own is not None:
            self._waiting.put_nowait(arrival)
        return Receipt()

    async def pass_on(self) -> None:
        """Send what arrives to the program's own backend, without end."""
        while self._own is not None:
            arrival = await self._waiting.get()
            await self._deliver(self._own, arrival, time.monotonic() + _LAST_S)
            self._waiting.task_done()

    async def _deliver(self, own: Exporter, arrival: Arrival, until_s: float) -> None:
        while True:
            outcome = await own.send(arrival.signal, arrival.body, arrival.tenant, arrival.hops)
            if not isinstance(outcome, TryLater):
                self._count(str(getattr(outcome, "reason", "")))
                return
            if time.monotonic() > until_s:
                self._count(outcome.reason)
                return
            await asyncio.sleep(_PAUSE_S)

    def _count(self, why: str) -> None:
        if why:
            self.undelivered, self.why = self.undelivered + 1, why

    async def drain(self) -> None:
        """Wait until the program's own backend has everything, for a bounded time."""
        try:
            async with asyncio.timeout(_LAST_S):
                await self._waiting.join()
        except TimeoutError:
            self.undelivered += self._waiting.qsize()
            self.why = self.why or "it is too slow"


class Collecting:
    """Running receivers of both protocols."""

    def __init__(self, collected: Collected, grpc_port: int, http_port: int) -> None:
        self.collected: Final = collected
        self.grpc: Final = f"http://127.0.0.1:{grpc_port}"
        self.http: Final = f"http://127.0.0.1:{http_port}"


@asynccontextmanager
async def collecting(destinations: Mapping[Signal, Destination]) -> AsyncIterator[Collecting]:
    """Receive OTLP on free ports of loopback until the block ends.

    Args:
        destinations: where the program's telemetry went before, by signal; empty for nowhere.

    Raises:
        DestinationError: a destination is no URL, or its certificate cannot be read.
    """
    async with AsyncExitStack() as stack:
        own = open_exporters(destinations, secrets.token_hex(8)) if destinations else None
        if own is not None:
            stack.push_async_callback(own.close)
        collected = Collected(own)
        ports = []
        for receiver in (
            GrpcReceiver(collected, _FREE, AdmissionRules()),
            HttpReceiver(collected, _FREE, AdmissionRules()),
        ):
            ports.append(await receiver.start())
            stack.push_async_callback(receiver.stop, _STOP_S)
        passing = asyncio.create_task(collected.pass_on())
        stack.callback(passing.cancel)
        yield Collecting(collected, *ports)
        await collected.drain()
