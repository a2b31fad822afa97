"""Readers of spans that OpenTelemetry's SDKs for Python and Go print. Pure.

Python (``ConsoleSpanExporter``): one document after another as printed, one a line, or in a list. Log records
printed among them are joined to their spans: some instrumentations put messages into them. The printed form
has no scope. Before version 1.0 the resource was its bare attributes and the status's code
``canonical_code``. The consoles of JavaScript and .NET print no JSON. Source: opentelemetry-python,
``sdk/trace/__init__.py`` and ``sdk/_logs``.

Go (``stdouttrace``): one a line, or pretty-printed one after another. Attributes are a list of keys with
typed values; the zeros of a root's parent are no id. Source: opentelemetry-go,
``exporters/stdout/stdouttrace``, and ``SpanStub`` in ``sdk/trace/tracetest/span.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from analyzer.recordings.fields import json_text, nanoseconds, objects, span_id_of, trace_id_of
from analyzer.recordings.recording import FileFormat, Recording, Records, Spans, of_spans
from analyzer.recordings.span_fields import attribute_of, attributes_of, events_of, kind_of, status_of
from collector_processor.otlp import Signal
from collector_processor.rebuild.decode import EVENT_NAME
from collector_processor.rebuild.encode import encode_logs
from semconv.model import AttributeValue, Event, Link, LogRecord, Resource, Scope, Span
from semconv.record import replace

_NO_STATE: Final = frozenset({"[]", "{}"})
"""What is printed for an empty trace state."""


def is_console(records: Records) -> bool:
    """Tell whether records are printed spans, with log records among them or without."""
    return all(_is_span(record) or _is_log(record) for record in records) and any(map(_is_span, records))


def _is_span(one: Any) -> bool:
    return (
        isinstance(one, dict)
        and {"name", "context", "start_time", "resource"} <= one.keys()
        and isinstance(one["context"], dict)
        and {"trace_id", "span_id"} <= one["context"].keys()
        and str(one.get("kind")).startswith("SpanKind.")
    )


def _is_log(one: Any) -> bool:
    return (
        isinstance(one, dict) and {"body", "severity_number", "trace_id", "span_id", "resource"} <= one.keys()
    )


def read_console(records: Records) -> Recording:
    """Read printed spans and log records."""
    recording = of_spans(_span(record) for record in records if _is_span(record))
    logs = [_log(record) for record in records if not _is_span(record)]
    return (
        replace(recording, requests=(*recording.requests, (Signal.LOGS, encode_logs(logs))))
        if logs
        else recording
    )


def _log(one: Mapping[str, Any]) -> LogRecord:
    trace_id, span_id = json_text(one["trace_id"]), json_text(one["span_id"])
    attributes, severity = attributes_of(one.get("attributes")), one["severity_number"]
    return LogRecord(
        trace_id=trace_id_of(trace_id) if trace_id.strip("0x") else None,
        span_id=span_id_of(span_id) if span_id.strip("0x") else None,
        event=Event(
            name=json_text(one.get("event_name") or attributes.get(EVENT_NAME)),
            time_ns=nanoseconds(one.get("timestamp") or one.get("observed_timestamp")),
            attributes=attributes,
            body=attribute_of(one["body"]),
        ),
        severity=severity if isinstance(severity, int) else 0,
        resource=_resource(one["resource"]),
    )


def _span(one: Mapping[str, Any]) -> Span:
    context, status = one["context"], one.get("status") or {}
    state, start_ns = json_text(context.get("trace_state")), nanoseconds(one["start_time"])
    return Span(
        trace_id=trace_id_of(context["trace_id"]),
        span_id=span_id_of(context["span_id"]),
        parent_id=span_id_of(one["parent_id"]) if one.get("parent_id") else None,
        name=json_text(one["name"]),
        kind=kind_of(one.get("kind")),
        start_ns=start_ns,
        end_ns=nanoseconds(one.get("end_time")) or start_ns,
        status=status_of(status.get("status_code", status.get("canonical_code"))),
        status_message=json_text(status.get("description")),
        attributes=attributes_of(one.get("attributes")),
        events=events_of(one.get("events")),
        links=tuple(map(_link, objects(one.get("links") or []))),
        resource=_resource(one["resource"]),
        trace_state="" if state in _NO_STATE else state,
    )


def _link(one: Mapping[str, Any]) -> Link:
    context = one["context"]
    return Link(
        trace_id=trace_id_of(context["trace_id"]),
        span_id=span_id_of(context["span_id"]),
        attributes=attributes_of(one.get("attributes")),
    )


def _resource(one: Mapping[str, Any]) -> Resource:
    if isinstance(one.get("attributes"), dict):
        return Resource(
            attributes=attributes_of(one["attributes"]), schema_url=json_text(one.get("schema_url"))
        )
    return Resource(attributes=attributes_of(one))


CONSOLE: Final = FileFormat(
    name="spans printed by OpenTelemetry's ConsoleSpanExporter",
    example="console-spans.json",
    source="opentelemetry-python, ReadableSpan.to_json",
    how='`SimpleSpanProcessor(ConsoleSpanExporter(out=open("spans.json", "w")))`',
    recognizes=is_console,
    read=read_console,
)


def is_go(records: Records) -> bool:
    """Tell whether all records are printed spans."""
    return bool(records) and all(
        isinstance(record, dict)
        and {"Name", "SpanContext", "Parent", "SpanKind", "StartTime", "Attributes"} <= record.keys()
        and isinstance(record["SpanContext"], dict)
        and {"TraceID", "SpanID"} <= record["SpanContext"].keys()
        for record in records
    )


def read_go(records: Records) -> Spans:
    """Read printed spans."""
    return map(_go_span, records)


def _go_span(one: Mapping[str, Any]) -> Span:
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
        attributes=_go_attributes(one["Attributes"]),
        events=tuple(
            Event(
                name=json_text(each.get("Name")),
                time_ns=nanoseconds(each.get("Time")),
                attributes=_go_attributes(each.get("Attributes")),
            )
            for each in objects(one.get("Events") or [])
        ),
        links=tuple(
            Link(
                trace_id=trace_id_of(each["SpanContext"]["TraceID"]),
                span_id=span_id_of(each["SpanContext"]["SpanID"]),
                attributes=_go_attributes(each.get("Attributes")),
            )
            for each in objects(one.get("Links") or [])
        ),
        scope=Scope(name=json_text(scope.get("Name")), version=json_text(scope.get("Version"))),
        resource=Resource(attributes=_go_attributes(one.get("Resource"))),
        trace_state=json_text(context.get("TraceState")),
    )


def _go_attributes(items: object) -> dict[str, AttributeValue]:
    return {str(each["Key"]): attribute_of(each["Value"].get("Value")) for each in objects(items or [])}


GO: Final = FileFormat(
    name="spans printed by Go's stdouttrace exporter",
    example="go-stdouttrace.json",
    source="opentelemetry-go, exporters/stdout/stdouttrace",
    how="`stdouttrace.New(stdouttrace.WithWriter(file))`",
    recognizes=is_go,
    read=read_go,
)
