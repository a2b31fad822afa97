"""Conversion of Jaeger's and Tempo's JSON exports to OTLP/JSON documents.

Jaeger JSON (``/api/traces``, the UI's download): this reverses jaegertracing/jaeger
``internal/uimodel`` and its OTLP translator: microseconds, ``references``, ``logs``,
and OTLP fields stored as tags. Lists stay JSON text, as Jaeger stores them.

Tempo JSON (``/api/traces/<id>``, version 1 and 2) is the OTLP message by protobuf's own
JSON rules: ids are base64, the list is called ``batches`` (v1) or is under ``trace``
(v2), and old versions use ``instrumentationLibrarySpans``.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Any, Final

from analyzer.recordings.otlp_file import of_documents
from analyzer.recordings.recording import FileFormat, Records

_KINDS: Final = {"internal": 1, "server": 2, "client": 3, "producer": 4, "consumer": 5}
_STATUSES: Final = {"OK": 1, "ERROR": 2}
_VALUE_FIELDS: Final = {"int64": "intValue", "float64": "doubleValue", "binary": "bytesValue"}
_OWN_TAGS: Final = frozenset(
    {
        "span.kind", "otel.status_code", "otel.status_description", "otel.scope.name", "otel.scope.version",
        "otel.library.name", "otel.library.version", "w3c.tracestate", "internal.span.format",
    }
)  # fmt: skip


def is_jaeger(records: Records) -> bool:
    """Tell whether all records are traces or search results from Jaeger."""
    return all(isinstance(record, dict) and bool(_traces(record)) for record in records)


def _jaeger_to_otlp(document: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "resourceSpans": [
            _resource_spans(trace, span) for trace in _traces(document) for span in trace["spans"]
        ]
    }


def _traces(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    data = document.get("data", [document])
    found = data if isinstance(data, list) else [data]
    return [
        trace
        for trace in found
        if isinstance(trace, dict) and isinstance(trace.get("spans"), list) and "processes" in trace
    ]


def _resource_spans(trace: Mapping[str, Any], span: Mapping[str, Any]) -> dict[str, Any]:
    process = trace["processes"].get(span.get("processID"), span.get("process") or {})
    service = [{"key": "service.name", "value": {"stringValue": str(process.get("serviceName", ""))}}]
    tags = _tag_values(span.get("tags", ()))
    scope = {
        "name": str(tags.get("otel.scope.name", tags.get("otel.library.name", ""))),
        "version": str(tags.get("otel.scope.version", tags.get("otel.library.version", ""))),
    }
    return {
        "resource": {"attributes": service + _attributes(process.get("tags", ()))},
        "scopeSpans": [{"scope": scope, "spans": [_span(span, tags)]}],
    }


def _span(span: Mapping[str, Any], tags: Mapping[str, Any]) -> dict[str, Any]:
    start_ns = int(span.get("startTime", 0)) * 1000
    trace_id = str(span.get("traceID", "")).rjust(32, "0")
    parent, links = _references(span, trace_id)
    return {
        "traceId": trace_id,
        "spanId": str(span.get("spanID", "")).rjust(16, "0"),
        "parentSpanId": parent,
        "traceState": str(tags.get("w3c.tracestate", "")),
        "flags": int(span.get("flags", 0)) & 0xFF,
        "name": str(span.get("operationName", "")),
        "kind": _KINDS.get(str(tags.get("span.kind")), 1),
        "startTimeUnixNano": str(start_ns),
        "endTimeUnixNano": str(start_ns + int(span.get("duration", 0)) * 1000),
        "attributes": _attributes(tag for tag in span.get("tags", ()) if tag.get("key") not in _OWN_TAGS),
        "events": [_event(log) for log in span.get("logs", ())],
        "links": links,
        "status": {
            "code": _STATUSES.get(str(tags.get("otel.status_code")), 0),
            "message": str(tags.get("otel.status_description", "")),
        },
    }


def _references(span: Mapping[str, Any], trace_id: str) -> tuple[str, list[dict[str, str]]]:
    """Split references: the first CHILD_OF within the trace is the parent, all others are links."""
    parent, links = str(span.get("parentSpanID", "")), []
    for reference in span.get("references", ()):
        other = str(reference.get("traceID", "")).rjust(32, "0")
        span_id = str(reference.get("spanID", "")).rjust(16, "0")
        if reference.get("refType") == "CHILD_OF" and other == trace_id and not parent:
            parent = span_id
        else:
            links.append({"traceId": other, "spanId": span_id})
    return parent, links


def _event(log: Mapping[str, Any]) -> dict[str, Any]:
    fields = _tag_values(log.get("fields", ()))
    return {
        "timeUnixNano": str(int(log.get("timestamp", 0)) * 1000),
        "name": str(fields.get("event", fields.get("message", ""))),
        "attributes": _attributes(field for field in log.get("fields", ()) if field.get("key") != "event"),
    }


def _tag_values(tags: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {str(tag.get("key")): tag.get("value") for tag in tags}


def _attributes(tags: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{"key": str(tag.get("key")), "value": _value(tag.get("type"), tag.get("value"))} for tag in tags]


def _value(kind: object, value: object) -> dict[str, Any]:
    if kind == "bool" or isinstance(value, bool):
        return {"boolValue": value in {True, "true"}}
    name = _VALUE_FIELDS.get(str(kind), "stringValue")
    return {name: value if name in {"doubleValue", "bytesValue"} else str(value)}


_ID_BYTES: Final = {"traceId": 16, "spanId": 8, "parentSpanId": 8}


def is_tempo(records: Records) -> bool:
    """Tell whether all records are traces from Tempo."""
    return all(isinstance(record, dict) and bool(_batches(record)) for record in records)


def _batches(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    trace = document.get("trace", document)
    found = (
        trace.get("batches") or (trace is not document and trace.get("resourceSpans"))
        if isinstance(trace, dict)
        else None
    )
    return found if isinstance(found, list) else []


def _tempo_to_otlp(document: Mapping[str, Any]) -> dict[str, Any]:
    batches = _batches(document)
    return {"resourceSpans": [_batch(batch) for batch in batches]}


def _batch(batch: Mapping[str, Any]) -> dict[str, Any]:
    groups = batch.get("scopeSpans") or batch.get("instrumentationLibrarySpans") or []
    return {"resource": batch.get("resource", {}), "scopeSpans": [_group(group) for group in groups]}


def _group(group: Mapping[str, Any]) -> dict[str, Any]:
    scope = group.get("scope") or group.get("instrumentationLibrary") or {}
    return {"scope": scope, "spans": [_tempo_span(span) for span in group.get("spans", ())]}


def _tempo_span(span: Mapping[str, Any]) -> dict[str, Any]:
    links = [{**link, **_hex_ids(link)} for link in span.get("links", ())]
    return {**span, **_hex_ids(span), "links": links}


def _hex_ids(item: Mapping[str, Any]) -> dict[str, str]:
    return {name: _hex(item[name], length) for name, length in _ID_BYTES.items() if item.get(name)}


def _hex(text: str, length: int) -> str:
    """Convert base64 to hex. Hex stays as it is; the decoder refuses anything else."""
    if len(text) == 2 * length and all(char in "0123456789abcdefABCDEF" for char in text):
        return text.lower()
    try:
        return base64.b64decode(text, validate=True).rjust(length, b"\0").hex()
    except (binascii.Error, ValueError):
        return text


JAEGER: Final = FileFormat(
    name="Jaeger JSON",
    example="jaeger.json",
    source="jaegertracing/jaeger internal/uimodel",
    how=(
        "In Jaeger's page *Download Results*, or *Trace JSON* of a trace; `curl "
        "'http://HOST:16686/api/traces?service=NAME&limit=200'`"
    ),
    recognizes=is_jaeger,
    read=lambda records: of_documents(*map(_jaeger_to_otlp, records)),
)
TEMPO: Final = FileFormat(
    name="Tempo JSON",
    example="tempo.json",
    source="grafana/tempo, /api/traces and /api/v2/traces",
    how="`curl http://HOST:3200/api/v2/traces/TRACE_ID`",
    recognizes=is_tempo,
    read=lambda records: of_documents(*map(_tempo_to_otlp, records)),
)
