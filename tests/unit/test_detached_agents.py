"""Calls that are siblings of their agent's span and inside it in time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from semconv.model import Scope, Span
from tests.factories import ordered, outline, span


def spoken(
    number: int, operation: str, start: float, end: float, parent: int | None = 1, **named: Any
) -> Span:
    attributes = {f"gen_ai.{key.replace('__', '.')}": value for key, value in named.items()}
    attributes["gen_ai.operation.name"] = operation
    where = "langgraph" if operation.startswith("invoke") else "langchain"
    scope = f"openlit.instrumentation.{where}"
    return span(
        number, name=operation, parent=parent, start=start, end=end, attributes=attributes, scope=scope
    )


def agent(number: int, name: str, start: float, end: float) -> Span:
    return spoken(number, "invoke_agent", start, end, agent__name=name)


ROOT = spoken(1, "invoke_workflow", 0, 100, None)


def test_a_nameless_call_is_the_agents_that_runs_around_it() -> None:
    steps = ordered(
        ROOT,
        agent(2, "clerk", 10, 50),
        spoken(3, "chat", 20, 25),
        spoken(4, "execute_tool", 30, 35, tool__name="look_up"),
        agent(5, "purser", 60, 90),
        spoken(6, "chat", 70, 80),
    )
    assert outline(steps) == [("clerk", "llm"), ("clerk", "tool"), ("purser", "llm")]


def test_of_agents_around_each_other_the_inner_one_made_the_call() -> None:
    steps = ordered(ROOT, agent(2, "desk", 5, 90), agent(3, "clerk", 10, 50), spoken(4, "chat", 20, 25))
    assert ("clerk", "llm") in outline(steps)


def test_agents_that_overlap_do_not_tell_whose_a_call_is() -> None:
    steps = ordered(ROOT, agent(2, "desk", 5, 50), agent(3, "clerk", 10, 60), spoken(4, "chat", 20, 25))
    assert outline(steps)[-1] == ("unknown", "llm")


def test_a_call_with_an_agent_above_it_stays_that_agents() -> None:
    steps = ordered(ROOT, agent(2, "desk", 5, 60), spoken(3, "chat", 20, 25, 2), agent(4, "clerk", 10, 50))
    assert ("desk", "llm") in outline(steps)


def test_a_call_that_outlasts_an_agent_is_not_its_own() -> None:
    steps = ordered(ROOT, agent(2, "clerk", 10, 50), spoken(3, "chat", 20, 70))
    assert ("unknown", "llm") in outline(steps)


def test_elsewhere_a_nameless_call_beside_an_agent_is_the_workflows() -> None:
    host = replace(agent(2, "clerk", 10, 50), scope=Scope(name="any"))
    steps = ordered(ROOT, host, spoken(3, "chat", 20, 25))
    assert sorted(outline(steps)) == [("clerk", "llm"), ("unknown", "llm")]
