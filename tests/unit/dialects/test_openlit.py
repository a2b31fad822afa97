"""OpenLIT also calls a framework's turns, methods, handoffs and guardrails agents."""

from __future__ import annotations

import json
from typing import Any

from semconv.model import Span
from tests.factories import ordered, outline, span

AGENTS = "openlit.instrumentation.openai_agents"
ANSWER = json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": "85 seats"}]}])


def openlit(number: int, operation: str, parent: int | None, scope: str = AGENTS, **attributes: Any) -> Span:
    named = {key.replace("__", "."): value for key, value in attributes.items()}
    named["gen_ai.operation.name"] = operation
    return span(number, name=operation, parent=parent, scope=scope, attributes=named)


def call(number: int, parent: int) -> Span:
    told = {"gen_ai__output__messages": ANSWER}
    return openlit(number, "chat", parent, "openlit.instrumentation.openai", **told)


def agent(number: int, name: str, parent: int | None = 1, **attributes: Any) -> Span:
    return openlit(number, "invoke_agent", parent, gen_ai__agent__name=name, **attributes)


def test_an_agent_with_a_source_is_the_handoff_to_it() -> None:
    steps = ordered(
        openlit(1, "invoke_workflow", None),
        agent(2, "desk"),
        call(3, 2),
        agent(4, "clerk", 2, gen_ai__agent__source="desk"),
        agent(5, "clerk"),
        call(6, 5),
    )
    assert outline(steps) == [("desk", "llm"), ("desk", "handoff"), ("clerk", "llm")]
    assert steps.steps[1].target == "clerk"


def test_an_agent_without_a_name_is_a_turn_or_a_method() -> None:
    turn = openlit(3, "invoke_agent", 2)
    method = openlit(5, "invoke_agent", 2, "openlit.instrumentation.crewai", gen_ai__output__messages=ANSWER)
    assert outline(ordered(agent(2, "desk", None), turn, call(4, 3), method)) == [("desk", "llm")]


def test_a_guardrail_is_a_step_where_it_trips() -> None:
    passed = agent(3, "polite", 2, gen_ai__guardrail__triggered=False)
    tripped = agent(3, "polite", 2, gen_ai__guardrail__triggered=True)
    assert outline(ordered(agent(2, "desk", None), passed, call(4, 2))) == [("desk", "llm")]
    steps = ordered(agent(2, "desk", None), tripped, call(4, 2))
    assert outline(steps) == [("desk", "other"), ("desk", "llm")]
    assert steps.steps[0].target == "polite"


def test_what_a_delegation_of_crewais_encloses_is_the_coworkers() -> None:
    crewai = "openlit.instrumentation.crewai"
    given = json.dumps({"coworker": "clerk", "task": "Look it up."})
    asking = {"gen_ai__tool__name": "Delegate work to coworker", "gen_ai__tool__call__arguments": given}
    delegated = openlit(3, "execute_tool", 1, crewai, **asking)
    steps = ordered(agent(1, "desk", None), call(2, 1), delegated, call(4, 3), call(5, 1))
    assert outline(steps) == [("desk", "llm"), ("clerk", "llm"), ("desk", "llm")]


def test_an_agno_teams_run_is_its_leaders() -> None:
    team = {"gen_ai__workflow__name": "desk", "gen_ai__agno__team__agents": '["clerk"]'}
    steps = ordered(openlit(1, "invoke_workflow", None, **team), call(2, 1), agent(3, "clerk"), call(4, 3))
    assert outline(steps) == [("desk", "llm"), ("clerk", "llm")]


def test_a_delegation_that_returns_a_generator_is_the_work_of_the_member_that_begins_after_it() -> None:
    team = {"gen_ai__workflow__name": "desk", "gen_ai__agno__team__agents": '["clerk"]'}
    given = {"gen_ai__tool__call__arguments": json.dumps({"member_id": "clerk"})}
    delegated = openlit(3, "execute_tool", 1, gen_ai__tool__name="delegate_task_to_member", **given)
    refused = openlit(6, "execute_tool", 1, gen_ai__tool__name="delegate_task_to_member", **given)
    top = openlit(1, "invoke_workflow", None, **team)
    steps = ordered(top, call(2, 1), delegated, agent(4, "clerk"), call(5, 4), refused)
    assert outline(steps) == [("desk", "llm"), ("clerk", "llm"), ("desk", "handoff")]


def test_the_nodes_of_a_graph_are_no_agents_whichever_scope_writes_them() -> None:
    for scope, provider in (("langgraph", "langgraph"), ("langchain", "langchain")):
        where = f"openlit.instrumentation.{scope}"
        node = {"gen_ai__agent__name": "call_agent", "gen_ai__provider__name": provider}
        spans = (agent(2, "desk", None), openlit(3, "invoke_agent", 2, where, **node), call(4, 3))
        assert outline(ordered(*spans)) == [("desk", "llm")]
