"""Messages of all frameworks are read into the same form."""

from __future__ import annotations

import json
from typing import Any

import pytest

from semconv.dialects.reading.messages import (
    body_of,
    last_answer,
    last_request,
    message_of,
    messages_of,
    render,
)
from semconv.dialects.reading.payloads import asked

HELLO = ("user", "hello", ())
CALL = ("assistant", "", ("search",))
RESULT = ("tool", "found", ())


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(
            {"role": "user", "parts": [{"type": "text", "content": "hello"}]}, HELLO, id="opentelemetry"
        ),
        pytest.param({"role": "user", "content": "hello"}, HELLO, id="openai"),
        pytest.param(
            {"role": "user", "content": [{"type": "input_text", "text": "hello"}]}, HELLO, id="responses"
        ),
        pytest.param({"role": "user", "content": [{"text": "hello"}]}, HELLO, id="bedrock"),
        pytest.param({"role": "user", "parts": [{"text": "hello"}]}, HELLO, id="gemini"),
        pytest.param(
            {"type": "human", "data": {"content": "hello", "type": "human"}}, HELLO, id="langchain state"
        ),
        pytest.param(
            {"lc": 1, "kwargs": {"content": "hello", "type": "human"}}, HELLO, id="langchain constructor"
        ),
        pytest.param({"source": "user", "content": "hello", "type": "TextMessage"}, HELLO, id="autogen"),
        pytest.param(json.dumps({"role": "user", "content": "hello"}), HELLO, id="as json"),
        pytest.param(
            {
                "role": "assistant",
                "parts": [{"type": "tool_call", "name": "search", "arguments": {}, "id": "1"}],
            },
            CALL,
            id="opentelemetry call",
        ),
        pytest.param(
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "1", "function": {"name": "search"}}],
            },
            CALL,
            id="openai call",
        ),
        pytest.param({"type": "function_call", "name": "search", "call_id": "1"}, CALL, id="responses call"),
        pytest.param(
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hello"}], "content": []},
            ("reasoning", "hello", ()),
            id="responses reasoning",
        ),
        pytest.param(
            {"role": "assistant", "content": [{"type": "tool_use", "name": "search"}]},
            CALL,
            id="anthropic call",
        ),
        pytest.param(
            {"role": "assistant", "content": [{"toolUse": {"name": "search"}}]}, CALL, id="bedrock call"
        ),
        pytest.param(
            {"role": "model", "parts": [{"functionCall": {"name": "search"}}]}, CALL, id="gemini call"
        ),
        pytest.param(
            {"source": "a", "content": [{"id": "1", "name": "search", "arguments": ""}]},
            CALL,
            id="autogen call",
        ),
        pytest.param(
            {"role": "tool", "parts": [{"type": "tool_call_response", "response": "found"}]},
            RESULT,
            id="otel result",
        ),
        pytest.param({"role": "tool", "tool_call_id": "1", "content": "found"}, RESULT, id="openai result"),
        pytest.param({"type": "function_call_output", "output": "found"}, RESULT, id="responses result"),
        pytest.param(
            {"role": "user", "content": [{"toolResult": {"content": [{"text": "found"}]}}]},
            RESULT,
            id="bedrock result",
        ),
        pytest.param(
            {"type": "tool", "data": {"content": "found", "type": "tool"}}, RESULT, id="langchain result"
        ),
        pytest.param(
            {"source": "a", "content": [{"call_id": "1", "content": "found", "is_error": True}]},
            RESULT,
            id="autogen result",
        ),
    ],
)
def test_a_message_is_read(value: Any, expected: tuple[str, str, tuple[str, ...]]) -> None:
    message = message_of(value)
    assert message is not None
    assert (message.role, message.text, tuple(call.name for call in message.calls)) == expected


@pytest.mark.parametrize(
    "odd",
    [
        None,
        7,
        True,
        "",
        "plain",
        b"raw",
        [],
        {},
        [[]],
        {"role": 3},
        {"parts": 5},
        {"content": {"a": 1}},
        "[{",
        '{"role":',
    ],
)
def test_odd_values_never_raise(odd: Any) -> None:
    assert isinstance(messages_of(odd), tuple)
    assert isinstance(render(messages_of(odd))[0], str)


def test_images_are_named_and_not_dumped() -> None:
    message = message_of(
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:" + "x" * 99}}]}
    )
    assert message is not None
    assert message.text == "[image_url]"


def test_a_tools_json_result_is_not_taken_for_parts() -> None:
    rows = json.dumps([{"type": "event", "id": 1}, {"type": "event", "id": 2}])
    message = message_of({"role": "tool", "content": rows})
    assert message is not None
    assert message.text == rows


def test_deeply_nested_json_is_taken_as_text() -> None:
    deep = "[" * 100_000
    assert messages_of(deep) == ()


def test_the_request_is_the_first_words_of_the_last_turn() -> None:
    conversation = [
        {"role": "user", "content": "first question"},
        {"role": "assistant", "content": "answer"},
        {"role": "user", "content": "second question"},
        {"role": "user", "content": "context: nothing"},
        {"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]},
        {"role": "tool", "content": "r"},
    ]
    assert last_request(messages_of(conversation)) == "second question"


@pytest.mark.parametrize("said", ["user", "human"])
def test_a_pair_of_role_and_text_is_a_message(said: str) -> None:
    state = {"messages": [[said, "How many seats?"]]}
    assert asked(json.dumps(state)) == asked(state) == "How many seats?"
    assert render(messages_of([["system", "be brief"], [said, "How many seats?"]]))[0] == (
        "system: be brief\nuser: How many seats?"
    )


def test_a_list_of_two_texts_is_no_message() -> None:
    assert messages_of(["Marianne", "Odile"]) == ()
    assert messages_of([["Marianne", "Odile"]]) == ()


ODD: list[Any] = [{}, [], [{}], {"type": {}}, 7, 1.5, True, None]


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize(
    "key", ["type", "role", "name", "id", "tool_call_id", "content", "parts", "tool_calls"]
)
def test_a_message_with_something_odd_in_it_is_read_as_far_as_it_goes(key: str, odd: object) -> None:
    inner = {"type": "text", "content": "hello", key: odd}
    for value in (
        {key: odd},
        {"content": [inner]},
        {"role": "user", "parts": [inner]},
        {"tool_calls": [inner]},
    ):
        for message in messages_of([value]):
            assert isinstance(message.text, str)
            assert isinstance(message.role, str)


def test_results_beside_an_agents_own_words_are_not_its_words() -> None:
    """Vercel's AI SDK 7 puts an agent's whole run into one message."""
    parts = [
        {"type": "text", "content": "The purser should answer this."},
        {"type": "tool_call", "id": "1", "name": "ask", "arguments": {}},
        {"type": "tool_call_response", "id": "1", "response": "85 seats"},
    ]
    (message,) = messages_of([{"role": "assistant", "parts": parts}])
    assert (message.role, message.text, message.results) == (
        "assistant",
        "The purser should answer this.",
        "85 seats",
    )
    assert last_answer([message]) == "The purser should answer this."
    assert body_of(message).splitlines()[-1] == "85 seats"
    (answer,) = messages_of([{"role": "user", "parts": parts[2:]}])
    assert (answer.role, answer.text, answer.results) == ("tool", "85 seats", "")


@pytest.mark.parametrize(("role", "text"), [("assistant", ""), ("tool", "[]")])
def test_an_empty_list_is_no_words_of_a_model_but_a_tools_result(role: str, text: str) -> None:
    """Semantic Kernel's messages that only call tools have no items left; a search may find nothing."""
    (message,) = messages_of([{"role": role, "content": [], "name": "clerk"}])
    assert message.text == text
