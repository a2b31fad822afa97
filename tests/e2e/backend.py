"""A real OTLP server inside the test that keeps requests byte for byte."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any, Final

import grpc
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from collector_processor.otlp import EXPORT, SERVICES, Signal, http_path
from tests.backends.supervise import wait_until
from tests.e2e.spans import Placed, placed
from tests.loopback import serve_http

HOST: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request, decompressed."""

    signal: Signal
    body: bytes
    headers: dict[str, str]


@dataclass(slots=True, kw_only=True)
class Backend:
    """A server that accepts everything except the signals it does not support."""

    url: str = ""
    takes: frozenset[Signal]
    requests: list[Request] = field(default_factory=list)
    """Acknowledged requests, in order."""
    refused: list[Request] = field(default_factory=list)
    """Requests of unsupported signals."""

    def take(self, request: Request) -> bool:
        (self.requests if request.signal in self.takes else self.refused).append(request)
        return request.signal in self.takes

    def of(self, signal: Signal) -> list[Request]:
        return [request for request in self.requests if request.signal is signal]

    def spans(self, trace_id: str) -> list[Placed]:
        """Return the spans of a trace, in order of arrival."""
        wanted = bytes.fromhex(trace_id)
        found = [one for request in self.of(Signal.TRACES) for one in placed(request.body)]
        return [one for one in found if one.span.trace_id == wanted]

    def records(self) -> list[LogRecord]:
        bodies = [request.body for request in self.of(Signal.LOGS)]
        return [
            record
            for body in bodies
            for group in ExportLogsServiceRequest.FromString(body).resource_logs
            for scope in group.scope_logs
            for record in scope.log_records
        ]

    def await_requests(self, signal: Signal, count: int) -> list[Request]:
        """Wait for this many requests of a signal, and return them."""
        wait_until(lambda: len(self.of(signal)) >= count, what=f"{count} requests of {signal}")
        return self.of(signal)

    def await_records(self, count: int = 1) -> list[LogRecord]:
        """Wait for this many log records, and return them."""
        wait_until(lambda: len(self.records()) >= count, what=f"{count} log records")
        return self.records()

    def await_spans(self, trace_id: str, count: int) -> list[Placed]:
        """Wait for this many spans of a trace, and return them."""
        wait_until(lambda: len(self.spans(trace_id)) >= count, what=f"{count} spans of {trace_id}")
        return self.spans(trace_id)


@contextmanager
def grpc_backend(takes: Iterable[Signal] = Signal, *, at: str = f"{HOST}:0") -> Iterator[Backend]:
    """Run one over gRPC; unsupported signals are answered with ``UNIMPLEMENTED``."""
    backend = Backend(takes=frozenset(takes))
    server = grpc.server(ThreadPoolExecutor(max_workers=4))
    server.add_generic_rpc_handlers(tuple(_service(backend, signal) for signal in Signal))
    backend.url = f"http://{at.rpartition(':')[0]}:{server.add_insecure_port(at)}"
    server.start()
    try:
        yield backend
    finally:
        server.stop(None).wait()


def _service(backend: Backend, signal: Signal) -> grpc.GenericRpcHandler[bytes, bytes]:
    def export(body: bytes, context: grpc.ServicerContext) -> bytes:
        headers = {key: str(value) for key, value in context.invocation_metadata()}
        if not backend.take(Request(signal=signal, body=body, headers=headers)):
            context.abort(grpc.StatusCode.UNIMPLEMENTED, f"unknown service {SERVICES[signal]}")
        return b""

    return grpc.method_handlers_generic_handler(
        SERVICES[signal], {EXPORT: grpc.unary_unary_rpc_method_handler(export)}
    )


def body_of(request: BaseHTTPRequestHandler) -> bytes:
    """Return a request's body, sent whole or, as Node's exporters do, in chunks."""
    if request.headers.get("Transfer-Encoding", "").lower() != "chunked":
        return request.rfile.read(int(request.headers["Content-Length"]))
    chunks = []
    while size := int(request.rfile.readline().partition(b";")[0], 16):
        chunks.append(request.rfile.read(size))
        request.rfile.readline()
    request.rfile.readline()
    return b"".join(chunks)


@contextmanager
def http_backend(takes: Iterable[Signal] = Signal) -> Iterator[Backend]:
    """Run one over HTTP; unsupported signals are answered with 404."""
    backend = Backend(takes=frozenset(takes))
    signals = {http_path(signal): signal for signal in Signal}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = body_of(self)
            headers = {name.lower(): value for name, value in self.headers.items()}
            if headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            known = backend.take(Request(signal=signals[self.path], body=body, headers=headers))
            self.send_response(200 if known else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    with serve_http(Handler) as backend.url:
        yield backend
