"""DSPy's OpenInference spans: a model call belongs to the user's module around it."""

from __future__ import annotations

from semconv.model import Span
from tests.factories import openinference, ordered


def asked(number: int, parent: int) -> Span:
    return openinference(
        number,
        "LLM",
        parent=parent,
        framework="dspy",
        name="LM.__call__",
        attributes={"llm.output_messages.0.message.role": "assistant", "output.value": "4"},
    )


def module(number: int, name: str, parent: int | None) -> Span:
    return openinference(
        number, "CHAIN", parent=parent, framework="dspy", name=f"{name}.forward", end=100.0 - number
    )


def test_a_call_is_the_work_of_the_nearest_module_that_is_not_dspys_own() -> None:
    run = ordered(module(1, "Office", None), module(2, "Registrar", 1), module(3, "Predict", 2), asked(4, 3))
    assert [step.agent for step in run.steps] == ["Registrar"]


def test_a_call_within_another_frameworks_agent_is_that_agents() -> None:
    agent = openinference(
        2, "AGENT", framework="smolagents", attributes={"agent.name": "researcher"}, end=90.0
    )
    run = ordered(module(1, "Office", None), agent, module(3, "Predict", 2), asked(4, 3))
    assert [step.agent for step in run.steps] == ["researcher"]
