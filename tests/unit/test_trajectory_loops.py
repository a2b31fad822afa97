"""Tool loops inside one model call's span, as Microsoft.Extensions.AI writes them: the tools are steps."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from semconv.model import Span, StepKind, Trajectory
from tests.factories import ordered, span

ASKED = "Hvor mange liter er der i tanken?"


def asks(call_id: str, tool: str = "read_gauge", **arguments: Any) -> dict[str, Any]:
    call = {"type": "tool_call", "id": call_id, "name": tool, "arguments": arguments}
    return {"role": "assistant", "parts": [call]}


def answers(call_id: str, result: str) -> dict[str, Any]:
    return {"role": "tool", "parts": [{"type": "tool_call_response", "id": call_id, "response": result}]}


def says(text: str) -> dict[str, Any]:
    return {"role": "assistant", "parts": [{"type": "text", "content": text}]}


def chat(*said: Any, error: str | None = None, number: int = 2) -> Span:
    heard = [{"role": "user", "parts": [{"type": "text", "content": ASKED}]}]
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.agent.name": "driftsvagt",
        "gen_ai.input.messages": json.dumps(heard),
        "gen_ai.output.messages": json.dumps(said),
    }
    return span(number, start=5, end=60, name="chat m", attributes=attributes, error=error)


def outline(trajectory: Trajectory) -> list[tuple[str, str | None, str]]:
    return [(str(step.kind), step.target, step.output) for step in trajectory.steps]


LOOP = (
    asks("c1", tank="B"),
    answers("c1", "Error: gauge B is offline"),
    asks("c2", tank="B"),
    answers("c2", "412"),
    says("Der er 412 liter."),
)


def test_a_loop_in_one_span_is_its_calls_and_tools_in_order() -> None:
    trajectory = ordered(chat(*LOOP))
    assert [(kind, target) for kind, target, _ in outline(trajectory)] == [
        ("llm", None),
        ("tool", "read_gauge"),
        ("llm", None),
        ("tool", "read_gauge"),
        ("llm", None),
    ]
    assert trajectory.steps[3].output == "412"
    assert trajectory.steps[4].output == "Der er 412 liter."
    assert {step.agent for step in trajectory.steps} == {"driftsvagt"}
    assert trajectory.task == ASKED
    assert trajectory.output == "Der er 412 liter."


def test_each_part_is_tied_to_its_request_and_gets_only_new_content() -> None:
    steps = ordered(chat(*LOOP)).steps
    assert 0 in steps[1].causes
    assert 2 in steps[3].causes
    assert "412" in steps[4].input
    assert ASKED not in steps[4].input
    assert [step.call_id for step in steps if step.kind is StepKind.TOOL] == ["c1", "c2"]


def test_two_tools_of_one_request_are_two_steps() -> None:
    both = {"role": "assistant", "parts": [*asks("c1")["parts"], *asks("c2", "read_log")["parts"]]}
    trajectory = ordered(chat(both, answers("c1", "412"), answers("c2", "ok"), says("412.")))
    assert [step.target for step in trajectory.steps] == [None, "read_gauge", "read_log", None]


def test_the_last_part_of_a_failed_loop_has_its_error() -> None:
    steps = ordered(chat(*LOOP[:2], asks("c2"), error="timeout")).steps
    assert [(str(step.kind), step.is_failed) for step in (steps[0], steps[-1])] == [
        ("llm", False),
        ("llm", True),
    ]


@pytest.mark.parametrize(
    "said",
    [
        pytest.param((asks("c1"),), id="it only asks"),
        pytest.param((says("Der er 412 liter."), says("Farvel.")), id="it only speaks"),
        pytest.param((answers("c0", "412"), says("412.")), id="a result of an earlier call"),
    ],
)
def test_one_call_stays_one_step(said: Any) -> None:
    assert len(ordered(chat(*said)).steps) == 1


def test_tools_with_spans_of_their_own_appear_once() -> None:
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "read_gauge",
        "gen_ai.tool.call.id": "c2",
        "gen_ai.tool.call.result": "412",
    }
    tool = span(3, parent=2, start=20, end=30, name="execute_tool read_gauge", attributes=attributes)
    steps = ordered(chat(*LOOP), tool).steps
    assert sum(step.kind is StepKind.TOOL for step in steps) == 1


def test_a_very_long_loop_stays_one_step_and_costs_no_more() -> None:
    rounds = [each for number in range(3000) for each in (asks(f"c{number}"), answers(f"c{number}", "1"))]
    began = time.monotonic()
    assert len(ordered(chat(*rounds, says("1"))).steps) == 1
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("result", "is_failed"),
    [
        ("Error: Function failed. Exception: måleren er slukket", True),
        ('Error: Requested function "read_log" not found.', True),
        ("Errors in the log: Error: Function failed.", False),
        ("Error: gauge B is offline", False),
    ],
)
def test_a_tool_failed_if_the_client_says_so_in_its_own_words(result: str, *, is_failed: bool) -> None:
    steps = ordered(chat(asks("c1"), answers("c1", result), says("Jeg ved det ikke."))).steps
    assert [step.is_failed for step in steps] == [False, is_failed, False]
