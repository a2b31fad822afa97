"""Raw OTLP requests for tests of the fast lane, written and read with the real protobuf classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from collector_processor.journal import Journal
from collector_processor.otlp import TraceKey
from collector_processor.wire.facts import SpanNote
from collector_processor.wire.protobuf import write_varint
from semconv.model import TraceId

Value = str | int | bool
REMOTE_PARENT = 0x300
"""Span.flags: the parent is known to be in another process."""


def trace_name(number: int) -> TraceId:
    return TraceId(f"{number:032x}")


def span_name(number: int) -> str:
    return f"{number:016x}"


def key_value(key: str, value: Value) -> KeyValue:
    if isinstance(value, bool):
        return KeyValue(key=key, value=AnyValue(bool_value=value))
    if isinstance(value, int):
        return KeyValue(key=key, value=AnyValue(int_value=value))
    return KeyValue(key=key, value=AnyValue(string_value=value))


def span(
    number: int = 1,
    *,
    trace: int = 1,
    parent: int | None = None,
    attributes: Mapping[str, Value] | None = None,
    name: str = "work",
    flags: int = 0,
    trace_state: str = "",
) -> Span:
    return Span(
        trace_id=trace.to_bytes(16),
        span_id=number.to_bytes(8),
        parent_span_id=b"" if parent is None else parent.to_bytes(8),
        trace_state=trace_state,
        name=name,
        start_time_unix_nano=1_700_000_000_000_000_000,
        end_time_unix_nano=1_700_000_000_000_001_000,
        attributes=[key_value(key, value) for key, value in (attributes or {}).items()],
        flags=flags,
    )


def request(*spans: Span, scope: str = "shop", service: str = "checkout") -> bytes:
    message = ExportTraceServiceRequest()
    group = message.resource_spans.add()
    group.resource.attributes.append(key_value("service.name", service))
    group.scope_spans.add(spans=spans).scope.name = scope
    return message.SerializeToString()


def many_spans(count: int, *, traces: int = 1, payload: int = 20) -> bytes:
    return request(
        *(span(n + 1, trace=n % traces + 1, attributes={"text": "x" * payload}) for n in range(count))
    )


def record(*, trace: int | None = 1, name: str = "", text: str = "said") -> LogRecord:
    return LogRecord(
        body=AnyValue(string_value=text),
        trace_id=b"" if trace is None else trace.to_bytes(16),
        span_id=b"" if trace is None else (1).to_bytes(8),
        event_name=name,
    )


def log_request(*records: LogRecord, scope: str = "shop") -> bytes:
    message = ExportLogsServiceRequest()
    message.resource_logs.add().scope_logs.add(log_records=records).scope.name = scope
    return message.SerializeToString()


def metric_request(points: Sequence[int]) -> bytes:
    """Return one gauge for each number, with that many data points."""
    message = ExportMetricsServiceRequest()
    scope = message.resource_metrics.add().scope_metrics.add()
    for number, count in enumerate(points):
        metric = scope.metrics.add(name=f"gauge{number}")
        for value in range(count):
            metric.gauge.data_points.add(as_int=value)
    return message.SerializeToString()


def spans_in(*bodies: bytes) -> list[Span]:
    return [
        one
        for body in bodies
        for group in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in group.scope_spans
        for one in scope.spans
    ]


def numbers_in(*bodies: bytes) -> list[int]:
    """Return the spans by number, in order."""
    return [int.from_bytes(one.span_id) for one in spans_in(*bodies)]


_PLACES = {"flags": 4.5}
"""A field's place need not follow its number."""


def as_the_collector_writes(body: bytes) -> bytes:
    """The same trace request as Go's pdata writes it: fields in descending order, some of them empty."""
    return _falling(ExportTraceServiceRequest.FromString(body))


def _falling(message: Message) -> bytes:
    parts: list[bytes] = [b"z\0"] if isinstance(message, Span) and not message.HasField("status") else []
    present = sorted(message.ListFields(), key=lambda found: -_PLACES.get(found[0].name, found[0].number))
    for descriptor, value in present:
        if descriptor.message_type is None:
            alone = type(message)()
            setattr(alone, descriptor.name, value)
            parts.append(alone.SerializeToString())
            continue
        for one in value if descriptor.is_repeated else [value]:
            raw = _falling(one)
            parts += (write_varint(descriptor.number << 3 | 2), write_varint(len(raw)), raw)
    if isinstance(message, Span) and not message.parent_span_id:
        parts.insert(-2, b'"\0')  # before both ids
    return b"".join(parts)


def as_dotnet_writes(body: bytes) -> bytes:
    """The same trace request as .NET's exporter writes it: lengths of groups, spans and attributes take four
    bytes, reserved before the length is known, and a span's flags come after its parent."""
    return _roomy(ExportTraceServiceRequest.FromString(body))


def _roomy(message: Message) -> bytes:
    parts: list[bytes] = []
    for descriptor, value in sorted(
        message.ListFields(), key=lambda found: _PLACES.get(found[0].name, found[0].number)
    ):
        if descriptor.message_type is None or isinstance(message, KeyValue):
            alone = type(message)()
            if descriptor.message_type is None:
                setattr(alone, descriptor.name, value)
            else:
                getattr(alone, descriptor.name).CopyFrom(value)
            parts.append(alone.SerializeToString())
            continue
        for one in value if descriptor.is_repeated else [value]:
            raw = _roomy(one)
            parts += (write_varint(descriptor.number << 3 | 2), _in_four_bytes(len(raw)), raw)
    return b"".join(parts)


def _in_four_bytes(length: int) -> bytes:
    return bytes((length & 0x7F | 0x80, length >> 7 & 0x7F | 0x80, length >> 14 & 0x7F | 0x80, length >> 21))


async def rows_of(journal: Journal, key: TraceKey) -> tuple[tuple[int, bytes], ...]:
    ((rows, _),) = await journal.read_whole([key])
    return rows


async def log_rows_of(journal: Journal, key: TraceKey) -> tuple[tuple[int, bytes], ...]:
    ((_, rows),) = await journal.read_whole([key])
    return rows


def span_note(
    span_id: int,
    parent_id: int = 0,
    bits: int = 0,
    *,
    end_ns: int = 0,
    source: int = 0,
    kind: int = 0,
    links: tuple[TraceId, ...] = (),
) -> SpanNote:
    return span_id, parent_id, bits, end_ns, source, kind, links
