"""Haystack: agents named by their component, tool or prompt, calls and tools by the span's name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from semconv.model import Attributes, Span
from tests.factories import ordered, outline, span

QUESTION = {"role": "user", "content": [{"text": "How many seats?"}]}
SYSTEM = {"role": "system", "content": [{"text": "You are the clerk."}]}
CALL = {"tool_name": "look_up", "arguments": {"name": "Ada"}, "id": "c1"}
ASKING = {"role": "assistant", "content": [{"tool_call": CALL}]}
RESULT = {
    "role": "tool",
    "content": [{"tool_call_result": {"result": "85 seats", "origin": CALL, "error": False}}],
}
ANSWER = {"role": "assistant", "content": [{"text": "It has 85."}]}
IN_REPR = (
    "{'messages': [ChatMessage(_role=<ChatRole.SYSTEM: 'system'>, _content=[TextContent(text='You are the"
    " clerk.')], _name=None, _meta={}), ChatMessage(_role=<ChatRole.USER: 'user'>, _content=[TextContent("
    "text=\"How many seats?\")], _name=None, _meta={}), ChatMessage(_role=<ChatRole.ASSISTANT: 'assistant'>,"
    " _content=[ToolCall(tool_name='look_up', arguments={'name': 'Ada'}, id='c1', extra=None)], _name=None,"
    " _meta={}), ChatMessage(_role=<ChatRole.TOOL: 'tool'>, _content=[ToolCallResult(result='85 seats',"
    " origin=ToolCall(tool_name='look_up', arguments={'name': 'Ada'}, id='c1', extra=None), error=False)],"
    " _name=None, _meta={})], 'tools': [<x>]}"
)


def haystack(number: int, name: str, parent: int | None, *, end: float | None = None, **tags: Any) -> Span:
    attributes = {
        f"haystack.{key.replace('__', '.')}": value if isinstance(value, str | bool) else json.dumps(value)
        for key, value in tags.items()
    }
    return span(number, parent=parent, name=f"haystack.{name}", attributes=attributes, scope="ferry", end=end)


def call(number: int, heard: Any, said: Any) -> Span:
    given = heard if isinstance(heard, str) else {"messages": heard, "tools": []}
    told: dict[str, Any] = {"agent__step__llm__input": given, "agent__step__llm__output": {"replies": [said]}}
    return haystack(number, "agent.step.llm", number - 1, **told)


def step(number: int) -> Span:
    return haystack(number, "agent.step", 3, end=number * 10 + 9, agent__step="0")


def team(heard: Any = None, **failure: Any) -> tuple[Span, ...]:
    talk = [SYSTEM, QUESTION, ASKING, RESULT]
    used: dict[str, Any] = {"tool__name": "look_up", "agent__step__tool__input": {"name": "Ada"}}
    result = failure or {"agent__step__tool__output": "85 seats"}
    both: dict[str, Any] = {
        "agent__input": {"messages": [QUESTION]},
        "agent__output": {"messages": [*talk, ANSWER]},
    }
    return (
        haystack(1, "pipeline.run", None, end=900, pipeline__max_runs_per_component="100"),
        haystack(2, "component.run", 1, end=800, component__name="clerk", component__type="Agent"),
        haystack(3, "agent.run", 2, end=700, **both),
        step(4),
        call(5, talk[:2], ASKING),
        haystack(6, "agent.step.tool", 4, **used, **result),
        step(7),
        call(8, heard or talk, ANSWER),
    )


def test_an_agent_goes_by_its_component() -> None:
    trajectory = ordered(*team())
    assert outline(trajectory) == [("clerk", "llm"), ("clerk", "tool"), ("clerk", "llm")]
    assert (trajectory.task, trajectory.output) == ("How many seats?", "It has 85.")
    asking, tool, answering = trajectory.steps
    assert (asking.instructions, asking.output) == ("You are the clerk.", 'call look_up({"name": "Ada"})')
    assert (tool.target, tool.output, answering.input) == ("look_up", "85 seats", "tool: 85 seats")


def test_messages_that_are_a_repr_are_read_too() -> None:
    assert ordered(*team(heard=IN_REPR)).steps[2].input == "tool: 85 seats"


def test_a_tools_failure_has_its_message_in_the_output() -> None:
    failed: dict[str, Any] = {"tool__error": True, "agent__step__tool__output": {"error": "no register"}}
    tool = ordered(*team(**failed)).steps[1]
    assert (tool.status.value, tool.error, tool.output) == ("error", "no register", "")


def test_an_agent_goes_by_the_tool_that_runs_it() -> None:
    trajectory = ordered(
        haystack(1, "agent.run", None, end=900),
        haystack(2, "agent.step.tool", 1, end=800, tool__name="registrar"),
        haystack(3, "agent.run", 2, end=700),
        haystack(4, "agent.step.llm", 3),
    )
    assert outline(trajectory) == [("registrar", "llm")]


def test_generators_of_a_pipeline_are_agents_and_a_tool_invoker_is_the_tool() -> None:
    def component(number: int, kind: str, name: str, given: Any, got: Any) -> Span:
        texts: dict[str, Any] = {"component__input": given, "component__output": got}
        return haystack(number, "component.run", 1, component__name=name, component__type=kind, **texts)

    trajectory = ordered(
        haystack(1, "pipeline.run", None, end=900),
        component(2, "OpenAIChatGenerator", "clerk", {"messages": [QUESTION]}, {"replies": [ASKING]}),
        component(3, "ToolInvoker", "invoker", {"messages": [ASKING]}, {"tool_messages": [RESULT]}),
        component(4, "PromptBuilder", "builder", {}, {}),
        component(5, "OpenAIChatGenerator", "llm", {"messages": [RESULT]}, {"replies": [ANSWER]}),
    )
    assert outline(trajectory) == [("clerk", "llm"), ("clerk", "tool"), ("unknown", "llm")]
    assert (trajectory.steps[1].target, trajectory.steps[1].output) == ("look_up", "85 seats")


def test_without_content_the_steps_are_still_known() -> None:
    trajectory = ordered(haystack(1, "agent.run", None, end=90), haystack(2, "agent.step.llm", 1))
    assert [each.kind.value for each in trajectory.steps] == ["llm"]


TITLED = "You are the harbour master of Dover."
UNTITLED = "Answer on harbours."


def said(role: str, **part: Any) -> dict[str, Any]:
    return {"role": role, "content": [part]}


def prompted(number: int, parent: int, start: int, prompt: str, answer: dict[str, Any]) -> Span:
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
        prompted(4, 3, 10, prompt, asked),
        around(5, 3, "haystack.agent.step.tool", {"haystack.tool.name": "ask_pilot"}),
        *inner,
        around(8, 7 if inner else 5, "haystack.agent.run", {}),
        prompted(9, 8, 30, inner_prompt, said("assistant", text="At 14:20.")),
        prompted(10, 3, 600, prompt, said("assistant", text="It is at 14:20.")),
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
