"""Our records → OTLP protobuf; the inverse of ``decode``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.logs.v1.logs_pb2 import SeverityNumber
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage

from semconv.model import (
    Attributes,
    AttributeValue,
    Event,
    Link,
    LogRecord,
    Resource,
    Scope,
    Span,
    SpanStatus,
)

_STATUS: Final[Mapping[SpanStatus, int]] = {SpanStatus.UNSET: 0, SpanStatus.OK: 1, SpanStatus.ERROR: 2}
_SEVERITIES: Final[Mapping[int, str]] = {number: name for name, number in SeverityNumber.items()}
_INT64: Final = range(-(2**63), 2**63)

T = TypeVar("T", Span, LogRecord)


def encode(spans: Iterable[Span]) -> bytes:
    """Return an ``ExportTraceServiceRequest``; neighbours with equal resource and scope share a group.

    Log records joined to spans (``Span.logs``) are not written.
    """
    request = ExportTraceServiceRequest()
    for members, span in _placed(spans, request.resource_spans, "scope_spans"):
        _write_span(members.spans.add(), span)
    return request.SerializeToString()


def encode_logs(records: Iterable[LogRecord]) -> bytes:
    """Return an ``ExportLogsServiceRequest``; the observed time is the event's time."""
    request = ExportLogsServiceRequest()
    for members, record in _placed(records, request.resource_logs, "scope_logs"):
        _write_record(members.log_records.add(), record)
    return request.SerializeToString()


def encode_attributes(attributes: Attributes) -> bytes:
    """Return ``attributes`` as the bytes of repeated ``Span.attributes`` (field 9).

    Appended to a span's bytes, they extend its attributes: protobuf concatenates repeated fields.
    """
    message = SpanMessage()
    _write(message.attributes, attributes)
    return message.SerializeToString()


# ``raw`` below are protobuf messages; their generated types would not make this safer to read.


def _placed(items: Iterable[T], raw: Any, scopes: str) -> Iterator[tuple[Any, T]]:
    """Yield each item with the message of its scope; neighbours share the messages of resource and scope."""
    resource: Resource | None = None
    scope: Scope | None = None
    by_scope = members = None
    for item in items:
        if resource is None or (item.resource is not resource and item.resource != resource):
            resource, scope = item.resource, None
            group = raw.add(schema_url=resource.schema_url)
            _write(group.resource.attributes, resource.attributes)
            by_scope = getattr(group, scopes)
        if by_scope is not None and (scope is None or (item.scope is not scope and item.scope != scope)):
            scope = item.scope
            members = by_scope.add(schema_url=scope.schema_url)
            members.scope.name, members.scope.version = scope.name, scope.version
            _write(members.scope.attributes, scope.attributes)
        yield members, item


def _write_span(raw: Any, span: Span) -> None:
    raw.trace_id = bytes.fromhex(span.trace_id)
    raw.span_id = bytes.fromhex(span.span_id)
    if span.parent_id is not None:
        raw.parent_span_id = bytes.fromhex(span.parent_id)
    raw.name, raw.kind = span.name, span.kind
    raw.start_time_unix_nano, raw.end_time_unix_nano = span.start_ns, span.end_ns
    raw.trace_state, raw.flags = span.trace_state, span.flags
    raw.dropped_attributes_count = span.dropped_attributes
    if span.status is not SpanStatus.UNSET:
        raw.status.code = _STATUS[span.status]
    if span.status_message:
        raw.status.message = span.status_message
    _write(raw.attributes, span.attributes)
    for event in span.events:
        _write_event(raw.events.add(), event)
    for link in span.links:
        _write_link(raw.links.add(), link)


def _write_event(raw: Any, event: Event) -> None:
    raw.name, raw.time_unix_nano = event.name, event.time_ns
    _write(raw.attributes, event.attributes)


def _write_link(raw: Any, link: Link) -> None:
    raw.trace_id, raw.span_id = bytes.fromhex(link.trace_id), bytes.fromhex(link.span_id)
    _write(raw.attributes, link.attributes)


def _write_record(raw: Any, record: LogRecord) -> None:
    event = record.event
    raw.time_unix_nano = raw.observed_time_unix_nano = event.time_ns
    raw.event_name = event.name
    if record.severity:
        raw.severity_number, raw.severity_text = record.severity, _severity_text(record.severity)
    if record.trace_id is not None:
        raw.trace_id = bytes.fromhex(record.trace_id)
    if record.span_id is not None:
        raw.span_id = bytes.fromhex(record.span_id)
    if event.body is not None:
        _write_value(raw.body, event.body)
    _write(raw.attributes, event.attributes)


def _severity_text(number: int) -> str:
    """Return the log data model's short name of a severity number, such as ``WARN`` or ``WARN2``."""
    return _SEVERITIES.get(number, "").removeprefix("SEVERITY_NUMBER_")


def _write(raw: Any, attributes: Attributes) -> None:
    for name, value in attributes.items():
        pair = raw.add()
        pair.key = name  # takes a fifth less time than as an argument of ``add``
        if value.__class__ is str:  # as most are
            pair.value.string_value = value
        else:
            _write_value(pair.value, value)


def _write_value(raw: AnyValue, value: AttributeValue) -> None:
    """Fill an ``AnyValue``; recursion is as deep as ``value``, whose depth ``decode`` has bounded."""
    match value:
        case None:
            raw.SetInParent()
        case bool():
            raw.bool_value = value
        case int() if value in _INT64:
            raw.int_value = value
        case int():
            raw.string_value = str(value)
        case float():
            raw.double_value = value
        case str():
            raw.string_value = value
        case bytes():
            raw.bytes_value = value
        case Mapping():
            raw.kvlist_value.SetInParent()
            _write(raw.kvlist_value.values, value)
        case _:
            raw.array_value.SetInParent()
            for each in value:
                _write_value(raw.array_value.values.add(), each)
