"""OTLP exporters to a backend: gRPC, HTTP, in memory; and the router of signals to them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from collector_processor.exporters.grpc_exporter import GrpcExporter
from collector_processor.exporters.http_exporter import HttpExporter, JsonExporter
from collector_processor.otlp import Delivered, Exporter, NoSuchService, SendOutcome, Signal, Tenant
from collector_processor.otlp.destination import GRPC_MAX_BYTES, Destination, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class SentRequest:
    """A recorded request and its outcome."""

    signal: Signal
    body: bytes
    tenant: Tenant
    hops: tuple[str, ...]
    outcome: SendOutcome


class MemoryExporter:
    """An ``Exporter`` for tests and for running without a backend."""

    def __init__(
        self,
        outcomes: Iterable[SendOutcome] = (),
        *,
        otherwise: SendOutcome | None = None,
        max_bytes: int = GRPC_MAX_BYTES,
    ) -> None:
        """Return ``outcomes`` in order, then always ``otherwise`` (default: delivered)."""
        self.max_bytes = max_bytes
        self.requests: list[SentRequest] = []
        self._outcomes = deque(outcomes)
        self._otherwise = otherwise or Delivered()
        self._arrived = asyncio.Condition()

    @property
    def delivered(self) -> list[SentRequest]:
        """The successful requests, in order."""
        return [request for request in self.requests if isinstance(request.outcome, Delivered)]

    async def send(self, signal: Signal, body: bytes, tenant: Tenant, hops: tuple[str, ...]) -> SendOutcome:
        """Record the request and return the next outcome."""
        outcome = self._outcomes.popleft() if self._outcomes else self._otherwise
        sent = SentRequest(signal=signal, body=body, tenant=tenant, hops=hops, outcome=outcome)
        async with self._arrived:
            self.requests.append(sent)
            self._arrived.notify_all()
        return outcome

    async def wait_for_requests(self, count: int) -> None:
        """Wait until ``count`` requests were sent in all."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: len(self.requests) >= count)

    async def close(self) -> None:
        """Do nothing: the memory has no connection."""


__all__ = [
    "GrpcExporter", "HttpExporter", "JsonExporter", "MemoryExporter", "SentRequest", "SignalRouter",
    "open_exporter", "open_exporters",
]  # fmt: skip


class SignalRouter:
    """An ``Exporter`` that routes each signal to its own exporter, or returns ``NoSuchService``."""

    def __init__(self, routes: Mapping[Signal, Exporter]) -> None:
        """Route by ``routes``; an exporter that serves several signals is closed once."""
        self.routes = dict(routes)
        # The smallest limit; each route has its own.
        self.max_bytes = min((exporter.max_bytes for exporter in routes.values()), default=0)

    async def send(self, signal: Signal, body: bytes, tenant: Tenant, hops: tuple[str, ...]) -> SendOutcome:
        """Send ``body`` by the signal's exporter."""
        exporter = self.routes.get(signal)
        if exporter is None:
            return NoSuchService(reason=f"no endpoint is set for {signal.value}")
        return await exporter.send(signal, body, tenant, hops)

    async def close(self) -> None:
        """Close every exporter once."""
        for exporter in {id(exporter): exporter for exporter in self.routes.values()}.values():
            await exporter.close()


def open_exporter(destination: Destination, instance_id: str) -> Exporter:
    """Return an exporter to ``destination``, to be closed by the caller; call it inside the running loop.

    Raises:
        DestinationError: the endpoint is not a URL, or the certificate cannot be read.
    """
    match destination.protocol:
        case Protocol.GRPC:
            return GrpcExporter(destination, instance_id)
        case Protocol.HTTP_PROTOBUF:
            return HttpExporter(destination, instance_id)


def open_exporters(destinations: Mapping[Signal, Destination], instance_id: str) -> SignalRouter:
    """Return a router to all destinations; signals with equal destinations share an exporter.

    Raises:
        DestinationError: as ``open_exporter``.
    """
    routes: dict[Signal, Exporter] = {}
    for signal, destination in destinations.items():
        shared = next((other for other in routes if destinations[other] == destination), None)
        routes[signal] = routes[shared] if shared else open_exporter(destination, instance_id)
    return SignalRouter(routes)
