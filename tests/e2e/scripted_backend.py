"""A backend over gRPC or HTTP that gives scripted answers and keeps the requests it accepts."""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from threading import Lock
from typing import Any, Final, Literal, TypeAlias

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]

from collector_processor.otlp import EXPORT, SERVICES, Signal, http_path
from tests.backends.supervise import wait_until
from tests.e2e.backend import HOST, Request
from tests.e2e.spans import placed
from tests.loopback import serve_http

Protocol: TypeAlias = Literal["grpc", "http/protobuf"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mood:
    """One answer; by default everything is accepted."""

    status: int = 200
    code: grpc.StatusCode = grpc.StatusCode.OK
    after_s: float | None = None
    """``Retry-After``, or ``RetryInfo``."""

    @property
    def takes(self) -> bool:
        return self.status == 200 and self.code is grpc.StatusCode.OK


CONTENT: Final = Mood()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request, its time, and its answer."""

    at: float
    request: Request
    mood: Mood


@dataclass(slots=True, kw_only=True)
class Moody:
    """Its requests; ``answer`` may be changed at any time."""

    url: str = ""
    answer: Callable[[Request], Mood] = lambda _: CONTENT
    asked: list[Asked] = field(default_factory=list)
    _lock: Any = field(default_factory=Lock)

    def ask(self, request: Request) -> Mood:
        mood = self.answer(request)
        with self._lock:
            self.asked.append(Asked(at=time.monotonic(), request=request, mood=mood))
        return mood

    def of(self, signal: Signal = Signal.TRACES) -> list[Asked]:
        return [asked for asked in self.asked if asked.request.signal is signal]

    def taken(self) -> list[str]:
        """Return the ids of the accepted spans, in order."""
        bodies = [asked.request.body for asked in self.of() if asked.mood.takes]
        return [one.id for one in placed(*bodies) if not one.is_carrier]

    def await_taken(self, count: int) -> list[str]:
        wait_until(lambda: len(self.taken()) >= count, what=f"{count} spans", timeout_s=300)
        return self.taken()


@contextmanager
def moody(protocol: Protocol, *, most_bytes: int = 4 << 20) -> Iterator[Moody]:
    """Run one; over gRPC it accepts messages of ``most_bytes``, by default gRPC's own limit."""
    with _over_grpc(most_bytes) if protocol == "grpc" else _over_http() as backend:
        yield backend


@contextmanager
def _over_grpc(most_bytes: int) -> Iterator[Moody]:
    backend = Moody()
    options = [("grpc.max_receive_message_length", most_bytes)]
    server = grpc.server(ThreadPoolExecutor(max_workers=16), options=options)
    server.add_generic_rpc_handlers(tuple(_service(backend, signal) for signal in Signal))
    backend.url = f"http://{HOST}:{server.add_insecure_port(f'{HOST}:0')}"
    server.start()
    try:
        yield backend
    finally:
        server.stop(None).wait()


def _service(backend: Moody, signal: Signal) -> grpc.GenericRpcHandler[bytes, bytes]:
    def export(body: bytes, context: grpc.ServicerContext) -> bytes:
        headers = {key: str(value) for key, value in context.invocation_metadata()}
        mood = backend.ask(Request(signal=signal, body=body, headers=headers))
        if mood.after_s is not None:
            context.set_trailing_metadata((("grpc-status-details-bin", _details(mood)),))
        if mood.code is not grpc.StatusCode.OK:
            context.abort(mood.code, "in a mood")
        return b""

    return grpc.method_handlers_generic_handler(
        SERVICES[signal], {EXPORT: grpc.unary_unary_rpc_method_handler(export)}
    )


def _details(mood: Mood) -> bytes:
    delay = Duration()
    delay.FromMilliseconds(int((mood.after_s or 0) * 1000))
    packed = AnyMessage()
    packed.Pack(RetryInfo(retry_delay=delay))
    status = Status(code=mood.code.value[0], message="in a mood", details=[packed])
    return bytes(status.SerializeToString())


@contextmanager
def _over_http() -> Iterator[Moody]:
    backend = Moody()
    signals = {http_path(signal): signal for signal in Signal}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            if headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            mood = backend.ask(Request(signal=signals[self.path], body=body, headers=headers))
            self.send_response(mood.status)
            if mood.after_s is not None:
                self.send_header("Retry-After", str(int(mood.after_s)))
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    with serve_http(Handler) as backend.url:
        yield backend
