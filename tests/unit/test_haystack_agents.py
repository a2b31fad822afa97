"""Haystack's agents have no names: their prompts, components and tools name them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from semconv.model import Attributes, Span
from tests.factories import ordered, span

TITLED = "You are the harbour master of Dover."
UNTITLED = "Answer on harbours."


def said(role: str, **part: Any) -> dict[str, Any]:
    return {"role": role, "content": [part]}


def call(number: int, parent: int, start: int, prompt: str, answer: dict[str, Any]) -> Span:
    given = {"messages": [said("system", text=prompt), said("user", text="When is high tide?")]}
    attributes = {
        "haystack.agent.step.llm.input": json.dumps(given),
        "haystack.agent.step.llm.output": json.dumps({"replies": [answer]}),
    }
    return span(
        number,
        parent=parent,
        start=start,
        end=start + 4,
        name="haystack.agent.step.llm",
        attributes=attributes,
    )


def around(number: int, parent: int, kind: str, attributes: Attributes) -> Span:
    return span(number, parent=parent, start=number, end=500 - number, name=kind, attributes=attributes)


def component(number: int, parent: int, name: str) -> Span:
    named = {"haystack.component.name": name, "haystack.component.type": "Agent"}
    return around(number, parent, "haystack.component.run", named)


def agents(prompt: str, inner_prompt: str, *inner: Span) -> list[str]:
    """Return the agents of a pipeline's agent, and of one that its tool ``ask_pilot`` runs."""
    asked = said("assistant", tool_call={"tool_name": "ask_pilot", "arguments": {}, "id": "c1"})
    run = ordered(
        span(1, start=0, end=900, name="haystack.pipeline.run"),
        component(2, 1, "agent"),
        around(3, 2, "haystack.agent.run", {}),
        call(4, 3, 10, prompt, asked),
        around(5, 3, "haystack.agent.step.tool", {"haystack.tool.name": "ask_pilot"}),
        *inner,
        around(8, 7 if inner else 5, "haystack.agent.run", {}),
        call(9, 8, 30, inner_prompt, said("assistant", text="At 14:20.")),
        call(10, 3, 600, prompt, said("assistant", text="It is at 14:20.")),
    )
    return [step.agent for step in run.steps]


PIPELINE = around(6, 5, "haystack.pipeline.run", {})


@pytest.mark.parametrize("inner", [(), (PIPELINE, component(7, 6, "agent"))], ids=["tool", "pipeline"])
def test_an_agent_that_a_tool_runs_is_named_for_itself(inner: tuple[Span, ...]) -> None:
    assert agents(TITLED, "You are the pilot.", *inner) == ["harbour master", "pilot", "harbour master"]
    assert agents(UNTITLED, "Answer on tides.", *inner) == ["agent", "pilot", "agent"]


def test_a_component_that_its_author_named_is_the_agent() -> None:
    inner = (PIPELINE, component(7, 6, "tide_desk"))
    assert agents(UNTITLED, "You are the pilot.", *inner) == ["agent", "tide_desk", "agent"]
