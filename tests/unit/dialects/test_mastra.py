"""Mastra: calls whose messages are on the step around them."""

from __future__ import annotations

import json
from typing import Any

from semconv.model import Span
from tests.factories import ordered, outline, span

QUESTION = "How many seats?"
ASKING = {"text": "", "toolCalls": [{"toolCallId": "a", "toolName": "look_up", "args": {"name": "Ada"}}]}
RESULT = {"type": "tool-result", "toolCallId": "a", "toolName": "look_up", "output": "85 seats"}
HISTORY = [{"role": "user", "content": QUESTION}, {"role": "tool", "content": [RESULT]}]


def mastra(number: int, kind: str, parent: int | None, operation: str, **attributes: Any) -> Span:
    """A span as Mastra's exporter writes it: its own payloads as JSON."""
    own = {
        key.replace("__", "."): value if isinstance(value, str) else json.dumps(value)
        for key, value in attributes.items()
    }
    own |= {"mastra.span.type": kind, "gen_ai.operation.name": operation}
    return span(number, name=operation, parent=parent, scope="@mastra/otel-exporter", attributes=own)


def step(number: int, given: Any, got: Any) -> Span:
    both = {"mastra__model_step__input": given, "mastra__model_step__output": got}
    return mastra(number, "model_step", 2, "agent_step", **both)


def inference(number: int, parent: int, said: str) -> Span:
    told = [{"role": "assistant", "parts": [{"type": "text", "content": said}]}]
    return mastra(number, "model_inference", parent, "chat", gen_ai__output__messages=told)


def looked_up() -> tuple[Span, ...]:
    """An agent that requests a tool, and answers."""
    answer = {"text": "It has 85.", "files": []}
    both = {"mastra__agent_run__input": QUESTION, "mastra__agent_run__output": answer}
    called = {
        "name": "look_up",
        "call__id": "a",
        "call__arguments": {"name": "Ada"},
        "call__result": "85 seats",
    }
    tool = {f"gen_ai__tool__{key}": value for key, value in called.items()}
    return (
        mastra(1, "agent_run", None, "invoke_agent", gen_ai__agent__name="clerk", **both),
        mastra(2, "model_generation", 1, "model_generation"),
        step(3, HISTORY[:1], ASKING),
        inference(4, 3, ""),
        mastra(5, "tool_call", 3, "execute_tool", **tool),
        step(6, HISTORY, {"text": "It has 85.", "toolCalls": []}),
        inference(7, 6, "It has 85."),
    )


def test_a_call_has_the_messages_of_the_step_around_it() -> None:
    first, tool, last = ordered(*looked_up()).steps
    assert first.input == f"user: {QUESTION}"
    assert 'look_up({"name": "Ada"})' in first.output
    assert (tool.target, tool.output) == ("look_up", "85 seats")
    assert last.input == "tool: 85 seats"
    assert last.output == "It has 85."


def test_steps_are_calls_and_tools_and_the_agent_tells_question_and_answer() -> None:
    trajectory = ordered(*looked_up())
    assert outline(trajectory) == [("clerk", "llm"), ("clerk", "tool"), ("clerk", "llm")]
    assert trajectory.task == QUESTION
    assert trajectory.output == "It has 85."


def test_a_call_without_a_step_around_it_still_tells_its_answer() -> None:
    (only,) = ordered(inference(1, 9, "It has 85.")).steps
    assert only.output == "It has 85."
