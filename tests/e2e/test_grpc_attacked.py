"""gRPC under attack: strangers, metadata, methods, bombs, broken messages and floods of streams.

After each attack another client's request is acknowledged. Slow and half-open clients are in
``tests/e2e/test_clients.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import grpc
import pytest

from collector_processor.otlp import Signal, grpc_path
from collector_processor.rebuild.encode import encode
from tests.deploy.shifts import spans_of
from tests.e2e.header_flood import flood, indexed, literal
from tests.e2e.line import Line, starting
from tests.otlp_requests import log_request, metric_request, record

TOKEN: Final = "a-token-of-the-operator"
OURS: Final = (("authorization", f"Bearer {TOKEN}"),)
_MIB: Final = 1 << 20
_TIMEOUT_S: Final = 300.0
MOST_CPU_S: Final = 8.0
"""About 1 s on two idle cores; 35 s where each header was joined to those before it."""
MOST_GROWTH: Final = 768 * _MIB
STREAMS: Final = 3_000
BODIES: Final[Mapping[Signal, Callable[[], bytes]]] = {
    Signal.TRACES: lambda: encode(spans_of("planner", "clerk", failing="clerk")),
    Signal.LOGS: lambda: log_request(record()),
    Signal.METRICS: lambda: metric_request([1]),
}


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    with starting(tmp_path_factory.mktemp("grpc")) as start:
        opened = start(token=TOKEN, root_grace=100)
        yield opened
        assert opened.server.process.poll() is None, opened.server.tail()
        said = opened.server.log.read_text(errors="replace")
        assert "Traceback" not in said, said[said.index("Traceback") - 500 :][:3000]
        assert TOKEN not in said


def asked(
    line: Line,
    body: bytes,
    metadata: Sequence[tuple[str, str | bytes]] = OURS,
    *,
    path: str = grpc_path(Signal.TRACES),
    compression: grpc.Compression = grpc.Compression.NoCompression,
) -> str:
    """Make one call on a channel of its own; return ``OK``, or the code of the refusal."""
    with grpc.insecure_channel(line.grpc.removeprefix("http://")) as channel:
        made: Any = channel
        call = made.unary_unary(path)
        try:
            call(body, metadata=tuple(metadata), compression=compression, timeout=_TIMEOUT_S)
        except grpc.RpcError as refusal:
            return str(refusal.code().name)
        return "OK"


def is_well(line: Line) -> bool:
    return asked(line, BODIES[Signal.TRACES]()) == "OK"


@pytest.mark.parametrize(
    "path",
    [
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "/opentelemetry.proto.collector.trace.v1.TraceService/Import",
        "/opentelemetry.proto.collector.trace.v1.TraceService/Export/../Export",
        "/" + "x" * 4_000,
        "/../../etc/passwd",
        "/",
    ],
)
@pytest.mark.parametrize("metadata", [(), OURS], ids=["a stranger", "a client"])
def test_no_other_method_is_offered(line: Line, path: str, metadata: Any) -> None:
    assert asked(line, b"", metadata, path=path) in {"UNIMPLEMENTED", "UNAUTHENTICATED", "INTERNAL"}
    assert is_well(line)


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param([("x-more", "x" * 100_000)], id="one of 100,000 bytes"),
        pytest.param([(f"x-{number}", "x" * 50) for number in range(2_000)], id="2,000"),
        pytest.param([("x-more-bin", bytes(range(256)) * 400)], id="bytes"),
        pytest.param([("x-scope-orgid", "t" * 3_000)], id="a tenant of 3,000 characters"),
        pytest.param([("x-scope-orgid", name) for name in ("red", "blue")], id="two tenants"),
        pytest.param([("x-scope-orgid", "../../%2e%2e/'; DROP TABLE verdict --")], id="a tenant's path"),
        pytest.param([("grpc-timeout", "99999999H")], id="a timeout"),
    ],
)
def test_any_metadata_is_taken_or_refused(line: Line, metadata: list[tuple[str, str | bytes]]) -> None:
    told = asked(line, BODIES[Signal.TRACES](), [*OURS, *metadata])
    assert told in {"OK", "RESOURCE_EXHAUSTED", "INVALID_ARGUMENT"}
    assert is_well(line)


@pytest.mark.parametrize("block", [indexed(3_000_000), literal(15_000_000)], ids=["indexed", "literal"])
def test_headers_by_the_million_cost_little_more_than_reading_them(line: Line, block: bytes) -> None:
    """Joining them one by one took minutes. gRPC's core makes at most half a million objects of them."""
    before = line.cpu_s()
    flood(line.grpc.removeprefix("http://"), block)
    assert is_well(line)
    assert line.cpu_s() - before < MOST_CPU_S


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
@pytest.mark.parametrize("signal", Signal)
def test_bombs_unpack_to_no_more_than_a_request_may_have(
    line: Line, signal: Signal, compression: grpc.Compression
) -> None:
    """Of zeros; and of one valid span, that many times."""
    before = line.peak()
    many = BODIES[Signal.TRACES]() * (256 * _MIB // len(BODIES[Signal.TRACES]()))
    for body in (bytes(512 * _MIB), many):
        told = asked(line, body, path=grpc_path(signal), compression=compression)
        is_read = compression is grpc.Compression.Gzip
        assert told in ({"RESOURCE_EXHAUSTED", "INVALID_ARGUMENT"} if is_read else {"UNIMPLEMENTED"})
    assert line.peak() - before < MOST_GROWTH
    assert is_well(line)


def test_a_flood_of_streams_on_one_connection_is_served_or_asked_to_retry(line: Line) -> None:
    body = BODIES[Signal.TRACES]()
    with grpc.insecure_channel(line.grpc.removeprefix("http://")) as channel:
        made: Any = channel
        call = made.unary_unary(grpc_path(Signal.TRACES))
        calls = [call.future(body, metadata=OURS, timeout=_TIMEOUT_S) for _ in range(STREAMS)]
        cancelled = [one for one in calls[::3] if one.cancel()]
        codes = {one.code().name for one in calls if one not in cancelled}
        assert codes <= {"OK", "RESOURCE_EXHAUSTED", "UNAVAILABLE"}
        assert "OK" in codes
    assert is_well(line)


def test_a_stream_of_messages_to_a_method_that_takes_one_is_refused(line: Line) -> None:
    body = BODIES[Signal.TRACES]()
    with grpc.insecure_channel(line.grpc.removeprefix("http://")) as channel:
        made: Any = channel
        call = made.stream_stream(grpc_path(Signal.TRACES))
        for messages in ([], [body] * 100):
            stream = call(iter(messages), metadata=OURS, timeout=_TIMEOUT_S)
            with suppress(grpc.RpcError):
                assert len(list(stream)) <= 1
            assert stream.code().name in {"OK", "INTERNAL", "UNIMPLEMENTED", "INVALID_ARGUMENT"}
    assert is_well(line)
