"""Agent2Agent: calls of remote agents, their servers, and tasks that fail although every request succeeds."""

from __future__ import annotations

from typing import Any

import pytest

from collector_processor.core.runs import Run
from collector_processor.rebuild.encode import encode
from collector_processor.rebuild.stages import rebuild
from semconv.dialects import USUAL, ActionKind, Surroundings
from semconv.model import Span, TraceId, Trajectory
from tests.factories import agent, chat, ordered, outline, span, workflow

CLIENT, SERVER = 3, 2
OTHER = TraceId("1af7651916cd43dd8448eb211c80319c")


def a2a(
    number: int,
    method: str = "SendMessage",
    *,
    parent: int | None = 1,
    of: str | None = "forecaster",
    state: str | None = None,
    task: str | None = None,
    **more: Any,
) -> Span:
    given = {"a2a.method.name": method, "gen_ai.agent.name": of, "a2a.task.state": state, "a2a.task.id": task}
    attributes = {key: value for key, value in given.items() if value is not None}
    return span(number, name=method, parent=parent, attributes=attributes, **{"kind": CLIENT, **more})


def errors(trajectory: Trajectory) -> list[tuple[str, str]]:
    return [(step.agent, step.error) for step in trajectory.steps if step.is_failed]


def joined(*spans: Span) -> list[Run]:
    return list(rebuild([encode(spans)]))


@pytest.mark.parametrize("state", ["TASK_STATE_FAILED", "TASK_STATE_REJECTED", "failed"])
@pytest.mark.parametrize("method", ["SendMessage", "SendStreamingMessage", "GetTask", "SubscribeToTask"])
def test_a_task_fails_while_its_requests_succeed(method: str, state: str) -> None:
    told = ordered(workflow(), agent(2, "planner", end=500), a2a(3, method, parent=2, state=state))
    assert errors(told) == [("forecaster", f"A2A task {state.removeprefix('TASK_STATE_').lower()}")]


@pytest.mark.parametrize(
    "state",
    ["SUBMITTED", "WORKING", "COMPLETED", "CANCELED", "INPUT_REQUIRED", "AUTH_REQUIRED", "SOMETHING_NEW", ""],
)
def test_other_states_are_no_failure(state: str) -> None:
    named = f"TASK_STATE_{state}"
    assert errors(ordered(workflow(), a2a(2, state=named), a2a(3, "GetTask", state=named))) == []


@pytest.mark.parametrize("value", [5, True, ("a", "b"), b"\xff", "x" * 10_000, " "])
def test_values_of_any_type_are_read(value: Any) -> None:
    keys = ("a2a.method.name", "gen_ai.agent.name", "a2a.task.state", "a2a.task.id")
    for wrong in keys:
        made = a2a(1, parent=None, task="t1", state="TASK_STATE_FAILED")
        changed = span(1, kind=CLIENT, attributes={**made.attributes, wrong: value})
        USUAL.action(changed, Surroundings([changed]))
        assert joined(changed)


def test_a_call_shows_the_remote_agent_where_its_server_sends_nothing() -> None:
    told = ordered(workflow(), agent(2, "planner", end=500), chat(3, parent=2), a2a(4, parent=2))
    assert outline(told) == [("planner", "llm"), ("forecaster", "llm")]
    assert told.steps[1].is_whole_turn


def test_a_server_names_the_agent_of_the_calls_below_it() -> None:
    told = ordered(
        workflow(),
        agent(2, "planner", end=500),
        a2a(3, parent=2, end=400),
        a2a(4, parent=3, kind=SERVER, end=390, service="forecast"),
        chat(5, parent=4, service="forecast"),
        a2a(6, "GetTask", parent=2, state="TASK_STATE_COMPLETED"),
    )
    assert outline(told) == [("forecaster", "llm")]


def test_below_the_call_that_the_framework_records_it_is_only_the_transport() -> None:
    told = ordered(
        workflow(), agent(2, "planner", end=500), agent(3, "forecaster", parent=2, end=400), a2a(4, parent=3)
    )
    assert [step.name for step in told.steps] == ["invoke_agent forecaster"]


def test_a_request_that_fails_is_its_callers_call() -> None:
    broken = a2a(3, "ListTasks", parent=2, of=None, error="connection refused")
    told = ordered(workflow(), agent(2, "planner", end=500), broken)
    assert [(step.agent, step.target, step.error) for step in told.steps] == [
        ("planner", "ListTasks", "connection refused")
    ]


def test_looking_after_a_task_is_no_step() -> None:
    made = a2a(1, "GetExtendedAgentCard", parent=None)
    action = USUAL.action(made, Surroundings([made]))
    assert action is not None
    assert (action.kind, action.agent) == (ActionKind.CONTAINER, None)


def test_a_poll_in_a_trace_of_its_own_belongs_to_the_run_of_its_task() -> None:
    sent = a2a(1, parent=None, task="task-1", state="TASK_STATE_SUBMITTED")
    poll = a2a(2, "GetTask", parent=None, task="task-1", state="TASK_STATE_FAILED", trace_id=OTHER)
    (run,) = joined(sent, poll)
    assert len(run.trajectory.steps) == 2
    assert errors(run.trajectory) == [("forecaster", "A2A task failed")]
    stranger = a2a(2, "GetTask", parent=None, task="task-2", state="TASK_STATE_FAILED", trace_id=OTHER)
    assert len(joined(sent, stranger)) == 2
