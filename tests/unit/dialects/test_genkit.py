"""Genkit: flows as functions, models and tools by their subtype, and messages in its own format."""

from __future__ import annotations

import json
from typing import Any

from semconv.model import Span
from tests.factories import ordered, outline, span

ASKS = {"toolRequest": {"name": "look_up", "input": {"name": "Ada"}, "ref": "c1"}}
ANSWERS = {"toolResponse": {"name": "look_up", "output": "85 seats", "ref": "c1"}}


def genkit(  # noqa: PLR0917 - the order of a trace's columns
    number: int, subtype: str, name: str, parent: int | None, given: Any, got: Any, **more: Any
) -> Span:
    attributes = {
        "genkit:type": "action",
        "genkit:name": name,
        "genkit:metadata:subtype": subtype,
        "genkit:input": json.dumps(given),
        "genkit:output": json.dumps(got),
        "genkit:state": more.pop("state", "success"),
    }
    return span(number, parent=parent, name=name, attributes=attributes, scope="genkit-tracer", **more)


def model(number: int, parent: int, heard: list[Any], *said: Any) -> Span:
    told = {"message": {"role": "model", "content": list(said)}}
    return genkit(number, "model", "openai/gpt", parent, {"messages": heard}, told)


def says(role: str, *parts: Any) -> dict[str, Any]:
    return {"role": role, "content": list(parts)}


HEARD = [says("system", {"text": "You are the clerk."}), says("user", {"text": "How many seats?"})]


def office(tool: str = "tool.v2", state: str = "success") -> tuple[Span, ...]:
    after = [*HEARD, says("model", ASKS), says("tool", ANSWERS)]
    return (
        genkit(1, "flow", "office", None, "How many seats?", "It has 85.", end=900),
        genkit(2, "flow", "clerk", 1, "How many seats?", "It has 85.", end=800),
        genkit(3, "util", "generate", 2, {}, {}, end=700),
        model(4, 3, HEARD, ASKS),
        genkit(5, tool, "look_up", 3, {"name": "Ada"}, "85 seats", state=state),
        model(6, 3, after, {"text": "It has 85."}),
    )


def test_models_and_tools_are_steps_of_the_innermost_flow() -> None:
    for subtype in ("tool", "tool.v2"):
        trajectory = ordered(*office(subtype))
        assert outline(trajectory) == [("clerk", "llm"), ("clerk", "tool"), ("clerk", "llm")]
        assert (trajectory.task, trajectory.output) == ("How many seats?", "It has 85.")


def test_messages_are_read_with_their_calls_and_results() -> None:
    asking, tool, answering = ordered(*office()).steps
    assert asking.instructions == "You are the clerk."
    assert asking.output == 'call look_up({"name": "Ada"})'
    assert (tool.target, tool.input, tool.output) == ("look_up", '{"name": "Ada"}', "85 seats")
    assert answering.input == "tool: 85 seats"


def test_a_tools_state_says_that_it_failed() -> None:
    assert ordered(*office(state="error")).steps[1].status.value == "error"


def test_an_executable_prompt_is_an_agent() -> None:
    prompt = genkit(2, "executable-prompt", "purser", 1, {}, {}, end=800)
    flow = genkit(1, "flow", "office", None, "q", "a", end=900)
    assert outline(ordered(flow, prompt, model(3, 2, HEARD, {"text": "7"}))) == [("purser", "llm")]


def test_a_shape_that_is_not_genkits_gives_less_and_never_an_exception() -> None:
    values: list[Any] = ["", [], {"messages": 3}, {"messages": [3, {"content": "x"}]}, {"candidates": [None]}]
    for odd in values:
        ordered(genkit(1, "model", "m", None, odd, odd), genkit(2, "tool", "t", 1, odd, odd))
