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


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


OTEL_CALL = {"type": "tool_call", "name": "search", "arguments": {}, "id": "1"}
OTEL_RESULT = {"type": "tool_call_response", "response": "found"}
REASONING = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hello"}], "content": []}
AUTOGEN_RESULT = {"source": "a", "content": [{"call_id": "1", "content": "found", "is_error": True}]}
SPELLINGS: dict[str, tuple[Any, tuple[str, str, tuple[str, ...]]]] = {
    "opentelemetry": ({"role": "user", "parts": [{"type": "text", "content": "hello"}]}, HELLO),
    "openai": (user("hello"), HELLO),
    "responses": (user([{"type": "input_text", "text": "hello"}]), HELLO),
    "bedrock": (user([{"text": "hello"}]), HELLO),
    "gemini": ({"role": "user", "parts": [{"text": "hello"}]}, HELLO),
    "langchain state": ({"type": "human", "data": {"content": "hello", "type": "human"}}, HELLO),
    "langchain constructor": ({"lc": 1, "kwargs": {"content": "hello", "type": "human"}}, HELLO),
    "autogen": ({"source": "user", "content": "hello", "type": "TextMessage"}, HELLO),
    "as json": (json.dumps(user("hello")), HELLO),
    "opentelemetry call": ({"role": "assistant", "parts": [OTEL_CALL]}, CALL),
    "openai call": (assistant(None, tool_calls=[{"id": "1", "function": {"name": "search"}}]), CALL),
    "responses call": ({"type": "function_call", "name": "search", "call_id": "1"}, CALL),
    "responses reasoning": (REASONING, ("reasoning", "hello", ())),
    "anthropic call": (assistant([{"type": "tool_use", "name": "search"}]), CALL),
    "bedrock call": (assistant([{"toolUse": {"name": "search"}}]), CALL),
    "gemini call": ({"role": "model", "parts": [{"functionCall": {"name": "search"}}]}, CALL),
    "autogen call": ({"source": "a", "content": [{"id": "1", "name": "search", "arguments": ""}]}, CALL),
    "otel result": ({"role": "tool", "parts": [OTEL_RESULT]}, RESULT),
    "openai result": ({"role": "tool", "tool_call_id": "1", "content": "found"}, RESULT),
    "responses result": ({"type": "function_call_output", "output": "found"}, RESULT),
    "bedrock result": (user([{"toolResult": {"content": [{"text": "found"}]}}]), RESULT),
    "langchain result": ({"type": "tool", "data": {"content": "found", "type": "tool"}}, RESULT),
    "autogen result": (AUTOGEN_RESULT, RESULT),
}


@pytest.mark.parametrize(("value", "expected"), SPELLINGS.values(), ids=SPELLINGS)
def test_a_message_is_read(value: Any, expected: tuple[str, str, tuple[str, ...]]) -> None:
    message = message_of(value)
    assert message is not None
    assert (message.role, message.text, tuple(call.name for call in message.calls)) == expected


@pytest.mark.parametrize(
    "odd",
    [
        *(None, 7, True, "", "plain", b"raw", [], {}, [[]], "[{", '{"role":'),
        *({"role": 3}, {"parts": 5}, {"content": {"a": 1}}),
    ],
)
def test_odd_values_never_raise(odd: Any) -> None:
    assert isinstance(messages_of(odd), tuple)
    assert isinstance(render(messages_of(odd))[0], str)


def test_images_are_named_and_not_dumped() -> None:
    message = message_of(user([{"type": "image_url", "image_url": {"url": "data:" + "x" * 99}}]))
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
        *(user("first question"), assistant("answer"), user("second question"), user("context: nothing")),
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
    around = ({"content": [inner]}, {"role": "user", "parts": [inner]}, {"tool_calls": [inner]})
    for value in ({key: odd}, *around):
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
    words = "The purser should answer this."
    assert (message.role, message.text, message.results) == ("assistant", words, "85 seats")
    assert last_answer([message]) == words
    assert body_of(message).splitlines()[-1] == "85 seats"
    (answer,) = messages_of([{"role": "user", "parts": parts[2:]}])
    assert (answer.role, answer.text, answer.results) == ("tool", "85 seats", "")


@pytest.mark.parametrize(("role", "text"), [("assistant", ""), ("tool", "[]")])
def test_an_empty_list_is_no_words_of_a_model_but_a_tools_result(role: str, text: str) -> None:
    """Semantic Kernel's messages that only call tools have no items left; a search may find nothing."""
    (message,) = messages_of([{"role": role, "content": [], "name": "clerk"}])
    assert message.text == text
