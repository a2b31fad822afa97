"""Reader of spans that Go's ``stdouttrace`` exporter prints: one a line, or pretty-printed one after another.

Attributes are a list of keys with typed values; the zeros of a root's parent are no id. Pure. Source:
opentelemetry-go, ``exporters/stdout/stdouttrace``, and ``SpanStub`` in ``sdk/trace/tracetest/span.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from analyzer.recordings.file_format import (
    FileFormat,
    Recording,
    Records,
    json_text,
    nanoseconds,
    objects,
    of_spans,
    span_id_of,
    trace_id_of,
)
from analyzer.recordings.span_fields import attribute_of, kind_of, status_of
from semconv.model import AttributeValue, Event, Link, Resource, Scope, Span


def is_go(records: Records) -> bool:
    """Tell whether all records are printed spans."""
    return bool(records) and all(
        isinstance(one, dict)
        and {"Name", "SpanContext", "Parent", "SpanKind", "StartTime", "Attributes"} <= one.keys()
        and isinstance(one["SpanContext"], dict)
        and {"TraceID", "SpanID"} <= one["SpanContext"].keys()
        for one in records
    )


def read_go(records: Records) -> Recording:
    """Read printed spans."""
    return of_spans(map(_span, records))


def _span(one: Mapping[str, Any]) -> Span:
    context, parent, status = one["SpanContext"], one["Parent"] or {}, one.get("Status") or {}
    scope = one.get("InstrumentationScope") or one.get("InstrumentationLibrary") or {}
    above = json_text(parent.get("SpanID"))
    start_ns = nanoseconds(one["StartTime"])
    return Span(
        trace_id=trace_id_of(context["TraceID"]),
        span_id=span_id_of(context["SpanID"]),
        parent_id=span_id_of(above) if above.strip("0") else None,
        name=json_text(one["Name"]),
        kind=kind_of(one["SpanKind"]),
        start_ns=start_ns,
        end_ns=nanoseconds(one.get("EndTime")) or start_ns,
        status=status_of(status.get("Code")),
        status_message=json_text(status.get("Description")),
        attributes=_attributes(one["Attributes"]),
        events=tuple(
            Event(
                name=json_text(each.get("Name")),
                time_ns=nanoseconds(each.get("Time")),
                attributes=_attributes(each.get("Attributes")),
            )
            for each in objects(one.get("Events") or [])
        ),
        links=tuple(
            Link(
                trace_id=trace_id_of(each["SpanContext"]["TraceID"]),
                span_id=span_id_of(each["SpanContext"]["SpanID"]),
                attributes=_attributes(each.get("Attributes")),
            )
            for each in objects(one.get("Links") or [])
        ),
        scope=Scope(name=json_text(scope.get("Name")), version=json_text(scope.get("Version"))),
        resource=Resource(attributes=_attributes(one.get("Resource"))),
        trace_state=json_text(context.get("TraceState")),
    )


def _attributes(items: object) -> dict[str, AttributeValue]:
    return {str(each["Key"]): attribute_of(each["Value"].get("Value")) for each in objects(items or [])}


GO: Final = FileFormat(
    name="spans printed by Go's stdouttrace exporter",
    example="go-stdouttrace.json",
    source="opentelemetry-go, exporters/stdout/stdouttrace",
    how="`stdouttrace.New(stdouttrace.WithWriter(file))`",
    recognizes=is_go,
    read=read_go,
)
