"""OTLP exporters to a backend, opened by its destinations, and the router of signals to them."""

from __future__ import annotations

from collections.abc import Mapping

from collector_processor.exporters.grpc_exporter import GrpcExporter
from collector_processor.exporters.http_exporter import HttpExporter, JsonExporter
from collector_processor.exporters.memory_exporter import MemoryExporter, SentRequest
from collector_processor.otlp import Exporter, NoSuchService, SendOutcome, Signal, Tenant
from collector_processor.otlp.destination import Destination, Protocol

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
