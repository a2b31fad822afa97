"""LangSmith's runs in each form in which people have them, with what was said of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analyzer.api.local import attribute, read_runs
from analyzer.inquiry.errors import UnreadableInput
from analyzer.recordings.read_files import read_recording
from semconv.model import Status
from tests.tide_story import assert_right, told_steps

EXAMPLE = Path(__file__).parents[2] / "examples" / "files" / "langsmith-runs.json"


def runs() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(EXAMPLE.read_text(encoding="utf-8"))
    return found


def right() -> list[dict[str, Any]]:
    """The example's runs as they would be if the tool had answered."""
    told = runs()
    result = {"content": "High water at Dover: 14:20 tomorrow", "type": "tool", "tool_call_id": "call_1"}
    told[3] |= {"status": "success", "error": None, "outputs": {"output": result}}
    told[0]["outputs"]["messages"][2] = result
    told[4]["inputs"]["messages"][2] = result
    told[5]["inputs"]["messages"][0][2] = {"kwargs": result}
    return told


def nested(told: list[dict[str, Any]]) -> bytes:
    """A root that was loaded with its children, which name neither their parent nor their trace."""
    whole = {run["id"]: {**run, "child_runs": []} for run in told}
    for run in whole.values():
        if run["parent_run_id"]:
            whole[run["parent_run_id"]]["child_runs"].append(run)
    for run in whole.values():
        run |= {"parent_run_id": None, "trace_id": None, "dotted_order": None}
    return json.dumps(whole[told[0]["id"]]).encode()


def bulk(told: list[dict[str, Any]]) -> bytes:
    """Rows with JSON in their cells, by columns."""
    rows = [
        {name: json.dumps(value) if isinstance(value, dict) else value for name, value in run.items()}
        for run in told
    ]
    return json.dumps(
        {name: {str(at): row[name] for at, row in enumerate(rows)} for name in rows[0]}
    ).encode()


FORMS: dict[str, Callable[[list[dict[str, Any]]], bytes]] = {
    "a list": lambda told: json.dumps(told).encode(),
    "lines": lambda told: "\n".join(map(json.dumps, told)).encode(),
    "newest first": lambda told: "\n".join(map(json.dumps, reversed(told))).encode(),
    "the API's answer": lambda told: json.dumps({"runs": told, "cursors": {"next": None}}).encode(),
    "nested": nested,
    "the bulk export": bulk,
}
each_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


@each_form
def test_each_form_shows_the_same_run(form: Callable[[list[dict[str, Any]]], bytes]) -> None:
    first, _, _ = told_steps(form(runs()), error="ConnectionError('the tide service cannot be reached')")
    assert [(call.name, call.call_id) for call in first.calls] == [("tide_table", "call_1")]


@each_form
def test_a_run_whose_tool_answers_is_right(form: Callable[[list[dict[str, Any]]], bytes]) -> None:
    assert_right(form(right()))


def test_nodes_of_a_graph_are_agents() -> None:
    told = runs()
    told[0]["name"] = "LangGraph"
    for run in told[1:]:
        node = (
            "tide_clerk"
            if run["name"] == "tide_table" or run["start_time"] >= told[4]["start_time"]
            else "desk"
        )
        run["extra"]["metadata"] |= {"langgraph_node": node, "langgraph_checkpoint_ns": f"{node}:1"}
    assert attribute(json.dumps(told).encode()).agent == "tide_clerk"


@pytest.mark.parametrize(
    "error",
    [
        "GraphInterrupt((Interrupt(value='May I?', id='1'),))Traceback (most recent call last):\n …",
        "ParentCommand(Command(graph='__parent__', goto='clerk'))Traceback (most recent call last):\n …",
    ],
    ids=["waits", "hands over"],
)
def test_control_flow_is_no_failure(error: str) -> None:
    told = right()
    told[3] |= {"status": "error", "error": error, "outputs": None}
    told[4]["outputs"] = {"messages": [{"type": "ai", "content": "I have asked."}]}
    assert attribute(json.dumps(told).encode()).agent is None


@pytest.mark.parametrize(
    ("said", "beside"),
    [
        ({"feedback_stats": {"correctness": {"n": 1, "avg": 0.0, "values": {}}}}, []),
        ({"feedback_stats": {"correctness": {"n": 1, "avg": None, "values": {"incorrect": 1}}}}, []),
        ({"feedback": [{"key": "correctness", "score": 0, "feedback_source": {"type": "app"}}]}, []),
        (
            {},
            [
                {
                    "id": "f",
                    "key": "correctness",
                    "score": 0,
                    "value": None,
                    "feedback_source": {"type": "app"},
                }
            ],
        ),
    ],
    ids=["statistics", "a label", "in the run", "beside the runs"],
)
def test_feedback_fails_a_run_that_reports_nothing(
    said: dict[str, Any], beside: list[dict[str, Any]]
) -> None:
    told = right()
    told[0] |= said
    listed = [*told, *({**one, "run_id": told[0]["id"]} for one in beside)]
    assert attribute(json.dumps(listed).encode()).status is Status.ATTRIBUTED


def test_two_traces_are_two_runs() -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    other = json.loads(text.replace("5b8efff7", "6c9f0008"))
    assert len(read_runs(json.dumps([*runs(), *other]).encode())) == 2


def test_runs_that_are_each_others_parent_are_read() -> None:
    told = runs()
    for run, above in zip(told, [*told[1:], told[0]], strict=True):
        run |= {"parent_run_id": above["id"], "trace_id": None, "dotted_order": None}
    assert read_runs(json.dumps(told).encode())


@pytest.mark.parametrize(
    ("field", "value"), [("extra", "[1]"), ("start_time", "soon"), ("feedback_stats", [1])]
)
def test_a_value_of_the_wrong_type_is_named_in_one_line(field: str, value: object) -> None:
    told = runs()
    told[2][field] = value
    with pytest.raises(UnreadableInput, match="cannot be read as LangSmith runs: ") as raised:
        read_recording(json.dumps(told).encode())
    assert "\n" not in str(raised.value)
