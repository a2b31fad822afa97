"""Shared by the contracts of receivers and exporters: a sink in memory, a client for each transport, TLS
files."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol

import aiohttp
import grpc
import grpc.aio

from collector_processor.otlp import Address, Arrival, Receipt, Signal, grpc_path, http_path
from collector_processor.otlp.answers import MediaType, read_reason, read_retry_delay, read_success
from collector_processor.receivers import AdmissionRules, GrpcReceiver, HttpReceiver, Receiver, TlsFiles
from tests.security.authority import issue

LOOPBACK = Address(host="127.0.0.1", port=0)


class MemorySink:
    """Keeps arrivals; returns the scripted receipts, or raises the scripted errors, in order."""

    def __init__(self, *answers: Receipt | BaseException) -> None:
        self.arrivals: list[Arrival] = []
        self._answers = deque(answers)

    async def accept(self, arrival: Arrival) -> Receipt:
        self.arrivals.append(arrival)
        answer = self._answers.popleft() if self._answers else Receipt()
        if isinstance(answer, BaseException):
            raise answer
        return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer of either transport in one form."""

    ok: bool
    status: int
    """The gRPC code, or the HTTP status."""
    message: str = ""
    retry_after_s: float | None = None
    receipt: Receipt = field(default_factory=Receipt)


class Client(Protocol):
    async def post(
        self, port: int, signal: Signal, body: bytes, headers: Mapping[str, str] | None = None
    ) -> Answer: ...


@dataclass(frozen=True, slots=True)
class GrpcClient:
    """Raw bytes over gRPC."""

    compression: grpc.Compression = grpc.Compression.NoCompression

    async def post(
        self, port: int, signal: Signal, body: bytes, headers: Mapping[str, str] | None = None
    ) -> Answer:
        options = [("grpc.max_send_message_length", -1)]
        async with grpc.aio.insecure_channel(
            f"127.0.0.1:{port}", options=options, compression=self.compression
        ) as channel:
            make: Any = channel.unary_unary
            try:
                answer = await make(grpc_path(signal))(body, metadata=tuple((headers or {}).items()))
            except grpc.aio.AioRpcError as error:
                return _grpc_answer(error)
        return Answer(ok=True, status=0, receipt=read_success(signal, answer))


def _grpc_answer(error: grpc.aio.AioRpcError) -> Answer:
    pairs: Any = error.trailing_metadata()
    trailers = {key: value for key, value in pairs if isinstance(value, bytes)}
    return Answer(
        ok=False,
        status=error.code().value[0],
        message=error.details() or "",
        retry_after_s=read_retry_delay(trailers),
    )


@dataclass(frozen=True, slots=True)
class HttpClient:
    """Raw bytes over HTTP/protobuf."""

    compress: Callable[[bytes], bytes] | None = None

    async def post(
        self, port: int, signal: Signal, body: bytes, headers: Mapping[str, str] | None = None
    ) -> Answer:
        encoding = {"Content-Encoding": "gzip"} if self.compress else {}
        content = {"Content-Type": MediaType.PROTOBUF.value, **encoding, **(headers or {})}
        url = f"http://127.0.0.1:{port}{http_path(signal)}"
        data = BytesIO(self.compress(body) if self.compress else body)
        async with (
            aiohttp.ClientSession() as session,
            session.post(url, data=data, headers=content) as response,
        ):
            answer = await response.read()
            assert response.content_type == MediaType.PROTOBUF
            if response.status == 200:
                return Answer(ok=True, status=200, receipt=read_success(signal, answer))
            wait = response.headers.get("Retry-After")
            return Answer(
                ok=False,
                status=response.status,
                message=read_reason(answer),
                retry_after_s=None if wait is None else float(wait),
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """A kind of receiver, its client, and its answer for each case."""

    make: type[GrpcReceiver | HttpReceiver]
    client: Client
    gzip_client: Client
    invalid: int
    unauthorized: int
    too_large: int
    refused: int
    broken: int


@asynccontextmanager
async def listening(receiver: Receiver) -> AsyncIterator[int]:
    """Yield the port of ``receiver``, which is stopped afterwards."""
    port = await receiver.start()
    try:
        yield port
    finally:
        await receiver.stop(grace_s=1)


def rules(**changed: Any) -> AdmissionRules:
    return AdmissionRules(**changed)


def make_tls(directory: Path) -> TlsFiles:
    """Make an identity for ``localhost``; its certificate's file holds its authority too, for clients."""
    identity = issue(directory)
    with identity.certificate.open("ab") as certificate:
        certificate.write(identity.authority.read_bytes())
    return identity.server()
