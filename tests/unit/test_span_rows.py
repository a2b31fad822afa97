"""Spans as stores of traces return them: rows with each store's own columns, which all tell one story."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from analyzer.api.local import attribute, read_runs
from analyzer.inquiry.errors import UnreadableInput
from analyzer.recordings.read_files import read_recording
from semconv.model import StepKind
from tests.message_runs import ANSWER
from tests.tide_story import ERROR, TASK, assert_right, told_steps

TRACE = "0af7651916cd43dd8448eb211c80319c"
RIGHT = "14:20"
ARGUMENTS = {"port": "Dover"}
CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "tide_table", "arguments": json.dumps(ARGUMENTS)},
}
START_MS = 1_767_225_600_000

Told = tuple[int, str, str, dict[str, Any], str]
"""Number, kind, name, attributes or input and output, and error of a span; 1 is the parent of the others."""


def iso(number: int) -> str:
    return f"2026-01-01T00:00:0{number}.000Z"


def span_id(number: int) -> str:
    return f"b7ad6b716920333{number}"


def otel(error: str) -> list[Told]:
    """Return the spans with OpenTelemetry's attributes."""
    asked = [{"role": "user", "parts": [{"type": "text", "content": TASK}]}]
    call = {"type": "tool_call", "id": "c1", "name": "tide_table", "arguments": ARGUMENTS}
    said = {"type": "text", "content": ANSWER}
    result = {} if error else {"gen_ai.tool.call.result": RIGHT}
    chat = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-5"}
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "harbour_desk"}
    tool = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "tide_table",
        "gen_ai.tool.call.arguments": json.dumps(ARGUMENTS),
        **result,
    }
    first = {"gen_ai.input.messages": json.dumps(asked), "gen_ai.output.messages": answer(call)}
    last = {"gen_ai.output.messages": answer(said)}
    return [
        (1, "agent", "invoke_agent harbour_desk", agent, ""),
        (2, "llm", "chat gpt-5", {**chat, **first}, ""),
        (3, "tool", "execute_tool tide_table", tool, error),
        (4, "llm", "chat gpt-5", {**chat, **last}, ""),
    ]


def answer(part: dict[str, Any]) -> str:
    return json.dumps([{"role": "assistant", "parts": [part]}])


def traced(error: str) -> list[Told]:
    """Return the spans with inputs and outputs."""
    asked = [{"role": "user", "content": TASK}]
    calling = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    result = {"role": "tool", "tool_call_id": "c1", "content": error or RIGHT}
    said = {"role": "assistant", "content": ANSWER}
    return [
        (1, "agent", "harbour_desk", {"input": TASK, "output": ANSWER}, ""),
        (2, "llm", "chat", {"input": asked, "output": [{"message": calling}]}, ""),
        (3, "tool", "tide_table", {"input": ARGUMENTS, "output": None if error else RIGHT}, error),
        (4, "llm", "chat", {"input": [*asked, calling, result], "output": [{"message": said}]}, ""),
    ]


def clickhouse(told: Told) -> Any:
    number, _, name, attributes, error = told
    return {
        "Timestamp": f"2026-01-01 00:00:0{number}.000000000",
        "TraceId": TRACE,
        "SpanId": span_id(number),
        "ParentSpanId": span_id(1) if number > 1 else "",
        "SpanName": name,
        "SpanKind": "Internal",
        "ServiceName": "harbour",
        "SpanAttributes": attributes,
        "Duration": "500000000",
        "StatusCode": "Error" if error else "Unset",
        "StatusMessage": error,
    }


def cloudwatch(told: Told) -> Any:
    number, _, name, attributes, error = told
    return {
        "resource": {"attributes": {"service.name": "harbour"}},
        "scope": {"name": "strands.telemetry.tracer"},
        "traceId": TRACE,
        "spanId": span_id(number),
        **({"parentSpanId": span_id(1)} if number > 1 else {}),
        "name": name,
        "kind": "INTERNAL",
        "startTimeUnixNano": (START_MS + 1000 * number) * 10**6,
        "endTimeUnixNano": (START_MS + 1000 * number + 500) * 10**6,
        "attributes": attributes,
        "status": {"code": "ERROR", "message": error} if error else {"code": "UNSET"},
    }


def honeycomb(told: Told) -> Any:
    number, _, name, attributes, error = told
    return {
        "Timestamp": iso(number),
        "trace.trace_id": TRACE,
        "trace.span_id": span_id(number),
        "trace.parent_id": span_id(1) if number > 1 else "",
        "name": name,
        "duration_ms": 500,
        "status_code": 2 if error else 0,
        "status_message": error,
        **attributes,
    }


def elastic(told: Told) -> Any:
    number, _, name, attributes, error = told
    kind = "span" if number > 1 else "transaction"
    return {
        "@timestamp": iso(number),
        "trace": {"id": TRACE},
        **({"parent": {"id": span_id(1)}} if number > 1 else {}),
        kind: {"id": span_id(number), "name": name, "duration": {"us": 500_000}},
        "event": {"outcome": "failure" if error else "success"},
        "labels": {
            **{key.replace(".", "_"): value for key, value in attributes.items()},
            **({"gen_ai_tool_call_result": error} if error else {}),
        },
    }


def azure(told: list[Told]) -> Any:
    columns = ["timestamp", "id", "operation_Id", "operation_ParentId", "name", "success", "duration"]
    rows = []
    for number, _, name, attributes, error in told:
        parent, result = (
            span_id(1) if number > 1 else TRACE,
            {"gen_ai.tool.call.result": error} if error else {},
        )
        told_of = json.dumps({**attributes, **result})
        rows.append([iso(number), span_id(number), TRACE, parent, name, str(not error), 500, told_of])
    named = [{"name": column, "type": "string"} for column in [*columns, "customDimensions"]]
    return {"tables": [{"name": "PrimaryResult", "columns": named, "rows": rows}]}


def zipkin(told: Told) -> Any:
    number, _, name, attributes, error = told
    tags = {**attributes, **({"error": error, "gen_ai.tool.call.result": error} if error else {})}
    return {
        "traceId": TRACE,
        "id": span_id(number),
        **({"parentId": span_id(1)} if number > 1 else {}),
        "name": name,
        "timestamp": (START_MS + 1000 * number) * 1000,
        "duration": 500_000,
        "binaryAnnotations": [{"key": key, "value": value} for key, value in tags.items()],
    }


def google(told: list[Told]) -> Any:
    spans = [
        {
            "spanId": str(number),
            **({"parentSpanId": "1"} if number > 1 else {}),
            "name": name,
            "startTime": iso(number),
            "endTime": iso(number + 1),
            "labels": {**attributes, **({"/error/message": error} if error else {})},
        }
        for number, _, name, attributes, error in told
    ]
    return {"projectId": "harbour", "traceId": TRACE, "spans": spans}


def braintrust(told: Told) -> Any:
    number, kind, name, sides, error = told
    return {
        "id": f"row-{number}",
        "span_id": f"s{number}",
        "root_span_id": "s1",
        "span_parents": ["s1"] if number > 1 else None,
        "span_attributes": {"name": name, "type": kind if number > 1 else "task"},
        **sides,
        "error": error or None,
        "metadata": {"model": "gpt-5"},
        "metrics": {"start": START_MS / 1000 + number, "end": START_MS / 1000 + number + 0.5},
    }


def opik(told: Told) -> Any:
    number, kind, name, sides, error = told
    return {
        "id": f"s{number}",
        "trace_id": "t1",
        "parent_span_id": "s1" if number > 1 else None,
        "name": name,
        "type": kind if number > 1 else "general",
        "start_time": iso(number),
        "end_time": iso(number + 1),
        **sides,
        **(
            {"error_info": dict(zip(("exception_type", "message"), error.split(": "), strict=True))}
            if error
            else {}
        ),
    }


def mastra(told: Told) -> Any:
    number, kind, name, sides, error = told
    kinds = {"agent": "agent_run", "llm": "model_generation", "tool": "tool_call"}
    return {
        "traceId": TRACE,
        "spanId": span_id(number),
        "parentSpanId": span_id(1) if number > 1 else None,
        "name": f"{kind}: '{name}'",
        "spanType": kinds[kind],
        **sides,
        "error": {"message": error} if error else None,
        "startedAt": iso(number),
        "endedAt": iso(number + 1),
    }


def honeyhive(told: Told) -> Any:
    number, kind, name, sides, error = told
    given = {"chat_history": sides["input"]} if kind == "llm" else sides["input"]
    return {
        "event_id": f"e{number}",
        "session_id": "e1",
        "parent_id": "e1" if number > 1 else None,
        "event_type": {"agent": "session", "llm": "model", "tool": "tool"}[kind],
        "event_name": name,
        "inputs": given if isinstance(given, dict) else {"question": given},
        "outputs": sides["output"],
        "error": error or None,
        "start_time": START_MS + 1000 * number,
        "end_time": START_MS + 1000 * number + 500,
    }


def langwatch(told: list[Told]) -> Any:
    spans = [
        {
            "span_id": f"s{number}",
            "parent_id": "s1" if number > 1 else None,
            "type": kind,
            "name": name,
            "input": {"type": "json", "value": sides["input"]},
            "output": {"type": "json", "value": sides["output"]} if sides["output"] else None,
            "error": {"has_error": True, "message": error} if error else None,
            "timestamps": {
                "started_at": START_MS + 1000 * number,
                "finished_at": START_MS + 1000 * number + 500,
            },
        }
        for number, kind, name, sides, error in told
    ]
    return {"trace_id": "t1", "spans": spans, "input": {"value": TASK}, "output": {"value": ANSWER}}


def columns(told: list[Told]) -> Any:
    """Return rows as Elastic's ES|QL answers: columns and values apart."""
    rows = [honeycomb(one) for one in told]
    names = list(dict.fromkeys(key for row in rows for key in row))
    values = [[row.get(name) for name in names] for row in rows]
    return {"took": 3, "columns": [{"name": name, "type": "keyword"} for name in names], "values": values}


def portal(told: list[Told]) -> str:
    """Return rows as Azure's portal exports them."""
    (held,) = azure(told)["tables"]
    text = io.StringIO()
    names = ["timestamp [UTC]", *(column["name"] for column in held["columns"][1:])]
    moments = [f"1/1/2026, 12:00:0{number}.000 AM" for number, *_ in told]
    rows = [[moment, *row[1:]] for moment, row in zip(moments, held["rows"], strict=True)]
    csv.writer(text).writerows([names, *rows])
    return "\ufeff" + text.getvalue()


def cloud_trace(told: Told) -> Any:
    number, _, name, attributes, error = told
    values = {key: {"stringValue": {"value": value}} for key, value in attributes.items()}
    return {
        "name": f"projects/p/traces/{TRACE}/spans/{span_id(number)}",
        "spanId": span_id(number),
        **({"parentSpanId": span_id(1)} if number > 1 else {}),
        "displayName": {"value": name},
        "startTime": iso(number),
        "endTime": iso(number + 1),
        "attributes": {"attributeMap": values},
        **({"status": {"code": 2, "message": error}} if error else {}),
    }


def sentry(told: list[Told]) -> Any:
    spans = [
        {
            "trace_id": TRACE,
            "span_id": span_id(number),
            "parent_span_id": span_id(1),
            "description": name,
            "start_timestamp": START_MS / 1000 + number,
            "timestamp": START_MS / 1000 + number + 0.5,
            "status": "internal_error" if error else "ok",
            "data": {**attributes, **({"error.message": error} if error else {})},
        }
        for number, _, name, attributes, error in told
    ]
    root = {"trace_id": TRACE, "span_id": span_id(1), "status": "ok", "data": told[0][3]}
    times = {"start_timestamp": START_MS / 1000, "timestamp": START_MS / 1000 + 9}
    return {"transaction": told[0][2], **times, "contexts": {"trace": root}, "spans": spans[1:]}


def sentry_names(told: list[Told]) -> Any:
    """Return a transaction with the names that Sentry's SDKs give attributes."""
    found = sentry(told)
    call, tool, answer = found["spans"]
    asked = [{"role": "user", "content": TASK}]
    calls = [{"id": "c1", "type": "function", "name": "tide_table", "arguments": json.dumps(ARGUMENTS)}]
    operation = {"gen_ai.operation.name": "chat", "gen_ai.request.messages": json.dumps(asked)}
    call["data"] = {**operation, "gen_ai.response.tool_calls": json.dumps(calls)}
    answer["data"] = {**operation, "gen_ai.response.text": json.dumps([ANSWER])}
    names = {
        "gen_ai.tool.call.arguments": "gen_ai.tool.input",
        "gen_ai.tool.call.result": "gen_ai.tool.output",
    }
    tool["data"] = {names.get(key, key): value for key, value in tool["data"].items()}
    return found


def laminar(told: Told) -> Any:
    sides = {"input": None, "output": None, "spanType": {"agent": "DEFAULT"}.get(told[1], told[1].upper())}
    return {**cloudwatch(told), **sides}


def lunary(told: Told) -> Any:
    number, kind, name, sides, error = told
    times = {"createdAt": iso(number), "endedAt": iso(number + 1)}
    failed = {"message": error, "stack": "at …"} if error else None
    parent = f"run-{1}" if number > 1 else None
    own = {"id": f"run-{number}", "parentRunId": parent, "type": kind, "name": name}
    return {**own, **times, **sides, "error": failed}


def literal(told: Told) -> Any:
    number, kind, name, sides, error = told
    own = {"id": f"step-{number}", "parentId": "step-1" if number > 1 else None, "threadId": "t1"}
    times = {"startTime": iso(number), "endTime": iso(number + 1)}
    named = {"type": {"agent": "run"}.get(kind, kind), "name": name}
    return {**own, **times, **named, **sides, "error": error or None}


def galileo(told: list[Told]) -> Any:
    def span(one: Told) -> dict[str, Any]:
        number, kind, name, sides, error = one
        own = {"id": f"s{number}", "type": kind, "name": name, "created_at": iso(number)}
        ended = {"status_code": 500, "output": error} if error else {"status_code": 200}
        return {**own, **sides, "metrics": {"duration_ns": 500}, **ended}

    first, *others = map(span, told)
    trace = {"id": "t1", "type": "trace", "created_at": iso(1), "spans": [{**first, "spans": others}]}
    return {"records": [trace], "limit": 100}


def insights(told: Told) -> Any:
    return [{"field": "@ptr", "value": "x"}, {"field": "@message", "value": json.dumps(cloudwatch(told))}]


def lines(row: Callable[[Told], Any]) -> Callable[[list[Told]], str]:
    return lambda told: "\n".join(json.dumps(row(one)) for one in told)


def listed(row: Callable[[Told], Any], *keys: str) -> Callable[[list[Told]], str]:
    """Return what makes a document of rows, the newest first, below keys one in the other."""

    def written(told: list[Told]) -> str:
        found: Any = [row(one) for one in told[::-1]]
        for key in keys:
            found = {key: found}
        return json.dumps(found)

    return written


def table(told: list[Told]) -> str:
    rows = [honeycomb(one) for one in told]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(key for row in rows for key in row)))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


STORES: dict[str, tuple[Callable[[str], list[Told]], Callable[[list[Told]], str]]] = {
    "ClickHouse": (otel, lines(clickhouse)),
    "CloudWatch": (otel, lines(cloudwatch)),
    "CloudWatch's log events": (
        otel,
        listed(lambda one: {"message": json.dumps(cloudwatch(one)), "ingestionTime": 1}, "events"),
    ),
    "CloudWatch's Logs Insights": (otel, listed(insights, "results")),
    "Honeycomb": (otel, listed(honeycomb)),
    "Honeycomb as CSV": (otel, table),
    "New Relic": (otel, listed(honeycomb, "results", "nrql", "account", "actor", "data")),
    "Elastic": (otel, listed(lambda one: {"_id": "x", "_source": elastic(one)}, "hits", "hits")),
    "Application Insights": (otel, lambda told: json.dumps(azure(told))),
    "Application Insights from the portal": (otel, portal),
    "Elastic's ES|QL": (otel, lambda told: json.dumps(columns(told))),
    "Google's Cloud Trace 2": (otel, listed(cloud_trace, "spans")),
    "Sentry": (otel, lambda told: json.dumps(sentry(told))),
    "Sentry's own names": (otel, lambda told: json.dumps(sentry_names(told))),
    "Laminar": (otel, listed(laminar, "items")),
    "Lunary": (traced, listed(lunary, "data")),
    "Literal AI": (traced, listed(literal)),
    "Galileo": (traced, lambda told: json.dumps(galileo(told))),
    "Zipkin 1": (otel, listed(zipkin)),
    "Google's Cloud Trace": (otel, lambda told: json.dumps(google(told))),
    "Braintrust": (traced, listed(braintrust, "events")),
    "Opik": (traced, listed(opik, "content")),
    "Mastra": (traced, listed(mastra, "spans")),
    "HoneyHive": (traced, listed(honeyhive, "events")),
    "LangWatch": (traced, lambda told: json.dumps(langwatch(told))),
}


@pytest.mark.parametrize("store", STORES)
def test_rows_of_each_store_tell_the_story(store: str) -> None:
    told, written = STORES[store]
    error = "" if store.startswith(("Elastic", "Application Insights", "Zipkin 1")) else ERROR
    error = ERROR if store == "Elastic's ES|QL" else error  # the others keep exceptions elsewhere
    data = written(told(ERROR)).encode()
    first, _, _ = told_steps(data, error=error)
    assert attribute(data).agent == "harbour_desk"
    assert [call.name for call in first.calls] == ["tide_table"]


@pytest.mark.parametrize("store", STORES)
def test_a_right_run_of_each_store_accuses_no_agent(store: str) -> None:
    told, written = STORES[store]
    data = written(told("")).encode()
    assert_right(data)
    (run,) = read_runs(data)
    assert [step.output for step in run.trajectory.steps if step.kind is StepKind.TOOL] == [RIGHT]


@pytest.mark.parametrize("key", ["trace_id", "session_id"])
def test_jobs_and_meetings_are_no_spans(key: str) -> None:
    job = {"id": "1", key: "s", "name": "backup", "start_time": iso(1), "end_time": iso(2), "type": "job"}
    with pytest.raises(UnreadableInput, match="unknown format"):
        read_recording(json.dumps([job, {**job, "id": "2"}]).encode())


@pytest.mark.parametrize("moment", [[], "noon", -1, {"at": 1}, None])
def test_a_span_without_a_moment_is_refused(moment: Any) -> None:
    document = galileo(traced(ERROR))
    document["records"][0]["spans"][0]["created_at"] = moment
    with pytest.raises(UnreadableInput):
        read_recording(json.dumps(document).encode())


def test_runs_in_a_circle_end() -> None:
    times = {"createdAt": iso(1), "endedAt": iso(2), "type": "tool", "name": "drill", "output": "hole"}
    runs = [{"id": str(one), "parentRunId": str(1 - one), **times} for one in (0, 1)]
    assert read_recording(json.dumps(runs).encode()).requests


def test_tools_that_a_session_used_are_no_spans() -> None:
    used = {"id": "1", "session_id": "s", "name": "drill", "start_time": iso(1), "end_time": iso(2)}
    with pytest.raises(UnreadableInput, match="unknown format"):
        read_recording(json.dumps([{**used, "type": "tool", "output": "hole", "error": ERROR}]).encode())


def test_a_column_may_have_values_of_another_type() -> None:
    row = {"trace_id": TRACE, "span_id": span_id(1), "name": "desk", "start_time": iso(1), "end_time": iso(2)}
    assert read_recording(json.dumps({**row, "success": ["yes"], "event": {"outcome": {}}}).encode()).requests


def test_lines_of_a_log_that_name_their_span_are_no_spans() -> None:
    line = {"trace_id": TRACE, "span_id": span_id(1), "name": "app.desk", "timestamp": iso(1), "message": "x"}
    for more in ({}, {"duration_ms": 5, "level": "info"}):
        with pytest.raises(UnreadableInput):
            read_recording(json.dumps({**line, **more}).encode())
