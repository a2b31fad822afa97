"""The story of ``examples/files`` as backends export it, in each form in which people keep such a file.

``told`` is a parsed example: its spans (for MLflow, its trace), which a test may change before it is written.
"""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from semconv.record import record
from tests.tide_story import ERROR

RESULT: Final = "High water at Dover: 14:20 tomorrow"
METADATA: Final = {"langgraph_node": "harbour_desk", "langgraph_step": 1}
EXAMPLES: Final = Path(__file__).parents[1] / "examples" / "files"
Form = Callable[[Any], bytes]


@record
class Export:
    """One backend's file."""

    format: str
    """Its name in refusals."""
    told: Callable[[], Any]
    right: Callable[[], Any]
    """The example as it would be if the tool had answered."""
    forms: Mapping[str, Form]
    wrong: Mapping[str, tuple[object, ...]]
    """Values of the wrong type, by the field of a span."""
    error: str = ERROR


def example(name: str) -> Any:
    return json.loads((EXAMPLES / name).read_text(encoding="utf-8"))


def documents(name: str) -> list[Any]:
    """Return the documents that an example has one after the other."""
    text, found = (EXAMPLES / name).read_text(encoding="utf-8").strip(), []
    while text:
        document, end = json.JSONDecoder().raw_decode(text)
        found.append(document)
        text = text[end:].strip()
    return found


def whole(told: Any) -> bytes:
    return json.dumps(told).encode()


def lines(told: Iterable[Any]) -> bytes:
    return "\n".join(map(json.dumps, told)).encode()


def newest_first(told: list[Any]) -> bytes:
    return whole(told[::-1])


def as_csv(names: Iterable[str], rows: Iterable[Iterable[object]]) -> bytes:
    """Write cells as spreadsheets do: nothing for what is absent."""
    written = io.StringIO()
    writer = csv.writer(written)
    writer.writerow(names)
    writer.writerows([["" if cell is None else cell for cell in row] for row in rows])
    return written.getvalue().encode()


# Datadog -------------------------------------------------------------------


def datadog_spans() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = example("datadog-llm-spans.json")["spans"]
    return found


def datadog_right() -> list[dict[str, Any]]:
    told = datadog_spans()
    told[2] |= {"status": "ok"}
    del told[2]["meta"]["error"]
    told[2]["meta"]["output"] = {"value": RESULT}
    told[3]["meta"]["input"]["messages"][2]["tool_results"][0]["result"] = RESULT
    return told


def datadog_intake(told: list[dict[str, Any]]) -> bytes:
    """A request to the Spans API, where the kind is directly in ``meta``."""
    flat = [{**span, "meta": {**span["meta"], "kind": span["meta"]["span"]["kind"]}} for span in told]
    for span in flat:
        del span["meta"]["span"]
    return whole({"data": {"type": "span", "attributes": {"ml_app": "harbour", "spans": flat}}})


def datadog_export(told: list[dict[str, Any]]) -> bytes:
    """An answer of the Export API: milliseconds, and the fields of ``meta`` beside the ids."""
    data = []
    for span in told:
        meta = span["meta"]
        fields = {name: value for name, value in span.items() if name not in {"meta", "start_ns"}}
        fields |= {"start_ms": span["start_ns"] // 1_000_000, "span_kind": meta["span"]["kind"]}
        fields |= {"ml_app": "harbour", **{name: value for name, value in meta.items() if name != "span"}}
        data.append({"id": span["span_id"], "type": "span", "attributes": fields})
    return whole({"data": data, "meta": {"status": "done"}, "links": {}})


DATADOG: Final = Export(
    format="Datadog LLM Observability spans",
    told=datadog_spans,
    right=datadog_right,
    forms={
        "an SDK's request": lambda told: whole({"event_type": "span", "spans": told}),
        "several requests": lambda told: whole([{"event_type": "span", "spans": [one]} for one in told]),
        "the intake's request": datadog_intake,
        "the export": datadog_export,
        "a list": whole,
        "lines": lines,
    },
    wrong={"start_ns": ("soon",), "duration": ("long",), "metrics": ([1],)},
)


# Logfire -------------------------------------------------------------------


def logfire_rows() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = example("logfire-records.json")["rows"]
    return found


def logfire_right() -> list[dict[str, Any]]:
    told = logfire_rows()
    told[2] |= {"otel_status_code": "UNSET", "otel_status_message": None, "otel_events": None}
    told[2] |= {"is_exception": False, "exception_type": None, "exception_message": None}
    told[2]["attributes"]["output.value"] = RESULT
    told[3]["attributes"]["llm.input_messages.1.message.content"] = RESULT
    return told


def logfire_columns(told: list[dict[str, Any]]) -> bytes:
    columns = [{"name": name, "datatype": "Utf8", "values": [row[name] for row in told]} for name in told[0]]
    return whole({"columns": columns})


def logfire_csv(told: list[dict[str, Any]]) -> bytes:
    cells = [
        [json.dumps(one) if isinstance(one, dict | list) else one for one in row.values()] for row in told
    ]
    return as_csv(told[0], cells)


LOGFIRE: Final = Export(
    format="rows of Logfire's records",
    told=logfire_rows,
    right=logfire_right,
    forms={
        "rows": lambda told: whole({"columns": [], "rows": told}),
        "columns": logfire_columns,
        "lists by name": lambda told: whole({name: [row[name] for row in told] for name in told[0]}),
        "lines": lines,
        "newest first": newest_first,
        "CSV": logfire_csv,
    },
    wrong={"attributes": ("none",), "duration": ("long",), "otel_events": (3,)},
)


# Weave ---------------------------------------------------------------------


def weave_calls() -> list[dict[str, Any]]:
    return documents("weave-calls.jsonl")


def weave_right() -> list[dict[str, Any]]:
    told = weave_calls()
    told[2] |= {"exception": None, "output": RESULT, "summary": {"weave": {"status": "success"}}}
    told[3]["inputs"]["messages"][2]["content"] = RESULT
    return told


WEAVE: Final = Export(
    format="W&B Weave calls",
    told=weave_calls,
    right=weave_right,
    forms={
        "lines": lines,
        "a list": whole,
        "the API's answer": lambda told: whole({"calls": told}),
        "newest first": newest_first,
        "without kinds": lambda told: whole([{**one, "attributes": {}} for one in told]),
    },
    wrong={"started_at": ("soon",), "summary": ([1],), "attributes": ("none",)},
)


# Zipkin --------------------------------------------------------------------


def zipkin_spans() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = example("zipkin-spans.json")
    return found


def zipkin_right() -> list[dict[str, Any]]:
    told = zipkin_spans()
    for tag in ("error", "otel.status_code"):
        del told[2]["tags"][tag]
    del told[2]["annotations"]
    told[2]["tags"]["output.value"] = RESULT
    told[3]["tags"]["llm.input_messages.1.message.content"] = RESULT
    return told


ZIPKIN: Final = Export(
    format="Zipkin spans (version 2)",
    told=zipkin_spans,
    right=zipkin_right,
    forms={
        "a trace": whole,
        "a list of traces": lambda told: whole([told]),
        "spans one a line": lines,
        "batches one a line": lambda told: lines((told[:2], told[2:])),
    },
    wrong={"timestamp": ("soon",), "duration": ("long",), "localEndpoint": (3,)},
)


# OpenAI's Agents SDK -------------------------------------------------------


def openai_export() -> list[dict[str, Any]]:
    return documents("openai-agents.jsonl")


def openai_right() -> list[dict[str, Any]]:
    told = openai_export()
    told[2]["error"] = None
    told[2]["span_data"]["output"] = RESULT
    told[3]["span_data"]["input"][2]["content"] = RESULT
    return told


OPENAI: Final = Export(
    format="the export of OpenAI's Agents SDK",
    told=openai_export,
    right=openai_right,
    forms={
        "lines": lines,
        "a list": whole,
        "one export": lambda told: whole({"data": told}),
        "several exports": lambda told: lines({"data": [one]} for one in told),
        "several batches": lambda told: lines((told[:2], told[2:])),
        "without the trace": lambda told: whole(told[1:]),
    },
    wrong={"started_at": ("soon",), "span_data": ("agent", [1])},
)


# MLflow --------------------------------------------------------------------


def mlflow_trace() -> dict[str, Any]:
    found: dict[str, Any] = example("mlflow-trace.json")
    return found


def mlflow_right() -> dict[str, Any]:
    told = mlflow_trace()
    _, _, tool, last = told["data"]["spans"]
    tool |= {"status": {"code": "STATUS_CODE_OK", "message": ""}, "events": []}
    tool["attributes"]["mlflow.spanOutputs"] = json.dumps(RESULT)
    given = json.loads(last["attributes"]["mlflow.spanInputs"])
    given["messages"][2]["content"] = RESULT
    last["attributes"]["mlflow.spanInputs"] = json.dumps(given)
    return told


def _hex(text: str | None) -> str | None:
    return text and "0x" + base64.b64decode(text).hex()


def mlflow_version_2(told: dict[str, Any]) -> dict[str, Any]:
    spans = [
        {
            "name": span["name"],
            "context": {"span_id": _hex(span["span_id"]), "trace_id": _hex(span["trace_id"])},
            "parent_id": _hex(span["parent_span_id"]),
            "start_time": span["start_time_unix_nano"],
            "end_time": span["end_time_unix_nano"],
            "status_code": span["status"]["code"].removeprefix("STATUS_CODE_"),
            "status_message": span["status"]["message"],
            "attributes": span["attributes"],
            "events": [
                {
                    "name": one["name"],
                    "timestamp": one["time_unix_nano"] // 1000,
                    "attributes": one["attributes"],
                }
                for one in span["events"]
            ],
        }
        for span in told["data"]["spans"]
    ]
    return {"info": {"request_id": "tr-1", "request_metadata": {}}, "data": {"spans": spans}}


def mlflow_row(told: dict[str, Any]) -> dict[str, Any]:
    spans = told["data"]["spans"]
    return {"trace_id": "tr-1", "trace": json.dumps(told), "state": "OK", "spans": spans, "assessments": []}


def mlflow_old_row(told: dict[str, Any]) -> dict[str, Any]:
    """A frame before version 3: the whole trace is an object, which JSON does not hold."""
    spans = mlflow_version_2(told)["data"]["spans"]
    return {"request_id": "tr-1", "trace": "Trace(request_id=tr-1)", "spans": spans}


MLFLOW: Final = Export(
    format="MLflow traces",
    told=mlflow_trace,
    right=mlflow_right,
    forms={
        "version 3": whole,
        "version 2": lambda told: whole(mlflow_version_2(told)),
        "the artifact": lambda told: whole(told["data"]),
        "spans": lambda told: whole(told["data"]["spans"]),
        "a frame": lambda told: whole([mlflow_row(told)]),
        "a frame's columns": lambda told: whole({name: {"0": one} for name, one in mlflow_row(told).items()}),
        "an old frame": lambda told: whole([mlflow_old_row(told)]),
        "the API's answer": lambda told: whole({"traces": [told], "next_page_token": None}),
    },
    wrong={"start_time_unix_nano": ("soon",), "events": (3,), "status": ("OK",)},
)


# Phoenix -------------------------------------------------------------------


def phoenix_spans() -> list[dict[str, Any]]:
    """The example's spans, with metadata as langgraph's instrumentation adds it."""
    told: list[dict[str, Any]] = example("phoenix-spans.json")["data"]
    for span in told[1:]:
        span["attributes"]["metadata"] = json.dumps(METADATA)
    return told


def phoenix_right() -> list[dict[str, Any]]:
    told = phoenix_spans()
    told[2] |= {"status_code": "OK", "status_message": "", "events": []}
    told[2]["attributes"]["output.value"] = RESULT
    told[3]["attributes"]["llm.input_messages.1.message.content"] = RESULT
    return told


def phoenix_rest(told: list[dict[str, Any]]) -> bytes:
    metadata = {f"metadata.{name}": value for name, value in METADATA.items()}
    flat = [span | {"attributes": {**span["attributes"], **metadata}} for span in told]
    for span in flat:
        span["attributes"].pop("metadata", None)
    return whole({"data": flat, "next_cursor": None})


def phoenix_otlp(told: list[dict[str, Any]]) -> bytes:
    def value(one: object) -> dict[str, Any]:
        return {"int_value": one} if isinstance(one, int) else {"string_value": one}

    data = [
        {
            **span["context"],
            "parent_span_id": span["parent_id"],
            "name": span["name"],
            "start_time_unix_nano": 1_772_439_300_000_000_000 + place,
            "end_time_unix_nano": 1_772_439_301_000_000_000 + place,
            "attributes": [{"key": name, "value": value(one)} for name, one in span["attributes"].items()],
            "events": None,
            "status": {"code": {"OK": 1, "ERROR": 2}[span["status_code"]], "message": span["status_message"]},
        }
        for place, span in enumerate(told)
    ]
    return whole({"data": data, "next_cursor": None})


def phoenix_frame(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The spans as ``get_spans_dataframe`` has them: lists of objects, metadata as an object."""
    found = []
    for span in told:
        columns: dict[str, Any] = {}
        for name, value in span["attributes"].items():
            match name.split("."):
                case ["llm", "input_messages" | "output_messages" as side, at, *rest]:
                    messages = columns.setdefault(f"attributes.llm.{side}", [])
                    messages.extend({} for _ in range(int(at) + 1 - len(messages)))
                    field = ".".join(rest)
                    if "tool_calls" in field:
                        calls = messages[int(at)].setdefault("message.tool_calls", [{}])
                        calls[0][field.removeprefix("message.tool_calls.0.")] = value
                    else:
                        messages[int(at)][field] = value
                case ["metadata"]:
                    columns["attributes.metadata"] = json.loads(value)
                case _:
                    columns[f"attributes.{name}"] = value
        kept = {name: value for name, value in span.items() if name not in {"id", "context", "attributes"}}
        ids = {f"context.{name}": value for name, value in span["context"].items()}
        found.append({**kept, **ids, **columns})
    names = list(dict.fromkeys(name for row in found for name in row))
    return [{name: row.get(name) for name in names} for row in found]


def phoenix_by_index(told: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["context.span_id"]: row for row in phoenix_frame(told)}


def phoenix_columns(told: list[dict[str, Any]]) -> bytes:
    rows = phoenix_by_index(told)
    names = next(iter(rows.values()))
    return whole({name: {index: row[name] for index, row in rows.items()} for name in names})


def phoenix_split(told: list[dict[str, Any]]) -> bytes:
    table = phoenix_frame(told)
    return whole(
        {"columns": list(table[0]), "index": [0, 1, 2, 3], "data": [list(row.values()) for row in table]}
    )


def phoenix_csv(told: list[dict[str, Any]]) -> bytes:
    """pandas' ``to_csv`` of a frame with an index: ``repr`` of lists."""
    rows = phoenix_by_index(told)
    names = next(iter(rows.values()))
    return as_csv(["context.span_id", *names], [[index, *row.values()] for index, row in rows.items()])


def phoenix_parquet(told: list[dict[str, Any]]) -> bytes:
    pa = pytest.importorskip("pyarrow")
    return parquet(pa.Table.from_pylist(phoenix_frame(told)))


def parquet(table: Any) -> bytes:
    written = io.BytesIO()
    pytest.importorskip("pyarrow.parquet").write_table(table, written)
    return written.getvalue()


PHOENIX: Final = Export(
    format="Phoenix spans (REST API, or a data frame as JSON, CSV or Parquet)",
    told=phoenix_spans,
    right=phoenix_right,
    forms={
        "rest": phoenix_rest,
        "otlp": phoenix_otlp,
        "a bare list": whole,
        "lines": lines,
        "a frame's records": lambda told: whole(phoenix_frame(told)),
        "a frame's lines": lambda told: lines(phoenix_frame(told)),
        "a frame's columns": phoenix_columns,
        "a frame, by index": lambda told: whole(phoenix_by_index(told)),
        "a frame, split": phoenix_split,
        "CSV": phoenix_csv,
        "Parquet": phoenix_parquet,
    },
    wrong={"attributes": (3,), "start_time": ("soon",), "events": (3,)},
)


# LangSmith -----------------------------------------------------------------


def langsmith_runs() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = example("langsmith-runs.json")
    return found


def langsmith_right() -> list[dict[str, Any]]:
    told = langsmith_runs()
    result = {"content": RESULT, "type": "tool", "tool_call_id": "call_1"}
    told[3] |= {"status": "success", "error": None, "outputs": {"output": result}}
    told[0]["outputs"]["messages"][2] = result
    told[4]["inputs"]["messages"][2] = result
    told[5]["inputs"]["messages"][0][2] = {"kwargs": result}
    return told


def langsmith_nested(told: list[dict[str, Any]]) -> bytes:
    """A root that was loaded with its children, which name neither their parent nor their trace."""
    by_id = {run["id"]: {**run, "child_runs": []} for run in told}
    for run in by_id.values():
        if run["parent_run_id"]:
            by_id[run["parent_run_id"]]["child_runs"].append(run)
    for run in by_id.values():
        run |= {"parent_run_id": None, "trace_id": None, "dotted_order": None}
    return whole(by_id[told[0]["id"]])


def langsmith_bulk(told: list[dict[str, Any]]) -> bytes:
    """Rows with JSON in their cells, by columns."""
    rows = [
        {name: json.dumps(value) if isinstance(value, dict) else value for name, value in run.items()}
        for run in told
    ]
    return whole({name: {str(at): row[name] for at, row in enumerate(rows)} for name in rows[0]})


LANGSMITH: Final = Export(
    format="LangSmith runs",
    told=langsmith_runs,
    right=langsmith_right,
    forms={
        "a list": whole,
        "lines": lines,
        "newest first": lambda told: lines(told[::-1]),
        "the API's answer": lambda told: whole({"runs": told, "cursors": {"next": None}}),
        "nested": langsmith_nested,
        "the bulk export": langsmith_bulk,
    },
    wrong={"extra": ("[1]",), "start_time": ("soon",), "feedback_stats": ([1],)},
    error="ConnectionError('the tide service cannot be reached')",
)


# Spans that SDKs print -----------------------------------------------------


def printed_spans() -> list[dict[str, Any]]:
    return documents("console-spans.json")


def printed_right() -> list[dict[str, Any]]:
    told = printed_spans()
    told[2] |= {"status": {"status_code": "OK"}, "events": []}
    told[2]["attributes"]["output.value"] = RESULT
    told[3]["attributes"]["llm.input_messages.1.message.content"] = RESULT
    return told


PRINTED: Final = Export(
    format="spans printed by OpenTelemetry's ConsoleSpanExporter",
    told=printed_spans,
    right=printed_right,
    forms={
        "one a line": lines,
        "several lines each": lambda told: "\n".join(json.dumps(one, indent=4) for one in told).encode(),
        "a list": whole,
    },
    wrong={
        "attributes": (3,),
        "events": ("none",),
        "start_time": ("yesterday",),
        "status": ("OK",),
        "resource": ([1],),
    },
)

EXPORTS: Final = {
    "Datadog": DATADOG,
    "LangSmith": LANGSMITH,
    "Logfire": LOGFIRE,
    "MLflow": MLFLOW,
    "OpenAI's Agents SDK": OPENAI,
    "OpenTelemetry": PRINTED,
    "Phoenix": PHOENIX,
    "Weave": WEAVE,
    "Zipkin": ZIPKIN,
}
