"""CrewAI's OpenInference spans: delegation to coworkers, replies that are calls, tasks with placeholders."""

from __future__ import annotations

import json
from typing import Any

from semconv.model import Span
from tests.factories import ordered, outline, span

SCOPE = "openinference.instrumentation.crewai"


def crew(number: int, kind: str, parent: int | None = 1, end: float | None = None, **attributes: Any) -> Span:
    named = {key.replace("__", "."): value for key, value in attributes.items()}
    named["openinference.span.kind"] = kind
    return span(number, parent=parent, name="x", scope=SCOPE, attributes=named, end=end)


def kickoff(**more: Any) -> Span:
    agents = [{"role": "Ticket Clerk"}, {"role": "purser"}]
    return crew(1, "CHAIN", None, 999, crew_agents=json.dumps(agents), **more)


def manager(answer: str = "done") -> Span:
    return crew(2, "AGENT", 1, 900, graph__node__id="manager", input__value="x", output__value=answer)


def delegation(number: int, coworker: str, result: str, end: float | None = None) -> Span:
    given = json.dumps({"task": "count the seats", "context": "a ferry", "coworker": coworker})
    named = "Delegate work to coworker"
    return crew(number, "TOOL", 2, end, tool__name=named, input__value=given, output__value=result)


def test_a_delegated_coworkers_tools_and_answer_are_its_own() -> None:
    trajectory = ordered(
        kickoff(),
        manager(),
        delegation(3, ' "ticket clerk" ', "200 seats", 100),
        crew(4, "TOOL", 3, tool__name="look_up", output__value="200"),
        delegation(11, "purser", "6,840 euros"),
    )
    clerks = [("Ticket Clerk", "tool"), ("Ticket Clerk", "llm")]
    assert outline(trajectory) == [*clerks, ("purser", "llm"), ("manager", "llm")]
    assert [step.output for step in trajectory.steps[1:]] == ["200 seats", "6,840 euros", "done"]


def test_a_delegation_to_nobody_is_the_managers_failed_tool_call() -> None:
    refused = "Error executing tool. Coworker mentioned not found."
    trajectory = ordered(kickoff(), manager(), delegation(3, "captain", refused))
    assert outline(trajectory)[0][0] == "manager"


def test_a_reply_that_is_a_list_of_calls_asks_for_them() -> None:
    call = [{"id": "a", "type": "function", "function": {"name": "look_up", "arguments": '{"id": 1}'}}]
    trajectory = ordered(kickoff(), manager(), crew(3, "LLM", 2, output__value=json.dumps(call)))
    assert trajectory.steps[0].output == 'call look_up({"id": 1})'


def test_a_template_whose_blanks_are_not_told_is_not_the_task() -> None:
    tasks = json.dumps([{"description": "Answer: {question}"}])
    prompt = json.dumps([{"role": "user", "content": "Answer: how many seats?"}])
    blank = ordered(kickoff(crew_tasks=tasks), manager(), crew(3, "LLM", 2, input__value=prompt))
    assert blank.task == "Answer: how many seats?"
    told = ordered(kickoff(crew_tasks=tasks, crew_inputs='{"question": "how many seats?"}'), manager())
    assert told.task == "how many seats?\nAnswer: {question}"


def test_a_coworkers_failure_stands_in_the_result() -> None:
    failure = "Error executing task with agent 'purser'. Error: HTTP 500"
    steps = ordered(kickoff(), manager(), delegation(3, "purser", failure)).steps
    assert (steps[0].agent, steps[0].status, steps[0].error) == ("purser", "error", failure)
