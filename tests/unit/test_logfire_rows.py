"""Rows of Logfire's records in each form in which its API and pages give them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analyzer.api.local import read_runs
from analyzer.inquiry.errors import UnreadableInput
from analyzer.recordings.read_files import read_recording
from collector_processor.otlp import Signal
from collector_processor.rebuild.decode import decode
from tests.tide_story import assert_right, told_steps

EXAMPLE = Path(__file__).parents[2] / "examples" / "files" / "logfire-records.json"


def rows() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(EXAMPLE.read_text(encoding="utf-8"))["rows"]
    return found


def right() -> list[dict[str, Any]]:
    """The example as it would be if the tool had answered."""
    told, result = rows(), "High water at Dover: 14:20 tomorrow"
    told[2] |= {"otel_status_code": "UNSET", "otel_status_message": None, "otel_events": None}
    told[2] |= {"is_exception": False, "exception_type": None, "exception_message": None}
    told[2]["attributes"]["output.value"] = result
    told[3]["attributes"]["llm.input_messages.1.message.content"] = result
    return told


def by_columns(told: list[dict[str, Any]]) -> bytes:
    columns = [{"name": name, "datatype": "Utf8", "values": [row[name] for row in told]} for name in told[0]]
    return json.dumps({"columns": columns}).encode()


def as_csv(told: list[dict[str, Any]]) -> bytes:
    written = io.StringIO()
    writer = csv.writer(written)
    writer.writerow(told[0])
    for row in told:
        values = (json.dumps(one) if isinstance(one, dict | list) else one for one in row.values())
        writer.writerow("" if one is None else one for one in values)
    return written.getvalue().encode()


FORMS: dict[str, Callable[[list[dict[str, Any]]], bytes]] = {
    "rows": lambda told: json.dumps({"columns": [], "rows": told}).encode(),
    "columns": by_columns,
    "lists by name": lambda told: json.dumps(
        {name: [row[name] for row in told] for name in told[0]}
    ).encode(),
    "lines": lambda told: "\n".join(map(json.dumps, told)).encode(),
    "newest first": lambda told: json.dumps(told[::-1]).encode(),
    "CSV": as_csv,
}
each_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


@each_form
def test_each_form_shows_the_same_run(form: Callable[[list[dict[str, Any]]], bytes]) -> None:
    told_steps(form(rows()))


@each_form
def test_a_run_whose_tool_answers_is_right(form: Callable[[list[dict[str, Any]]], bytes]) -> None:
    assert_right(form(right()))


def test_the_scope_chooses_the_dialect() -> None:
    """Logfire's own spans of openai-agents are known by their scope alone."""
    told = rows()
    for row in told:
        row["otel_scope_name"] = "logfire.openai_agents"
    told[0] |= {"span_name": "Agent run: {name!r}", "attributes": {"name": "tide_clerk"}}
    told[2] |= {"span_name": "Function: {name}", "attributes": {"name": "tide_table", "input": "{}"}}
    (run,) = read_runs(json.dumps([told[0], told[2]]).encode())
    assert [(step.agent, step.target) for step in run.trajectory.steps] == [("tide_clerk", "tide_table")]


def test_spans_that_had_not_ended_and_copies_of_events_are_no_spans() -> None:
    told = rows()
    told += [
        {**told[2], "span_id": f"{9 + at:016x}", "kind": kind}
        for at, kind in enumerate(("pending_span", "span_event"))
    ]
    (run,) = read_runs(json.dumps(told).encode())
    assert len(run.trajectory.steps) == 3


def test_an_exception_is_read_from_its_columns() -> None:
    told = rows()
    told[2] |= {"otel_events": None, "exception_stacktrace": "Traceback …"}
    (body,) = read_recording(json.dumps(told).encode()).bodies(Signal.TRACES)
    (event,) = decode(body).spans[2].events
    assert dict(event.attributes) == {
        "exception.type": "ConnectionError",
        "exception.message": "the tide service cannot be reached",
        "exception.stacktrace": "Traceback …",
    }


@pytest.mark.parametrize(
    ("field", "value"), [("attributes", "none"), ("duration", "long"), ("otel_events", 3)]
)
def test_a_value_of_the_wrong_type_is_named_in_one_line(field: str, value: object) -> None:
    told = rows()
    told[2][field] = value
    with pytest.raises(UnreadableInput, match="cannot be read as rows of Logfire's records: ") as raised:
        read_recording(json.dumps(told).encode())
    assert "\n" not in str(raised.value)
