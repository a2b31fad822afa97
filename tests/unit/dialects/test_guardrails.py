"""A guardrail is a step if it stopped something, in every dialect that records guardrails."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from semconv.model import Attributes, Span, StepKind, Trajectory
from tests.factories import agent, chat, ordered, span

CONTRIB = "opentelemetry.instrumentation.openai_agents"
OPENINFERENCE = "openinference.instrumentation.openai_agents"
TRIPWIRE = "Guardrail tripwire triggered: {'guardrail': 'check'}"


def logfires(*, stops: bool) -> Span:
    named: Attributes = {
        "logfire.msg_template": "Guardrail {name!r} {triggered=}",
        "name": "check",
        "triggered": stops,
    }
    return guardrail("Guardrail {name!r} {triggered=}", named, scope="logfire.openai_agents")


def contribs(*, stops: bool) -> Span:
    named = {"gen_ai.operation.name": "guardrail_check", "gen_ai.guardrail.name": "check"}
    placeholder = {"gen_ai.agent.name": "OpenAI Agent"}
    return guardrail("guardrail_check", named | placeholder | {"gen_ai.guardrail.triggered": stops}, CONTRIB)


def mlflows(*, stops: bool) -> Span:
    told = json.dumps({"triggered": stops})
    return guardrail("check", {"mlflow.spanType": '"GUARDRAIL"', "mlflow.spanOutputs": told}, "mlflow")


def langsmiths(*, stops: bool) -> Span:
    named = {"langsmith.span.kind": "tool", "langsmith.metadata.ls_integration": "openai-agents-sdk"}
    return guardrail("check", named | {"gen_ai.completion": json.dumps({"triggered": stops})}, "langsmith")


def langfuses(*, stops: bool) -> Span:
    named = {"langfuse.observation.type": "guardrail", "langfuse.observation.output": "looked at it"}
    level = {"langfuse.observation.level": "ERROR"} if stops else {}
    return guardrail("check", named | level, "langfuse-sdk")


def guardrail(name: str, attributes: Attributes, scope: str) -> Span:
    return span(3, parent=2, name=name, scope=scope, attributes=attributes)


def run(*checks: Span) -> Trajectory:
    clerk = agent(2, "clerk", end=500)
    return ordered(agent(1, "office", parent=None, end=900), clerk, *checks, chat(9, parent=2, answer="ok"))


@pytest.mark.parametrize("written", [logfires, contribs, mlflows, langsmiths, langfuses])
def test_one_that_stops_something_is_a_step_in_error_and_one_that_does_not_is_none(written: Any) -> None:
    (step, _) = run(written(stops=True)).steps
    assert (step.kind, step.agent, bool(step.error)) == (StepKind.OTHER, "clerk", True)
    assert step.target in {"check", "guardrail_check"}

    assert [step.kind for step in run(written(stops=False)).steps] == [StepKind.LLM]


def openinference(number: int, kind: str, name: str, **more: Any) -> Span:
    named: Mapping[str, Any] = {"openinference.span.kind": kind, **more.pop("attributes", {})}
    return span(number, name=name, scope=OPENINFERENCE, attributes=named, **more)


def stopped(error: str) -> Trajectory:
    """A run of openai-agents under OpenInference, whose guardrails do not record whether they tripped."""
    named = {"agent.name": "clerk"}
    return ordered(
        openinference(1, "AGENT", "Agent workflow", end=900),
        openinference(2, "AGENT", "clerk", parent=1, end=500, error=error, attributes=named),
        openinference(3, "CHAIN", "turn", parent=2, end=100),
        openinference(4, "LLM", "response", parent=3),
        openinference(20, "GUARDRAIL", "check", parent=2),
        openinference(30, "GUARDRAIL", "other", parent=2),
    )


def test_openinferences_is_known_by_the_error_of_the_agent_that_it_stopped() -> None:
    trajectory = stopped(TRIPWIRE)
    assert [(step.kind, step.target) for step in trajectory.steps] == [("llm", None), ("other", "check")]
    assert trajectory.root_error == TRIPWIRE


def test_an_agent_that_failed_otherwise_was_not_stopped_by_its_guardrails() -> None:
    assert [step.kind for step in stopped("Max turns (5) exceeded").steps] == ["llm"]


def test_what_a_guardrail_asks_a_model_stays_a_step_and_comes_before_its_refusal() -> None:
    check = contribs(stops=True)
    asking = chat(4, parent=3, answer="not polite")
    steps = run(check, asking).steps
    assert [(step.kind, step.output) for step in steps[:2]] == [("llm", "not polite"), ("other", "")]
