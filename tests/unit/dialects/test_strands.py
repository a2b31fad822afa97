"""Strands' own spans: content in span events, in the older and the newer form, shown or hidden."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from semconv.model import ContentState, Event, Span, SpanStatus
from tests.factories import messages, ordered, outline, said, span

SCOPE = "strands.telemetry.tracer"
DETAILS = "gen_ai.client.inference.operation.details"
HIDDEN = "[REDACTED]"


def strands(number: int, operation: str, *events: Event, parent: int | None = 1, **attributes: Any) -> Span:
    named = {key.replace("__", "."): value for key, value in attributes.items()}
    named["gen_ai.operation.name"] = operation
    return span(number, name=operation, parent=parent, scope=SCOPE, attributes=named, events=events)


def agent(number: int, name: str, end: float, parent: int | None = 1) -> Span:
    made = strands(number, "invoke_agent", parent=parent, gen_ai__agent__name=name)
    return replace(made, end_ns=span(number, end=end).end_ns)


def heard(text: str) -> Event:
    return Event(name="gen_ai.user.message", attributes={"content": json.dumps([{"text": text}])})


def answered(text: str) -> Event:
    return Event(name="gen_ai.choice", attributes={"message": json.dumps([{"text": text}])})


def asked(tool: str, given: dict[str, Any]) -> Event:
    call = {"toolUse": {"name": tool, "input": given, "toolUseId": "a"}}
    return Event(name="gen_ai.choice", attributes={"message": json.dumps([call])})


def swarm(*more: Span) -> Sequence[Span]:
    """A swarm whose triage hands over to a clerk."""
    top = replace(strands(1, "invoke_swarm", heard("How many seats?"), parent=None), end_ns=span(99).end_ns)
    handoff = {"agent_name": "clerk", "message": "look it up"}
    given = Event(name="gen_ai.tool.message", attributes={"content": json.dumps(handoff)})
    return (
        top,
        agent(2, "triage", end=59),
        strands(3, "chat", heard("How many seats?"), asked("handoff_to_agent", handoff), parent=2),
        strands(4, "execute_tool", given, parent=2, gen_ai__tool__name="handoff_to_agent"),
        *more,
    )


def clerk(text: str) -> Sequence[Span]:
    return agent(6, "clerk", end=99), strands(7, "chat", heard(text), answered("200 seats"), parent=6)


CLOSING = strands(5, "chat", answered("I have handed you over."), parent=2)


@pytest.mark.parametrize("team", ["swarm", "graph"])
def test_a_team_is_no_agent_of_what_runs_below_it(team: str) -> None:
    top = strands(1, f"invoke_{team}", heard("How many seats?"), parent=None, gen_ai__agent__name=team)
    node = strands(2, "execute_tool", gen_ai__tool__name="look_up")
    called = strands(4, "chat", answered("200 seats"), parent=3)
    trajectory = ordered(replace(top, end_ns=span(99).end_ns), node, agent(3, "clerk", end=59), called)
    assert outline(trajectory) == [("unknown", "tool"), ("clerk", "llm")]


def test_words_after_a_handoff_that_nobody_hears_are_no_step() -> None:
    trajectory = ordered(*swarm(CLOSING, *clerk("How many seats?")))
    assert outline(trajectory) == [("triage", "llm"), ("triage", "handoff"), ("clerk", "llm")]
    assert trajectory.task == "How many seats?"
    assert trajectory.output == "200 seats"


def test_words_after_a_handoff_are_a_step_if_the_next_agent_is_told_them() -> None:
    trajectory = ordered(*swarm(CLOSING, *clerk("triage said: I have handed you over.")))
    assert outline(trajectory)[2] == ("triage", "llm")


def test_words_after_a_handoff_are_a_step_if_nobody_takes_over() -> None:
    assert outline(ordered(*swarm(CLOSING)))[-1] == ("triage", "llm")


def test_a_call_after_a_handoff_that_fails_or_asks_for_a_tool_is_a_step() -> None:
    failing = replace(CLOSING, status=SpanStatus.ERROR, status_message="HTTP 500")
    asking = strands(5, "chat", asked("look_up", {}), parent=2)
    for closing in (failing, asking):
        assert outline(ordered(*swarm(closing, *clerk("How many seats?"))))[2] == ("triage", "llm")


def details(time_ns: int, name: str, value: str) -> Event:
    return Event(name=DETAILS, time_ns=time_ns, attributes={name: value})


def test_newer_details_come_in_several_events() -> None:
    told = (
        details(1, "gen_ai.system_instructions", '[{"content": "Be brief."}]'),
        details(2, "gen_ai.input.messages", messages(said("user", "Why?"))),
        details(3, "gen_ai.output.messages", messages(said("assistant", "So."))),
    )
    (step,) = ordered(agent(1, "clerk", end=99, parent=None), strands(2, "chat", *told)).steps
    assert (step.agent, step.instructions) == ("clerk", "Be brief.")
    assert (step.input, step.output) == ("user: Why?", "So.")


def test_hidden_content_is_hidden_not_empty() -> None:
    spans = (
        agent(1, "clerk", end=99, parent=None),
        strands(2, "chat", Event(name=DETAILS, attributes={"gen_ai.output.messages": HIDDEN})),
        strands(3, "execute_tool", gen_ai__tool__name="look_up", gen_ai__tool__call__arguments=HIDDEN),
    )
    assert {step.content for step in ordered(*spans).steps} == {ContentState.REDACTED}


def test_an_older_tools_status_is_an_error() -> None:
    result = Event(name="gen_ai.choice", attributes={"message": '[{"text": "timed out"}]'})
    made = strands(2, "execute_tool", result, gen_ai__tool__name="look_up", tool__status="error")
    (step,) = ordered(agent(1, "clerk", end=99, parent=None), made).steps
    assert (step.status, step.error) == (SpanStatus.ERROR, "timed out")


def test_cycles_are_containers() -> None:
    cycle = replace(strands(2, "execute_event_loop_cycle", heard("x")), end_ns=span(1, end=99).end_ns)
    trajectory = ordered(
        agent(1, "clerk", end=99, parent=None), cycle, strands(3, "chat", answered("y"), parent=2)
    )
    assert outline(trajectory) == [("clerk", "llm")]
