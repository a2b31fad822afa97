"""Reader of W&B Weave's calls: its API, its SDK's ``to_dict``, its export as JSON and JSON lines. Pure.

A call is a traced function. Integrations mark models, tools and agents; of the user's own functions, those
that call nothing are taken for tools, the others for what is around the calls. An exception is its text, or
JSON with its class. Reactions and scores in ``summary.weave.feedback`` are OpenInference's annotations.
Source: weave 0.54 (2026), ``trace/call.py``, ``trace/op.py``, ``integrations``, the types of its API.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from analyzer.recordings.fields import (
    all_have,
    json_text,
    nanoseconds,
    objects,
    span_id_of,
    trace_id_of,
    unwrapped,
)
from analyzer.recordings.recording import FileFormat, Records, Spans
from analyzer.recordings.span_fields import (
    AGENT,
    FUNCTION,
    MODEL,
    TOOL,
    TracedCall,
    annotation,
    attributes_of_call,
    exception_event,
)
from analyzer.recordings.table_text import cell_of, rows_of
from semconv.dialects.reading.values import structured
from semconv.model import AttributeValue, Event, Resource, Span, SpanStatus

_KINDS: Final = {"llm": MODEL, "tool": TOOL, "search": TOOL, "agent": AGENT, "scorer": "EVALUATOR"}
_OF_AGENTS_SDK: Final = {
    "agent": AGENT,
    "function": TOOL,
    "handoff": TOOL,
    "generation": MODEL,
    "response": MODEL,
    "guardrail": "GUARDRAIL",
}
"""Kinds of openai-agents' spans, whose calls are named ``openai_agent_KIND``."""
_OF_LANGCHAIN: Final = {"Llm": MODEL, "Tool": TOOL, "Retriever": "RETRIEVER"}
_SDK_CALL: Final = re.compile(
    r"(?:chat_?completions?|chat\.completions|messages\.(?:create|stream)|responses\.(?:create|parse|stream)|"
    r"generate_?content|(?:^|[.])a?completion$|converse|invoke_?model)",
    re.IGNORECASE,
)
"""Names of methods of model SDKs."""
_ANSWERS: Final = frozenset({"choices", "candidates", "generations", "usage"})
_RESOURCE: Final = Resource(attributes={"service.name": "weave"})
_LANGCHAIN: Final = "langchain."
_AGENTS_SDK: Final = "openai_agent_"


def is_weave(records: Records) -> bool:
    """Tell whether all records are calls."""
    return all_have(_calls(records), "id", "op_name", "trace_id", "started_at", "inputs")


def _calls(records: Records) -> Records:
    return unwrapped(rows_of(records), "calls", "data")


def read_weave(records: Records) -> Spans:
    """Read calls, in any order."""
    calls = objects(_calls(records))
    callers = {str(call.get("parent_id")) for call in calls}
    return (_span(call, callers) for call in calls)


def _span(one: Mapping[str, Any], callers: Collection[str]) -> Span:
    summary = cell_of(one.get("summary")) or {}
    about = summary.get("weave") or {}
    start_ns = nanoseconds(one["started_at"])
    end_ns = nanoseconds(one.get("ended_at")) or start_ns
    error, event = _exception(one.get("exception"), end_ns)
    failed = bool(error) or about.get("status") == "error"
    call = _traced(one, summary, is_caller=str(one["id"]) in callers)
    return Span(
        trace_id=trace_id_of(one["trace_id"]),
        span_id=span_id_of(one["id"]),
        parent_id=span_id_of(one["parent_id"]) if one.get("parent_id") else None,
        name=call.name,
        kind=1,
        start_ns=start_ns,
        end_ns=end_ns,
        status=SpanStatus.ERROR if failed else SpanStatus.UNSET,
        status_message=error,
        attributes={**attributes_of_call(call), **_judgements(one, about)},
        events=event,
        resource=_RESOURCE,
    )


def _traced(one: Mapping[str, Any], summary: Mapping[str, Any], *, is_caller: bool) -> TracedCall:
    op, inputs, output = _op_of(one), cell_of(one.get("inputs")), cell_of(one.get("output"))
    given = inputs if isinstance(inputs, dict) else {"input": inputs}
    given = {name: value for name, value in given.items() if name != "self"}
    kind = _kind_of(one, op, given, output, is_caller=is_caller)
    name = json_text(one.get("display_name")) or op
    if op.startswith(_LANGCHAIN):
        name = name.removeprefix(_LANGCHAIN).partition(".")[2]
    usage: Mapping[str, Any] = summary.get("usage") or {}
    model = next(iter(usage), "")
    counts = usage[model] if kind == MODEL and model else {}
    return TracedCall(
        kind=kind,
        name=name or op,
        given=given if kind in {MODEL, TOOL} else _only_text(given),
        got=output,
        model=json_text(given.get("model") or model),
        tokens=(
            counts.get("input_tokens", counts.get("prompt_tokens")),
            counts.get("output_tokens", counts.get("completion_tokens")),
        ),
        session=json_text(one.get("thread_id")),
    )


def _only_text(given: Mapping[str, Any]) -> Any:
    """Return the single text that a function was given; otherwise all of its arguments."""
    only = next(iter(given.values()), None)
    return only if len(given) == 1 and isinstance(only, str) else given


def _op_of(one: Mapping[str, Any]) -> str:
    """Return an operation's name without its project and version: ``weave:///team/office/op/NAME:v1``."""
    name = json_text(one["op_name"])
    return name.rpartition("/op/")[2].rpartition(":")[0] if "/op/" in name else name


def _kind_of(
    one: Mapping[str, Any], op: str, given: Mapping[str, Any], output: Any, *, is_caller: bool
) -> str:
    attributes = cell_of(one.get("attributes")) or {}
    told = _KINDS.get(json_text((attributes.get("weave") or {}).get("kind")))
    if told:
        return told
    if op.startswith(_AGENTS_SDK):
        return _OF_AGENTS_SDK.get(op.removeprefix(_AGENTS_SDK), FUNCTION)
    if op.startswith(_LANGCHAIN):
        return _OF_LANGCHAIN.get(op.split(".")[1], FUNCTION)
    if _SDK_CALL.search(op) or (isinstance(output, dict) and not _ANSWERS.isdisjoint(output)):
        return MODEL
    if is_caller or not one.get("parent_id"):
        return FUNCTION
    messages = given.get("messages")
    is_conversation = isinstance(messages, list) and any("role" in each for each in objects(messages))
    return MODEL if is_conversation else TOOL


def _exception(given: Any, end_ns: int) -> tuple[str, tuple[Event, ...]]:
    """Return an exception as text and as the event that records it."""
    told = structured(json_text(given))
    if not isinstance(told, dict):
        return json_text(told), ()
    kind, message = json_text(told.get("type")), json_text(told.get("message"))
    event = exception_event(kind, message, end_ns, stacktrace=json_text(told.get("traceback")))
    return ": ".join(filter(None, (kind, message))), (event,)


def _judgements(one: Mapping[str, Any], about: Mapping[str, Any]) -> dict[str, AttributeValue]:
    prefix = "annotations" if one.get("parent_id") else "trace.annotations"
    found: dict[str, AttributeValue] = {}
    for number, said in enumerate(objects(about.get("feedback") or [])):
        kind, payload = json_text(said.get("feedback_type")), said.get("payload") or {}
        name = kind.removeprefix("wandb.").partition(".")[2] or kind
        if kind.startswith("wandb.reaction"):
            found |= annotation(prefix, number, name=name, label=payload.get("emoji"), annotator_kind="HUMAN")
        value = payload.get("value", payload.get("output"))
        if isinstance(value, dict) and len(value) == 1:
            ((name, value),) = value.items()
        if isinstance(value, bool | str | int | float):
            field = {"label": value} if isinstance(value, str) else {"score": value}
            who = "HUMAN" if kind.startswith("wandb.annotation") else "CODE"
            found |= annotation(prefix, number, name=name, annotator_kind=who, **field)
    return found


WEAVE: Final = FileFormat(
    name="W&B Weave calls",
    example="weave-calls.jsonl",
    source="weave 0.54, the server's call schema",
    how=(
        "*Export* above the list of traces, or `call.to_dict()` of each of "
        '`weave.init("TEAM/PROJECT").get_calls()`'
    ),
    recognizes=is_weave,
    read=read_weave,
)
