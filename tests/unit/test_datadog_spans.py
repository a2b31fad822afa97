"""Datadog's LLM Observability spans, as SDKs send them and as the export API gives them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analyzer.api.local import attribute, read_runs
from analyzer.inquiry.errors import UnreadableInput
from analyzer.recordings.read_files import read_recording
from tests.tide_story import assert_right, told_steps

EXAMPLE = Path(__file__).parents[2] / "examples" / "files" / "datadog-llm-spans.json"


def spans() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(EXAMPLE.read_text(encoding="utf-8"))["spans"]
    return found


def right() -> list[dict[str, Any]]:
    """The example as it would be if the tool had answered."""
    told, result = spans(), "High water at Dover: 14:20 tomorrow"
    told[2] |= {"status": "ok"}
    del told[2]["meta"]["error"]
    told[2]["meta"]["output"] = {"value": result}
    told[3]["meta"]["input"]["messages"][2]["tool_results"][0]["result"] = result
    return told


def intake(told: list[dict[str, Any]]) -> bytes:
    """A request to the Spans API, where the kind is directly in ``meta``."""
    flat = [{**span, "meta": {**span["meta"], "kind": span["meta"]["span"]["kind"]}} for span in told]
    for span in flat:
        del span["meta"]["span"]
    return json.dumps({"data": {"type": "span", "attributes": {"ml_app": "harbour", "spans": flat}}}).encode()


def export(told: list[dict[str, Any]]) -> bytes:
    """An answer of the Export API: milliseconds, and the fields of ``meta`` beside the ids."""
    data = []
    for span in told:
        meta = span["meta"]
        fields = {name: value for name, value in span.items() if name not in {"meta", "start_ns"}}
        fields |= {
            "start_ms": span["start_ns"] // 1_000_000,
            "span_kind": meta["span"]["kind"],
            "ml_app": "harbour",
        }
        fields |= {name: value for name, value in meta.items() if name != "span"}
        data.append({"id": span["span_id"], "type": "span", "attributes": fields})
    return json.dumps({"data": data, "meta": {"status": "done"}, "links": {}}).encode()


FORMS: dict[str, Callable[[list[dict[str, Any]]], bytes]] = {
    "an SDK's request": lambda told: json.dumps({"event_type": "span", "spans": told}).encode(),
    "several requests": lambda told: json.dumps(
        [{"event_type": "span", "spans": [one]} for one in told]
    ).encode(),
    "the intake's request": intake,
    "the export": export,
    "a list": lambda told: json.dumps(told).encode(),
    "lines": lambda told: "\n".join(map(json.dumps, told)).encode(),
}
each_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


@each_form
def test_each_form_shows_the_same_run(form: Callable[[list[dict[str, Any]]], bytes]) -> None:
    first, _, last = told_steps(form(spans()))
    assert [(call.name, call.call_id) for call in first.calls] == [("tide_table", "call_1")]
    assert "tool: ConnectionError: the tide service cannot be reached" in last.input


@each_form
def test_a_run_whose_tool_answers_is_right(form: Callable[[list[dict[str, Any]]], bytes]) -> None:
    assert_right(form(right()))


def test_the_agent_whose_tool_failed_is_named() -> None:
    told = spans()
    clerk = {**told[0], "span_id": "77", "parent_id": told[0]["span_id"], "name": "tide_clerk"}
    for span in told[1:]:
        span["parent_id"] = "77"
    assert attribute(json.dumps([*told, clerk]).encode()).agent == "tide_clerk"


def test_an_error_may_be_in_flat_fields() -> None:
    told = spans()
    del told[2]["meta"]["error"]
    told[2]["meta"] |= {"error.type": "TimeoutError", "error.message": "too late"}
    (run,) = read_runs(json.dumps(told).encode())
    assert run.trajectory.steps[1].error == "TimeoutError: too late"


@pytest.mark.parametrize(("field", "value"), [("start_ns", "soon"), ("duration", "long"), ("metrics", [1])])
def test_a_value_of_the_wrong_type_is_named_in_one_line(field: str, value: object) -> None:
    told = spans()
    told[2][field] = value
    with pytest.raises(
        UnreadableInput, match="cannot be read as Datadog LLM Observability spans: "
    ) as raised:
        read_recording(json.dumps(told).encode())
    assert "\n" not in str(raised.value)
