"""LangChain4j under Quarkus and Spring AI: services, chat clients, tools and calls by their names."""

from __future__ import annotations

import json
from typing import Any

import pytest

from semconv.model import Event, Span
from tests.factories import ordered, outline, span

RAISED = Event(
    name="exception", attributes={"exception.type": "java.io.IOException", "exception.message": "late"}
)


def quarkus(number: int, name: str, parent: int | None, **more: Any) -> Span:
    return span(number, parent=parent, name=name, scope="io.quarkus.opentelemetry", **more)


def call(number: int, parent: int, **more: Any) -> Span:
    attributes = {"gen_ai.operation.name": "chat", **more.pop("attributes", {})}
    return quarkus(number, "completion gpt-4o", parent, attributes=attributes, **more)


def test_a_service_is_an_agent_and_its_interface_the_name() -> None:
    texts = {"gen_ai.content.prompt": "How many?", "gen_ai.content.completion": "Three"}
    trajectory = ordered(
        quarkus(1, "langchain4j.aiservices.Registrar.lookUp", None, end=900),
        call(2, 1, attributes=texts),
        quarkus(3, "langchain4j.tools.look_up", 1),
        quarkus(4, "langchain4j.aiservices.Office$Purser.chat", 1, end=90),
        call(5, 4),
    )
    assert outline(trajectory) == [("Registrar", "llm"), ("Registrar", "tool"), ("Purser", "llm")]
    assert trajectory.steps[0].output == "Three"
    assert trajectory.steps[1].target == "look_up"


def test_a_recorded_exception_is_a_failure_though_the_status_is_unset() -> None:
    for failed in (call(2, 1, events=[RAISED]), quarkus(2, "langchain4j.mcp-tools.x", 1, events=[RAISED])):
        service = quarkus(1, "langchain4j.aiservices.Clerk.chat", None, end=900)
        (step,) = ordered(service, failed).steps
        assert (step.status.value, step.error) == ("error", "IOException: late")


def test_a_completion_of_another_kind_is_left_to_others() -> None:
    assert outline(ordered(span(1, name="completion handler"))) == []


def spring(number: int, parent: int | None, name: str, operation: str = "framework", **more: Any) -> Span:
    own = {"gen_ai.operation.name": operation, "gen_ai.system": "spring_ai"}
    told = {"attributes": own | more.pop("attributes", {}), "scope": "org.springframework.boot"}
    return span(number, parent=parent, name=name, **told, **more)


def client(number: int, parent: int | None, **more: Any) -> Span:
    kind = {"spring.ai.kind": "chat_client"}
    return spring(number, parent, "spring_ai chat_client", attributes=kind, **more)


def called(number: int, parent: int, name: str, operation: str = "framework", **more: Any) -> Span:
    told = {
        "spring.ai.kind": "tool_call",
        "spring.ai.tool.definition.name": name,
        "spring.ai.tool.call.arguments": '{"name": "Ada"}',
        "spring.ai.tool.call.result": "85 seats",
    }
    return spring(number, parent, f"tool_call {name}", operation, attributes=told, **more)


def chat(number: int, parent: int, given: str = '["Be brief.", "How many?"]', got: str = '["Three"]') -> Span:
    texts = {"gen_ai.prompt": given, "gen_ai.completion": got}
    return spring(number, parent, "chat gpt-4.1-mini", "chat", attributes=texts)


def advisor(number: int, parent: int) -> Span:
    return spring(number, parent, "call", attributes={"spring.ai.kind": "advisor"}, end=800)


def test_a_chat_client_and_its_advisors_group_calls_and_tools() -> None:
    for operation in ("framework", "execute_tool"):
        calls = (chat(3, 2), called(4, 2, "look_up", operation), chat(5, 2))
        trajectory = ordered(client(1, None, end=900), advisor(2, 1), *calls)
        assert [step.kind.value for step in trajectory.steps] == ["llm", "tool", "llm"], operation
        tool = trajectory.steps[1]
        assert (tool.target, tool.input, tool.output) == ("look_up", '{"name": "Ada"}', "85 seats")
        assert trajectory.steps[0].input == "user: Be brief.\nuser: How many?"
        assert trajectory.output == "Three"


def delegated(*, prompt: str, tool: str = "ask_registrar") -> list[tuple[str, str]]:
    """Return the steps of a chat client that a tool of another one runs."""
    heard = [{"role": "system", "parts": [{"type": "text", "content": prompt}]}] if prompt else []
    texts = {"gen_ai.input.messages": json.dumps(heard)}
    trajectory = ordered(
        client(1, None, end=900),
        spring(2, 1, "chat gpt-4.1-mini", "chat"),
        called(3, 1, tool, end=100),
        client(4, 3, end=90),
        spring(5, 4, "chat gpt-4.1-mini", "chat", attributes=texts),
        called(6, 4, "look_up", end=64),
    )
    return outline(trajectory)


@pytest.mark.parametrize(
    ("prompt", "tool", "name"),
    [
        pytest.param("", "ask_registrar", "registrar", id="after the tool, without its verb"),
        pytest.param("", "seat_finder", "seat_finder", id="after the tool, if nothing better is known"),
        pytest.param("You are a helpful assistant.", "ask_registrar", "registrar", id="a phrase is no name"),
        pytest.param("You are the clerk of a harbour.", "ask_registrar", "clerk", id="by its prompt"),
    ],
)
def test_an_agent_that_a_tool_runs_goes_by_its_prompt_or_the_tool(prompt: str, tool: str, name: str) -> None:
    assert delegated(prompt=prompt, tool=tool) == [("lead-agent", "llm"), (name, "llm"), (name, "tool")]


def test_the_result_of_a_tool_that_runs_an_agent_is_the_agents_answer() -> None:
    silent = [spring(number, parent, "chat gpt", "chat") for number, parent in ((2, 1), (5, 4))]
    steps = ordered(client(1, None, end=900), silent[0], called(3, 1, "ask"), client(4, 3), silent[1]).steps
    assert [(step.output, step.content.value) for step in steps] == [("", "absent"), ("85 seats", "complete")]


def test_an_observed_function_around_a_chat_client_is_the_agent() -> None:
    observed = span(1, name="registrar", scope="org.springframework.boot", end=900)
    assert outline(ordered(observed, client(2, 1, end=800), chat(3, 2))) == [("registrar", "llm")]


def test_texts_of_older_versions_are_in_events_and_missing_ones_are_no_error() -> None:
    bare = spring(2, 1, "chat gpt", "chat")
    assert [step.content.value for step in ordered(client(1, None, end=90), bare).steps] == ["absent"]
