"""LangChain4j under Quarkus: services, tools and calls by their names."""

from __future__ import annotations

from typing import Any

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
