"""Claude Code's own spans, as its documentation lists them."""

from __future__ import annotations

from typing import Any

from semconv.model import ContentState, Event, Span, SpanStatus
from tests.factories import ordered, outline, span

SCOPE = "com.anthropic.claude_code.tracing"


def claude(
    number: int,
    kind: str,
    *events: Event,
    parent: int | None = 1,
    end: float | None = None,
    **attributes: Any,
) -> Span:
    named = {key.replace("__", "."): value for key, value in attributes.items()}
    named["span.type"] = kind
    return span(
        number,
        parent=parent,
        name=f"claude_code.{kind}",
        scope=SCOPE,
        attributes=named,
        events=events,
        end=end,
    )


def interaction(prompt: str) -> Span:
    return claude(1, "interaction", parent=None, end=999, user_prompt=prompt)


def test_a_subagents_steps_are_inside_the_tool_that_spawned_it() -> None:
    trajectory = ordered(
        interaction("Fix the test."),
        claude(
            2,
            "llm_request",
            query_source="repl_main_thread",
            response__model_output="I ask a reviewer.",
        ),
        claude(3, "tool", end=90, tool_name="Task", subagent_type="reviewer"),
        claude(4, "llm_request", parent=3, query_source="agent:custom:reviewer"),
        claude(5, "tool", parent=3, tool_name="Read", file_path="a.py"),
        claude(6, "tool.execution", parent=5, success=True),
        claude(10, "llm_request", query_source="repl_main_thread"),
    )
    assert outline(trajectory) == [
        ("claude_code", "llm"),
        ("reviewer", "llm"),
        ("reviewer", "tool"),
        ("claude_code", "llm"),
    ]
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


def test_a_tool_fails_with_its_execution_and_when_it_is_not_allowed() -> None:
    trajectory = ordered(
        interaction("x"),
        claude(2, "tool", tool_name="Bash"),
        claude(3, "tool.execution", parent=2, success=False, error="ShellError"),
        claude(4, "tool", tool_name="Bash"),
        claude(5, "tool.blocked_on_user", parent=4, decision="reject"),
    )
    assert [(step.status, step.error) for step in trajectory.steps] == [
        (SpanStatus.ERROR, "ShellError"),
        (SpanStatus.ERROR, "rejected by the user"),
    ]


def test_a_tools_content_stands_in_its_event() -> None:
    written = Event(name="tool.output", attributes={"content": "2 files", "tool_input": '{"command": "ls"}'})
    (step,) = ordered(interaction("x"), claude(2, "tool", written, tool_name="Bash")).steps
    assert (step.input, step.output, step.target) == ('{"command": "ls"}', "2 files", "Bash")


def test_a_hidden_prompt_is_hidden_not_empty() -> None:
    made = claude(1, "interaction", parent=None, user_prompt="<REDACTED>")
    (step,) = ordered(made).steps
    assert step.content is ContentState.REDACTED
