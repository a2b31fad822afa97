"""OTLP exporter over gRPC: raw request bytes, one attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

import grpc
import grpc.aio

from collector_processor.exporters.backend import (
    GrpcFailure,
    delivered,
    grpc_outcome,
    hide_credentials,
    open_tls,
    untraced,
)
from collector_processor.otlp import FRAME_BYTES, SendOutcome, Signal, Tenant, grpc_path
from collector_processor.otlp.answers import read_success
from collector_processor.otlp.destination import Compression, Destination, DestinationError, outgoing_headers

_COMPRESSION: Final[Mapping[Compression, grpc.Compression]] = {
    Compression.NONE: grpc.Compression.NoCompression,
    Compression.GZIP: grpc.Compression.Gzip,
}

_OPTIONS: Final = (
    # Unlimited: the forwarder splits requests to the backend's limit.
    ("grpc.max_send_message_length", -1),
    # gRPC's default of 2 minutes would delay spans long after the backend is back.
    ("grpc.max_reconnect_backoff_ms", 5_000),
    # Off: the forwarder retries, and counts it.
    ("grpc.enable_retries", 0),
    ("grpc.http2.max_frame_size", FRAME_BYTES),
    ("grpc.primary_user_agent", "blamespan"),
)


class GrpcExporter:
    """Exporter to one gRPC backend; create it inside the running loop."""

    def __init__(self, destination: Destination, instance_id: str) -> None:
        self.max_bytes = destination.max_bytes
        self._destination = destination
        self._instance_id = instance_id
        self._url = _url(destination)
        self._tls = open_tls(destination) if self._url.scheme == "https" else None
        self._identity = self._tls.identity() if self._tls else None
        self._channel = self._open()
        self._calls = _calls(self._channel)
        self._closing: set[asyncio.Task[None]] = set()

    async def send(self, signal: Signal, body: bytes, tenant: Tenant, hops: tuple[str, ...]) -> SendOutcome:
        """Send ``body`` once and return the outcome."""
        headers = outgoing_headers(self._destination, self._instance_id, tenant, hops)
        self._renew()
        try:
            with untraced():
                answer: bytes = await self._calls[signal](
                    body, timeout=self._destination.timeout_s, metadata=tuple(headers.items())
                )
        except grpc.aio.AioRpcError as error:
            outcome = grpc_outcome(_failure(error), self._url.netloc, self._destination.timeout_s)
            return hide_credentials(outcome, self._destination.hide)
        return hide_credentials(delivered(read_success(signal, answer)), self._destination.hide)

    async def close(self) -> None:
        """Close the connection; running requests are cancelled."""
        await asyncio.gather(self._channel.close(None), *self._closing)

    def _open(self) -> grpc.aio.Channel:
        netloc, compression = self._url.netloc, _COMPRESSION[self._destination.compression]
        if self._identity is None:
            return grpc.aio.insecure_channel(netloc, options=_OPTIONS, compression=compression)
        credentials = self._identity.credentials
        return grpc.aio.secure_channel(netloc, credentials, options=_OPTIONS, compression=compression)

    def _renew(self) -> None:
        """Reconnect if the certificates have changed; running requests finish on the old connection."""
        newest = self._tls.identity() if self._tls else None
        if newest is self._identity:
            return
        old, self._identity = self._channel, newest
        self._channel = self._open()
        self._calls = _calls(self._channel)
        closing = asyncio.create_task(old.close(self._destination.timeout_s))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


def _calls(channel: grpc.aio.Channel) -> Mapping[Signal, Any]:
    make: Any = channel.unary_unary  # the stubs require serializers; bytes need none
    return {signal: make(grpc_path(signal)) for signal in Signal}


def _url(destination: Destination) -> SplitResult:
    expected = f"endpoint {destination.shown!r}: expected http://host:port or https://host:port"
    try:
        url = urlsplit(destination.endpoint)
    except ValueError as error:
        raise DestinationError(expected) from error
    if url.scheme not in {"http", "https"} or not url.netloc:
        raise DestinationError(expected)
    return url


def _failure(error: grpc.aio.AioRpcError) -> GrpcFailure:
    trailers: Any = error.trailing_metadata()  # pairs; "-bin" values are bytes
    return GrpcFailure(
        code=error.code().value[0],
        details=error.details() or "",
        trailers={key: value for key, value in trailers or () if isinstance(value, bytes)},
    )
