"""Everything received by any transport is forwarded unchanged to any backend."""

from __future__ import annotations

from contextlib import AbstractContextManager

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from collector_processor.otlp import Signal
from tests.backends.processes import RunningJaeger
from tests.backends.supervise import free_ports, wait_until
from tests.e2e.backend import Backend, grpc_backend, http_backend
from tests.e2e.in_jaeger import look
from tests.e2e.line import Line, StartLine
from tests.e2e.spans import by_id, carriers, originals, placed
from tests.e2e.traffic import CARRIERS, DEMO_SPANS, WAYS, play_demo, send, span_id
from tests.otlp_requests import key_value, log_request, metric_request, record, request, span


def open_backend(protocol: str) -> AbstractContextManager[Backend]:
    return grpc_backend() if protocol == "grpc" else http_backend()


def everything(trace: int) -> bytes:
    """One request with every field of OTLP, in two spans of a web shop."""
    body = ExportTraceServiceRequest()
    group = body.resource_spans.add(schema_url="https://example.org/resource")
    group.resource.attributes.extend([key_value("service.name", "shop"), *every_value()])
    group.resource.dropped_attributes_count = 3
    scope = group.scope_spans.add(schema_url="https://example.org/scope")
    scope.scope.name, scope.scope.version, scope.scope.dropped_attributes_count = "shop.http", "1.2", 1
    scope.scope.attributes.append(key_value("scoped", value=True))
    scope.spans.extend([every_field(span(1, trace=trace)), every_field(span(2, trace=trace, parent=1))])
    return body.SerializeToString()


def every_value() -> list[KeyValue]:
    values = {
        "text": AnyValue(string_value="naïve \N{SNOWMAN}"),
        "empty": AnyValue(),
        "yes": AnyValue(bool_value=True),
        "large": AnyValue(int_value=-(2**63)),
        "part": AnyValue(double_value=0.1),
        "raw": AnyValue(bytes_value=b"\x00\xff"),
        "list": AnyValue(array_value=ArrayValue(values=[AnyValue(int_value=1), AnyValue()])),
        "map": AnyValue(kvlist_value=KeyValueList(values=[key_value("inner", 1)])),
    }
    return [KeyValue(key=key, value=value) for key, value in values.items()]


def every_field(one: Span) -> Span:
    one.trace_state, one.flags, one.kind = "vendor=a,other=b", 0x301, Span.SPAN_KIND_SERVER
    one.attributes.extend(every_value())
    one.status.CopyFrom(Status(code=Status.STATUS_CODE_ERROR, message="out of stock"))
    one.events.add(name="retry", time_unix_nano=5, dropped_attributes_count=2).attributes.extend(
        every_value()
    )
    link = one.links.add(trace_id=bytes(range(16)), span_id=bytes(range(8)), trace_state="c=d", flags=0x100)
    link.attributes.extend(every_value())
    one.dropped_attributes_count, one.dropped_events_count, one.dropped_links_count = 4, 5, 6
    return one


@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_every_signal_over_every_protocol_is_forwarded_byte_for_byte(
    start_line: StartLine, protocol: str, compression: str
) -> None:
    with open_backend(protocol) as backend:
        line = start_line(
            OTEL_EXPORTER_OTLP_ENDPOINT=backend.url,
            OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
            OTEL_EXPORTER_OTLP_COMPRESSION=compression,
        )
        for number, way in enumerate(WAYS, start=1):
            bodies = {
                Signal.TRACES: everything(number),
                Signal.LOGS: log_request(record(trace=number), record(trace=None, text=way)),
                Signal.METRICS: metric_request([number, 2]),
            }
            for signal, body in bodies.items():
                send(line, body, signal=signal, way=way)
                # One by one: neighbours may go on in one request.
                assert backend.await_requests(signal, number)[-1].body == body, f"{signal} by {way}"
    if protocol != "grpc":  # gRPC takes its encoding off the headers before a server sees them
        packed = None if compression == "none" else compression
        assert {one.headers.get("content-encoding") for one in backend.requests} == {packed}
    assert line.runs() == []
    assert settled(line, Signal.TRACES) == 2 * len(WAYS)
    assert settled(line, Signal.LOGS) == 2 * len(WAYS)
    assert settled(line, Signal.METRICS) == sum(range(1, len(WAYS) + 1)) + 2 * len(WAYS)


def settled(line: Line, signal: Signal) -> int:
    """Return the number of forwarded items, once all received ones are accounted for."""

    def all_forwarded() -> dict[str, int] | None:
        found = line.balance(signal)
        return found if found.get("forwarded") == found["received"] else None

    found = wait_until(all_forwarded, what=f"{signal} to be forwarded")
    assert found.keys() == {"received", "acknowledged", "forwarded"}
    assert len(set(found.values())) == 1
    return found["forwarded"]


@pytest.mark.parametrize("write_back", ["late", "hold:60000"])
def test_traffic_without_agents_is_neither_held_nor_judged(start_line: StartLine, write_back: str) -> None:
    with grpc_backend() as backend:
        # So patient that an agent's trace would be held to the end of the test.
        line = start_line(forward_endpoint=backend.url, write_back=write_back, root_grace=60_000)
        agents, web = play_demo(), request(span(1, trace=7), span(2, trace=7, parent=1))
        send(line, agents.body + web)
        send(line, log_request(record(trace=7)), signal=Signal.LOGS)

        backend.await_spans(f"{7:032x}", 2)
        assert len(backend.await_records()) == 1

        assert by_id(backend.spans(f"{7:032x}")) == by_id(placed(web))
        held = DEMO_SPANS if write_back != "late" else 0
        line.await_items("held", held)
        assert len(backend.spans(agents.trace_id)) == DEMO_SPANS - held
        assert line.runs() == []
        assert line.terminate() == 0
        assert by_id(backend.spans(agents.trace_id)) == by_id(placed(agents.body)), "let go at the end"


def test_a_real_jaeger_refuses_logs_and_still_gets_traces(
    jaeger: RunningJaeger, start_line: StartLine
) -> None:
    line = start_line(forward_endpoint=jaeger.otlp_grpc_endpoint)
    send(line, log_request(record()), signal=Signal.LOGS)
    line.await_items("unsupported", 1, Signal.LOGS)
    played = play_demo()
    send(line, played.body)

    seen = look(jaeger, played.trace_id, spans=DEMO_SPANS + CARRIERS)

    assert len(seen.decisive()) == 1
    assert line.said("backend does not take this signal: its items are dropped")
    wait_until(
        lambda: line.verdicts("unsupported", Signal.LOGS) == 1, what="the evaluation log to be given up"
    )
    wait_until(lambda: line.verdicts("sent") == 1, what="the carriers to be acknowledged")
    assert line.verdicts("refused") == 0


def test_a_signal_that_is_turned_off_is_kept_and_makes_no_evaluation_log(start_line: StartLine) -> None:
    with grpc_backend() as traces:
        line = start_line(forward_endpoint=traces.url, OTEL_EXPORTER_OTLP_LOGS_ENDPOINT="none")
        send(line, log_request(record()), signal=Signal.LOGS)
        line.await_items("kept", 1, Signal.LOGS)
        played = play_demo()
        send(line, played.body)
        assert carriers(traces.await_spans(played.trace_id, DEMO_SPANS + CARRIERS))
        lag = "blamespan_analysis_lag_seconds_count"
        wait_until(lambda: line.sample(lag) == 1, what="the lag to end with the delivery")
    assert traces.of(Signal.LOGS) == []
    assert [line.verdicts(what, Signal.LOGS) for what in ("sent", "refused", "unsupported")] == [0, 0, 0]


def test_an_unreachable_backend_is_distinguished_from_a_throttling_one_and_the_lag_ends_with_the_delivery(
    start_line: StartLine,
) -> None:
    (port,) = free_ports(1)
    line = start_line(forward_endpoint=f"http://127.0.0.1:{port}", shutdown_s=0.5)
    played = play_demo()
    send(line, played.body)
    wait_until(lambda: line.run(played.trace_id) is not None, what="the verdict")
    wait_until(lambda: bool(line.said("backend away")), what="the log to say so")
    told = line.said("backend away")[0]
    assert told["reason"] == f"connection refused to 127.0.0.1:{port}"
    assert line.labelled("blamespan_send_failures", "cause", signal="traces")["away"] > 0
    assert line.sample("blamespan_analysis_lag_seconds_count") == 0, "a verdict that nobody has is not there"
    assert line.said("backend asked to wait") == []


def test_a_signal_may_have_an_endpoint_of_its_own(start_line: StartLine) -> None:
    with grpc_backend() as traces, http_backend() as logs:
        line = start_line(
            OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=traces.url,
            OTEL_EXPORTER_OTLP_LOGS_ENDPOINT=f"{logs.url}/v1/logs",
            OTEL_EXPORTER_OTLP_LOGS_PROTOCOL="http/protobuf",
        )
        played = play_demo()
        send(line, played.body)
        send(line, metric_request([1]), signal=Signal.METRICS)
        events = logs.await_records(2)
        traces.await_spans(played.trace_id, DEMO_SPANS + CARRIERS)

    assert {one.signal for one in traces.requests} == {Signal.TRACES}
    assert {one.signal for one in logs.requests} == {Signal.LOGS}
    assert originals(traces.spans(played.trace_id)) == by_id(placed(played.body))
    assert [event.span_id.hex() for event in events] == [span_id(played.root), span_id(played.decisive)]
    assert line.balance(Signal.METRICS) == {"received": 1, "acknowledged": 1, "kept": 1}
