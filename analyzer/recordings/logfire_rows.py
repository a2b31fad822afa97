"""Reader of rows of Logfire's ``records`` table: what its query API and its pages give as JSON or CSV. Pure.

A row is a span or a log with OpenTelemetry's own attributes and scope, so that the dialect of whatever wrote
it reads it. Rows of spans that had not ended (``pending_span``) and copies of events (``span_event``) are not
spans. Source: Logfire's SQL reference and query API (2026).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from analyzer.recordings.fields import all_have, json_text, nanoseconds, span_id_of, trace_id_of, unwrapped
from analyzer.recordings.recording import FileFormat, Records, Spans
from analyzer.recordings.span_fields import attributes_of, events_of, exception_event, kind_of, status_of
from analyzer.recordings.table_text import cell_of, rows_of
from semconv.dialects.reading.values import EXCEPTION_EVENT
from semconv.model import Event, Resource, Scope, Span

_PLACE: Final = ("trace_id", "span_id", "span_name", "start_timestamp")
_NO_SPANS: Final = frozenset({"pending_span", "span_event"})


def is_logfire(records: Records) -> bool:
    """Tell whether all records are rows with what places a span in its trace."""
    return all_have(_rows(records), *_PLACE, "attributes")


def _rows(records: Records) -> Records:
    return unwrapped(rows_of(records), "rows")


def read_logfire(records: Records) -> Spans:
    """Read rows, in any order."""
    return (_span(row) for row in _rows(records) if json_text(row.get("kind")) not in _NO_SPANS)


def _span(one: Mapping[str, Any]) -> Span:
    start_ns = nanoseconds(one["start_timestamp"])
    lasted_ns = round(float(one.get("duration") or 0) * 1e9)
    resource = attributes_of(one.get("otel_resource_attributes"))
    service = json_text(one.get("service_name"))
    return Span(
        trace_id=trace_id_of(one["trace_id"]),
        span_id=span_id_of(one["span_id"]),
        parent_id=span_id_of(one["parent_span_id"]) if one.get("parent_span_id") else None,
        name=json_text(one["span_name"]),
        kind=kind_of(one.get("otel_span_kind", one.get("span_kind"))),
        start_ns=start_ns,
        end_ns=nanoseconds(one.get("end_timestamp")) or start_ns + lasted_ns,
        status=status_of(one.get("otel_status_code")),
        status_message=json_text(one.get("otel_status_message")),
        attributes=attributes_of(one["attributes"]),
        events=_events(one),
        scope=Scope(
            name=json_text(one.get("otel_scope_name")), version=json_text(one.get("otel_scope_version"))
        ),
        resource=Resource(attributes={**({"service.name": service} if service else {}), **resource}),
    )


def _events(one: Mapping[str, Any]) -> tuple[Event, ...]:
    """Return a row's events; an exception also has columns of its own."""
    raw = cell_of(one.get("otel_events"))
    if isinstance(raw, list):
        raw = [
            {
                "name": each.get("event_name", each.get("name")),
                "timestamp": each.get("event_timestamp", each.get("timestamp")),
                "attributes": each.get("attributes"),
            }
            for each in raw
        ]
    events = events_of(raw)
    kind, message = json_text(one.get("exception_type")), json_text(one.get("exception_message"))
    if (kind or message) and all(event.name != EXCEPTION_EVENT for event in events):
        trace = json_text(one.get("exception_stacktrace"))
        return (*events, exception_event(kind, message, stacktrace=trace))
    return events


LOGFIRE: Final = FileFormat(
    name="rows of Logfire's records",
    example="logfire-records.json",
    source="Logfire's SQL reference and query API, 2026",
    how=(
        '`LogfireQueryClient(read_token=TOKEN).query_json_rows("SELECT * FROM records", min_timestamp=…)`, '
        "or an export of Logfire's SQL page"
    ),
    recognizes=is_logfire,
    read=read_logfire,
)
