"""Reader of what OpenAI's Agents SDK exports itself: ``trace.export()`` and ``span.export()``. Pure.

A trace processor writes one object a line or a list; the SDK's own exporter sends them under ``data``. They
come in the order in which they end. A trace has no times and no span: its span is made around its spans'. A
``response`` span names a stored response without its texts, unless a processor adds ``input`` and ``output``.
Source: openai-agents 0.24 (2026), ``agents/tracing/span_data.py``, ``spans.py``, ``traces.py``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from analyzer.recordings.fields import json_text, nanoseconds, span_id_of, trace_id_of
from analyzer.recordings.recording import FileFormat, Records, Spans
from analyzer.recordings.span_fields import attribute_of, attributes_of
from semconv import attributes as names
from semconv.attributes import GenAiOperationName
from semconv.dialects.conventions.otel_genai import HANDOFF_FROM, HANDOFF_TO
from semconv.dialects.reading.guardrails import GUARDRAIL_NAME, GUARDRAIL_TRIGGERED
from semconv.model import AttributeValue, Resource, Scope, Span, SpanId, SpanStatus, TraceId

_NAME: Final = "openai-agents"
_SCOPE: Final = Scope(name="blamespan.recordings")
_OBJECTS: Final = frozenset({"trace", "trace.span"})


def is_openai_agents(records: Records) -> bool:
    """Tell whether records are the SDK's traces and spans, with a span among them."""
    return all(map(_is_item, _items(records))) and any(map(_is_span, _items(records)))


def _is_item(one: Any) -> bool:
    return isinstance(one, dict) and str(one.get("object")) in _OBJECTS and bool(one.get("id"))


def _is_span(one: Any) -> bool:
    return isinstance(one, dict) and one.get("object") == "trace.span" and "span_data" in one


def _items(records: Records) -> Iterator[Any]:
    """Yield traces and spans, of several exports too."""
    for record in records:
        held = record.get("data") if isinstance(record, dict) and "object" not in record else record
        yield from held if isinstance(held, list) else [record]


def read_openai_agents(records: Records) -> Spans:
    """Read traces with their spans."""
    told: dict[str, Mapping[str, Any]] = {}
    by_trace: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for one in _items(records):
        if _is_span(one):
            by_trace[str(one.get("trace_id"))].append(one)
        else:
            told[str(one["id"])] = one
    return (span for name, spans in by_trace.items() for span in _trace(told.get(name, {}), name, spans))


def _trace(about: Mapping[str, Any], name: str, raw: Sequence[Mapping[str, Any]]) -> Iterator[Span]:
    trace_id, root_id = trace_id_of(name.removeprefix("trace_")), span_id_of(f"root of {name}")
    resource = Resource(attributes={"service.name": _NAME})
    spans = [_span(one, trace_id, root_id, resource) for one in raw]
    workflow, group = json_text(about.get("workflow_name")) or _NAME, json_text(about.get("group_id"))
    yield Span(
        trace_id=trace_id,
        span_id=root_id,
        name=f"invoke_workflow {workflow}",
        kind=1,
        start_ns=min(span.start_ns for span in spans),
        end_ns=max(span.end_ns for span in spans),
        attributes={
            names.GEN_AI_OPERATION_NAME: GenAiOperationName.INVOKE_WORKFLOW.value,
            names.GEN_AI_WORKFLOW_NAME: workflow,
            **({names.GEN_AI_CONVERSATION_ID: group} if group else {}),
            **attributes_of(about.get("metadata")),
        },
        scope=_SCOPE,
        resource=resource,
    )
    yield from sorted(spans, key=lambda span: span.start_ns)


def _span(one: Mapping[str, Any], trace_id: TraceId, root_id: SpanId, resource: Resource) -> Span:
    data, error = one["span_data"] or {}, _error_of(one.get("error"))
    start_ns, name = nanoseconds(one.get("started_at")), json_text(data.get("name") or data.get("type"))
    return Span(
        trace_id=trace_id,
        span_id=span_id_of(one["id"]),
        parent_id=span_id_of(one["parent_id"]) if one.get("parent_id") else root_id,
        name=name,
        kind=1,
        start_ns=start_ns,
        end_ns=nanoseconds(one.get("ended_at")) or start_ns,
        status=SpanStatus.ERROR if error else SpanStatus.UNSET,
        status_message=error,
        attributes={name: value for name, value in _attributes(data).items() if value is not None},
        scope=_SCOPE,
        resource=resource,
    )


def _error_of(error: Any) -> str:
    """Return the text of an error; what a tool raised is in its data."""
    if not isinstance(error, dict):
        return json_text(error)
    message, data = json_text(error.get("message")), error.get("data")
    inner = data.get("error") if isinstance(data, dict) else data
    if isinstance(inner, str) and inner:
        return inner
    return f"{message}: {data}" if data else message


def _attributes(data: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """Return a span's attributes; those of kinds that say nothing of agents as they are."""
    name = json_text(data.get("name"))
    match data.get("type"):
        case "agent":
            return {
                names.GEN_AI_OPERATION_NAME: GenAiOperationName.INVOKE_AGENT.value,
                names.GEN_AI_AGENT_NAME: name or None,
            }
        case "generation" | "response":
            return _call(data)
        case "function":
            return {
                names.GEN_AI_OPERATION_NAME: GenAiOperationName.EXECUTE_TOOL.value,
                names.GEN_AI_TOOL_NAME: name,
                names.GEN_AI_TOOL_CALL_ARGUMENTS: json_text(data.get("input")),
                names.GEN_AI_TOOL_CALL_RESULT: json_text(data.get("output")),
            }
        case "handoff":
            return {
                names.GEN_AI_OPERATION_NAME: "handoff",
                HANDOFF_FROM: attribute_of(data.get("from_agent")),
                HANDOFF_TO: attribute_of(data.get("to_agent")),
            }
        case "guardrail":
            return {
                names.GEN_AI_OPERATION_NAME: "guardrail_check",
                GUARDRAIL_NAME: name,
                GUARDRAIL_TRIGGERED: data.get("triggered") is True,
            }
        case _:
            return attributes_of({key: value for key, value in data.items() if key not in {"type", "name"}})


def _call(data: Mapping[str, Any]) -> dict[str, AttributeValue]:
    response = data.get("response")
    whole: Mapping[str, Any] = response if isinstance(response, dict) else {}
    usage, given = data.get("usage") or whole.get("usage") or {}, data.get("input")
    heard = [{"role": "user", "content": given}] if isinstance(given, str) else given
    said = data.get("output") or whole.get("output")
    instructions = whole.get("instructions")
    return {
        names.GEN_AI_OPERATION_NAME: GenAiOperationName.CHAT.value,
        names.GEN_AI_REQUEST_MODEL: attribute_of(data.get("model") or whole.get("model")),
        names.GEN_AI_RESPONSE_ID: attribute_of(data.get("response_id") or whole.get("id")),
        names.GEN_AI_SYSTEM_INSTRUCTIONS: json_text(instructions) if instructions else None,
        names.GEN_AI_INPUT_MESSAGES: json_text(heard) if heard else None,
        names.GEN_AI_OUTPUT_MESSAGES: json_text(said) if said else None,
        names.GEN_AI_USAGE_INPUT_TOKENS: attribute_of(usage.get("input_tokens")),
        names.GEN_AI_USAGE_OUTPUT_TOKENS: attribute_of(usage.get("output_tokens")),
    }


OPENAI_AGENTS: Final = FileFormat(
    name="the export of OpenAI's Agents SDK",
    example="openai-agents.jsonl",
    source="openai-agents 0.24, agents/tracing",
    how="In a trace processor, write `json.dumps(item.export())` of each trace and span on a line",
    recognizes=is_openai_agents,
    read=read_openai_agents,
)
