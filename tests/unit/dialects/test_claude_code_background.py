"""Background work of Claude Code's subagents and the use of their reports form one run."""

from __future__ import annotations

from typing import Any

import pytest

from collector_processor.rebuild.repair import repair
from collector_processor.rebuild.runs import group_runs
from collector_processor.trajectory import order
from semconv.dialects.frameworks.claude_code import reported_call
from semconv.model import Span, Trace, TraceId, Trajectory
from tests.factories import span

SCOPE = "com.anthropic.claude_code.tracing"


def report(call: str, result: str = "done") -> str:
    return (
        f"<task-notification>\n<task-id>a1</task-id>\n<tool-use-id>{call}</tool-use-id>\n"
        f"<status>completed</status>\n<result>{result}</result>\n</task-notification>"
    )


def claude(number: int, kind: str, trace: str, *, parent: int | None = None, **attributes: Any) -> Span:
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
        claude(first, "interaction", trace, user_prompt=prompt, **there),
        claude(first + 1, "llm_request", trace, parent=first, **there),
    ]
    if spawns:
        called = there | {"tool_name": "Agent", "tool_use_id": spawns}
        spans.append(claude(first + 2, "tool", trace, parent=first, **called))
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
