"""OTLP protobuf → our records. Only this module and ``encode`` use protobuf messages of spans and logs.

A request that protobuf cannot parse is repaired first (``wire.salvage``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from sys import intern
from typing import Any, Final, TypeVar

from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord as RawRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span as RawSpan

from collector_processor.otlp import MOST_EVENTS, MOST_LINKS, MalformedRequestError
from collector_processor.wire.salvage import (
    LOGS,
    MAX_NESTING,
    PAIR,
    RECORD,
    SPAN,
    TOO_DEEP,
    TRACES,
    Mended,
    mend,
)
from semconv.model import (
    Attributes,
    AttributeValue,
    Event,
    Link,
    LogRecord,
    Resource,
    Scope,
    Span,
    SpanId,
    SpanStatus,
    TraceId,
)

TRACE_ID_BYTES: Final = 16
SPAN_ID_BYTES: Final = 8
EVENT_NAME: Final = "event.name"
"""Attribute with the event name of a log record, in SDKs before OTLP 1.5."""

_STATUS: Final = (SpanStatus.UNSET, SpanStatus.OK, SpanStatus.ERROR)
_SCALARS: Final = frozenset({"string_value", "int_value", "bool_value", "double_value", "bytes_value"})
_NESTED: Final = frozenset({"array_value", "kvlist_value"})
_NO_ATTRIBUTES: Final[Attributes] = {}

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """The spans of one request."""

    spans: tuple[Span, ...]
    rejected: int = 0
    """Number of spans left out: unreadable, or with ids of a wrong length."""
    was_mended: bool = False
    """Whether the request was repaired: invalid UTF-8, or values nested too deeply."""


def decode(body: bytes) -> Decoded:
    """Read an ``ExportTraceServiceRequest``.

    Spans of one resource or scope share its record.

    Raises:
        MalformedRequestError: the bytes are not such a request.
    """
    request, mended = _parse(body, ExportTraceServiceRequest, TRACES)
    rejected = mended.rejected if mended else 0
    spans: list[Span] = []
    for resource_spans in request.resource_spans:
        resource = _resource(resource_spans)
        for scope_spans in resource_spans.scope_spans:
            scope = _scope(scope_spans)
            for raw in scope_spans.spans:
                if len(raw.trace_id) == TRACE_ID_BYTES and len(raw.span_id) == SPAN_ID_BYTES:
                    spans.append(_span(raw, resource, scope))
                else:
                    rejected += 1
    return Decoded(spans=tuple(spans), rejected=rejected, was_mended=mended is not None)


def decode_logs(body: bytes) -> tuple[LogRecord, ...]:
    """Read an ``ExportLogsServiceRequest``; unreadable records are left out.

    Raises:
        MalformedRequestError: the bytes are not such a request.
    """
    request, _ = _parse(body, ExportLogsServiceRequest, LOGS)
    return tuple(_log_records(request))


def parse_traces(body: bytes) -> Any:
    """Return an ``ExportTraceServiceRequest`` as a protobuf message.

    Raises:
        MalformedRequestError: the bytes are not such a request.
    """
    return _parse(body, ExportTraceServiceRequest, TRACES)[0]


def parse_logs(body: bytes) -> Any:
    """Return an ``ExportLogsServiceRequest`` as a protobuf message.

    Raises:
        MalformedRequestError: the bytes are not such a request.
    """
    return _parse(body, ExportLogsServiceRequest, LOGS)[0]


def _parse(body: bytes, kind: type[M], name: str) -> tuple[M, Mended | None]:
    """Return the request, and the repaired bytes if it had to be repaired."""
    try:
        return kind.FromString(body), None
    except DecodeError:
        mended = mend(body, name, _is_valid)
    try:
        return kind.FromString(mended.body), mended
    except DecodeError:  # what is valid by itself may be nested too deeply in the request
        mended = mend(body, name, _is_never_valid)
    try:
        return kind.FromString(mended.body), mended
    except DecodeError as error:
        raise MalformedRequestError(str(error)) from error


_MESSAGES: Final[Mapping[str, type[Message]]] = {SPAN: RawSpan, RECORD: RawRecord, PAIR: KeyValue}


def _is_valid(kind: str, body: bytes) -> bool:
    try:
        _MESSAGES[kind].FromString(body)
    except DecodeError:
        return False
    return True


def _is_never_valid(_kind: str, _body: bytes) -> bool:
    return False


def _log_records(request: ExportLogsServiceRequest) -> Iterable[LogRecord]:
    for resource_logs in request.resource_logs:
        resource = _resource(resource_logs)
        for scope_logs in resource_logs.scope_logs:
            scope = _scope(scope_logs)
            for raw in scope_logs.log_records:
                attributes = _attributes(raw.attributes)
                event = Event(
                    name=raw.event_name or str(attributes.get(EVENT_NAME) or ""),
                    time_ns=raw.time_unix_nano or raw.observed_time_unix_nano,
                    attributes=attributes,
                    body=_value(raw.body, 0),
                )
                trace_id, span_id = raw.trace_id, raw.span_id
                yield LogRecord(
                    trace_id=TraceId(trace_id.hex()) if len(trace_id) == TRACE_ID_BYTES else None,
                    span_id=SpanId(span_id.hex()) if len(span_id) == SPAN_ID_BYTES else None,
                    event=event,
                    severity=raw.severity_number,
                    scope=scope,
                    resource=resource,
                )


# ``raw`` below are protobuf messages; their generated types would not make this safer to read.


def _resource(raw: Any) -> Resource:
    return Resource(attributes=_attributes(raw.resource.attributes), schema_url=raw.schema_url)


def _scope(raw: Any) -> Scope:
    scope = raw.scope
    return Scope(
        name=intern(scope.name),
        version=scope.version,
        attributes=_attributes(scope.attributes),
        schema_url=raw.schema_url,
    )


def _span(raw: Any, resource: Resource, scope: Scope) -> Span:
    parent = raw.parent_span_id
    status = raw.status
    events, links = raw.events, raw.links
    return Span(
        trace_id=TraceId(raw.trace_id.hex()),
        span_id=SpanId(raw.span_id.hex()),
        parent_id=SpanId(parent.hex()) if len(parent) == SPAN_ID_BYTES and any(parent) else None,
        name=raw.name,
        kind=raw.kind,
        start_ns=raw.start_time_unix_nano,
        end_ns=raw.end_time_unix_nano,
        status=_STATUS[status.code] if 0 <= status.code < len(_STATUS) else SpanStatus.UNSET,
        status_message=status.message,
        attributes=_attributes(raw.attributes),
        events=tuple(map(_event, islice(events, MOST_EVENTS))) if events else (),
        links=tuple(map(_link, islice(links, MOST_LINKS))) if links else (),
        scope=scope,
        resource=resource,
        trace_state=raw.trace_state,
        flags=raw.flags,
        dropped_attributes=raw.dropped_attributes_count,
    )


def _event(raw: Any) -> Event:
    return Event(name=raw.name, time_ns=raw.time_unix_nano, attributes=_attributes(raw.attributes))


def _link(raw: Any) -> Link:
    return Link(
        trace_id=TraceId(raw.trace_id.hex()),
        span_id=SpanId(raw.span_id.hex()),
        attributes=_attributes(raw.attributes),
    )


def _attributes(raw: Sequence[Any]) -> Attributes:
    if not raw:
        return _NO_ATTRIBUTES
    found: dict[str, AttributeValue] = {}
    for pair in raw:
        value = pair.value
        # Most values are texts, and querying a value's kind costs as much as reading it.
        found[intern(pair.key)] = value.string_value or _value(value, 0)
    return found


def _value(raw: Any, depth: int) -> AttributeValue:
    """Return an ``AnyValue``; recursion is bounded by ``MAX_NESTING``."""
    kind = raw.WhichOneof("value")
    if kind in _SCALARS:
        scalar: AttributeValue = getattr(raw, kind)
        return scalar
    if kind not in _NESTED:
        return None
    if depth >= MAX_NESTING:
        return TOO_DEEP
    if kind == "array_value":
        return tuple([_value(value, depth + 1) for value in raw.array_value.values])
    return {pair.key: _value(pair.value, depth + 1) for pair in raw.kvlist_value.values}
