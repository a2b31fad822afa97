"""Agents that only their prompts name."""

from __future__ import annotations

import pytest

from semconv.dialects.reading.agent_names import named_in_prompt
from semconv.model import Span, Trajectory
from tests.factories import openinference, ordered, span, tool


@pytest.mark.parametrize(
    ("prompt", "name"),
    [
        ("You are the registrar of a ferry office.", "registrar"),
        ("You are Ada, a helpful planner.", "ada"),
        ("You are a senior data analyst. You work out amounts.", "senior data analyst"),
        ("Today is Monday. You are an accountant who adds up.", "accountant"),
        ("You are always polite when somebody asks.", ""),
        ("Answer in French.", ""),
        ("", ""),
    ],
)
def test_the_name_is_what_the_prompt_says_you_are(prompt: str, name: str) -> None:
    assert named_in_prompt(prompt) == name


def call(number: int, prompt: str, *, asks: str = "", parent: int | None = 1) -> Span:
    """Return a call by OpenInference's instrumentation of a model's SDK."""
    attributes = {
        "llm.input_messages.0.message.role": "system",
        "llm.input_messages.0.message.content": prompt,
        "llm.input_messages.1.message.role": "user",
        "llm.input_messages.1.message.content": f"Question {number}?",
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": f"Answer {number}.",
    }
    if asks:
        attributes["llm.output_messages.0.message.tool_calls.0.tool_call.function.name"] = asks
    return openinference(number, "LLM", parent=parent, attributes=attributes)


def agents(trajectory: Trajectory) -> list[str]:
    """Return the agent of each step."""
    return [step.agent for step in trajectory.steps]


LEAD, ANALYST = "You are the lead of an office.", "You are the analyst of an office."


def test_one_function_around_several_agents_calls_is_none_of_them() -> None:
    run = ordered(span(1, name="office", end=900), call(2, LEAD), call(3, ANALYST), call(4, LEAD))
    assert agents(run) == ["lead", "analyst", "lead"]


def test_a_tool_belongs_to_the_agent_that_asked_for_it() -> None:
    run = ordered(
        span(1, name="office", end=900),
        call(2, LEAD),
        call(3, ANALYST, asks="measure"),
        tool(4, "measure", result="9600"),
        call(5, ANALYST),
    )
    assert agents(run) == ["lead", "analyst", "analyst", "analyst"]


@pytest.mark.parametrize(
    "prompts",
    [
        pytest.param([LEAD, LEAD], id="one agent"),
        pytest.param([LEAD, "Answer in French."], id="a prompt without a name"),
        pytest.param([LEAD, ANALYST, f"{LEAD} Be brief."], id="two prompts with one name"),
    ],
)
def test_otherwise_the_function_is_the_agent(prompts: list[str]) -> None:
    calls = [call(number, prompt) for number, prompt in enumerate(prompts, start=2)]
    assert set(agents(ordered(span(1, name="office", end=900), *calls))) == {"office"}
