"""A real Collector in front of blamespan, with every compression of its exporters."""

from __future__ import annotations

import pytest

from collector_processor.otlp import Signal
from tests.backends.fixtures import CollectorFactory
from tests.backends.processes import Compression, Forwarding
from tests.backends.supervise import wait_until
from tests.e2e.backend import grpc_backend
from tests.e2e.line import StartLine
from tests.e2e.test_line_passage import everything
from tests.e2e.traffic import send

SPANS = 2


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
def test_over_http_none_gzip_and_zstd_arrive(
    start_line: StartLine, collector_factory: CollectorFactory, compression: Compression
) -> None:
    with grpc_backend() as backend:
        line = start_line(forward_endpoint=backend.url)
        collector = collector_factory(
            Forwarding(endpoint=line.http, protocol="http/protobuf", compression=compression)
        )
        for number in range(1, 4):
            send(_Doors(collector.otlp_grpc_endpoint, collector.otlp_http_endpoint), everything(number))
        line.await_items("forwarded", 3 * SPANS)
    assert line.balance(Signal.TRACES) == dict.fromkeys(("received", "acknowledged", "forwarded"), 3 * SPANS)
    assert line.labelled("blamespan_refused_requests", "reason")["unsupported"] == 0


@pytest.mark.parametrize("compression", ["snappy", "x-snappy-framed", "zlib", "deflate", "lz4"])
def test_over_http_the_others_are_refused_in_words_that_say_what_to_set(
    start_line: StartLine, collector_factory: CollectorFactory, compression: Compression
) -> None:
    line = start_line()
    collector = collector_factory(
        Forwarding(endpoint=line.http, protocol="http/protobuf", compression=compression)
    )
    send(_Doors(collector.otlp_grpc_endpoint, collector.otlp_http_endpoint), everything(1))
    said = "expected one of gzip, identity, x-gzip, zstd"
    wait_until(lambda: said in collector.server.log.read_text(), what="the Collector to say so")
    assert line.balance(Signal.TRACES) == {}
    assert line.labelled("blamespan_refused_requests", "reason")["unsupported"] > 0


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_over_grpc_gzip_and_none_arrive(
    start_line: StartLine, collector_factory: CollectorFactory, compression: Compression
) -> None:
    with grpc_backend() as backend:
        line = start_line(forward_endpoint=backend.url)
        collector = collector_factory(Forwarding(endpoint=line.grpc, compression=compression))
        send(_Doors(collector.otlp_grpc_endpoint, collector.otlp_http_endpoint), everything(1))
        line.await_items("forwarded", SPANS)


@pytest.mark.parametrize("compression", ["zstd", "snappy"])
def test_over_grpc_zstd_and_snappy_are_refused_in_words_that_the_docs_explain(
    start_line: StartLine, collector_factory: CollectorFactory, compression: Compression
) -> None:
    """gRPC's core refuses them before our code runs; docs/backends/collector.md says what to set."""
    line = start_line()
    collector = collector_factory(Forwarding(endpoint=line.grpc, compression=compression))
    send(_Doors(collector.otlp_grpc_endpoint, collector.otlp_http_endpoint), everything(1))
    said = "Error parsing 'grpc-encoding' metadata"
    wait_until(lambda: said in collector.server.log.read_text(), what="the Collector to say so")
    assert line.balance(Signal.TRACES) == {}


class _Doors:
    def __init__(self, grpc: str, http: str) -> None:
        self.grpc, self.http = grpc, http
