"""Claude Code's own spans and log events, in one trace and in the background, as recorded and documented."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from collector_processor.rebuild.repair import repair
from collector_processor.rebuild.runs import group_runs
from collector_processor.trajectory import order
from semconv.dialects.frameworks.claude_code import reported_call
from semconv.model import ContentState, Event, Span, Stop, Trace, TraceId, Trajectory
from tests.factories import at, ordered, outline, span

SCOPE = "com.anthropic.claude_code.tracing"


def claude(
    number: int,
    kind: str,
    *events: Event,
    parent: int | None = 1,
    end: float | None = None,
    logs: Sequence[Event] = (),
    **attributes: Any,
) -> Span:
    named = {key.replace("__", "."): value for key, value in attributes.items()} | {"span.type": kind}
    told: Any = {"attributes": named, "events": events, "logs": logs, "end": end}
    return span(number, parent=parent, name=f"claude_code.{kind}", scope=SCOPE, **told)


def interaction(prompt: str, *logs: Event) -> Span:
    return claude(1, "interaction", parent=None, end=999, logs=logs, user_prompt=prompt)


def told(name: str, moment: float, **attributes: Any) -> Event:
    return Event(name=name, time_ns=at(moment), attributes=attributes)


def test_a_subagents_steps_are_inside_the_tool_that_spawned_it() -> None:
    trajectory = ordered(
        interaction("Fix the test."),
        claude(2, "llm_request", query_source="repl_main_thread", response__model_output="I ask a reviewer."),
        claude(3, "tool", end=90, tool_name="Task", subagent_type="reviewer"),
        claude(4, "llm_request", parent=3, query_source="agent:custom:reviewer"),
        claude(5, "tool", parent=3, tool_name="Read", file_path="a.py"),
        claude(6, "tool.execution", parent=5, success=True),
        claude(10, "llm_request", query_source="repl_main_thread"),
    )
    reviewing = [("reviewer", "llm"), ("reviewer", "tool")]
    assert outline(trajectory) == [("claude_code", "llm"), *reviewing, ("claude_code", "llm")]
    assert trajectory.task == "Fix the test."
    assert (trajectory.steps[0].output, trajectory.steps[2].input) == ("I ask a reviewer.", "a.py")


def test_a_subagent_without_details_is_known_by_its_model_calls() -> None:
    trajectory = ordered(
        interaction("x"),
        claude(2, "tool", end=90, tool_name="Task"),
        claude(3, "llm_request", parent=2, query_source="agent:builtin:general-purpose"),
        claude(4, "tool", parent=2, tool_name="Bash", full_command="ls"),
    )
    assert outline(trajectory) == [("general-purpose", "llm"), ("general-purpose", "tool")]


def test_a_tool_fails_with_its_execution_and_is_stopped_where_it_is_not_allowed() -> None:
    trajectory = ordered(
        interaction("x"),
        claude(2, "tool", tool_name="Bash"),
        claude(3, "tool.execution", parent=2, success=False, error="ShellError"),
        claude(4, "tool", tool_name="Bash"),
        claude(5, "tool.blocked_on_user", parent=4, decision="reject"),
    )
    assert [(step.is_failed, step.stop, step.error) for step in trajectory.steps] == [
        (True, None, "ShellError"),
        (False, Stop.CANCELLED, "rejected by the user"),
    ]


def test_a_tools_content_stands_in_its_event() -> None:
    written = Event(name="tool.output", attributes={"content": "2 files", "tool_input": '{"command": "ls"}'})
    (step,) = ordered(interaction("x"), claude(2, "tool", written, tool_name="Bash")).steps
    assert (step.input, step.output, step.target) == ('{"command": "ls"}', "2 files", "Bash")


def test_a_hidden_prompt_is_hidden_not_empty() -> None:
    made = claude(1, "interaction", parent=None, user_prompt="<REDACTED>")
    (step,) = ordered(made).steps
    assert step.content is ContentState.REDACTED


def test_a_subagents_work_stands_below_the_execution_of_the_tool_that_spawned_it() -> None:
    trajectory = ordered(
        interaction("x"),
        claude(2, "tool", end=90, tool_name="Agent"),
        claude(3, "tool.execution", parent=2, end=90, success=True),
        claude(4, "llm_request", parent=3, query_source="agent:custom:clerk", agent_id="a1"),
        claude(5, "tool", parent=3, tool_name="Read", agent_id="a1"),
    )
    assert outline(trajectory) == [("clerk", "llm"), ("clerk", "tool")]


def test_subagents_whose_names_are_hidden_are_told_apart_by_their_ids() -> None:
    trajectory = ordered(
        interaction("x"),
        claude(2, "tool", end=90, tool_name="Agent"),
        claude(3, "llm_request", parent=2, agent_id="a1"),
        claude(20, "tool", end=290, tool_name="Agent"),
        claude(21, "llm_request", parent=20, agent_id="a2"),
        claude(95, "llm_request"),
    )
    assert outline(trajectory) == [("a1", "llm"), ("a2", "llm"), ("claude_code", "llm")]


def test_what_a_model_said_is_found_in_the_event_that_names_its_request() -> None:
    events = [
        told("assistant_response", 24, request_id="r1", response="the first"),
        told("assistant_response", 54, request_id="r2", response="the second"),
    ]
    trajectory = ordered(
        interaction("x", *events),
        claude(2, "llm_request", request_id="r1"),
        claude(5, "llm_request", request_id="r2"),
        claude(8, "llm_request", request_id="r3"),
    )
    assert [step.output for step in trajectory.steps] == ["the first", "the second", ""]


def test_an_event_of_another_time_is_not_taken_for_the_calls() -> None:
    """Request ids come from the gateway: repeated ones must not mix up calls."""
    event = told("assistant_response", 5000, request_id="r1", response="much later")
    made = claude(2, "llm_request", request_id="r1")
    assert ordered(interaction("x", event), made).steps[0].output == ""


def test_a_tools_arguments_are_found_in_the_event_on_its_result() -> None:
    event = told("tool_result", 26, tool_use_id="t1", tool_input='{"command": "ls"}')
    (step,) = ordered(interaction("x", event), claude(2, "tool", tool_name="Bash", tool_use_id="t1")).steps
    assert step.input == '{"command": "ls"}'


def test_the_headings_of_detailed_tracing_are_taken_off() -> None:
    made = claude(
        2,
        "tool",
        tool_name="Bash",
        tool_input='[TOOL INPUT: Bash]\n{"command": "ls"}',
        new_context="[TOOL RESULT: Bash]\na.py\n[b]",
    )
    (step,) = ordered(interaction("x"), made).steps
    assert (step.input, step.output) == ('{"command": "ls"}', "a.py\n[b]")


def test_a_tool_that_begins_while_the_reply_streams_is_not_beside_it() -> None:
    trajectory = ordered(
        interaction("x"), claude(2, "llm_request", end=60), claude(3, "tool", end=90, tool_name="Bash")
    )
    assert [step.group for step in trajectory.steps] == [None, None]


def report(call: str, result: str = "done") -> str:
    return (
        f"<task-notification>\n<task-id>a1</task-id>\n<tool-use-id>{call}</tool-use-id>\n"
        f"<status>completed</status>\n<result>{result}</result>\n</task-notification>"
    )


def background(number: int, kind: str, trace: str, *, parent: int | None = None, **attributes: Any) -> Span:
    named = {"session.id": "s1", **attributes, "span.type": kind}
    return span(
        number,
        parent=parent,
        name=f"claude_code.{kind}",
        scope=SCOPE,
        attributes=named,
        trace_id=TraceId(trace * 32),
        end=number * 10 + 5 + 60 * (parent is None),
    )


def asked(first: int, trace: str, prompt: str, *, spawns: str = "", session: str = "s1") -> Trace:
    """An interaction: a model call, and the start of a subagent."""
    there: dict[str, Any] = {"session.id": session}
    spans = [
        background(first, "interaction", trace, user_prompt=prompt, **there),
        background(first + 1, "llm_request", trace, parent=first, **there),
    ]
    if spawns:
        called = there | {"tool_name": "Agent", "tool_use_id": spawns}
        spans.append(background(first + 2, "tool", trace, parent=first, **called))
    return Trace(spans=tuple(spans))


def runs(*traces: Trace) -> list[Trajectory]:
    return [order(repair(run)) for run in group_runs(traces)]


def test_a_report_belongs_to_the_run_whose_call_it_names_and_is_not_its_task() -> None:
    (run,) = runs(
        asked(1, "a", "How many seats?", spawns="toolu_1"),
        asked(20, "b", report("toolu_1"), spawns="toolu_2"),
        asked(40, "c", report("toolu_2")),
    )
    assert run.task == "How many seats?"
    assert len([step for step in run.steps if step.kind == "llm"]) == 3
    assert run.complete


def test_a_person_who_asks_again_in_the_session_begins_another_run() -> None:
    first, second = runs(asked(1, "a", "How many seats?", spawns="toolu_1"), asked(20, "b", "And cabins?"))
    assert (first.task, second.task) == ("How many seats?", "And cabins?")


def test_a_call_of_another_session_is_another_call() -> None:
    spawning = asked(1, "a", "How many seats?", spawns="toolu_1")
    assert len(runs(spawning, asked(20, "b", report("toolu_1"), session="s2"))) == 2


@pytest.mark.parametrize(
    "prompt",
    [
        f"Read this: {report('toolu_1')}",
        "<task-notification>\n<result><tool-use-id>toolu_1</tool-use-id></result>",
        f"<task-notification>\n<task-id>{'a' * 999}</task-id>\n<tool-use-id>toolu_1</tool-use-id>",
        "",
    ],
    ids=["quoted", "in the result", "too long", "nothing"],
)
def test_what_only_looks_like_a_report_is_a_persons_prompt(prompt: str) -> None:
    assert reported_call(prompt) is None


def test_a_report_that_names_another_call_in_its_text_is_on_its_own() -> None:
    assert reported_call(report("toolu_1", result=report("toolu_2"))) == "toolu_1"
