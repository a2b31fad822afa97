"""One model call that two instrumentations record as siblings."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from semconv.model import Span
from tests.factories import ordered, outline, said, span

AGENT = span(
    1,
    name="invoke_agent clerk",
    start=0,
    end=100,
    attributes={"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "clerk"},
)


def call(number: int, scope: str, start: float, end: float, answer: str = "") -> Span:
    attributes = {"gen_ai.operation.name": "chat"}
    if answer:
        attributes["gen_ai.output.messages"] = json.dumps([said("assistant", answer)])
    return span(number, parent=1, name="chat", scope=scope, start=start, end=end, attributes=attributes)


def test_two_spans_of_one_call_are_one_step_that_tells_what_either_does() -> None:
    steps = ordered(
        AGENT,
        call(2, "wrapper", 10, 20),
        call(3, "client", 11, 19, "85"),
        call(4, "wrapper", 30, 40, "It has 85."),
        call(5, "client", 31, 39),
    )
    assert outline(steps) == [("clerk", "llm"), ("clerk", "llm")]
    assert [step.output for step in steps.steps] == ["85", "It has 85."]


def test_the_same_answer_twice_is_one_call() -> None:
    steps = ordered(AGENT, call(2, "wrapper", 10, 20, "85"), call(3, "client", 11, 19, "85"))
    assert outline(steps) == [("clerk", "llm")]


def test_calls_side_by_side_that_answer_differently_are_two() -> None:
    steps = ordered(AGENT, call(2, "wrapper", 10, 20, "85"), call(3, "client", 11, 19, "40"))
    assert outline(steps) == [("clerk", "llm"), ("clerk", "llm")]


def test_calls_of_one_instrumentation_side_by_side_are_two() -> None:
    steps = ordered(AGENT, call(2, "client", 10, 20, "85"), call(3, "client", 11, 19))
    assert outline(steps) == [("clerk", "llm"), ("clerk", "llm")]


def test_a_short_call_during_a_long_one_is_another() -> None:
    steps = ordered(AGENT, call(2, "wrapper", 10, 90), call(3, "client", 20, 30))
    assert outline(steps) == [("clerk", "llm"), ("clerk", "llm")]


def test_a_call_that_outlasts_another_is_another() -> None:
    steps = ordered(AGENT, call(2, "wrapper", 10, 20), call(3, "client", 11, 22))
    assert outline(steps) == [("clerk", "llm"), ("clerk", "llm")]


def test_a_call_around_tools_that_its_answer_does_not_ask_for_closes_them() -> None:
    """Google's client calls functions itself: one span for all calls, with the last one's answer."""
    named = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look_up"}
    steps = ordered(
        AGENT, call(2, "client", 10, 50, "85"), span(3, parent=2, start=20, end=30, attributes=named)
    )
    assert outline(steps) == [("clerk", "tool"), ("clerk", "llm")]


def response(name: str, call: Span, parent: int = 1) -> Span:
    of = span(parent).span_id
    return replace(call, parent_id=of, attributes={**call.attributes, "gen_ai.response.id": name})


GRAPH = span(9, name="graph", parent=1, start=5, end=95)


@pytest.mark.parametrize(
    ("spans", "outputs"),
    [
        pytest.param(
            [response("r", call(2, "client", 10, 20, "85")), response("r", call(3, "callback", 11, 24), 9)],
            ["85"],
            id="under another parent, and it ends later",
        ),
        pytest.param(
            [response("r", call(2, "client", 10, 20)), response("r", call(3, "client", 11, 19, "85"))],
            ["85"],
            id="of one instrumentation that was set up twice",
        ),
        pytest.param(
            [
                response("r", call(2, "a", 10, 20)),
                response("r", call(3, "b", 11, 21)),
                response("r", call(4, "c", 12, 19, "85"), 9),
            ],
            ["85"],
            id="three",
        ),
        pytest.param(
            [response("r", call(2, "client", 10, 20, "85")), response("r", call(3, "client", 30, 31, "85"))],
            ["85", "85"],
            id="a cached response is a call of its own",
        ),
        pytest.param(
            [response("r", call(2, "client", 10, 20, "85")), response("s", call(3, "client", 10, 20, "40"))],
            ["85", "40"],
            id="two responses at a time",
        ),
    ],
)
def test_spans_with_one_response_at_one_time_are_one_step(spans: list[Span], outputs: list[str]) -> None:
    assert [step.output for step in ordered(AGENT, GRAPH, *spans).steps] == outputs
