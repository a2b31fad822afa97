"""agent-framework's workflow spans around the conventions' agents."""

from __future__ import annotations

from typing import Any

from semconv.model import Span
from tests.factories import agent, chat, ordered, outline, span

SCOPE = "agent_framework"


def run_of(**more: Any) -> Span:
    return span(1, name="workflow.run", scope=SCOPE, end=1000, **more)


def executor(number: int, who: str, kind: str = "HandoffAgentExecutor", **more: Any) -> Span:
    attributes = {"executor.id": who, "executor.type": kind}
    return span(number, name=f"executor.process {who}", parent=1, scope=SCOPE, attributes=attributes, **more)


def acting(number: int, who: str, *, parent: int) -> list[Span]:
    """Make an agent's turn of one model call, without content."""
    return [
        agent(number, who, parent=parent, scope=SCOPE, end=number * 10 + 8),
        chat(number + 1, parent=number, scope=SCOPE, start=number * 10 + 1, end=number * 10 + 7),
    ]


def sends(number: int, *, parent: int, to: str | None = None) -> Span:
    attributes = {"message.type": "AgentExecutorRequest"}
    if to is not None:
        attributes["message.destination_executor_id"] = to
    return span(number, name="message.send", parent=parent, scope=SCOPE, attributes=attributes)


def test_a_transfer_is_the_message_with_a_destination_even_without_content() -> None:
    spans = [
        run_of(),
        executor(2, "triage", end=60),
        *acting(3, "triage", parent=2),
        sends(5, parent=2, to="analyst"),
        executor(7, "analyst", end=95),
        *acting(8, "analyst", parent=7),
    ]
    trajectory = ordered(*spans)
    assert outline(trajectory) == [("triage", "llm"), ("triage", "handoff"), ("analyst", "llm")]
    assert trajectory.steps[1].target == "analyst"


def test_broadcasts_are_no_steps() -> None:
    spans = [run_of(), executor(2, "triage", end=60), *acting(3, "triage", parent=2), sends(5, parent=2)]
    assert outline(ordered(*spans, executor(6, "analyst"))) == [("triage", "llm")]


def test_a_managers_choice_of_speaker_is_its_model_call_and_no_handoff() -> None:
    managing = executor(2, "manager", "MagenticOrchestrator", end=60)
    spans = [run_of(), managing, *acting(3, "manager", parent=2), sends(5, parent=2, to="analyst")]
    assert outline(ordered(*spans)) == [("manager", "llm")]


def test_an_executor_that_fails_on_its_own_is_a_step() -> None:
    failing = executor(2, "parser", "FunctionExecutor", error="ValueError: no number")
    (step,) = ordered(run_of(error="ValueError: no number"), failing).steps
    assert (step.agent, step.kind, step.status) == ("parser", "other", "error")


def test_an_executor_whose_agent_fails_is_none() -> None:
    around = executor(2, "triage", error="HTTP 500", end=60)
    failing = chat(4, parent=3, scope=SCOPE, error="HTTP 500")
    within = agent(3, "triage", parent=2, scope=SCOPE, error="HTTP 500", end=50)
    assert outline(ordered(run_of(error="HTTP 500"), around, within, failing)) == [("triage", "llm")]
