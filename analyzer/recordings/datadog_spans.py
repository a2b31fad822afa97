"""Reader of Datadog's LLM Observability spans: what its SDKs send, its intake takes, its export gives. Pure.

Spans are listed under ``spans``, in ``data.attributes`` of the intake's request, or one an item of ``data``
in the export, which has the fields of ``meta`` beside the ids. Source: Datadog's documentation of the Spans
API and the Export API; ddtrace 4.16 (2026), ``llmobs/types.py`` and ``_event_types.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from analyzer.recordings.fields import json_text, nanoseconds, objects, span_id_of, trace_id_of
from analyzer.recordings.recording import FileFormat, Records, Spans
from analyzer.recordings.span_fields import (
    AGENT,
    FUNCTION,
    MODEL,
    TOOL,
    TracedCall,
    attributes_of_call,
    exception_event,
)
from semconv.model import Resource, Span, SpanStatus

_KINDS: Final = {
    "llm": MODEL,
    "agent": AGENT,
    "tool": TOOL,
    "retrieval": "RETRIEVER",
    "embedding": "EMBEDDING",
    "workflow": FUNCTION,
    "task": FUNCTION,
    "step": FUNCTION,
    "experiment": FUNCTION,
}
_NO_PARENT: Final = frozenset({"", "undefined", "0", "None"})


def is_datadog(records: Records) -> bool:
    """Tell whether records are spans of LLM Observability, or requests and answers that hold some."""
    holds_any = next(_spans(records), None) is not None
    return holds_any and all(
        isinstance(one, dict)
        and {"span_id", "trace_id", "name", "duration"} <= one.keys()
        and bool(one.keys() & {"start_ns", "start_ms"})
        and _kind_of(one) in _KINDS
        for one, _ in _spans(records)
    )


def _spans(records: Records) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    """Yield spans, each with what is stated for all of its request."""
    for record in records:
        held = record.get("data", record) if isinstance(record, dict) else record
        for item in held if isinstance(held, list) else [held]:
            inner = item.get("attributes", item) if isinstance(item, dict) else item
            listed = inner.get("spans") if isinstance(inner, dict) else None
            if isinstance(listed, list):
                yield from ((one, inner) for one in listed)
            else:
                yield inner, {}


def _meta(one: Mapping[str, Any]) -> Mapping[str, Any]:
    found = one.get("meta")
    return found if isinstance(found, dict) else one


def _kind_of(one: Mapping[str, Any]) -> str:
    inner = _meta(one).get("span")
    told = inner.get("kind") if isinstance(inner, dict) else None
    return json_text(told or _meta(one).get("kind") or one.get("span_kind"))


def read_datadog(records: Records) -> Spans:
    """Read spans."""
    return (_span(one, request) for one, request in _spans(records))


def _span(one: Mapping[str, Any], request: Mapping[str, Any]) -> Span:
    meta, parent = _meta(one), json_text(one.get("parent_id"))
    start_ns = nanoseconds(one["start_ns"] if "start_ns" in one else one["start_ms"])
    end_ns = start_ns + round(float(one["duration"]))
    kind, message, stack = _error(one, meta)
    failed = one.get("status") == "error" or bool(kind or message)
    application = json_text(one.get("ml_app") or request.get("ml_app") or one.get("service"))
    call = _traced(one, meta, json_text(one.get("session_id") or request.get("session_id")))
    return Span(
        trace_id=trace_id_of(one["trace_id"]),
        span_id=span_id_of(one["span_id"]),
        parent_id=None if parent in _NO_PARENT else span_id_of(parent),
        name=call.name,
        kind=1,
        start_ns=start_ns,
        end_ns=end_ns,
        status=SpanStatus.ERROR if failed else SpanStatus.OK,
        status_message=": ".join(filter(None, (kind, message))),
        attributes=attributes_of_call(call),
        events=(exception_event(kind, message, end_ns, stacktrace=stack),) if kind or message else (),
        resource=Resource(attributes={"service.name": application or "datadog"}),
    )


def _error(one: Mapping[str, Any], meta: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return an error's class, message and stack; each is empty if it is not recorded."""
    inner = meta.get("error", one.get("error"))
    if isinstance(inner, dict):
        found = [inner.get(name) for name in ("type", "message", "stack")]
    else:
        found = [meta.get(f"error.{name}") for name in ("type", "message", "stack")]
    kind, message, stack = map(json_text, found)
    return kind, message or json_text(one.get("status_message")), stack


def _traced(one: Mapping[str, Any], meta: Mapping[str, Any], session: str) -> TracedCall:
    metrics = one.get("metrics") or {}
    return TracedCall(
        kind=_KINDS[_kind_of(one)],
        name=json_text(one["name"]),
        given=_content(meta.get("input")),
        got=_content(meta.get("output")),
        model=json_text(meta.get("model_name")),
        tokens=(metrics.get("input_tokens"), metrics.get("output_tokens")),
        session=session,
    )


def _content(side: Any) -> Any:
    """Return the messages, documents or value of an input or output."""
    if not isinstance(side, dict):
        return side
    if side.get("messages"):
        return [made for each in objects(side["messages"]) for made in _messages(each)]
    return side.get("value") or side.get("documents") or side.get("parameters")


def _messages(one: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a message as the model SDKs write it; results of tools are messages of their own."""
    calls = [
        {**each, "id": each.get("tool_id", each.get("id"))} for each in objects(one.get("tool_calls") or [])
    ]
    results = objects(one.get("tool_results") or [])
    if one.get("content") or calls or not results:
        answered = one.get("tool_call_id", one.get("tool_id"))
        yield {
            "role": one.get("role") or "assistant",
            "content": one.get("content"),
            **({"tool_calls": calls} if calls else {}),
            **({"tool_call_id": answered} if answered else {}),
        }
    for each in results:
        yield {"role": "tool", "tool_call_id": each.get("tool_id"), "content": json_text(each.get("result"))}


DATADOG: Final = FileFormat(
    name="Datadog LLM Observability spans",
    example="datadog-llm-spans.json",
    source="Datadog's Spans API and Export API, ddtrace 4.16",
    how=(
        '`curl https://api.datadoghq.com/api/v2/llm-obs/v1/spans/events -H "DD-API-KEY: …" -H '
        '"DD-APPLICATION-KEY: …"`'
    ),
    recognizes=is_datadog,
    read=read_datadog,
)
