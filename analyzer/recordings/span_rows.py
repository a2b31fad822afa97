"""Reader of spans as stores of traces return them: a row each, with columns of the store's own names. Pure.

A row needs a trace, a span, a name, a start and an end or a duration, under the names that ClickHouse,
CloudWatch, Honeycomb, Elastic, Application Insights, New Relic, Mastra, Braintrust, Opik, HoneyHive,
LangWatch, SigNoz, AWS X-Ray, Google's Cloud Trace, Sentry, Laminar, Lunary, Literal AI, Galileo and Zipkin 1
give them. Attributes are OpenTelemetry's, in an object or in
columns of their own. A store that keeps inputs and outputs under its own kinds (``llm``, ``tool``) is read as
OpenInference.
Source: the stores' API references and table schemas (2026); ``_NAMES`` lists what is read of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from analyzer.recordings.conversation_log import LOG_LEVELS
from analyzer.recordings.fields import (
    all_have,
    json_text,
    nanoseconds,
    object_at,
    objects,
    span_id_of,
    text_at,
    trace_id_of,
)
from analyzer.recordings.message_parts import error_text
from analyzer.recordings.recording import FileFormat, Records, Spans
from analyzer.recordings.span_fields import (
    AGENT,
    FUNCTION,
    MODEL,
    TOOL,
    TracedCall,
    attribute_of,
    attributes_of,
    attributes_of_call,
    exception_event,
    kind_of,
    status_of,
)
from analyzer.recordings.table_text import cell_of, rows_of
from semconv import attributes as names
from semconv.dialects.reading.values import structured
from semconv.model import AttributeValue, Resource, Span, SpanStatus

_Row = Mapping[str, Any]

_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "trace": (
        "trace_id", "traceId", "TraceId", "trace.trace_id", "trace.id", "operation_Id", "root_span_id",
        "threadId", "session_id",
    ),
    "span": ("span_id", "spanId", "SpanId", "trace.span_id", "span.id", "transaction.id", "event_id", "id"),
    "parent": (
        "parent_span_id", "parentSpanId", "ParentSpanId", "trace.parent_id", "parent.id", "parent_id",
        "parentId", "parentRunId", "operation_ParentId",
    ),
    "name": (
        "span_name", "SpanName", "name", "span.name", "transaction.name", "event_name",
        "span_attributes.name",
    ),
    "start": (
        "start_time", "startTimeUnixNano", "startTime", "Timestamp", "@timestamp", "startedAt",
        "timestamps.started_at", "metrics.start", "timestamp", "timestamp [UTC]", "createdAt", "created_at",
    ),
    "end": ("end_time", "endTimeUnixNano", "endTime", "endedAt", "timestamps.finished_at", "metrics.end"),
    "status": (
        "status.code", "StatusCode", "status_code", "otel.status_code", "status_code_string",
        "statusCodeString",
    ),
    "message": (
        "status.message", "StatusMessage", "status_message", "otel.status_description",
        "labels./error/message", "statusMessage",
    ),
    "service": (
        "service.name", "ServiceName", "service_name", "entity.name", "resource.attributes.service.name",
        "serviceName", "resources_string.service.name",
    ),
    "kind": ("kind_string", "spanKind", "kind", "SpanKind", "span_kind"),
    "type": ("type", "spanType", "event_type", "span_attributes.type"),
    "given": ("input", "inputs"),
    "got": ("output", "outputs"),
    "model": ("model", "metadata.model", "attributes.model", "config.model"),
    "error": ("error", "error_info", "exception"),
}  # fmt: skip
"""Columns of each field, the most telling first; a dot also stands for an object in an object."""
_VAGUE: Final = frozenset({"id", "event_id"})
"""Columns of a span's id that other records have as well."""
_LASTED: Final[Mapping[str, int]] = {
    "Duration": 1,
    "durationNano": 1,
    "duration_nano": 1,
    "duration_ms": 10**6,
    "duration.ms": 10**6,
    "span.duration.us": 10**3,
    "transaction.duration.us": 10**3,
}
"""Columns of a duration, with their unit in ns."""
_ATTRIBUTES: Final = (
    "SpanAttributes",
    "span_attributes",
    "attributes",
    "customDimensions",
    "labels",
    "tagMap",
)
"""Columns of objects with OpenTelemetry's attributes; without any, each column is an attribute."""
_TYPED: Final = ("attributes_string", "attributes_number", "attributes_bool")
"""Columns of them in SigNoz, which has one for each type."""
_KINDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("llm", "model", "generation", "model_generation", "llm_generation"), MODEL),
    **dict.fromkeys(("tool", "tool_call", "mcp_tool_call"), TOOL),
    **dict.fromkeys(("agent", "agent_run"), AGENT),
    **dict.fromkeys(
        ("run", "task", "session", "chain", "general", "function", "workflow", "workflow_run"), FUNCTION
    ),
}
"""OpenInference's kinds by those of stores that keep inputs and outputs."""
_TITLED: Final = re.compile(r"[a-z_ ]{3,30}: '([^'\n]{1,200})'")
"""Mastra's names of spans: ``tool: 'tide_table'``."""
_FAILED: Final = ("failure", "False", "false", False)
_UNDERSCORED: Final = {
    name.replace(".", "_"): name
    for key, name in vars(names).items()
    if key.startswith(("GEN_AI_", "ERROR_")) and isinstance(name, str)
}
"""Attributes by their names in Elastic's labels, which have no dots."""


def is_span_rows(records: Records) -> bool:
    """Tell whether all records are rows with what places a span in its trace; a log's have no duration.

    Jobs and events of sessions have an id, a name and times too: theirs must be a model, a tool or an agent.
    """
    found = _rows(records)
    return (
        bool(found) and all(map(_is_span, found)) and (_has_own_ids(found[0]) or any(map(_is_traced, found)))
    )


def _has_own_ids(one: _Row) -> bool:
    named = (path for path in _NAMES["span"] if path not in _VAGUE)
    return any(_at(one, path) for path in (*named, "operation_Id", "trace.id", "binaryAnnotations"))


def _is_traced(one: _Row) -> bool:
    is_named = any(key in one for field in ("given", "got") for key in _NAMES[field])
    return is_named and json_text(_found(one, "type")).lower() in _KINDS


def _has_sides(one: _Row) -> bool:
    """Tell whether a store keeps input or output beside the attributes; Laminar leaves them empty."""
    return _found(one, "given") is not None or _found(one, "got") is not None


def _is_span(one: Any) -> bool:
    return (
        isinstance(one, dict)
        and all(_found(one, field) for field in ("trace", "span", "name", "start"))
        and (_found(one, "trace") != one.get("session_id") or "event_id" in one)  # as HoneyHive's have
        and (bool(_found(one, "end")) or _lasted(one) is not None)
        and not any(isinstance(one.get(key), str) for key in LOG_LEVELS)
    )


def _rows(records: Records) -> Records:
    """Return rows; those listed below their trace get its id."""
    rows = rows_of(records)
    only = rows[0] if len(rows) == 1 and isinstance(rows[0], dict) else {}
    if found := _rows_of_store(rows, only):
        return found
    held = only.get("spans", only.get("content"))
    trace = text_at(only, "trace_id") or text_at(only, "traceId")
    if not isinstance(held, list) or not all(isinstance(one, dict) for one in held):
        return rows
    return [{"trace_id": trace, **one} for one in held] if trace else held


def _rows_of_store(rows: Records, only: _Row) -> list[_Row]:
    """Return the rows of stores whose spans have shapes of their own; ``only`` is the only document."""
    if all_have(clouds := objects(only.get("spans")) or rows, "spanId", "displayName"):
        return [_cloud_row(one) for one in clouds]
    if event := object_at(object_at(only, "contexts"), "trace"):
        return _sentry_rows(only, event)
    if all_have(rows, "id", "type", "created_at", "spans") and rows[0]["type"] == "trace":
        return [row for trace in rows for row in _tree_rows(trace)]
    if all_have(rows, "id", "parentRunId", "type"):
        return _with_traces(rows)
    x_ray = objects(only.get("Traces")) or rows
    if all_have(x_ray[:1], "Id", "Segments"):
        return [row for trace in objects(x_ray) for row in _x_ray_rows(trace)]
    return []


def _cloud_row(one: _Row) -> _Row:
    """Return a span of Google's Cloud Trace v2 as a row; its ``name`` is ``projects/P/traces/T/spans/S``."""
    path, status = text_at(one, "name").split("/"), object_at(one, "status")
    told = object_at(object_at(one, "attributes"), "attributeMap")
    return {
        "trace_id": path[3] if len(path) > 3 else "",
        "span_id": one["spanId"],
        "parent_span_id": one.get("parentSpanId"),
        "name": text_at(one["displayName"], "value"),
        "start_time": one.get("startTime"),
        "end_time": one.get("endTime"),
        "attributes": {
            key: held.get("value", held) if isinstance(held, dict) else held
            for key in told
            for held in object_at(told, key).values()
        },
        "status_code": "ERROR" if status.get("code") else "UNSET",
        "status_message": text_at(status, "message"),
    }


def _sentry_rows(event: _Row, trace: _Row) -> list[_Row]:
    """Return a transaction of Sentry and the spans in it as rows."""
    root = {**event, **trace, "description": event.get("transaction")}
    return [
        {
            "trace_id": one.get("trace_id"),
            "span_id": one.get("span_id"),
            "parent_span_id": one.get("parent_span_id"),
            "name": one.get("description") or one.get("op"),
            "start_time": one.get("start_timestamp"),
            "end_time": one.get("timestamp"),
            "attributes": _of_sentry(object_at(one, "data")),
            "status_code": "UNSET" if one.get("status") in _SENTRY_FINE else "ERROR",
            "status_message": object_at(one, "data").get("error.message"),
        }
        for one in (root, *objects(event.get("spans")))
    ]


_SENTRY_FINE: Final = (None, "ok", "unknown", "cancelled")
"""Statuses of Sentry's spans that are no errors."""
_SENTRY_NAMES: Final[Mapping[str, str]] = {
    "gen_ai.request.messages": names.GEN_AI_INPUT_MESSAGES,
    "gen_ai.tool.input": names.GEN_AI_TOOL_CALL_ARGUMENTS,
    "gen_ai.tool.output": names.GEN_AI_TOOL_CALL_RESULT,
}
"""OpenTelemetry's attributes by what Sentry's SDKs call them."""


def _of_sentry(told: _Row) -> _Row:
    """Return a span's attributes under OpenTelemetry's names; an answer's text and calls as its message."""
    found = {_SENTRY_NAMES.get(key, key): value for key, value in told.items()}
    texts, calls = (structured(told.get(f"gen_ai.response.{key}")) for key in ("text", "tool_calls"))
    if not (texts or calls) or names.GEN_AI_OUTPUT_MESSAGES in told:
        return found
    said = "\n".join(map(json_text, texts)) if isinstance(texts, list) else json_text(texts)
    message = {"role": "assistant", "content": said, "tool_calls": objects(calls)}
    return {**found, names.GEN_AI_OUTPUT_MESSAGES: [message]}


def _with_traces(rows: Records) -> list[_Row]:
    """Return runs of Lunary, which name only their parent, with the outermost one's id as their trace."""
    parents = {json_text(one["id"]): json_text(one["parentRunId"]) for one in rows}
    roots: dict[str, str] = {}
    for first in parents:
        run, seen = first, {first}
        while run not in roots and parents[run] in parents and parents[run] not in seen:
            run = parents[run]
            seen.add(run)
        roots.update(dict.fromkeys(seen, roots.get(run, run)))
    return [{"trace_id": roots[json_text(one["id"])], **one} for one in rows]


def _tree_rows(trace: _Row) -> Iterator[_Row]:
    """Yield the spans of a trace of Galileo, in which each holds those below it."""
    left = [(one, None) for one in reversed(objects(trace.get("spans")))]
    while left:
        one, parent = left.pop()
        status, below = one.get("status_code"), objects(one.get("spans"))
        failed = isinstance(status, int) and status >= _LEAST_FAILURE
        yield {
            **{key: value for key, value in one.items() if key != "spans"},
            "trace_id": trace.get("id"),
            "parent_id": parent,
            "durationNano": object_at(one, "metrics").get("duration_ns") or 0,
            "status_code": "ERROR" if failed else "OK",
            "status_message": json_text(one.get("output")) if failed else "",
        }
        left += [(each, one.get("id")) for each in reversed(below)]


_LEAST_FAILURE: Final = 400
"""Least status of HTTP that is an error."""


def _x_ray_rows(trace: _Row) -> Iterator[_Row]:
    """Yield the segments of a trace of AWS X-Ray, and those below them; each document is JSON text."""
    left = [structured(one.get("Document")) for one in objects(trace.get("Segments"))]
    while left:
        one = left.pop()
        if not isinstance(one, dict):
            continue
        causes = objects(object_at(one, "cause").get("exceptions"))
        failed = any(one.get(key) is True for key in ("fault", "error", "throttle"))
        noted = [object_at(one, "annotations"), *objects(list(object_at(one, "metadata").values()))]
        yield {
            "trace_id": text_at(trace, "Id").removeprefix("1-"),
            "span_id": one.get("id"),
            "parent_span_id": one.get("parent_id"),
            "attributes": {key: value for held in noted for key, value in held.items()},
            "status_code": "ERROR" if failed else "UNSET",
            "status_message": next((text_at(cause, "message") for cause in causes), ""),
            **{key: one.get(key) for key in ("name", "start_time", "end_time")},
        }
        left += [{**each, "parent_id": one.get("id")} for each in objects(one.get("subsegments"))]


def _at(one: _Row, path: str) -> Any:
    """Return a column's value: under its name, or in objects that its dots part."""
    if path in one:
        return one[path]
    head, _, rest = path.partition(".")
    inner = one.get(head) if rest else None
    return _at(inner, rest) if isinstance(inner, dict) else None


def _found(one: _Row, field: str) -> Any:
    values = (_at(one, path) for path in _NAMES[field])
    return next((value for value in values if value not in (None, "", [])), None)


def _lasted(one: _Row) -> tuple[Any, int] | None:
    """Return a duration and its unit in ns; ``None`` without one."""
    found = ((_at(one, path), unit) for path, unit in _LASTED.items())
    unit = 10**6 if "customDimensions" in one else 10**3 if "binaryAnnotations" in one else 1
    plain = (one.get("duration"), unit)
    return next(((value, unit) for value, unit in (*found, plain) if value not in (None, "")), None)


def read_span_rows(records: Records) -> Spans:
    """Read rows, in any order."""
    return map(_span, _rows(records))


def _span(one: _Row) -> Span:
    start_ns = nanoseconds(_found(one, "start"))
    lasted, unit = _lasted(one) or (0, 1)
    end_ns = nanoseconds(_found(one, "end")) or start_ns + round(float(lasted) * unit)
    kind, message = _KINDS.get(json_text(_found(one, "type")).lower(), ""), _message(one)
    title = json_text(_found(one, "name"))
    titled = _TITLED.fullmatch(title)
    name, service = titled[1] if titled else title, json_text(_found(one, "service"))
    parent = _found(one, "parent") or next(iter(one.get("span_parents") or ()), None)
    return Span(
        trace_id=trace_id_of(_found(one, "trace")),
        span_id=span_id_of(_found(one, "span")),
        # Azure's roots name their trace.
        parent_id=span_id_of(parent) if parent and parent != one.get("operation_Id") else None,
        name=name,
        kind=kind_of(_found(one, "kind")),
        start_ns=start_ns,
        end_ns=end_ns,
        status=_status(one, message),
        status_message=message,
        attributes=_traced(one, kind, name) if kind and _has_sides(one) else _told(one),
        events=(exception_event("", message, end_ns),) if kind and message else (),
        resource=Resource(attributes={"service.name": service} if service else {}),
    )


def _message(one: _Row) -> str:
    error = cell_of(_found(one, "error"))
    said = error_text({"type": error.get("exception_type"), **error}) if isinstance(error, dict) else error
    return json_text(_found(one, "message")) or (said if isinstance(said, str) else "")


def _status(one: _Row, message: str) -> SpanStatus:
    is_failed = (
        one.get("success") in _FAILED or _at(one, "event.outcome") in _FAILED or one.get("error") is True
    )
    known = _found(one, "status")
    status = status_of(int(known) if isinstance(known, str) and known.isdecimal() else known)
    has_error = bool(message) and known is None
    return SpanStatus.ERROR if status is not SpanStatus.ERROR and (is_failed or has_error) else status


def _told(one: _Row) -> dict[str, AttributeValue]:
    """Return OpenTelemetry's attributes of a row."""
    if all_have(zipkin := objects(one.get("binaryAnnotations")), "key", "value"):
        return {str(each["key"]): attribute_of(each["value"]) for each in zipkin}
    held = [cell_of(one[key]) for key in _ATTRIBUTES if one.get(key)]
    if isinstance(one.get(_TYPED[0]), dict):
        held = [{name: value for key in _TYPED for name, value in (cell_of(one.get(key)) or {}).items()}]
    if not held or not isinstance(held[0], dict):
        return {key: attribute_of(value) for key, value in one.items() if value is not None and value != ""}
    return {_UNDERSCORED.get(key, key): value for key, value in attributes_of(held[0]).items()}


def _traced(one: _Row, kind: str, name: str) -> dict[str, AttributeValue]:
    given, got = (_value(cell_of(_found(one, field)), kind) for field in ("given", "got"))
    usage = _at(one, "usage") or _at(one, "attributes.usage") or _at(one, "metrics") or {}
    counts = [
        next((usage[key] for key in keys if key in usage), None) if isinstance(usage, dict) else None
        for keys in (("prompt_tokens", "inputTokens"), ("completion_tokens", "outputTokens"))
    ]
    call = TracedCall(
        kind=kind,
        name=name,
        given=given,
        got=got,
        model=json_text(_found(one, "model")),
        tokens=(counts[0], counts[1]),
    )
    return attributes_of_call(call)


def _value(held: Any, kind: str) -> Any:
    """Return an input or output without what a store puts around it; a tool's arguments keep their names."""
    if not isinstance(held, dict):
        return held
    if held.keys() == {"type", "value"}:
        return held["value"]
    if isinstance(history := held.get("chat_history"), list):
        return {"messages": history}
    only = next(iter(held.values()), None)
    return only if len(held) == 1 and isinstance(only, str) and kind != TOOL else held


SPAN_ROWS: Final = FileFormat(
    name="rows of spans (ClickHouse, CloudWatch, Honeycomb, Elastic, SigNoz, X-Ray, Braintrust, Opik, …)",
    example="span-rows.jsonl",
    source="the stores' API references and table schemas, 2026",
    how=(
        "ClickHouse: `SELECT * FROM otel_traces FORMAT JSONEachRow`; CloudWatch: the log group `aws/spans`; "
        "Elastic: a search of `traces-*`; X-Ray: `aws xray batch-get-traces --trace-ids ID`; SigNoz: rows "
        "of `signoz_index_v3` or its API; Application Insights, Honeycomb, New Relic: the result of a query; "
        "Braintrust, Opik, HoneyHive, LangWatch, Laminar, Lunary, Literal AI, Galileo, Mastra, Google's "
        "Cloud Trace: the spans of a trace by their API; Sentry: the JSON of a transaction's event"
    ),
    recognizes=is_span_rows,
    read=read_span_rows,
)
