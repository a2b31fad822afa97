"""Messages shown as the ``repr`` of an object, in place of bodies that flattened attributes lack."""

from __future__ import annotations

import json

import pytest

from semconv.dialects.reading.action import Message
from semconv.dialects.reading.python_repr import message_in, with_bodies

CALL = "ToolCall(tool_name='chercher', arguments={'ville': 'Brest'}, id='c1', extra=None)"
ASKED = f"ChatMessage(_role=<ChatRole.ASSISTANT: 'assistant'>, _content=[{CALL}], _name=None, _meta={{}})"
TOLD = (
    "ChatMessage(_role=<ChatRole.TOOL: 'tool'>, _content=[ToolCallResult(result='pluie, <12> mm', origin="
    f"{CALL}, error=False)], _name=None, _meta={{}})"
)
HOLLOW = (Message(role="assistant"), Message(role="tool"))


def given(*shown: str) -> str:
    return json.dumps({"messages": shown})


def test_a_request_and_its_result_are_read() -> None:
    asked, told = with_bodies(HOLLOW, given(ASKED, TOLD))
    assert [(call.name, json.loads(call.arguments), call.call_id) for call in asked.calls] == [
        ("chercher", {"ville": "Brest"}, "c1")
    ]
    assert (told.text, told.answers) == ("pluie, <12> mm", ("c1",))


def test_a_message_that_has_a_body_keeps_it() -> None:
    own = Message(role="tool", text="soleil")
    assert with_bodies((HOLLOW[0], own), given(ASKED, TOLD))[1] == own


@pytest.mark.parametrize(
    "other",
    [given(ASKED), given(TOLD, ASKED), given("Bonjour", "Salut"), "", "[1, 2]", '{"messages": 3}'],
)
def test_nothing_is_taken_from_a_list_that_does_not_match(other: str) -> None:
    assert with_bodies(HOLLOW, other) == HOLLOW


@pytest.mark.parametrize(
    "shown",
    [
        "ChatMessage(_role=<ChatRole.TOOL: 'tool'>, _content=3)",
        "ChatMessage(_role=1, _content=[])",
        "Place(name='<ChatRole.TOOL: 1>')",
        "ChatMessage(" * 5000,
        "<" * 100_000,
    ],
)
def test_other_objects_are_no_messages(shown: str) -> None:
    assert message_in(shown) is None
