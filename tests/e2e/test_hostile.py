"""Hostile input to a running service gets the right answer, and the service survives."""

from __future__ import annotations

import gzip
import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, build_opener
from uuid import uuid4

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from collector_processor.otlp import Signal, grpc_path
from collector_processor.rebuild.stages import rebuild
from semconv.attributes import FAILURE_DECISIVE
from semconv.model import TraceId
from tests.backends.supervise import wait_until
from tests.e2e.backend import Backend, grpc_backend
from tests.e2e.hostile import MEBIBYTE, Refused, failing_run, huge_attribute, odd_traces, refused
from tests.e2e.line import Line, starting
from tests.e2e.raw import plain_span, raw_spans, wrap

MAX_MEMORY = 400 * MEBIBYTE
REFUSED, ODD = refused(), odd_traces()
SETTINGS = {"root_grace": 200, "idle_close": 700, "max_age": 3000}


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    with grpc_backend() as running:
        yield running


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory, backend: Backend) -> Iterator[dict[str, Line]]:
    with ExitStack() as stack:
        found: dict[str, Line] = {}
        for mode, write_back in (("late", "late"), ("hold", "hold:2000")):
            start = stack.enter_context(starting(tmp_path_factory.mktemp(mode)))
            found[mode] = start(forward_endpoint=backend.url, write_back=write_back, **SETTINGS)
        yield found


@pytest.fixture
def line(request: pytest.FixtureRequest, services: dict[str, Line], backend: Backend) -> Iterator[Line]:
    """The service, unharmed after each test."""
    service = services[getattr(request, "param", "late")]
    yield service
    assert service.server.process.poll() is None, service.server.tail()
    assert [_get(service, path) for path in ("/healthz", "/readyz")] == ["ok\n", "ready\n"]
    assert _memory(service) < MAX_MEMORY
    for signal in Signal:
        balanced(service.balance(signal))
    blames_as_ever(service, backend)


def balanced(counts: dict[str, int]) -> None:
    settled = sum(
        counts.get(name, 0) for name in ("forwarded", "rejected", "unsupported", "lost", "kept", "held")
    )
    assert counts.get("received", 0) == counts.get("refused", 0) + counts.get("acknowledged", 0)
    assert counts.get("acknowledged", 0) == settled


def blames_as_ever(line: Line, backend: Backend) -> None:
    trace_id = TraceId(uuid4().hex)
    spans = failing_run(trace_id)
    body = wrap(spans[0], *map(plain_span, spans))
    assert call(line, body) is None
    verdict = line.verdict(trace_id)
    assert (verdict["status"], verdict["agent"]) == ("attributed", "planner")
    expected = len(spans) + (2 if line.announced["write_back"] == "late" else 0)

    def told() -> list[Span] | None:
        """Look for the blame: in hold mode it follows late where the verdict came late."""
        received = await_spans(backend, trace_id, expected)
        return received if any(map(is_decisive, received)) else None

    received = wait_until(told, what=f"the blame in {trace_id}")
    assert [one.name for one in received if is_decisive(one)] == [
        "planner: unhandled error" if len(received) > len(spans) else "execute_tool lookup"
    ]


def is_decisive(one: Span) -> bool:
    return any(pair.key == FAILURE_DECISIVE for pair in one.attributes)


def await_spans(backend: Backend, trace_id: TraceId, count: int) -> list[Span]:
    """Wait for the spans of a normal trace; others may arrive with them."""
    wanted = bytes.fromhex(trace_id)

    def found() -> list[Span] | None:
        bodies = [request.body for request in backend.of(Signal.TRACES)]
        spans = [Span.FromString(raw) for body in bodies for raw in raw_spans(body) if wanted in raw]
        return spans if len(spans) >= count else None

    return wait_until(found, what=f"{count} spans of {trace_id}")


def _get(line: Line, path: str) -> str:
    with build_opener(ProxyHandler({})).open(line.web + path, timeout=300) as answer:
        return str(answer.read().decode())


def _memory(line: Line) -> int:
    """The process's peak memory in bytes."""
    if not Path("/proc").exists():
        pytest.skip("needs /proc to see the memory of another process")
    return line.peak()


def post(line: Line, request: Refused) -> tuple[HTTPResponse, bytes]:
    connection = HTTPConnection(urlsplit(line.http).netloc, timeout=300)
    try:
        connection.putrequest("POST", "/v1/traces", skip_accept_encoding=True)
        connection.putheader("Content-Type", request.content_type)
        for name, value in (*request.headers, ("Content-Length", str(len(request.body)))):
            connection.putheader(name, value)
        connection.endheaders()
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.send(request.body)  # may be refused by its length alone: the answer is there
        answer = connection.getresponse()
        return answer, answer.read()
    finally:
        connection.close()


def call(line: Line, body: bytes) -> Any | None:
    """Export over gRPC; return the error, if any."""
    options = [("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(line.grpc.removeprefix("http://"), options=options) as channel:
        try:
            make: Any = channel.unary_unary  # the stubs want serializers, which raw bytes need not
            make(grpc_path(Signal.TRACES))(body, timeout=300)
        except grpc.RpcError as error:
            return error
    return None


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_too_large_or_too_deep_is_refused_in_bounded_memory(line: Line, name: str) -> None:
    request = REFUSED[name]
    answer, body = post(line, request)
    assert answer.status == request.status, body[:200]
    assert "Retry-After" not in answer.headers  # the same request would be refused again
    assert answer.headers["Content-Type"].startswith(request.content_type)


@pytest.mark.parametrize("line", ["late", "hold"], indirect=True)
@pytest.mark.parametrize("name", ODD)
def test_an_odd_trace_is_passed_on_as_it_is_and_analysed(line: Line, backend: Backend, name: str) -> None:
    odd = ODD[name].renamed(TraceId(uuid4().hex))
    for body in odd.bodies:
        assert call(line, body) is None
    verdict = line.verdict(odd.trace_id)
    assert verdict["status"] in {"attributed", "undetermined", "no_failure"}, verdict["reason"]
    wait_until(lambda: "held" not in line.balance(), what="nothing held")
    sent = {raw for body in odd.bodies for raw in raw_spans(body)}
    received = {raw for request in backend.of(Signal.TRACES) for raw in raw_spans(request.body)}
    rewritten = sent - received  # in hold mode: the decisive span and the root, each wherever it stands
    assert len(rewritten) <= (3 if line.announced["write_back"] == "hold" else 0)
    assert all(any(one.startswith(raw) for one in received) for raw in rewritten)
    (run,) = rebuild(odd.bodies)
    found = [warning for warning in run.trajectory.warnings if odd.warning and odd.warning in warning]
    assert bool(found) == bool(odd.warning), run.trajectory.warnings


def test_a_span_too_large_for_the_backend_is_refused_before_it_is_acknowledged(
    line: Line, backend: Backend
) -> None:
    trace_id = TraceId(uuid4().hex)
    body = gzip.compress(huge_attribute(15 * MEBIBYTE, trace_id))
    answer, said = post(line, Refused(body=body, status=200, headers=(("Content-Encoding", "gzip"),)))
    partial = ExportTraceServiceResponse.FromString(said).partial_success
    assert (answer.status, partial.rejected_spans) == (200, 1)
    assert "larger than the backend's limit" in partial.error_message
    await_spans(backend, trace_id, 3)


@pytest.mark.parametrize("door", ["grpc", "http", "web"])
def test_a_client_that_speaks_something_else_is_hung_up_on(line: Line, door: str) -> None:
    host, _, port = getattr(line, door).removeprefix("http://").rpartition(":")
    for opening in (
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"SSH-2.0-x\r\n",
        random.Random(door).randbytes(2000),
        b"POST / HTTP/9.9\r\n\r\n",
    ):
        with (
            socket.create_connection((host, int(port)), timeout=20) as connection,
            suppress(ConnectionError),  # one way of hanging up; a time-out is none
        ):
            connection.sendall(opening)
            connection.shutdown(socket.SHUT_WR)
            connection.recv(4096)
