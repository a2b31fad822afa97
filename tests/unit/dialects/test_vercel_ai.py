"""Vercel's AI SDK: ``ai.*`` spans of versions 4 to 6, according to its telemetry page."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from semconv.dialects.reading.tools import tools_in
from semconv.model import AgentSource, Span
from tests.factories import ordered, outline, span

LOOP = "ai.generateText"
CALL = "ai.generateText.doGenerate"


def ai(number: int, operation: str, agent: str, parent: int | None = 1, **attributes: Any) -> Span:
    """A span as the SDK writes it: lists as JSON."""
    named = {
        key.replace("__", "."): value if isinstance(value, str | tuple) else json.dumps(value)
        for key, value in attributes.items()
    }
    named |= {"ai.operationId": operation}
    named |= {"ai.telemetry.functionId": agent} if agent else {}
    return span(number, name=operation, parent=parent, scope="ai", attributes=named)


def asking(tool: str, given: dict[str, Any], key: str = "input") -> list[dict[str, Any]]:
    return [{"toolCallId": "a", "toolName": tool, key: json.dumps(given)}]


def looked_up(agent: str = "clerk") -> tuple[Span, ...]:
    """One run: a model call that requests a tool, the tool, and the call that answers."""
    question = {"role": "user", "content": [{"type": "text", "text": "How many seats?"}]}
    call = {"type": "tool-call", "toolCallId": "a", "toolName": "look_up", "input": {"name": "Ada"}}
    result: dict[str, Any] = {"type": "tool-result", "toolCallId": "a", "toolName": "look_up"}
    result["output"] = {"type": "text", "value": "85 seats"}
    history = [question, {"role": "assistant", "content": [call]}, {"role": "tool", "content": [result]}]
    prompt = {"system": "You are a clerk.", "prompt": "How many seats?"}
    asks = asking("look_up", {"name": "Ada"})
    called: dict[str, Any] = {"name": "look_up", "id": "a", "args": {"name": "Ada"}, "result": "85 seats"}
    return (
        ai(1, LOOP, agent, None, ai__prompt=prompt, ai__response__text="It has 85."),
        ai(2, CALL, agent, ai__prompt__messages=[question], ai__response__toolCalls=asks),
        ai(3, "ai.toolCall", agent, **{f"ai__toolCall__{key}": value for key, value in called.items()}),
        ai(4, CALL, agent, ai__prompt__messages=history, ai__response__text="It has 85."),
    )


def test_a_run_is_told_by_its_model_calls_and_tools() -> None:
    trajectory = ordered(*looked_up())
    assert outline(trajectory) == [("clerk", "llm"), ("clerk", "tool"), ("clerk", "llm")]
    assert trajectory.task == "How many seats?"
    assert trajectory.output == "It has 85."
    first, tool, last = trajectory.steps
    assert 'look_up({"name": "Ada"})' in first.output
    assert (tool.target, tool.output) == ("look_up", "85 seats")
    assert last.input == "tool: 85 seats"
    assert first.agent_source is AgentSource.SPAN


def test_a_run_without_a_function_id_is_nobodys() -> None:
    assert {step.agent for step in ordered(*looked_up(agent="")).steps} == {"unknown"}


def test_a_run_that_is_asked_as_a_tool_stands_in_its_place() -> None:
    outer = (
        ai(10, LOOP, "desk", None, ai__prompt={"prompt": "Ask the clerk."}),
        ai(11, CALL, "desk", 10, ai__response__toolCalls=asking("ask_clerk", {})),
        ai(12, "ai.toolCall", "desk", 10, ai__toolCall__name="ask_clerk"),
        ai(13, LOOP, "clerk", 12, ai__response__text="85"),
        ai(14, CALL, "clerk", 13, ai__response__text="85"),
        ai(15, CALL, "desk", 10, ai__response__text="It has 85."),
    )
    assert outline(ordered(*outer)) == [("desk", "llm"), ("clerk", "llm"), ("desk", "llm")]


def test_version_4_calls_what_a_tool_is_given_its_args() -> None:
    call = ai(2, CALL, "clerk", ai__response__toolCalls=asking("look_up", {"name": "Ada"}, key="args"))
    (step,) = ordered(ai(1, LOOP, "clerk", None), call).steps
    assert 'look_up({"name": "Ada"})' in step.output


def test_the_tools_on_offer_are_read() -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    tool = {"type": "function", "name": "look_up", "description": "Looks up.", "inputSchema": schema}
    assert tools_in((("ai.prompt.tools", (json.dumps(tool),)),)) == "look_up(name): Looks up."


def test_starts_that_are_cut_to_the_millisecond_are_not_side_by_side() -> None:
    """OpenTelemetry's SDK for JavaScript truncates start times, and keeps end times exact."""
    asked, tool = looked_up()[1:3]
    late = replace(asked, end_ns=tool.start_ns + 450_000)
    assert [step.group for step in ordered(looked_up()[0], late, tool).steps] == [None, None]


def test_openinference_kinds_beside_it_do_not_make_an_agent_of_the_operation() -> None:
    kinds = ("AGENT", "LLM", "TOOL", "LLM")
    for agent, expected in (("clerk", "clerk"), ("", "unknown")):
        spans = [
            replace(each, attributes={**each.attributes, "openinference.span.kind": kind})
            for each, kind in zip(looked_up(agent), kinds, strict=True)
        ]
        assert {step.agent for step in ordered(*spans).steps} == {expected}
