"""Anthropic's messages API as its clients use it, whole and streamed."""

from __future__ import annotations

import json
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import pytest

from tests.frameworks.kit.story import CONCIERGE, INSTRUCTIONS, PURSER, REGISTRAR, TOOL, question
from tests.frameworks.messages_api import read_messages
from tests.frameworks.script import UNAVAILABLE, WRONG_ANSWER
from tests.frameworks.server import Office, serving

LOOK_UP: Final = f"mcp__register__{TOOL}"
DIRECT: Final = build_opener(ProxyHandler({}))


def ask(office: Office, who: str, *tools: dict[str, Any], path: str = "messages", **more: Any) -> bytes:
    """Send a request with the agent's prompt and the passenger's question, as Claude Code does."""
    blocks = [
        {"type": "text", "text": "You are a Claude agent."},
        {"type": "text", "text": INSTRUCTIONS[who]},
    ]
    said = [{"role": "user", "content": [{"type": "text", "text": question("normal")}]}]
    body = {"model": "claude", "max_tokens": 99, "system": blocks, "messages": said, "tools": tools, **more}
    request = Request(f"{office.url}/{path}?beta=true", data=json.dumps(body).encode())
    with DIRECT.open(request, timeout=300) as answer:
        found: bytes = answer.read()
        return found


def offered(tool: str, /, **properties: Any) -> dict[str, Any]:
    return {"name": tool, "input_schema": {"type": "object", "properties": properties}}


def test_a_message_calls_the_tool_that_spawns_the_next_agent() -> None:
    spawning = offered("Agent", prompt={"type": "string"}, subagent_type={"type": "string"})
    spawning["input_schema"]["required"] = ["prompt"]
    with serving("normal") as office:
        answer = json.loads(ask(office, CONCIERGE, spawning))

    (block,) = answer["content"]
    assert answer["stop_reason"] == "tool_use"
    assert block["input"] == {"prompt": question("normal"), "subagent_type": REGISTRAR}
    assert (office.log[0].agent, office.log[0].target) == (CONCIERGE, REGISTRAR)


@pytest.mark.parametrize("who", [PURSER, REGISTRAR])
def test_a_streamed_message_comes_together_as_the_whole_one(who: str) -> None:
    tools = [offered(LOOK_UP, name={"type": "string"})]
    with serving("normal") as office:
        whole = json.loads(ask(office, who, *tools))
        events = list(streamed(ask(office, who, *tools, stream=True)))

    assert events[0]["type"] == "message_start"
    assert events[-1]["type"] == "message_stop"
    (block,) = whole["content"]
    told = "".join(
        event["delta"].get("text", "") + event["delta"].get("partial_json", "")
        for event in events
        if event["type"] == "content_block_delta"
    )
    assert told == (block["text"] if who == PURSER else json.dumps(block["input"]))
    (ended,) = (event for event in events if event["type"] == "message_delta")
    assert ended["delta"]["stop_reason"] == whole["stop_reason"]
    assert ended["usage"]["output_tokens"] == whole["usage"]["output_tokens"]


def streamed(body: bytes) -> Any:
    for event in body.decode().strip().split("\n\n"):
        name, data = event.split("\n")
        read = json.loads(data.removeprefix("data: "))
        assert name == f"event: {read['type']}"
        yield read


def test_a_tools_result_in_a_users_message_is_heard_as_a_result() -> None:
    called = {"type": "tool_use", "id": "t1", "name": LOOK_UP, "input": {"name": "Marianne"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": UNAVAILABLE, "is_error": True}
    said = [
        {"role": "user", "content": question("normal")},
        {"role": "assistant", "content": [called]},
        {"role": "user", "content": [result, {"type": "text", "text": "Go on."}]},
    ]

    asked = read_messages({"model": "claude", "system": INSTRUCTIONS[REGISTRAR], "messages": said})

    (call,) = asked.calls
    assert (call.name, json.loads(call.arguments)) == (LOOK_UP, {"name": "Marianne"})
    assert asked.result_of(call) == UNAVAILABLE
    assert [message.text for message in asked.messages][-1] == "Go on."


def test_a_tool_by_mcp_is_logged_under_the_name_that_the_model_called() -> None:
    with serving("normal") as office:
        ask(office, REGISTRAR, offered(LOOK_UP, name={"type": "string"}))
        office.look_up("Marianne")

    assert (office.log[-1].tool, office.log[-1].agent, office.log[-1].ok) == (LOOK_UP, REGISTRAR, False)


def test_a_crash_is_told_in_anthropics_words_and_names_the_request() -> None:
    with serving("crash") as office, pytest.raises(HTTPError) as refused:
        ask(office, PURSER)

    with refused.value as answer:
        told = json.loads(answer.read())
        assert answer.headers["request-id"].startswith("req_")
    assert told["type"] == "error"
    assert told["error"]["message"]


def test_tokens_are_counted_without_asking_the_model() -> None:
    with serving("normal") as office:
        counted = json.loads(ask(office, PURSER, path="messages/count_tokens"))
        answer = json.loads(ask(office, PURSER))

    assert counted["input_tokens"] == answer["usage"]["input_tokens"]
    assert [happened.kind for happened in office.log] == ["llm"]
    assert WRONG_ANSWER in answer["content"][0]["text"]
