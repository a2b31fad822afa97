"""OTLP going on to a backend: gRPC, HTTP, memory."""

from collections.abc import Mapping

from collector_processor.destination import (
    GRPC_MAX_BYTES,
    HTTP_MAX_BYTES,
    Compression,
    Destination,
    DestinationError,
    Protocol,
)
from collector_processor.exporters.grpc_exporter import GrpcExporter
from collector_processor.exporters.http_exporter import HttpExporter
from collector_processor.exporters.json_exporter import JsonExporter
from collector_processor.exporters.memory import MemoryExporter, SentRequest
from collector_processor.exporters.router import SignalRouter
from collector_processor.otlp import Exporter, Signal

__all__ = [
    "GRPC_MAX_BYTES",
    "HTTP_MAX_BYTES",
    "Compression",
    "Destination",
    "DestinationError",
    "GrpcExporter",
    "HttpExporter",
    "JsonExporter",
    "MemoryExporter",
    "SentRequest",
    "SignalRouter",
    "open_exporter",
    "open_exporters",
]


def open_exporter(destination: Destination, instance_id: str) -> Exporter:
    """Return the exporter to ``destination``; call it inside the running loop, and close what it returns.

    Args:
        destination: where to.
        instance_id: ours, which goes on in the hop header.

    Raises:
        DestinationError: the endpoint is no URL, or the certificate cannot be read.
    """
    match destination.protocol:
        case Protocol.GRPC:
            return GrpcExporter(destination, instance_id)
        case Protocol.HTTP_PROTOBUF:
            return HttpExporter(destination, instance_id)


def open_exporters(destinations: Mapping[Signal, Destination], instance_id: str) -> SignalRouter:
    """Return a router with an exporter for each signal; signals with equal destinations share one.

    Raises:
        DestinationError: as ``open_exporter``.
    """
    routes: dict[Signal, Exporter] = {}
    for signal, destination in destinations.items():
        shared = next((other for other in routes if destinations[other] == destination), None)
        routes[signal] = routes[shared] if shared else open_exporter(destination, instance_id)
    return SignalRouter(routes)
