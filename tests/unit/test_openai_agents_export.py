"""What OpenAI's Agents SDK exports, in each form in which programs keep it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analyzer.api.local import attribute, read_runs
from analyzer.inquiry.errors import UnreadableInput
from analyzer.recordings.read_files import read_recording
from semconv.model import Status, StepKind
from tests.tide_story import assert_right, told_steps

EXAMPLE = Path(__file__).parents[2] / "examples" / "files" / "openai-agents.jsonl"


def export() -> list[dict[str, Any]]:
    return [json.loads(line) for line in EXAMPLE.read_text(encoding="utf-8").splitlines()]


def right() -> list[dict[str, Any]]:
    """The example as it would be if the tool had answered."""
    told, result = export(), "High water at Dover: 14:20 tomorrow"
    told[2]["error"] = None
    told[2]["span_data"]["output"] = result
    told[3]["span_data"]["input"][2]["content"] = result
    return told


FORMS: dict[str, Callable[[list[dict[str, Any]]], bytes]] = {
    "lines": lambda told: "\n".join(map(json.dumps, told)).encode(),
    "a list": lambda told: json.dumps(told).encode(),
    "one export": lambda told: json.dumps({"data": told}).encode(),
    "several exports": lambda told: "\n".join(json.dumps({"data": [one]}) for one in told).encode(),
    "several batches": lambda told: "\n".join(map(json.dumps, (told[:2], told[2:]))).encode(),
    "without the trace": lambda told: json.dumps(told[1:]).encode(),
}
each_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


@each_form
def test_each_form_shows_the_same_run(form: Callable[[list[dict[str, Any]]], bytes]) -> None:
    first, _, _ = told_steps(form(export()))
    assert [(call.name, call.call_id) for call in first.calls] == [("tide_table", "call_1")]


@each_form
def test_a_run_whose_tool_answers_is_right(form: Callable[[list[dict[str, Any]]], bytes]) -> None:
    assert_right(form(right()))


def test_a_handoff_names_the_agent_that_takes_over() -> None:
    trace, call, tool, last, desk = export()
    clerk = {**desk, "id": "span_clerk", "span_data": {**desk["span_data"], "name": "tide_clerk"}}
    clerk["started_at"] = call["ended_at"]
    given = {"type": "handoff", "from_agent": "harbour_desk", "to_agent": "tide_clerk"}
    handoff = {**call, "id": "span_handoff", "started_at": call["ended_at"], "span_data": given}
    for span in (tool, last):
        span["parent_id"] = clerk["id"]
    (run,) = read_runs(json.dumps([trace, call, handoff, tool, last, clerk, desk]).encode())
    passed = run.trajectory.steps[1]
    assert (passed.kind, passed.agent, passed.target) == (StepKind.HANDOFF, "harbour_desk", "tide_clerk")
    assert (
        attribute(json.dumps([trace, call, handoff, tool, last, clerk, desk]).encode()).agent == "tide_clerk"
    )


def test_a_guardrail_that_trips_blames_nobody() -> None:
    trace, call, _, _, desk = right()
    check = {
        **call,
        "id": "span_check",
        "span_data": {"type": "guardrail", "name": "on_topic", "triggered": True},
    }
    desk["error"] = {"message": "Guardrail tripwire triggered", "data": {"guardrail": "on_topic"}}
    verdict = attribute(json.dumps([trace, check, desk]).encode())
    assert (verdict.status, verdict.agent) == (Status.NO_FAILURE, None)


def test_spans_of_the_sdks_own_turns_are_between_the_agent_and_its_calls() -> None:
    told = export()
    data = {"sdk_span_type": "turn", "turn": 1, "agent_name": "harbour_desk"}
    turn = {**told[4], "id": "span_turn", "parent_id": told[4]["id"]}
    turn["span_data"] = {"type": "custom", "name": "turn", "data": data}
    for span in told[1:4]:
        span["parent_id"] = turn["id"]
    assert len(read_runs(json.dumps([*told, turn]).encode())[0].trajectory.steps) == 3


def test_a_response_may_carry_its_texts() -> None:
    told = export()
    heard = told[1]["span_data"]["input"]
    call = {"type": "function_call", "name": "tide_table", "arguments": "{}", "call_id": "call_1"}
    told[1]["span_data"] = {
        "type": "response",
        "response_id": "resp_1",
        "input": heard,
        "response": {"output": [call]},
    }
    (run,) = read_runs(json.dumps(told).encode())
    assert [each.name for each in run.trajectory.steps[0].calls] == ["tide_table"]


def test_two_traces_are_two_runs() -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    assert len(read_runs((text + text.replace("5b8efff7", "6c9f0008")).encode())) == 2


@pytest.mark.parametrize(
    ("field", "value"), [("started_at", "soon"), ("span_data", "agent"), ("span_data", [1])]
)
def test_a_value_of_the_wrong_type_is_named_in_one_line(field: str, value: object) -> None:
    told = export()
    told[2][field] = value
    with pytest.raises(
        UnreadableInput, match="cannot be read as the export of OpenAI's Agents SDK: "
    ) as raised:
        read_recording(json.dumps(told).encode())
    assert "\n" not in str(raised.value)
