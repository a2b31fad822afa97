"""Laminar: calls and tools by the span's type, everything else a function."""

from __future__ import annotations

import json
from typing import Any

from semconv.model import Span
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
