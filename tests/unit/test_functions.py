"""Functions traced by hand: which of them are agents, and which are the tools that a model requested."""

from __future__ import annotations

from typing import Any

import pytest

from collector_processor.trajectory.functions import function_name
from semconv.model import AgentSource, Span
from semconv.record import replace
from tests.factories import agent, chat, ordered, outline, said, span, tool


def function(number: int, name: str, parent: int | None, **more: Any) -> Span:
    return span(number, name=name, parent=parent, scope="ferry", **more)


def told(number: int, who: str, parent: int, **more: Any) -> Span:
    heard = [said("system", f"You are the {who}."), said("user", "q")]
    return chat(number, parent=parent, heard=heard, **more)


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("purser", "purser"),
        ("Calling office.build.<locals>.purser", "purser"),
        ("Calling office.Purser.run", "Purser"),
        ("office.purser.call_model", "purser"),
        ("Research Agent", "Research Agent"),
        ("call_model", ""),
        ("ask_llm", ""),
        ("run", ""),
        ("Chat Completion with {model!r}", ""),
        ("GET /chat", ""),
    ],
)
def test_a_function_is_known_by_its_own_name(name: str, own: str) -> None:
    assert function_name(name) == own


def office(*more: Span) -> tuple[Span, ...]:
    """An orchestrator with its own call, and two agents inside."""
    return (
        function(1, "answer_question", None, end=900),
        function(2, "concierge", 1, end=800),
        told(3, "concierge", 2),
        function(4, "registrar", 2, end=300),
        function(20, "purser", 2, end=400),
        *more,
    )


def test_the_agent_is_the_function_that_makes_the_call_and_not_the_outermost() -> None:
    trajectory = ordered(*office(told(5, "registrar", 4), told(21, "purser", 20)))
    assert outline(trajectory) == [("concierge", "llm"), ("registrar", "llm"), ("purser", "llm")]
    assert {step.agent_source for step in trajectory.steps} == {AgentSource.SPAN_NAME}


def test_helpers_that_every_call_goes_through_are_no_agents() -> None:
    for helper in ("call_model", "with_budget"):
        helped = [function(6, helper, 4, end=200), told(7, "registrar", 6)]
        helped += [function(22, helper, 20, end=300), told(23, "purser", 22)]
        trajectory = ordered(*office(*helped))
        assert outline(trajectory) == [("concierge", "llm"), ("registrar", "llm"), ("purser", "llm")], helper


def test_functions_whose_calls_share_their_instructions_are_parts_of_one_agent() -> None:
    parts = [function(6, "plan_route", 4), told(7, "registrar", 6), function(8, "find_dates", 4)]
    trajectory = ordered(*office(*parts, told(9, "registrar", 8), told(21, "purser", 20)))
    assert [who for who, _ in outline(trajectory)] == ["concierge", "registrar", "registrar", "purser"]


def test_without_instructions_the_innermost_function_counts() -> None:
    trajectory = ordered(*office(chat(5, parent=4), chat(21, parent=20)))
    assert [who for who, _ in outline(trajectory)][1:] == ["registrar", "purser"]


def test_the_runs_own_function_is_the_agent_only_of_what_it_calls_itself() -> None:
    alone = ordered(function(1, "concierge", None, end=90), chat(2, parent=1))
    assert outline(alone) == [("concierge", "llm")]
    assert outline(ordered(function(1, "office", None, end=90), tool(2, "look_up"))) == [("unknown", "tool")]


def test_what_is_no_users_function_names_nobody() -> None:
    for around in (
        span(1, name="purser", kind=2, end=90),  # a server's
        span(1, name="purser", scope="opentelemetry.instrumentation.asgi", end=90),
        span(1, name="GET /purser", end=90),
    ):
        assert outline(ordered(around, chat(2, parent=1))) == [("unknown", "llm")]


def test_a_named_agent_is_never_renamed_after_a_function() -> None:
    spans = [function(1, "office", None, end=90), agent(2, "clerk", end=80), function(3, "plan", 2, end=70)]
    assert outline(ordered(*spans, chat(4, parent=3))) == [("clerk", "llm")]


ASKS = ("look_up", '{"name": "Ada"}', "c1")
ANSWERED = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "result": "85 seats"}]}


def requested(plain: Span, *more: Span) -> tuple[Span, ...]:
    """An agent that requests a tool; ``plain`` runs before it receives the result."""
    heard = [said("user", "q"), said("assistant", "", ASKS), ANSWERED]
    return (
        function(1, "clerk", None, end=900),
        chat(2, parent=1, heard=heard[:1], calls=[ASKS]),
        plain,
        chat(30, parent=1, heard=heard, answer="85"),
        *more,
    )


def test_a_plain_span_named_like_a_requested_tool_is_the_tool() -> None:
    for name in ("look_up", "Calling tools.look_up", "tool look_up"):
        trajectory = ordered(*requested(function(5, name, 1)))
        assert outline(trajectory) == [("clerk", "llm"), ("clerk", "tool"), ("clerk", "llm")], name
        step = trajectory.steps[1]
        assert (step.target, step.input, step.output) == ("look_up", '{"name": "Ada"}', "85 seats")
        assert step.causes == (0,)


def test_a_plain_tool_that_raised_has_failed() -> None:
    step = ordered(*requested(function(5, "look_up", 1, error="no register"))).steps[1]
    assert (step.status.value, step.error) == ("error", "no register")


@pytest.mark.parametrize(
    "plain",
    [
        pytest.param(function(5, "look_up_all", 1), id="another name"),
        pytest.param(function(5, "look_up", 1, start=1), id="before the request"),
        pytest.param(span(5, name="execute_tool", parent=1, attributes={"x": 1}), id="no tool's name"),
    ],
)
def test_other_plain_spans_are_no_tools(plain: Span) -> None:
    assert [kind for _, kind in outline(ordered(*requested(plain)))] == ["llm", "llm"]


def test_a_plain_span_around_a_model_call_or_beside_the_tools_own_span_is_no_tool() -> None:
    around = ordered(*requested(function(5, "look_up", 1, end=90), chat(6, parent=5)))
    assert [kind for _, kind in outline(around)] == ["llm", "llm", "llm"]
    shown = ordered(*requested(function(5, "look_up", 1, end=90), tool(6, "look_up", parent=5)))
    assert [kind for _, kind in outline(shown)] == ["llm", "tool", "llm"]


def test_two_calls_of_one_tool_have_a_plain_span_each() -> None:
    again = ("look_up", '{"name": "Bob"}', "c2")
    spans = [
        function(1, "clerk", None, end=900),
        chat(2, parent=1, calls=[ASKS, again]),
        function(5, "look_up", 1),
        function(6, "look_up", 1),
        function(7, "look_up", 1),
    ]
    assert [step.input for step in ordered(*spans).steps[1:]] == [ASKS[1], again[1], again[1]]


def led(*more: Span, **lead: Any) -> tuple[Span, ...]:
    """An agent without a name, whose tool runs one with a name."""
    return (
        chat(2, parent=None, calls=[("ask_clerk", "{}", "c9")], **lead),
        tool(3, "ask_clerk", parent=None, call_id="c9", end=90),
        agent(4, "clerk", parent=3, end=80),
        chat(5, parent=4),
        chat(40, parent=None, answer="Done.", **lead),
        *more,
    )


def test_an_agent_without_a_name_that_others_work_for_gets_one_of_ours() -> None:
    trajectory = ordered(*led())
    assert outline(trajectory) == [("lead-agent", "llm"), ("clerk", "llm"), ("lead-agent", "llm")]
    assert trajectory.steps[0].agent_source is AgentSource.UNKNOWN


@pytest.mark.parametrize(
    ("kind", "caller", "name"),
    [
        ("agent", "purser", "purser"),
        ("workflow", "night-shift", "lead-agent"),
        (None, "Ann Smith", "lead-agent"),
        ("agent", "clerk", "lead-agent"),
    ],
)
def test_an_agent_without_a_name_has_the_one_that_it_invokes_others_by(
    kind: str | None, caller: str, name: str
) -> None:
    """Without a type it may be a person: Microsoft's Agent 365 writes users there."""
    said_by = {"gen_ai.caller.name": caller, **({"gen_ai.caller.type": kind} if kind else {})}
    spans = [
        replace(each, attributes={**each.attributes, **said_by})
        if each.name == "invoke_agent clerk"
        else each
        for each in led()
    ]
    assert [who for who, _ in outline(ordered(*spans))] == [name, "clerk", name]


def test_several_agents_without_a_name_stay_unknown() -> None:
    other = told(60, "purser", 1)
    spans = [
        replace(each, parent_id=None) for each in led(other, heard=[said("system", "You are the chief.")])
    ]
    spans[2:4] = led()[2:4]
    assert {who for who, _ in outline(ordered(*spans))} == {"unknown", "clerk"}


def test_calls_beside_named_agents_have_no_lead() -> None:
    beside = ordered(chat(1, parent=None), agent(2, "clerk", parent=None, end=90), chat(3, parent=2))
    assert outline(beside) == [("unknown", "llm"), ("clerk", "llm")]
