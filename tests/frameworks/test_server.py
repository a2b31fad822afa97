"""The scripted server through OpenAI's own client, on both APIs, whole and streamed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import openai
import pytest

from tests.frameworks.kit.story import CONCIERGE, INSTRUCTIONS, MODEL, PURSER, REGISTRAR, TOOL, question
from tests.frameworks.script import RIGHT_ANSWER, UNAVAILABLE, WRONG_ANSWER
from tests.frameworks.server import Office, serving

NAME: Final = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
TRANSFER: Final = "transfer_to_registrar"


@pytest.fixture
def office() -> Iterator[Office]:
    with serving("normal") as found:
        yield found


def client(office: Office) -> openai.OpenAI:
    return openai.OpenAI(base_url=office.url, api_key="dummy")


def chat_tool(name: str, parameters: object = NAME) -> Any:
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def chat_messages(who: str) -> Any:
    said = [("system", INSTRUCTIONS[who]), ("user", question("normal"))]
    return [{"role": role, "content": text} for role, text in said]


def test_a_chat_completion_calls_the_tool_that_reaches_the_next_agent(office: Office) -> None:
    with client(office) as asked:
        answer = asked.chat.completions.create(
            model=MODEL, messages=chat_messages(CONCIERGE), tools=[chat_tool(TRANSFER, {})]
        )

    calls = answer.choices[0].message.tool_calls
    assert calls is not None
    (call,) = calls
    assert call.type == "function"
    assert call.function.name == TRANSFER
    assert answer.choices[0].finish_reason == "tool_calls"
    assert (office.log[0].agent, office.log[0].target) == (CONCIERGE, REGISTRAR)


def test_a_streamed_chat_completion_says_the_same_as_a_whole_one(office: Office) -> None:
    with client(office) as asked:
        messages = chat_messages(PURSER)
        whole = asked.chat.completions.create(model=MODEL, messages=messages)
        with asked.chat.completions.stream(
            model=MODEL, messages=messages, stream_options={"include_usage": True}
        ) as stream:
            streamed = stream.get_final_completion()

    assert streamed.choices[0].message.content == whole.choices[0].message.content
    assert WRONG_ANSWER in (whole.choices[0].message.content or "")
    assert streamed.usage == whole.usage


def test_a_streamed_tool_call_comes_together_again(office: Office) -> None:
    with client(office) as asked:
        tools = [chat_tool(TOOL)]
        with asked.chat.completions.stream(
            model=MODEL, messages=chat_messages(REGISTRAR), tools=tools
        ) as stream:
            calls = stream.get_final_completion().choices[0].message.tool_calls

    assert calls is not None
    (call,) = calls
    assert (call.function.name, json.loads(call.function.arguments)) == (TOOL, {"name": "Marianne"})


def response_tools(*names: str) -> Any:
    return [{"type": "function", "name": name, "parameters": NAME, "strict": False} for name in names]


def test_a_response_looks_up_again_after_an_error_and_then_passes_on(office: Office) -> None:
    tools = response_tools(TOOL, "transfer_to_purser")
    said: list[Any] = [{"role": "user", "content": question("normal")}]
    names = []
    with client(office) as asked:
        for result in (f"error: {UNAVAILABLE}", "The Marianne has 85 seats.", "done"):
            answer = asked.responses.create(
                model=MODEL, instructions=INSTRUCTIONS[REGISTRAR], input=said, tools=tools
            )
            (call,) = answer.output
            assert call.type == "function_call"
            names.append(call.name)
            said.append(call.to_dict())
            said.append({"type": "function_call_output", "call_id": call.call_id, "output": result})

    assert names == [TOOL, TOOL, "transfer_to_purser"]


def test_a_streamed_response_says_the_same_as_a_whole_one(office: Office) -> None:
    ask: Any = {"model": MODEL, "instructions": INSTRUCTIONS[PURSER], "input": question("normal")}
    with client(office) as asked:
        whole = asked.responses.create(**ask)
        with asked.responses.stream(**ask) as stream:
            streamed = stream.get_final_response()

    assert streamed.output_text == whole.output_text
    assert WRONG_ANSWER in whole.output_text


def test_a_crash_is_one_request_which_the_client_does_not_repeat() -> None:
    with serving("crash") as office, client(office) as asked, pytest.raises(openai.InternalServerError):
        asked.chat.completions.create(model=MODEL, messages=chat_messages(PURSER))

    assert [(each.agent, each.ok) for each in office.log] == [(PURSER, False)]


def test_the_sound_variant_answers_rightly() -> None:
    with serving("sound") as office, client(office) as asked:
        answer = asked.chat.completions.create(model=MODEL, messages=chat_messages(PURSER))

    assert RIGHT_ANSWER in (answer.choices[0].message.content or "")


def test_models_are_listed_and_an_unknown_path_is_not_found(office: Office) -> None:
    with client(office) as asked:
        assert [model.id for model in asked.models.list()] == [MODEL]
        with pytest.raises(openai.NotFoundError):
            asked.embeddings.create(model=MODEL, input="x")
