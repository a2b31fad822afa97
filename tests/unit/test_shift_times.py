"""A recorded run is moved to now: all times by the same amount, and nothing else changes."""

from __future__ import annotations

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from analyzer.cli.commands.prove.replay import _moved
from collector_processor.otlp import Signal
from collector_processor.otlp.otlp_json import newest_ns, shift_times
from tests.otlp_requests import key_value

NOW = 1_800_000_000_000_000_000
OLD = 1_700_000_000_000_000_000


def traces(end_ns: int = OLD + 9) -> bytes:
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add(schema_url="https://example.org").scope_spans.add()
    span = scope.spans.add(name="chat", start_time_unix_nano=OLD, end_time_unix_nano=end_ns)
    span.events.add(name="retry", time_unix_nano=OLD + 3)
    span.events.add(name="no time")
    span.attributes.append(key_value("start_time_unix_nano", OLD))
    span.links.add(trace_id=bytes(range(16)), span_id=bytes(range(8)), flags=0x100)
    span.dropped_events_count, span.flags, span.trace_state = 2, 0x301, "a=b"
    scope.spans.add(name="still open", start_time_unix_nano=OLD + 5)
    return request.SerializeToString()


def logs() -> bytes:
    request = ExportLogsServiceRequest()
    records = request.resource_logs.add().scope_logs.add().log_records
    records.add(time_unix_nano=OLD + 4, observed_time_unix_nano=OLD + 20, severity_number=9)
    return request.SerializeToString()


def metrics() -> bytes:
    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name="tokens")
    point = metric.sum.data_points.add(start_time_unix_nano=OLD, time_unix_nano=OLD + 6, as_int=3)
    point.exemplars.add(time_unix_nano=OLD + 2, as_int=1)
    return request.SerializeToString()


def test_spans_events_and_logs_move_by_as_much_and_the_newest_span_ends_now() -> None:
    (_, spans), (_, records), (_, points) = _moved(
        [(Signal.TRACES, traces()), (Signal.LOGS, logs()), (Signal.METRICS, metrics())], NOW
    )
    shift = NOW - (OLD + 9)
    first, second = ExportTraceServiceRequest.FromString(spans).resource_spans[0].scope_spans[0].spans
    assert (first.start_time_unix_nano, first.end_time_unix_nano) == (OLD + shift, NOW)
    assert [event.time_unix_nano for event in first.events] == [OLD + 3 + shift, 0]
    assert (second.start_time_unix_nano, second.end_time_unix_nano) == (OLD + 5 + shift, 0)
    record = ExportLogsServiceRequest.FromString(records).resource_logs[0].scope_logs[0].log_records[0]
    assert record.time_unix_nano == OLD + 4 + shift
    assert record.observed_time_unix_nano == OLD + 20 + shift, "newer than any span, and left so"
    metric = ExportMetricsServiceRequest.FromString(points).resource_metrics[0].scope_metrics[0].metrics[0]
    (point,) = metric.sum.data_points
    assert (point.time_unix_nano, point.exemplars[0].time_unix_nano) == (OLD + 6 + shift, OLD + 2 + shift)


def test_there_and_back_again_nothing_else_has_changed() -> None:
    for signal, body in ((Signal.TRACES, traces()), (Signal.LOGS, logs()), (Signal.METRICS, metrics())):
        assert shift_times(signal, shift_times(signal, body, 10**18), -(10**18)) == body


def test_logs_alone_end_now() -> None:
    ((_, body),) = _moved([(Signal.LOGS, logs())], NOW)
    assert newest_ns(Signal.LOGS, body) == NOW


def test_what_has_no_times_or_cannot_be_read_stays_as_it_is() -> None:
    for body in (b"", b"\xff\xff", ExportTraceServiceRequest().SerializeToString()):
        assert _moved([(Signal.TRACES, body)], NOW) == [(Signal.TRACES, body)]


def test_times_stay_in_what_otlp_can_say() -> None:
    early = shift_times(Signal.TRACES, traces(), -(2**63))
    assert newest_ns(Signal.TRACES, early) == 1
    late = shift_times(Signal.TRACES, traces(end_ns=2**64 - 1), 10**18)
    assert newest_ns(Signal.TRACES, late) == 2**64 - 1
