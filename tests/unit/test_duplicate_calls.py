"""One model call that two instrumentations record as siblings."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from semconv.model import Span
from tests.factories import ordered, outline, said, span

CLERK = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "clerk"}
AGENT = span(1, name="invoke_agent clerk", start=0, end=100, attributes=CLERK)


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


@pytest.mark.parametrize(
    ("first", "second", "count"),
    [
        pytest.param(call(2, "wrapper", 10, 20, "85"), call(3, "client", 11, 19, "85"), 1, id="one answer"),
        pytest.param(call(2, "wrapper", 10, 20, "85"), call(3, "client", 11, 19, "40"), 2, id="two answers"),
        pytest.param(call(2, "client", 10, 20, "85"), call(3, "client", 11, 19), 2, id="one instrumentation"),
        pytest.param(
            call(2, "wrapper", 10, 90), call(3, "client", 20, 30), 2, id="a short one in a long one"
        ),
        pytest.param(call(2, "wrapper", 10, 20), call(3, "client", 11, 22), 2, id="one outlasts the other"),
    ],
)
def test_calls_side_by_side_are_one_only_if_they_may_be(first: Span, second: Span, count: int) -> None:
    assert outline(ordered(AGENT, first, second)) == [("clerk", "llm")] * count


def test_a_call_around_tools_that_its_answer_does_not_ask_for_closes_them() -> None:
    """Google's client calls functions itself: one span for all calls, with the last one's answer."""
    named = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look_up"}
    used = span(3, parent=2, start=20, end=30, attributes=named)
    steps = ordered(AGENT, call(2, "client", 10, 50, "85"), used)
    assert outline(steps) == [("clerk", "tool"), ("clerk", "llm")]


def response(name: str, call: Span, parent: int = 1) -> Span:
    of = span(parent).span_id
    return replace(call, parent_id=of, attributes={**call.attributes, "gen_ai.response.id": name})


GRAPH = span(9, name="graph", parent=1, start=5, end=95)


AT_ONCE = {
    "under another parent, and it ends later": (
        [response("r", call(2, "client", 10, 20, "85")), response("r", call(3, "callback", 11, 24), 9)],
        ["85"],
    ),
    "of one instrumentation that was set up twice": (
        [response("r", call(2, "client", 10, 20)), response("r", call(3, "client", 11, 19, "85"))],
        ["85"],
    ),
    "three": (
        [response("r", one) for one in (call(2, "a", 10, 20), call(3, "b", 11, 21))]
        + [response("r", call(4, "c", 12, 19, "85"), 9)],
        ["85"],
    ),
    "a cached response is a call of its own": (
        [response("r", call(2, "client", 10, 20, "85")), response("r", call(3, "client", 30, 31, "85"))],
        ["85", "85"],
    ),
    "two responses at a time": (
        [response("r", call(2, "client", 10, 20, "85")), response("s", call(3, "client", 10, 20, "40"))],
        ["85", "40"],
    ),
}


@pytest.mark.parametrize(("spans", "outputs"), AT_ONCE.values(), ids=AT_ONCE)
def test_spans_with_one_response_at_one_time_are_one_step(spans: list[Span], outputs: list[str]) -> None:
    assert [step.output for step in ordered(AGENT, GRAPH, *spans).steps] == outputs
