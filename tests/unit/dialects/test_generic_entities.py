"""Runs that no dialect reads: entities as indexed pairs, keys about other agents, messages keyed by role."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from collector_processor.rebuild.repair import repair
from collector_processor.trajectory import order
from semconv.dialects.generic.clues import clues_of
from semconv.dialects.generic.shapes import conversation
from semconv.dialects.generic.speakers import bare_name
from semconv.model import Attributes, Span, Trace, Trajectory
from tests.factories import span

QUESTION = "Wie viele Betten sind auf Station 3 frei?"


def call(number: int, parent: int, start: int, said: str, **more: Any) -> Span:
    attributes: Attributes = {
        "span.type": "inference",
        "ask.input": json.dumps([{"system": "Antworte knapp."}, {"human": QUESTION}]),
        "ask.output": json.dumps({"ai": said}),
        "usage.input_tokens": 20,
        "usage.output_tokens": 3,
        **more,
    }
    return span(number, parent=parent, start=start, end=start + 4, name="invoke", attributes=attributes)


def run(first: str = "agent.team", **root: Any) -> Trajectory:
    """Two agents one after the other, each described as the first entity of its span."""

    def agent(number: int, start: int, name: str) -> Span:
        described = {"entity.1.type": first, "entity.1.name": name}
        return span(number, parent=1, start=start, end=start + 9, name="invoke", attributes=described)

    spans = (
        span(1, start=0, end=60, name="turn", attributes={"span.type": "turn", **root}),
        agent(2, 1, "pflege"),
        call(3, 2, 2, "Ich frage nach."),
        agent(4, 20, "verwaltung"),
        call(5, 4, 21, "Vier Betten."),
    )
    return order(repair(Trace(spans=spans)))


def test_an_entity_whose_type_is_an_agent_names_the_agent() -> None:
    assert [step.agent for step in run().steps] == ["pflege", "verwaltung"]


@pytest.mark.parametrize("kind", ["model.llm", "database", "user"])
def test_an_entity_of_another_type_names_none(kind: str) -> None:
    assert not {"pflege", "verwaltung"} & {name for name, _ in clues_of(described(kind)).agents}


def described(kind: str) -> Span:
    return span(1, attributes={"entity.1.type": kind, "entity.1.name": "pflege", "entity.2.type": "host"})


def test_an_entity_whose_type_is_a_tool_names_the_tool() -> None:
    assert clues_of(described("tool.function")).tools == ["pflege"]
    assert clues_of(described("agent.function")).tools == []


def test_messages_and_tool_calls_in_a_list_are_no_entities() -> None:
    listed = {"out.0.type": "tool", "out.0.name": "count", "out.0.content": "4"}
    assert clues_of(span(1, attributes=listed)).tools == []


@pytest.mark.parametrize("key", ["acme.last.agent.name", "acme.previous_agent", "next.agent.name"])
def test_a_key_about_the_last_agent_names_nobody_below(key: str) -> None:
    assert [step.agent for step in run(**{key: "verwaltung"}).steps] == ["pflege", "verwaltung"]
    assert clues_of(span(1, attributes={key: "verwaltung"})).agents == []
    assert clues_of(span(1, attributes={"acme.agent.name": "verwaltung"})).agents != []


def test_messages_keyed_by_their_roles_are_read() -> None:
    asked = {"name": "count_beds", "args": {"ward": 3}, "id": "c1", "type": "tool_call"}
    said = conversation(json.dumps({"ai": asked}), "assistant")
    assert [(message.role, message.calls[0].name) for message in said] == [("assistant", "count_beds")]
    heard = conversation([json.dumps({"system": "Kurz."}), json.dumps({"human": QUESTION})])
    assert [(message.role, message.text) for message in heard] == [("system", "Kurz."), ("user", QUESTION)]


@pytest.mark.parametrize(
    "value",
    [
        {"ai": True, "beds": 4},
        {"system": "heating"},
        [{"system": "heating"}, {"valve": "3"}],
        [{"tool": 4}, 4],
    ],
)
def test_an_object_that_only_has_such_a_key_is_no_message(value: Any) -> None:
    assert conversation(value, "assistant") == ()


@pytest.mark.parametrize("value", [{"ai": None}, {"ai": []}, {"ai": {"ai": {"ai": "x"}}}, [{"tool": {}}]])
def test_nothing_in_such_a_message_raises(value: Mapping[str, Any]) -> None:
    conversation(value, "assistant")


def test_a_tool_that_a_model_call_lists_is_what_it_asked_for_beside_its_words() -> None:
    described = {"entity.1.type": "inference.x", "entity.2.type": "tool.function", "entity.2.name": "count"}
    (said,) = clues_of(call(3, 2, 2, "Ich zähle.", **described)).output_messages
    assert (said.text, [each.name for each in said.calls]) == ("Ich zähle.", ["count"])
    (said,) = clues_of(call(3, 2, 2, "Ich zähle.")).output_messages
    assert said.calls == ()


def test_an_entity_names_a_tool_whose_span_is_called_after_a_constructor() -> None:
    described = {"span.type": "tool", "entity.1.type": "tool.function", "entity.1.name": "count"}
    spans = (
        span(1, start=0, end=60, name="turn"),
        call(2, 1, 1, "Ich zähle."),
        span(3, parent=1, start=10, end=12, name="agents.tool.FunctionTool.__init__", attributes=described),
    )
    assert [step.target for step in order(repair(Trace(spans=spans))).steps] == [None, "count"]


@pytest.mark.parametrize("name", ["'koch'", '"koch"', "`koch`", "“koch”", "«koch»", "agent 'koch'"])
def test_quotes_around_a_name_are_not_part_of_it(name: str) -> None:
    assert bare_name(name) == "koch"
    assert bare_name("l'agent du port") == "l'agent du port"
