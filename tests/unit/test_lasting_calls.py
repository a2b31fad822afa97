"""Calls that last over the tools beside them, as VoltAgent's spans of a whole loop do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from semconv.model import Span, Trajectory
from tests.factories import agent, chat, ordered, said, tool


def run(call: Span, *more: Span) -> Trajectory:
    lookups = [
        tool(4, "lees_meter", parent=2, start=20, end=25, result="buiten bereik"),
        tool(5, "lees_meter", parent=2, start=30, end=35, result="17 bar"),
    ]
    return ordered(agent(2, "monteur", parent=None, start=0, end=90), call, *lookups, *more)


def loop(number: int = 3, *, start: float = 5, end: float = 80, answer: str = "17 bar.", **more: Any) -> Span:
    heard = [said("user", "Hoe hoog is de druk?")]
    return chat(number, parent=2, start=start, end=end, heard=heard, answer=answer, **more)


def kinds(trajectory: Trajectory) -> list[str]:
    return [step.kind.value for step in trajectory.steps]


def test_an_answer_comes_after_the_tools_that_its_call_lasted_over() -> None:
    trajectory = run(loop())
    assert kinds(trajectory) == ["tool", "tool", "llm"]
    assert trajectory.steps[2].output == "17 bar."
    assert trajectory.output == "17 bar."
    assert {step.group for step in trajectory.steps} == {None}


@pytest.mark.parametrize(
    ("call", "more"),
    [
        pytest.param(loop(end=10), (), id="it ended before the tools"),
        pytest.param(loop(end=33), (loop(6, start=40, end=50),), id="another call follows"),
        pytest.param(loop(answer="", calls=[("lees_meter", "{}", "c1")]), (), id="it asked for them"),
    ],
)
def test_a_call_that_does_not_is_placed_at_its_start(call: Span, more: tuple[Span, ...]) -> None:
    assert kinds(run(call, *more))[0] == "llm"


def test_tools_of_another_agent_are_not_waited_for() -> None:
    other = agent(7, "planner", parent=None, start=1, end=70)
    call = chat(8, parent=7, start=2, end=60, answer="Morgen.")
    first = ordered(agent(2, "monteur", parent=None), tool(4, "lees_meter", parent=2, start=20), other, call)
    assert kinds(first) == ["llm", "tool"]


def test_a_tool_that_a_model_asked_for_by_id_is_no_matter_of_order() -> None:
    asked = json.dumps([said("assistant", "", ("lees_meter", "{}", "c1"))])
    call = loop(attributes={"gen_ai.output.messages": asked}, answer="", end=80)
    assert kinds(run(call)) == ["llm", "tool", "tool"]
