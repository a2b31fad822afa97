"""A step's causes, and the tools that its agent could call, according to the spans."""

from __future__ import annotations

import json
from typing import Any

import pytest

from semconv.dialects.reading.tools import tools_in
from semconv.model import Link, Trajectory
from tests.factories import TRACE, agent, chat, ordered, said, span, span_id, tool, workflow

TRANSFER = ("transfer_to_writer", "{}", "c1")


def link(number: int) -> Link:
    return Link(trace_id=TRACE, span_id=span_id(number))


def causes(trajectory: Trajectory) -> list[tuple[int, ...]]:
    return [step.causes for step in trajectory.steps]


def test_a_tool_comes_from_the_call_that_asked_for_it() -> None:
    trajectory = ordered(
        agent(1, "boss", parent=None, end=900),
        chat(2, calls=[("search", "{}", "c1")]),
        chat(3, answer="meanwhile"),
        tool(4, "search", call_id="c1", result="found"),
        tool(5, "other", result="found"),
    )
    assert causes(trajectory) == [(), (), (0,), ()]


def test_a_tool_without_a_call_id_comes_from_its_agents_latest_call_for_it() -> None:
    trajectory = ordered(
        agent(1, "boss", parent=None, end=900),
        chat(2, calls=[("search", "{}", "")]),
        tool(3, "search", result="found"),
        chat(4, calls=[("search", "{}", "")]),
        tool(5, "search", result="found"),
    )
    assert causes(trajectory) == [(), (0,), (), (2,)]


def test_what_stands_after_the_steps_it_encloses_comes_from_them() -> None:
    trajectory = ordered(
        agent(1, "solver", parent=None, end=900),
        tool(2, "summarise", end=300, result="short"),
        chat(3, parent=2, answer="short"),
    )
    assert causes(trajectory) == [(), (0,)]


def test_a_handoff_without_a_span_comes_from_the_call_that_it_was_in() -> None:
    result = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "ok"}]}
    trajectory = ordered(
        workflow(),
        agent(2, "triage", end=40),
        chat(3, parent=2, calls=[TRANSFER]),
        agent(5, "writer", end=100),
        chat(6, parent=5, heard=[said("assistant", "", TRANSFER), result], answer="text"),
    )
    assert causes(trajectory)[1] == (0,)


def test_a_link_ties_a_step_to_the_step_it_leads_to() -> None:
    trajectory = ordered(workflow(), chat(2, answer="a"), chat(3, answer="b"), chat(4, links=[link(2)]))
    assert causes(trajectory) == [(), (), (0,)]


def test_a_containers_link_is_its_first_steps_and_leads_to_the_last_step_inside_the_other() -> None:
    trajectory = ordered(
        workflow(),
        agent(2, "one", end=50),
        chat(3, parent=2, answer="a"),
        chat(4, parent=2, answer="b"),
        agent(6, "two", end=100, links=[link(2), link(99)]),
        chat(7, parent=6, answer="c"),
        chat(8, parent=6, answer="d"),
    )
    assert causes(trajectory) == [(), (), (1,), ()]


LOOK = {"name": "look", "description": "looks it up", "parameters": "SCHEMA"}


@pytest.mark.parametrize(
    "definitions",
    [
        pytest.param([LOOK | {"type": "function", "description": "looks  it\nup"}], id="official"),
        pytest.param([{"function": LOOK}], id="nested"),
        pytest.param([{"function_declarations": [LOOK]}], id="grouped"),
    ],
)
def test_tools_are_read_however_they_are_nested(definitions: list[dict[str, Any]]) -> None:
    schema = json.dumps({"type": "object", "properties": {"where": {}, "what": {}}})
    written = json.dumps(definitions).replace('"SCHEMA"', schema)
    found = tools_in((("gen_ai.tool.definitions", written),))
    assert found == "look(where, what): looks it up"


def test_openinference_lists_tools_one_attribute_each() -> None:
    schemas = {n: json.dumps({"function": {"name": f"tool{n}"}}) for n in (0, 2)}
    tools = tuple((f"llm.tools.{n}.tool.json_schema", schema) for n, schema in schemas.items())
    assert tools_in(tools) == "tool0()\ntool2()"


@pytest.mark.parametrize("odd", ["[", "[1, null]", '[{"name": 7, "parameters": []}]', "[{}]", 5])
def test_odd_tool_definitions_give_less_and_never_fail(odd: Any) -> None:
    assert tools_in((("gen_ai.tool.definitions", odd),)) in {"", "7()"}


def test_a_step_carries_its_agents_tools() -> None:
    call = chat(2, answer="a")
    listed = {**call.attributes, "gen_ai.tool.definitions": json.dumps([{"name": "look"}])}
    asked = span(2, parent=1, name="chat model", attributes=listed)
    trajectory = ordered(agent(1, "boss", parent=None, end=900), asked)
    assert [step.tools for step in trajectory.steps] == ["look()"]


def test_tools_that_only_the_agents_span_lists_are_its_steps_too() -> None:
    listed = {"gen_ai.tool.definitions": json.dumps([{"name": "look"}])}
    trajectory = ordered(agent(1, "boss", parent=None, end=900, attributes=listed), chat(2, answer="a"))
    assert [step.tools for step in trajectory.steps] == ["look()"]
