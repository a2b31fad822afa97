"""OTLP out over gRPC: raw request bytes, one attempt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

import grpc
import grpc.aio

from collector_processor.destination import (
    Compression,
    Destination,
    DestinationError,
    outgoing_headers,
)
from collector_processor.exporters.outcomes import GrpcFailure, delivered, grpc_outcome
from collector_processor.exporters.untraced import untraced
from collector_processor.otlp import SendOutcome, Signal, Tenant
from collector_processor.otlp.answers import read_success
from collector_processor.otlp.services import grpc_path

_COMPRESSION: Final[Mapping[Compression, grpc.Compression]] = {
    Compression.NONE: grpc.Compression.NoCompression,
    Compression.GZIP: grpc.Compression.Gzip,
}

_OPTIONS: Final = (
    # The forwarder splits to the backend's limit; a second one here could only be wrong.
    ("grpc.max_send_message_length", -1),
    # gRPC's default of 2 minutes would keep spans waiting long after the backend is back.
    ("grpc.max_reconnect_backoff_ms", 5_000),
    # Retrying is the forwarder's, who counts it.
    ("grpc.enable_retries", 0),
    ("grpc.primary_user_agent", "blamespan"),
)


class GrpcExporter:
    """Sends to one gRPC backend. Made inside the running loop."""

    def __init__(self, destination: Destination, instance_id: str) -> None:
        self.max_bytes = destination.max_bytes
        self._destination = destination
        self._instance_id = instance_id
        self._channel = _channel(destination)
        # The stubs want serializers; bytes need none.
        make: Any = self._channel.unary_unary
        self._calls = {signal: make(grpc_path(signal)) for signal in Signal}

    async def send(self, signal: Signal, body: bytes, tenant: Tenant, hops: tuple[str, ...]) -> SendOutcome:
        """Send ``body`` and return what the backend said."""
        headers = outgoing_headers(self._destination, self._instance_id, tenant, hops)
        try:
            with untraced():
                answer: bytes = await self._calls[signal](
                    body, timeout=self._destination.timeout_s, metadata=tuple(headers.items())
                )
        except grpc.aio.AioRpcError as error:
            return grpc_outcome(_failure(error))
        return delivered(read_success(signal, answer))

    async def close(self) -> None:
        """Release the connection; what is under way ends as cancelled."""
        await self._channel.close(None)


def _channel(destination: Destination) -> grpc.aio.Channel:
    url = _url(destination)
    compression = _COMPRESSION[destination.compression]
    if url.scheme == "http":
        return grpc.aio.insecure_channel(url.netloc, options=_OPTIONS, compression=compression)
    credentials = grpc.ssl_channel_credentials(_authorities(destination))
    return grpc.aio.secure_channel(url.netloc, credentials, options=_OPTIONS, compression=compression)


def _url(destination: Destination) -> SplitResult:
    expected = f"endpoint {destination.endpoint!r}: expected http://host:port or https://host:port"
    try:
        url = urlsplit(destination.endpoint)
    except ValueError as error:
        raise DestinationError(expected) from error
    if url.scheme not in {"http", "https"} or not url.netloc:
        raise DestinationError(expected)
    return url


def _authorities(destination: Destination) -> bytes | None:
    if destination.certificate is None:
        return None
    try:
        return destination.certificate.read_bytes()
    except OSError as error:
        raise DestinationError(f"certificate {destination.certificate}: {error.strerror}") from error


def _failure(error: grpc.aio.AioRpcError) -> GrpcFailure:
    trailers: Any = error.trailing_metadata()  # pairs; "-bin" values are bytes
    return GrpcFailure(
        code=error.code().value[0],
        details=error.details() or "",
        trailers={key: value for key, value in trailers or () if isinstance(value, bytes)},
    )
