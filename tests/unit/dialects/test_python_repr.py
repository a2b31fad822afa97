"""Python's notation in texts is parsed within bounds, never executed."""

from __future__ import annotations

import pytest

from semconv.dialects.reading.python_repr import from_repr, message_fields, object_in


def test_a_dictionary_is_read() -> None:
    assert from_repr("{'name': 'Falcon', 'n': 2, 'on': True}") == {"name": "Falcon", "n": 2, "on": True}


def test_an_object_is_its_fields() -> None:
    text = "ResponseFunctionToolCall(arguments='{\"a\": 1}', call_id='c1', name='look_up', status=None)"
    assert object_in(text) == {"arguments": '{"a": 1}', "call_id": "c1", "name": "look_up", "status": None}


def test_objects_inside_objects_are_read_too() -> None:
    text = "ResponseOutputMessage(id='m', content=[ResponseOutputText(text='hi', type='output_text')])"
    assert object_in(text)["content"] == [{"text": "hi", "type": "output_text"}]


@pytest.mark.parametrize(
    "hostile",
    [
        pytest.param("(" * 50_000, id="brackets"),
        pytest.param("[" * 50_000 + "]" * 50_000, id="nested"),
        pytest.param("[" + "-" * 60_000 + "1]", id="signs"),
        pytest.param("[" + "1+" * 60_000 + "1]", id="sums"),
        pytest.param("{" + "0:" * 9 + "}", id="no python"),
        pytest.param("['\\d']", id="an escape that repr never writes"),
        pytest.param("[__import__('os').system('false')]", id="a call"),
        pytest.param("[1" + "0" * 5000 + "]", id="a number of thousands of digits"),
        pytest.param("['\x00']", id="a null"),
        pytest.param("[" + "1," * 200_000 + "]", id="long"),
        pytest.param("{[]: 1}", id="a key that cannot be one"),
    ],
)
def test_what_is_hostile_stays_the_text_it_is(hostile: str) -> None:
    assert from_repr(hostile) == hostile
    assert object_in(f"Item(a={hostile})") in ({}, {"a": None}, {"a": [None]})


def test_langchains_message_is_read_from_its_text() -> None:
    text = "content='It\\'s 3' additional_kwargs={} response_metadata={} name='writer' id='x' tool_calls=[]"
    assert message_fields(text) == {
        "role": "assistant",
        "content": "It's 3",
        "name": "writer",
        "tool_calls": [],
    }


def test_a_tools_message_keeps_its_status() -> None:
    found = message_fields("content=\"Error: 'x'\" name='look_up' tool_call_id='c1' status='error'")
    assert found is not None
    assert (found["role"], found["content"], found["status"]) == ("tool", "Error: 'x'", "error")


@pytest.mark.parametrize(
    "text", ["content=", "content='a", "content='a' b", "content=[1] name='x'", "say content='a' id='b'"]
)
def test_other_text_is_no_message(text: str) -> None:
    assert message_fields(text) is None
