"""Weave's calls: of integrations, which say what they are, and of functions, which do not."""

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

EXAMPLE = Path(__file__).parents[2] / "examples" / "files" / "weave-calls.jsonl"


def calls() -> list[dict[str, Any]]:
    return [json.loads(line) for line in EXAMPLE.read_text(encoding="utf-8").splitlines()]


def right() -> list[dict[str, Any]]:
    """The example as it would be if the tool had answered."""
    told, result = calls(), "High water at Dover: 14:20 tomorrow"
    told[2] |= {"exception": None, "output": result, "summary": {"weave": {"status": "success"}}}
    told[3]["inputs"]["messages"][2]["content"] = result
    return told


FORMS: dict[str, Callable[[list[dict[str, Any]]], bytes]] = {
    "lines": lambda told: "\n".join(map(json.dumps, told)).encode(),
    "a list": lambda told: json.dumps(told).encode(),
    "the API's answer": lambda told: json.dumps({"calls": told}).encode(),
    "newest first": lambda told: json.dumps(told[::-1]).encode(),
    "without kinds": lambda told: json.dumps([{**one, "attributes": {}} for one in told]).encode(),
}
each_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


@each_form
def test_each_form_shows_the_same_run(form: Callable[[list[dict[str, Any]]], bytes]) -> None:
    first, _, _ = told_steps(form(calls()))
    assert [(call.name, call.call_id) for call in first.calls] == [("tide_table", "call_1")]


@each_form
def test_a_run_whose_tool_answers_is_right(form: Callable[[list[dict[str, Any]]], bytes]) -> None:
    assert_right(form(right()))


def test_the_function_around_the_calls_is_the_agent() -> None:
    told = calls()
    for name in ("tide_clerk", "berth_clerk"):
        clerk = {
            **told[0],
            "id": name,
            "parent_id": told[0]["id"],
            "op_name": f"weave:///harbour/desk/op/{name}:v2",
        }
        told.append(clerk)
    for one in told[1:4]:
        one["parent_id"] = "tide_clerk"
    told.append({**told[1], "id": "other", "parent_id": "berth_clerk", "output": None})
    assert attribute(json.dumps(told).encode()).agent == "tide_clerk"


@pytest.mark.parametrize(
    ("op", "kind", "name"),
    [
        ("openai_agent_function", StepKind.TOOL, "tide_table"),
        ("langchain.Tool.tide_table", StepKind.TOOL, "tide_table"),
        ("anthropic.Messages.create", StepKind.LLM, None),
        ("litellm.completion", StepKind.LLM, None),
        ("google.genai.models.Models.generate_content", StepKind.LLM, None),
        ("tide_table", StepKind.TOOL, "tide_table"),
        ("completion_date", StepKind.TOOL, "completion_date"),
    ],
)
def test_an_operations_name_says_what_it_is(op: str, kind: StepKind, name: str | None) -> None:
    told = calls()[:3]
    told[2] |= {"op_name": op, "display_name": "tide_table" if op.startswith("openai_agent") else None}
    (run,) = read_runs(json.dumps(told).encode())
    assert (run.trajectory.steps[1].kind, run.trajectory.steps[1].target) == (kind, name)


@pytest.mark.parametrize(
    "said",
    [
        {"feedback_type": "wandb.reaction.1", "payload": {"emoji": "👎"}},
        {"feedback_type": "wandb.annotation.correctness", "payload": {"value": False}},
        {"feedback_type": "wandb.runnable.judge", "payload": {"output": {"passed": False}}},
    ],
    ids=["a reaction", "an annotation", "a scorer"],
)
def test_feedback_fails_a_run_that_reports_nothing(said: dict[str, Any]) -> None:
    told = right()
    told[0]["summary"]["weave"]["feedback"] = [said]
    assert attribute(json.dumps(told).encode()).status is Status.ATTRIBUTED


def test_an_exception_may_be_plain_text() -> None:
    told = calls()
    told[2]["exception"] = "ConnectionError: down"
    (run,) = read_runs(json.dumps(told).encode())
    assert run.trajectory.steps[1].error == "ConnectionError: down"


@pytest.mark.parametrize(
    ("field", "value"), [("started_at", "soon"), ("summary", [1]), ("attributes", "none")]
)
def test_a_value_of_the_wrong_type_is_named_in_one_line(field: str, value: object) -> None:
    told = calls()
    told[2][field] = value
    with pytest.raises(UnreadableInput, match="cannot be read as W&B Weave calls: ") as raised:
        read_recording(json.dumps(told).encode())
    assert "\n" not in str(raised.value)
