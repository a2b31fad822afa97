"""Phoenix's spans in each form in which people have them: REST, OTLP, and data frames in four formats."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analyzer.api.local import attribute, read_runs
from analyzer.inquiry.errors import UnreadableInput
from analyzer.recordings.read_files import read_recording
from semconv.model import Status
from tests.tide_story import told_steps

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

EXAMPLE = Path(__file__).parents[2] / "examples" / "files" / "phoenix-spans.json"
METADATA = {"langgraph_node": "harbour_desk", "langgraph_step": 1}


def spans() -> list[dict[str, Any]]:
    """The example's spans, with metadata as langgraph's instrumentation adds it."""
    told: list[dict[str, Any]] = json.loads(EXAMPLE.read_text(encoding="utf-8"))["data"]
    for span in told[1:]:
        span["attributes"]["metadata"] = json.dumps(METADATA)
    return told


def rest(told: list[dict[str, Any]]) -> bytes:
    flat = [
        span
        | {
            "attributes": {
                **span["attributes"],
                **{f"metadata.{name}": value for name, value in METADATA.items()},
            }
        }
        for span in told
    ]
    for span in flat:
        span["attributes"].pop("metadata", None)
    return json.dumps({"data": flat, "next_cursor": None}).encode()


def otlp(told: list[dict[str, Any]]) -> bytes:
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
    return json.dumps({"data": data, "next_cursor": None}).encode()


def rows(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
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


def as_columns(told: list[dict[str, Any]]) -> bytes:
    table = rows(told)
    by_column = {name: {row["context.span_id"]: row[name] for row in table} for name in table[0]}
    return json.dumps(by_column).encode()


def as_split(told: list[dict[str, Any]]) -> bytes:
    table = rows(told)
    split = {"columns": list(table[0]), "index": [0, 1, 2, 3], "data": [list(row.values()) for row in table]}
    return json.dumps(split).encode()


def as_csv(told: list[dict[str, Any]]) -> bytes:
    """pandas' ``to_csv`` of a frame with an index: ``repr`` of lists, nothing for what is absent."""
    table, written = rows(told), io.StringIO()
    writer = csv.writer(written)
    writer.writerow(["context.span_id", *table[0]])
    for row in table:
        writer.writerow([row["context.span_id"], *("" if value is None else value for value in row.values())])
    return written.getvalue().encode()


def as_parquet(told: list[dict[str, Any]]) -> bytes:
    written = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows(told)), written)
    return written.getvalue()


def by_index(told: list[dict[str, Any]]) -> bytes:
    return json.dumps({row["context.span_id"]: row for row in rows(told)}).encode()


FORMS: dict[str, Callable[[list[dict[str, Any]]], bytes]] = {
    "rest": rest,
    "otlp": otlp,
    "a bare list": lambda told: json.dumps(told).encode(),
    "lines": lambda told: "\n".join(map(json.dumps, told)).encode(),
    "a frame's records": lambda told: json.dumps(rows(told)).encode(),
    "a frame's lines": lambda told: "\n".join(map(json.dumps, rows(told))).encode(),
    "a frame's columns": as_columns,
    "a frame, by index": by_index,
    "a frame, split": as_split,
    "CSV": as_csv,
    "Parquet": as_parquet,
}
each_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


@each_form
def test_each_form_shows_the_same_run(form: Callable[[list[dict[str, Any]]], bytes]) -> None:
    (run,) = read_runs(form(spans()))
    first, _, _ = told_steps(form(spans()))
    assert [(call.name, call.call_id) for call in first.calls] == [("tide_table", "call_1")]
    assert run.trajectory.task == "When is high tide at Dover tomorrow?"


@each_form
def test_a_run_whose_tool_answers_is_right(form: Callable[[list[dict[str, Any]]], bytes]) -> None:
    told, result = spans(), "High water at Dover: 14:20 tomorrow"
    told[2] |= {"status_code": "OK", "status_message": "", "events": []}
    told[2]["attributes"]["output.value"] = result
    told[3]["attributes"]["llm.input_messages.1.message.content"] = result
    verdict = attribute(form(told))
    assert (verdict.status, verdict.agent) == (Status.NO_FAILURE, None)


def test_metadata_names_the_agents_of_a_graph() -> None:
    told = spans()
    told[0]["attributes"]["agent.name"] = told[0]["name"] = "LangGraph"
    for span in told[2:]:
        span["attributes"]["metadata"] = json.dumps({"langgraph_node": "tide_clerk"})
    verdict = attribute(json.dumps(told).encode())
    assert verdict.agent == "tide_clerk"


@pytest.mark.parametrize(
    "said",
    [
        {
            "span_annotations": [
                {"name": "correctness", "annotator_kind": "HUMAN", "result": {"label": "incorrect"}}
            ]
        },
        {"spanAnnotations": [{"name": "correctness", "annotatorKind": "LLM", "score": 0}]},
        {"eval.correctness.label": "incorrect", "eval.correctness.score": 0},
    ],
    ids=["REST", "GraphQL", "a frame's evaluations"],
)
def test_an_evaluation_fails_a_run_that_reports_nothing(said: dict[str, Any]) -> None:
    told = spans()
    told[2] |= {"status_code": "OK", "status_message": "", "events": []}
    told[2]["attributes"]["output.value"] = result = "High water at Dover: 14:20 tomorrow"
    told[3]["attributes"]["llm.input_messages.1.message.content"] = result
    told[0] |= said
    assert attribute(json.dumps(told).encode()).status is Status.ATTRIBUTED


def test_annotations_may_be_listed_beside_the_spans() -> None:
    told = spans()
    said = {"id": "A", "span_id": told[0]["context"]["span_id"], "name": "correctness"}
    said |= {"annotator_kind": "HUMAN", "result": {"label": "incorrect", "score": 0.0}}
    (run,) = read_runs(json.dumps([*told, said]).encode())
    assert run.trajectory.outcome is not None


def test_a_cell_with_moments_and_arrays_is_read() -> None:
    told = rows(spans())
    told[2]["events"] = (
        "array([{'name': 'exception', 'timestamp': datetime.datetime(2026, 3, 2, tzinfo=<UTC>),"
        " 'attributes': {'exception.message': 'down', 'code': nan}}], dtype=object)"
    )
    (run,) = read_runs(json.dumps(told).encode())
    assert "down" in run.trajectory.steps[1].error


def test_parquet_of_one_repeated_value_is_refused() -> None:
    """Ten million equal rows take a few kilobytes in a file."""
    written = io.BytesIO()
    pq.write_table(pa.table({"name": pa.array(["x"] * 10_000_000).dictionary_encode()}), written)
    assert written.tell() < 100_000
    with pytest.raises(UnreadableInput, match="more than 5,000,000 values"):
        read_recording(written.getvalue())


def test_parquet_of_one_repeated_long_value_is_refused() -> None:
    written = io.BytesIO()
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 1_000, pa.int32()), pa.array(["x" * 1_000_000]))
    pq.write_table(pa.table({"name": column}), written)
    assert written.tell() < 100_000
    with pytest.raises(UnreadableInput, match="unpacks to more than 256 MiB"):
        read_recording(written.getvalue())


def test_damaged_parquet_is_refused_in_one_line() -> None:
    data = as_parquet(spans())
    for cut in (5, 100, len(data) // 2, len(data) - 1):
        with pytest.raises(UnreadableInput, match="Parquet") as raised:
            read_recording(data[:cut])
        assert "\n" not in str(raised.value)


def test_the_last_row_of_a_table_may_be_cut_short() -> None:
    data = as_csv(spans())
    read = read_recording(data[:-40].rpartition(b",")[0])
    assert read.warnings == ("row 4, the last one, is cut short and was left out",)


def test_a_table_of_something_else_is_described() -> None:
    with pytest.raises(UnreadableInput, match="unknown format: CSV with the keys date, amount, payee"):
        read_recording(b"date,amount,payee\n2026-01-02,3.50,Baker\n2026-01-03,4.00,Grocer\n")


def test_a_span_that_was_sent_with_genai_attributes_is_read_by_those() -> None:
    told = [span | {"attributes": {"input.value": "added by Phoenix"}} for span in spans()]
    for span in told:
        span["attributes"] |= {
            "gen_ai.operation.name": "chat",
            "gen_ai.agent.name": "harbour",
            "gen_ai.output.messages": json.dumps(
                [{"role": "assistant", "parts": [{"type": "text", "content": "sent"}]}]
            ),
        }
    found = read_runs(json.dumps({"data": told}).encode())[0].trajectory
    assert {(step.agent, step.output) for step in found.steps} == {("harbour", "sent")}
