"""Receiver that keeps a program's telemetry, and passes it on where the program sent it. Not pure."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, TypeAlias

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
from collector_processor.settings import load_settings

Destinations: TypeAlias = Mapping[Signal, Destination]
_FREE: Final = Address(host="127.0.0.1", port=0)
_MOST_BYTES: Final = 512 << 20
"""Bytes of telemetry that are kept; beyond it requests are refused."""
_PAUSE_S: Final = 0.5
_LAST_S: Final = 10.0
"""Seconds after the program's end for what its own backend has not taken yet."""
_STOP_S: Final = 1.0


def own_destinations(environ: Mapping[str, str]) -> tuple[Destinations, Destinations]:
    """Return where a program's telemetry goes by OTLP/gRPC and by OTLP/HTTP.

    A protocol that the user set applies to both.

    Raises:
        SettingsError: one of OpenTelemetry's variables is invalid.
    """
    otel = {key: value for key, value in environ.items() if key.startswith("OTEL_") and value}
    grpc, http = (
        load_settings({"OTEL_EXPORTER_OTLP_PROTOCOL": kind, **otel}).endpoints
        for kind in ("grpc", "http/protobuf")
    )
    return grpc, http


class Collected:
    """The telemetry of one program; a sink of receivers."""

    def __init__(self, own: Exporter | None, last_s: float = _LAST_S) -> None:
        """Start with nothing; ``own`` sends to the program's own backend, with ``last_s`` for the rest."""
        self._own: Final = own
        self._last_s: Final = last_s
        self._bodies: Final[list[tuple[Signal, bytes]]] = []
        self._bytes = 0
        self._waiting: Final[asyncio.Queue[Arrival]] = asyncio.Queue()
        self._unsettled = 0
        self.undelivered = 0
        """Requests that the program's own backend did not take."""
        self.why = ""
        """Why it did not take the last of them."""

    def bodies(self, signal: Signal) -> tuple[bytes, ...]:
        """Return the requests of a signal in the order of their arrival."""
        return tuple(body for kind, body in self._bodies if kind is signal)

    def forget(self) -> None:
        """Forget what has arrived, which makes room for more."""
        self._bodies.clear()
        self._bytes = 0

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
            self._unsettled += 1
        return Receipt()

    async def pass_on(self) -> None:
        """Send what arrives to the program's own backend, without end."""
        while self._own is not None:
            arrival = await self._waiting.get()
            await self._deliver(self._own, arrival, time.monotonic() + self._last_s)
            self._unsettled -= 1
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
            async with asyncio.timeout(self._last_s):
                await self._waiting.join()
        except TimeoutError:
            self.undelivered += self._unsettled
            self.why = self.why or "it is too slow"


class Collecting:
    """A running receiver."""

    def __init__(self, parts: Sequence[Collected], port: int) -> None:
        self._parts: Final = parts
        self.url: Final = f"http://127.0.0.1:{port}"

    def bodies(self, signal: Signal) -> tuple[bytes, ...]:
        """Return the requests of a signal, of each protocol in the order of their arrival."""
        return tuple(body for part in self._parts for body in part.bodies(signal))

    def forget(self) -> None:
        """Forget what has arrived, which makes room for more."""
        for part in self._parts:
            part.forget()

    @property
    def undelivered(self) -> int:
        """Requests that the program's own backend did not take."""
        return sum(part.undelivered for part in self._parts)

    @property
    def why(self) -> str:
        """Why it did not take the last of them."""
        return next((part.why for part in self._parts if part.why), "")


@asynccontextmanager
async def collecting(grpc_to: Destinations, http_to: Destinations) -> AsyncIterator[Collecting]:
    """Receive OTLP of both protocols on one free port of loopback until the block ends.

    Args:
        grpc_to: where the program's telemetry goes too if it comes over gRPC, by signal; empty for nowhere.
        http_to: the same if it comes over HTTP.

    Raises:
        DestinationError: a destination is no URL, or its certificate cannot be read.
    """
    async with AsyncExitStack() as stack:
        parts: list[Collected] = []
        ports: list[int] = []
        for kind, destinations in ((GrpcReceiver, grpc_to), (HttpReceiver, http_to)):
            own = open_exporters(destinations, secrets.token_hex(8)) if destinations else None
            if own is not None:
                stack.push_async_callback(own.close)
            part = Collected(own)
            receiver = kind(part, _FREE, AdmissionRules())
            parts.append(part)
            ports.append(await receiver.start())
            stack.push_async_callback(receiver.stop, _STOP_S)
            passing = asyncio.create_task(part.pass_on())
            stack.callback(passing.cancel)
        front = await asyncio.start_server(_to_either(*ports), "127.0.0.1", 0)
        stack.callback(front.close)
        yield Collecting(parts, front.sockets[0].getsockname()[1])
        await asyncio.gather(*(part.drain() for part in parts))


def _to_either(grpc_port: int, http_port: int) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]:
    """Return a handler that connects a client to the receiver of its protocol, told by its first bytes."""

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            first = await reader.readexactly(len(_HTTP_2))
            port = grpc_port if first == _HTTP_2 else http_port
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
            inner_writer.write(first)
            await asyncio.gather(_pipe(reader, inner_writer), _pipe(inner_reader, writer))
        except (OSError, asyncio.IncompleteReadError):
            writer.close()

    return connect


_HTTP_2: Final = b"PRI"
"""How a connection of HTTP/2, and so of gRPC, begins (RFC 9113, 3.4); no method of HTTP/1 does."""


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while piece := await reader.read(1 << 16):
            writer.write(piece)
            await writer.drain()
    finally:
        writer.close()
