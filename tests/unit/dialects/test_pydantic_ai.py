"""Pydantic AI's own spans, in the versions of its format that differ."""

from __future__ import annotations

import json
from typing import Any

import pytest

from semconv.dialects import USUAL, ActionKind, Surroundings
from semconv.model import ContentState, Event, Span
from tests.factories import ordered, span

SCOPE = "pydantic-ai"


def said(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": content}]}


def of(number: int, operation: str, *, name: str = "span", parent: int | None = None, **more: Any) -> Span:
    own = {"gen_ai.operation.name": operation, "gen_ai.agent.name": "clerk"}
    attributes = own | more.pop("attributes", {})
    return span(number, parent=parent, name=name, scope=SCOPE, attributes=attributes, **more)


def run_of(**attributes: Any) -> Span:
    return of(1, "invoke_agent", parent=None, end=500, attributes=attributes)


def tool(number: int = 3, *, attributes: dict[str, Any], **more: Any) -> Span:
    named = {"gen_ai.tool.name": "look_up", **attributes}
    return of(number, "execute_tool", parent=1, attributes=named, **more)


def chat(number: int = 2, attributes: dict[str, Any] | None = None) -> Span:
    return of(number, "chat", parent=1, attributes=attributes or {})


@pytest.mark.parametrize(
    ("arguments", "result"),
    [
        pytest.param("tool_arguments", "tool_response", id="version 2"),
        pytest.param("gen_ai.tool.call.arguments", "gen_ai.tool.call.result", id="version 3 and later"),
    ],
)
def test_a_tools_arguments_and_result_are_read_in_every_version(arguments: str, result: str) -> None:
    found = ordered(run_of(), chat(), tool(attributes={arguments: '{"name":"x"}', result: "16"})).steps[1]
    assert (found.input, found.output, found.target) == ('{"name":"x"}', "16", "look_up")


def test_messages_of_version_1_stand_in_a_list_of_events() -> None:
    events = [
        {"event.name": "gen_ai.system.message", "role": "system", "content": "Be brief."},
        {"event.name": "gen_ai.user.message", "role": "user", "content": "How many?"},
        {"event.name": "gen_ai.choice", "message": {"role": "assistant", "content": "Sixteen."}},
    ]
    (step,) = ordered(run_of(), chat(attributes={"events": json.dumps(events)})).steps
    assert (step.input, step.output, step.instructions) == ("user: How many?", "Sixteen.", "Be brief.")


def test_messages_of_version_1_may_be_log_events() -> None:
    answer = {"message": {"role": "assistant", "content": "Sixteen."}}
    logs = [
        Event(name="gen_ai.user.message", time_ns=1, body={"role": "user", "content": "How many?"}),
        Event(name="gen_ai.choice", time_ns=2, body=answer),
    ]
    call = of(2, "chat", parent=1, logs=logs)
    (step,) = ordered(run_of(), call).steps
    assert (step.input, step.output) == ("user: How many?", "Sixteen.")


def test_the_task_is_the_last_question_of_the_whole_conversation() -> None:
    history = [
        said("user", "first"),
        said("assistant", "one"),
        said("user", "second"),
        said("assistant", "two"),
    ]
    run = run_of(**{"pydantic_ai.all_messages": json.dumps(history), "final_result": "two"})
    trajectory = ordered(run, chat())
    assert (trajectory.task, trajectory.output) == ("second", "two")


def test_before_1_0_an_agent_has_no_operation_and_its_calls_inherit_its_name() -> None:
    run = span(1, name="agent run", scope=SCOPE, end=500, attributes={"agent_name": "clerk"})
    call = span(2, name="chat m", scope=SCOPE, parent=1, attributes={"gen_ai.operation.name": "chat"})
    using = span(3, name="running tool", scope=SCOPE, parent=1, attributes={"gen_ai.tool.name": "look_up"})
    steps = ordered(run, call, using).steps
    assert [(step.agent, step.kind) for step in steps] == [("clerk", "llm"), ("clerk", "tool")]


def test_an_output_function_is_an_answer_and_its_failure_is_a_step() -> None:
    running = {"logfire.msg": "running output function: final_result"}
    assert [step.kind for step in ordered(run_of(), chat(), tool(attributes=running)).steps] == ["llm"]
    failing = tool(attributes=running, error="too many")
    assert [step.kind for step in ordered(run_of(), chat(), failing).steps] == ["llm", "tool"]


def test_waiting_for_approval_is_no_failure() -> None:
    waiting = tool(attributes={"pydantic_ai.tool.deferral.name": "ApprovalRequired"}, error="approval")
    action = USUAL.action(waiting, Surroundings((run_of(), waiting)))
    assert action is not None
    assert (action.kind, action.failed) == (ActionKind.TOOL, False)


def test_a_call_that_is_to_be_made_again_failed() -> None:
    again = tool(attributes={"pydantic_ai.tool.retry.cause": "validation"})
    step = ordered(run_of(), chat(), again).steps[1]
    assert (step.status, step.error) == ("error", "validation")


def test_content_switched_off_leaves_who_did_what() -> None:
    off = json.dumps([{"role": "user", "parts": [{"type": "text"}]}])
    asked = {"type": "tool_call", "id": "1", "name": "look_up"}
    asking = json.dumps([{"role": "assistant", "parts": [asked]}])
    call = chat(attributes={"gen_ai.input.messages": off, "gen_ai.output.messages": asking})
    last = chat(4, {"gen_ai.input.messages": off})
    trajectory = ordered(run_of(), call, tool(attributes={}), last)
    assert [step.kind for step in trajectory.steps] == ["llm", "tool", "llm"]
    assert trajectory.steps[2].content is ContentState.ABSENT
    assert trajectory.task == ""
