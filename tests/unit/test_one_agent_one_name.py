"""One agent has one name: by equal instructions, by quoted calls; and a class's name is not one agent's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from semconv.model import Attributes, Span
from tests.factories import agent, chat, ordered, said, span, tool

PLAN = "You are the planner of a hotel. Find rooms."
BOOK = "You are the clerk of a hotel. Book rooms."
TEMPLATE = "Find rooms in Paris or Rome for the week of"
FIND = [("find_rooms", "{}", "c1")]


def call(number: int, instructions: str, *, name: str | None = None, **more: Any) -> Span:
    heard: Sequence[Any] = [said("system", instructions), said("user", "Un lit?"), *more.pop("heard", ())]
    more.setdefault("start", number * 10)
    more.setdefault("end", number * 10 + 4)
    return chat(number, parent=more.pop("parent", 1), heard=heard, agent_name=name, **more)


def run(*spans: Span) -> list[tuple[str, str]]:
    root = span(1, start=0, end=900, name="POST /ask")
    return [(step.kind.value, step.agent) for step in ordered(root, *spans).steps]


def test_a_nameless_call_with_an_agents_instructions_is_that_agents_and_so_are_its_tools() -> None:
    asking = call(2, PLAN, calls=FIND)
    spans = (asking, tool(3, "find_rooms", call_id="c1", result="3"), call(4, PLAN, answer="3", name="Ida"))
    assert run(*spans) == [("llm", "Ida"), ("tool", "Ida"), ("llm", "Ida")]


@pytest.mark.parametrize(
    "others",
    [
        pytest.param([call(4, BOOK, answer="3", name="Ida")], id="other instructions"),
        pytest.param(
            [call(4, PLAN, answer="3", name="Ida"), call(5, PLAN, answer="3", name="Jo")], id="two names"
        ),
    ],
)
def test_it_stays_nameless_where_the_instructions_are_no_one_agents(others: list[Span]) -> None:
    assert run(call(2, PLAN, answer="Oui."), *others)[0] == ("llm", "unknown")


def test_a_name_in_a_later_input_holds_for_the_call_that_it_quotes_by_id() -> None:
    quoted = said("assistant", "", *FIND, name="Ida")
    later = call(4, BOOK, answer="3", name="Jo", heard=[quoted])
    assert run(call(2, PLAN, calls=FIND), later) == [("llm", "Ida"), ("llm", "Jo")]
    other = call(4, BOOK, answer="3", name="Jo", heard=[said("assistant", "", ("find_rooms", "{}", "c9"))])
    assert run(call(2, PLAN, calls=FIND), other) == [("llm", "unknown"), ("llm", "Jo")]


def two_of(first: str, second: str, name: str = "RequirementAgent") -> list[tuple[str, str]]:
    return run(
        agent(2, name, start=1, end=60),
        call(3, first, parent=2, calls=FIND),
        tool(4, "find_rooms", parent=2, call_id="c1", result="3", start=40),
        agent(7, name, start=61, end=99),
        call(8, second, parent=7, answer="Booked."),
    )


def test_agents_named_by_their_class_are_told_apart_by_their_instructions() -> None:
    assert two_of(PLAN, BOOK) == [("llm", "planner"), ("tool", "planner"), ("llm", "clerk")]


@pytest.mark.parametrize(
    ("first", "second", "name"),
    [
        pytest.param(PLAN, BOOK, "rooms", id="a name of their author's"),
        pytest.param(PLAN, PLAN, "RequirementAgent", id="one agent twice"),
        pytest.param(PLAN, f"{PLAN} Today is Monday.", "RequirementAgent", id="one agent on another day"),
        pytest.param("Find rooms.", "Book a bed.", "TravelAgent", id="a name like a class's"),
        pytest.param(f"{TEMPLATE} 3 May.", f"{TEMPLATE} 9 June.", "RequirementAgent", id="a filled template"),
    ],
)
def test_other_agents_keep_their_name(first: str, second: str, name: str) -> None:
    assert {agent for _, agent in two_of(first, second, name)} == {name}


@pytest.mark.parametrize("name", ["RequirementAgent", "ToolLoopAgent", "ChatClientAgent"])
def test_agents_of_one_class_without_titles_are_numbered(name: str) -> None:
    found = two_of("Find rooms for the guest.", "Answer by confirming a booking.", name)
    assert found == [("llm", f"{name} 1"), ("tool", f"{name} 1"), ("llm", f"{name} 2")]


SMOLAGENTS = (
    "You are an expert assistant who can solve any task using tool calls. You will be given a task to solve"
    " as best you can. To do so, you have been given access to some tools. You have access to these only:"
)


@pytest.mark.parametrize(
    ("first", "second", "agents"),
    [
        (f"{SMOLAGENTS} - find_rooms", f"{SMOLAGENTS} - book", ["CodeAgent 1", "CodeAgent 2"]),
        (f"{SMOLAGENTS} - find_rooms", f"{SMOLAGENTS} - find_rooms", ["CodeAgent"]),
    ],
)
def test_smolagents_prompts_that_differ_in_tools_are_different_agents(
    first: str, second: str, agents: list[str]
) -> None:
    assert list(dict.fromkeys(who for _, who in two_of(first, second, "CodeAgent"))) == agents


def test_the_one_without_a_title_keeps_the_class_as_its_name() -> None:
    planner = [("llm", "planner"), ("tool", "planner")]
    assert two_of(PLAN, "Confirm bookings.") == [*planner, ("llm", "RequirementAgent")]


def test_an_agent_that_calls_with_two_prompts_is_one() -> None:
    summed = call(5, "Summarise what was said.", parent=2, answer="Three.", start=45, end=50)
    asking = call(3, "Find rooms for the guest.", parent=2, calls=FIND)
    assert {who for _, who in run(agent(2, "ReActAgent", start=1, end=60), asking, summed)} == {"ReActAgent"}


@pytest.mark.parametrize("named", ["ReActAgent.run", "invoke_agent ReActAgent", "ReActAgent.arun"])
def test_spans_of_no_known_dialect_are_told_apart_too(named: str) -> None:
    def inner(number: int, parent: int, prompt: str) -> Span:
        heard = [{"role": "system", "content": prompt}, {"role": "user", "content": "Un lit?"}]
        given: dict[str, Any] = {"acme.request.messages": json.dumps(heard), "acme.response.text": "Oui."}
        given |= {"acme.usage.input_tokens": 9, "acme.usage.output_tokens": 2}
        at = number * 10
        return span(number, parent=parent, start=at, end=at + 4, name="llm", attributes=given)

    def outer(number: int, start: int) -> Span:
        return span(number, parent=1, start=start, end=start + 18, name=named)

    spans = (outer(2, 20), inner(3, 2, "Find rooms."), outer(4, 40), inner(5, 4, "Confirm a booking."))
    assert [who for _, who in run(*spans)] == ["ReActAgent 1", "ReActAgent 2"]


def unread(attributes: Attributes, *, start: float = 30, end: float = 35) -> Span:
    return span(3, parent=1, start=start, end=end, name="hotel.lookup", attributes=attributes)


@pytest.mark.parametrize(
    "attributes",
    [
        pytest.param({"gen_ai.tool.name": "find_rooms", "gen_ai.tool.call.id": "c1"}, id="no operation"),
        pytest.param({"acme.toolCallId": "c1"}, id="another dialect"),
    ],
)
def test_a_span_that_executes_a_requested_call_is_a_tool_whatever_its_dialect(attributes: Attributes) -> None:
    made = unread(attributes)
    root = span(1, start=0, end=900, name="POST /ask")
    steps = ordered(root, call(2, PLAN, calls=FIND, name="Ida"), made, call(4, PLAN, answer="3")).steps
    assert [(step.kind.value, step.target) for step in steps][1] == ("tool", "find_rooms")
    assert steps[1].agent == "Ida"


def test_its_result_is_read_from_it() -> None:
    made = unread({"acme.call_id": "c1", "acme.result": "trois"})
    root = span(1, start=0, end=900, name="POST /ask")
    assert ordered(root, call(2, PLAN, calls=FIND), made).steps[1].output == "trois"


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(unread({"acme.call_id": "c2"}), id="an id that nobody requested"),
        pytest.param(unread({"acme.room": "c1"}), id="the same value under another key"),
        pytest.param(unread({"acme.call_id": "c1"}, start=1, end=2), id="before the request"),
    ],
)
def test_other_spans_are_none(made: Span) -> None:
    assert run(call(2, PLAN, calls=FIND, name="Ida"), made) == [("llm", "Ida")]


def test_a_second_span_with_the_same_id_is_no_second_tool() -> None:
    inner = span(6, parent=3, start=31, end=34, name="attempt", attributes={"acme.call_id": "c1"})
    kinds = [kind for kind, _ in run(call(2, PLAN, calls=FIND), unread({"acme.call_id": "c1"}), inner)]
    assert kinds == ["llm", "tool"]
