"""Laminar: calls and tools by the span's type, everything else a function."""

from __future__ import annotations

import json
import time
from typing import Any

from semconv.dialects.conventions.laminar import BROWSER_USE
from semconv.model import Span
from semconv.record import replace
from tests.factories import ordered, outline, span


def laminar(  # noqa: PLR0917 - the order of a trace's columns
    number: int, kind: str, name: str, parent: int | None, given: Any = None, got: Any = None, **more: Any
) -> Span:
    texts = {"lmnr.span.input": given, "lmnr.span.output": got}
    attributes = {key: json.dumps(value) for key, value in texts.items() if value is not None}
    attributes["lmnr.span.type"] = kind
    return span(number, parent=parent, name=name, scope="lmnr", attributes=attributes, **more)


def test_calls_and_tools_are_steps_and_functions_may_name_the_agent() -> None:
    asked = [{"role": "user", "content": "How many?"}]
    trajectory = ordered(
        laminar(1, "DEFAULT", "agent.run", None, {"task": "How many?"}, "Three", end=900),
        laminar(2, "DEFAULT", "browser_scout", 1, end=800),
        laminar(3, "LLM", "ainvoke", 2, asked, {"role": "assistant", "content": "Look."}),
        laminar(4, "TOOL", "click", 2, {"index": 3}, "clicked"),
    )
    assert outline(trajectory) == [("browser_scout", "llm"), ("browser_scout", "tool")]
    assert (trajectory.task, trajectory.output) == ("How many?", "Three")
    assert trajectory.steps[0].input == "user: How many?"
    assert (trajectory.steps[1].target, trajectory.steps[1].output) == ("click", "clicked")


def browser_use(result: str | None = None, request: str = "\nHow many seats?\n</user_request>") -> list[Span]:
    """Return a run as browser-use 0.13.14 writes it: calls' texts under ``gen_ai.``."""
    asked = [
        {"role": "system", "content": "You accomplish the task in <user_request>.\n<intro>"},
        {"role": "user", "content": f"<user_request>{request}\n<agent_history>"},
    ]
    said = [{"finish_reason": "stop", "message": {"role": "assistant", "content": '{"memory": "m"}'}}]
    messages = {"gen_ai.input.messages": json.dumps(asked), "gen_ai.output.messages": json.dumps(said)}
    call = laminar(3, "LLM", "openai.chat", 2)
    done = {"action": "done", "params": {"text": "58 seats.", "success": True}}
    return [
        laminar(1, "DEFAULT", "agent.run", None, end=900),
        laminar(2, "DEFAULT", "agent.step", 1, end=100),
        replace(call, attributes={**call.attributes, **messages}),
        laminar(4, "TOOL", "navigate", 2, {"action": "navigate"}, {"is_done": False, "error": result}),
        laminar(5, "DEFAULT", "agent.step", 1, start=110, end=200),
        laminar(6, "TOOL", "done", 5, done, {"is_done": True, "error": None}, start=120),
    ]


def test_browser_use_has_one_agent_a_task_in_its_prompt_and_an_answer_in_its_last_action() -> None:
    trajectory = ordered(*browser_use())
    assert outline(trajectory) == [(BROWSER_USE, "llm"), (BROWSER_USE, "tool"), (BROWSER_USE, "tool")]
    assert (trajectory.task, trajectory.output) == ("How many seats?", "58 seats.")
    assert trajectory.steps[0].output == '{"memory": "m"}'
    assert not any(step.error for step in trajectory.steps)


def test_a_request_without_an_end_is_searched_once() -> None:
    begun = time.process_time()
    assert ordered(*browser_use(request=" " * 3_000)).output == "58 seats."
    assert time.process_time() - begun < 1


def test_an_action_fails_if_its_result_says_so() -> None:
    trajectory = ordered(*browser_use("Navigation failed: net::ERR_NAME_NOT_RESOLVED"))
    assert [step.error for step in trajectory.steps] == [
        "",
        "Navigation failed: net::ERR_NAME_NOT_RESOLVED",
        "",
    ]
