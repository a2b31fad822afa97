"""Reader of Zipkin's spans, version 2: a trace, a list of traces, or spans one a line. Pure.

OpenTelemetry's exporters put attributes into tags, as text, with the scope and the status beside them, and
an event's name and attributes into an annotation; the dialect of whatever wrote the span reads it. B3 trace
ids of 64 bits are padded. Source: openzipkin/zipkin-api ``zipkin2-api.yaml``; OpenTelemetry's specification,
"Transformation to Non-OTLP Formats: Zipkin".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from analyzer.recordings.fields import json_text, nanoseconds, objects, span_id_of, trace_id_of
from analyzer.recordings.recording import FileFormat, Records, Spans
from analyzer.recordings.span_fields import attribute_of, attributes_of, kind_of, status_of
from semconv.dialects.reading.values import structured
from semconv.model import Attributes, Event, Resource, Scope, Span, SpanStatus

_STATUS: Final = "otel.status_code"
_DESCRIPTION: Final = "otel.status_description"
_ERROR: Final = "error"
_SCOPES: Final = ("otel.scope.name", "otel.library.name")
_VERSIONS: Final = ("otel.scope.version", "otel.library.version")
_OWN_TAGS: Final = frozenset({_STATUS, _DESCRIPTION, *_SCOPES, *_VERSIONS})
_KEYS: Final = frozenset(
    {"traceId", "parentId", "id", "kind", "name", "timestamp", "duration", "tags", "annotations"}
    | {"localEndpoint", "remoteEndpoint", "debug", "shared"}
)
"""All keys of a span; a log record with a trace's id has others."""
_HEX: Final = re.compile(r"[0-9a-fA-F]{16,32}")
_EVENT: Final = re.compile(
    r'"?(?P<name>[^"|]{1,200})"?(?::\s*|\|)(?P<attributes>\{.*\})(?:\|\d+)?\s*', re.DOTALL
)
"""An event with its attributes, as SDKs (``"name": {…}``) and the Collector (``name|{…}|0``) write it."""


def is_zipkin(records: Records) -> bool:
    """Tell whether all records are spans, or traces as lists of spans."""
    return any(True for _ in _spans(records)) and all(
        isinstance(span, dict)
        and {"id", "traceId", "timestamp"} <= span.keys() <= _KEYS
        and _HEX.fullmatch(str(span["traceId"])) is not None
        for span in _spans(records)
    )


def _spans(records: Records) -> Iterator[Any]:
    for record in records:
        yield from record if isinstance(record, list) else [record]


def read_zipkin(records: Records) -> Spans:
    """Read spans; the server's half of a span that it shares with its client is below the client's."""
    found = list(_spans(records))
    clients = {(one["traceId"], one["id"]) for one in found if not one.get("shared")}
    return (
        _span(one, is_half=bool(one.get("shared")) and (one["traceId"], one["id"]) in clients)
        for one in found
    )


def _span(one: Mapping[str, Any], *, is_half: bool) -> Span:
    tags, start_ns = one.get("tags") or {}, nanoseconds(one.get("timestamp"))
    code, error = tags.get(_STATUS), tags.get(_ERROR)
    failed = code is None and error is not None and json_text(error).lower() != "false"
    said = tags.get(_DESCRIPTION) or (error if json_text(error).lower() not in {"true", "false"} else "")
    own_id = json_text(one["id"]) + (" shared" if is_half else "")
    above = one["id"] if is_half else one.get("parentId")
    return Span(
        trace_id=trace_id_of(str(one["traceId"]).rjust(32, "0")),
        span_id=span_id_of(own_id.rjust(16, "0")),
        parent_id=span_id_of(str(above).rjust(16, "0")) if above else None,
        name=json_text(one.get("name")),
        kind=kind_of(one.get("kind")),
        start_ns=start_ns,
        end_ns=start_ns + round(float(one.get("duration") or 0) * 1000),
        status=SpanStatus.ERROR if failed else status_of(code),
        status_message=json_text(said) if failed or status_of(code) is SpanStatus.ERROR else "",
        attributes={
            str(name): attribute_of(value)
            for name, value in tags.items()
            if name not in _OWN_TAGS and value is not None
        },
        events=tuple(map(_event, objects(one.get("annotations") or []))),
        scope=Scope(name=_first(tags, _SCOPES), version=_first(tags, _VERSIONS)),
        resource=_resource(one.get("localEndpoint") or {}),
    )


def _first(tags: Mapping[str, Any], names: tuple[str, ...]) -> str:
    return next((json_text(tags[name]) for name in names if tags.get(name)), "")


def _event(one: Mapping[str, Any]) -> Event:
    value, moment = json_text(one.get("value")), nanoseconds(one.get("timestamp"))
    found = _EVENT.fullmatch(value)
    whole = structured(value)
    if found:
        name, fields = found["name"], structured(found["attributes"])
    elif isinstance(whole, dict) and len(whole) == 1:
        ((name, fields),) = whole.items()
    else:
        name, fields = value, {}
    attributes: Attributes = attributes_of(fields) if isinstance(fields, dict) else {}
    return Event(name=name, time_ns=moment, attributes=attributes)


def _resource(endpoint: Mapping[str, Any]) -> Resource:
    service = json_text(endpoint.get("serviceName"))
    return Resource(attributes={"service.name": service} if service else {})


ZIPKIN: Final = FileFormat(
    name="Zipkin spans (version 2)",
    example="zipkin-spans.json",
    source="openzipkin/zipkin-api, zipkin2-api.yaml",
    how="*Download JSON* of a trace, or `curl 'http://HOST:9411/api/v2/traces?limit=200'`",
    recognizes=is_zipkin,
    read=read_zipkin,
)
