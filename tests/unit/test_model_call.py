"""Model calls that pass are read alike from three APIs, whole and streamed."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from typing import Any

import pytest

from analyzer.programs.call_spans import spans_of_calls
from analyzer.programs.model_call import ModelCall, PassedCall, read_model_call, read_model_calls
from semconv.record import replace

CALL = {"id": "c1", "function": {"name": "look_up", "arguments": '{"city": "Ulm"}'}}


def passed(
    path: str, request: Mapping[str, Any], answer: bytes, kind: str = "application/json"
) -> PassedCall:
    return PassedCall(
        path=path, request=json.dumps(request).encode(), answer=answer, content_type=kind, status=200,
        start_ns=1, end_ns=2,
    )  # fmt: skip


def whole_call(call: PassedCall) -> ModelCall:
    found = read_model_call(call)
    assert found is not None
    return found


def streamed(*events: Mapping[str, Any]) -> bytes:
    return b"".join(b"event: x\ndata: " + json.dumps(each).encode() + b"\n\n" for each in events)


CHAT = {
    "model": "m",
    "messages": [{"role": "system", "content": "You are the clerk."}, {"role": "user", "content": "Ulm?"}],
    "tools": [{"type": "function", "function": {"name": "look_up"}}],
}
RESPONSES = {"model": "m", "instructions": "You are the clerk.", "input": "Ulm?"}
MESSAGES = {"model": "m", "system": "You are the clerk.", "messages": [{"role": "user", "content": "Ulm?"}]}
ITEM = {"type": "function_call", "call_id": "c1", "name": "look_up", "arguments": '{"city": "Ulm"}'}
BLOCKS = [
    {"type": "text", "text": "Let me see."},
    {"type": "tool_use", "id": "c1", "name": "look_up", "input": {"city": "Ulm"}},
]
USAGE = {"input_tokens": 7, "output_tokens": 3}


SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me see."}]}


def block(index: int, **content: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": content}


def piece(index: int, **more: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": more}


def answered(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def delta(**found: Any) -> dict[str, Any]:
    return {"model": "m-2", "choices": [{"index": 0, "delta": found, "finish_reason": None}]}


WHOLE: dict[str, tuple[str, Mapping[str, Any], bytes, str]] = {
    "chat": (
        "/v1/chat/completions",
        CHAT,
        answered(
            model="m-2",
            choices=[{"message": {"role": "assistant", "content": "Let me see.", "tool_calls": [CALL]}}],
            usage={"prompt_tokens": 7, "completion_tokens": 3},
        ),
        "application/json; charset=utf-8",
    ),
    "chat, streamed": (
        "/v1/chat/completions",
        {**CHAT, "stream": True},
        streamed(
            delta(role="assistant", content="Let me "),
            delta(content="see."),
            {"choices": [{"index": 1, "delta": {"content": "another sample"}}]},
            delta(tool_calls=[{"index": 0, "id": "c1", "function": {"name": "look_up", "arguments": ""}}]),
            delta(tool_calls=[{"index": 0, "function": {"arguments": '{"city": '}}]),
            delta(tool_calls=[{"index": 0, "function": {"arguments": '"Ulm"}'}}]),
            {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}},
        )
        + b"data: [DONE]\n\n",
        "text/event-stream; charset=utf-8",
    ),
    "responses": (
        "/openai/v1/responses",
        RESPONSES,
        answered(model="m-2", output=[{"type": "reasoning", "summary": []}, SAID, ITEM], usage=USAGE),
        "application/json",
    ),
    "responses, streamed": (
        "/v1/responses",
        RESPONSES,
        streamed(
            {"type": "response.created", "response": {"model": "m-2", "output": []}},
            {"type": "response.output_item.done", "item": SAID},
            {"type": "response.output_item.done", "item": ITEM},
            {"type": "response.completed", "response": {"model": "m-2", "output": [], "usage": USAGE}},
        ),
        "text/event-stream",
    ),
    "messages": (
        "/v1/messages",
        MESSAGES,
        answered(model="m-2", content=BLOCKS, usage=USAGE),
        "application/json",
    ),
    "messages, streamed": (
        "/v1/messages",
        MESSAGES,
        streamed(
            {
                "type": "message_start",
                "message": {"model": "m-2", "content": [], "usage": {"input_tokens": 7}},
            },
            block(0, type="text", text=""),
            piece(0, type="text_delta", text="Let me see."),
            block(1, type="tool_use", id="c1", name="look_up", input={}),
            piece(1, type="input_json_delta", partial_json='{"city": "U'),
            piece(1, type="input_json_delta", partial_json='lm"}'),
            {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 3}},
        ),
        "text/event-stream",
    ),
}


@pytest.mark.parametrize("name", WHOLE)
def test_three_apis_give_the_same_call_whole_and_streamed(name: str) -> None:
    found = whole_call(passed(*WHOLE[name]))
    assert (found.model, found.answered_by, found.instructions) == ("m", "m-2", "You are the clerk.")
    assert [(each["role"], each["content"]) for each in found.messages] == [("user", "Ulm?")]
    assert "".join(each.get("content") or "" for each in found.said) == "Let me see."
    calls = [call for each in found.said for call in each.get("tool_calls") or ()]
    assert [(call["id"], call["function"]["name"]) for call in calls] == [("c1", "look_up")]
    assert [json.loads(call["function"]["arguments"]) for call in calls] == [{"city": "Ulm"}]
    assert (found.input_tokens, found.output_tokens, found.error) == (7, 3, "")


SEE = {"id": "c1", "function": {"name": "look_up", "arguments": ""}}


@pytest.mark.parametrize(
    ("path", "events"),
    [
        (
            "/chat/completions",
            [{"id": "1", **delta(content="Let ")}, {"id": "2", **delta(content="me see.")}],
        ),
        ("/chat/completions", [delta(content=[{"type": "text", "text": "Let "}]), delta(content="me see.")]),
        ("/messages", [block(0, type="text", text="Let "), piece(0, type="text_delta", text="me see.")]),
        ("/messages", [{"type": "message_start"}, piece(0, type="text_delta", text="Let me see.")]),
        ("/responses", [{"type": "response.output_item.done", "item": SAID}]),
    ],
)
def test_a_stream_of_a_gateway_is_one_answer(path: str, events: list[dict[str, Any]]) -> None:
    """Some give each chunk an id, write text as parts, or leave out events that only begin something."""
    asked = {**CHAT, **RESPONSES}
    found = whole_call(passed(path, asked, streamed(*events), "text/event-stream"))
    assert "".join(each["content"] for each in found.said) == "Let me see."


def test_parts_of_a_streamed_call_without_an_index_are_one_call() -> None:
    rest = {"function": {"arguments": '{"city": "Ulm"}'}}
    events = streamed(delta(tool_calls=[SEE]), delta(tool_calls=[rest]), delta(tool_calls=[SEE]))
    (said,) = whole_call(passed("/chat/completions", CHAT, events, "text/event-stream")).said
    assert [call["function"]["arguments"] for call in said["tool_calls"]] == ['{"city": "Ulm"}', ""]


@pytest.mark.parametrize(
    ("path", "events"),
    [
        ("/messages", [{"type": "ping"}, {"type": "error", "error": {"message": "overloaded"}}]),
        ("/responses", [{"type": "error", "message": "overloaded"}]),
        ("/responses", [{"type": "response.created"}, {"type": "error", "message": "overloaded"}]),
        ("/chat/completions", [{"error": {"message": "overloaded"}}]),
    ],
)
def test_an_error_in_place_of_a_stream_is_the_calls(path: str, events: list[dict[str, Any]]) -> None:
    found = whole_call(passed(path, {**CHAT, **RESPONSES}, streamed(*events), "text/event-stream"))
    assert "overloaded" in found.error


BY_CHAT = {"role": "tool", "tool_call_id": "c1", "content": "sunny"}
BY_RESPONSES = {"type": "function_call_output", "call_id": "c1", "output": "sunny"}
BY_MESSAGES = {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "sunny"}]}


@pytest.mark.parametrize(
    ("path", "field", "messages"),
    [
        ("/v1/chat/completions", "messages", [{"role": "assistant", "tool_calls": [CALL]}, BY_CHAT]),
        ("/v1/responses", "input", [ITEM, BY_RESPONSES]),
        (
            "/v1/messages",
            "messages",
            [{"role": "assistant", "content": BLOCKS[1:]}, {"role": "user", "content": [BY_MESSAGES]}],
        ),
    ],
)
def test_a_tools_result_is_a_message_of_its_own(path: str, field: str, messages: list[Any]) -> None:
    found = whole_call(passed(path, {field: messages}, b"{}"))
    asked, result = found.messages
    assert asked["tool_calls"][0]["function"]["name"] == "look_up"
    assert (result["role"], result["tool_call_id"], result["content"]) == ("tool", "c1", "sunny")


SQL = "SELECT 1 -- free text, no JSON"
OTHER_CALLS: dict[str, tuple[str, Mapping[str, Any], bytes, str, tuple[str, str, str]]] = {
    "custom tool, responses": (
        "/v1/responses",
        {"input": [
            {"type": "custom_tool_call", "call_id": "c1", "name": "sql", "input": SQL},
            {"type": "custom_tool_call_output", "call_id": "c1", "output": "1"},
        ]},
        answered(output=[{"type": "custom_tool_call", "call_id": "c1", "name": "sql", "input": SQL}]),
        "application/json",
        ("c1", "sql", SQL),
    ),
    "custom tool, chat": (
        "/v1/chat/completions",
        {"messages": [
            {"role": "assistant", "tool_calls": [{"id": "c1", "custom": {"name": "sql", "input": SQL}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "1"},
        ]},
        streamed(
            delta(tool_calls=[{"index": 0, "id": "c1", "custom": {"name": "sql", "input": ""}}]),
            delta(tool_calls=[{"index": 0, "custom": {"input": SQL}}]),
        ),
        "text/event-stream",
        ("c1", "sql", SQL),
    ),
    "former function_call": (
        "/v1/chat/completions",
        {
            "functions": [{"name": "sql"}],
            "messages": [
                {"role": "assistant", "content": None, "function_call": {"name": "sql", "arguments": "{}"}},
                {"role": "function", "name": "sql", "content": "1"},
            ],
        },
        answered(choices=[{"message": {"function_call": {"name": "sql", "arguments": "{}"}}}]),
        "application/json",
        ("", "sql", "{}"),
    ),
    "former function_call, streamed": (
        "/v1/chat/completions",
        {"messages": [
            {"role": "assistant", "content": None, "function_call": {"name": "sql", "arguments": "{}"}},
            {"role": "function", "name": "sql", "content": "1"},
        ]},
        streamed(
            delta(function_call={"name": "sql", "arguments": ""}),
            delta(function_call={"arguments": "{}"}),
        ),
        "text/event-stream",
        ("", "sql", "{}"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHER_CALLS)
def test_custom_tools_and_former_functions_are_calls_with_results(name: str) -> None:
    path, request, answer, kind, expected = OTHER_CALLS[name]
    found = whole_call(passed(path, request, answer, kind))
    asked, result = found.messages
    assert (result["role"], result["content"]) == ("tool", "1")
    for (call,) in (asked["tool_calls"], found.said[-1]["tool_calls"]):
        given = (call.get("id") or "", call["function"]["name"], call["function"]["arguments"])
        assert given == expected
    if "functions" in request:
        assert [each["function"]["name"] for each in found.tools] == ["sql"]
    spans = spans_of_calls([passed(path, request, answer, kind)], "program", lambda size: "ab" * size)
    (tool,) = (span for span in spans if span.name == "execute_tool sql")
    assert tool.attributes["gen_ai.tool.call.result"] == "1"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {"previous_response_id": "resp_1"}),
        ({"conversation": "conv_1"}, {"conversation": {"id": "conv_1"}}),
    ],
    ids=["the answer before", "a conversation"],
)
def test_messages_that_the_provider_keeps_stand_before_those_of_a_request(
    first: dict[str, Any], second: dict[str, Any]
) -> None:
    wanted = {"type": "function_call", "call_id": "c1", "name": "sql", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c1", "output": "1"}
    asked = passed("/v1/responses", {"input": "How many?", **first}, _response("resp_1", wanted))
    then = replace(passed("/v1/responses", {"input": [result], **second}, _response("resp_2")), start_ns=5)
    spans = spans_of_calls([then, asked], "program", lambda size: "ab" * size)
    assert [span.name.split()[0] for span in spans] == ["invoke_workflow", "chat", "execute_tool", "chat"]
    (_, (_, whole)) = read_model_calls([then, asked])
    assert [each["role"] for each in whole.messages] == ["user", "assistant", "tool"]
    ((_, alone),) = read_model_calls([then])
    assert [each["role"] for each in alone.messages] == ["tool"]


def _response(name: str, *output: Mapping[str, Any]) -> bytes:
    return json.dumps({"id": name, "status": "completed", "output": output}).encode()


@pytest.mark.parametrize(
    "odd",
    [
        {"role": "assistant", "function_call": "sql"},
        {"role": "assistant", "tool_calls": [{"custom": "sql"}]},
        {"role": "assistant", "tool_calls": 7},
    ],
)
def test_a_malformed_call_makes_a_request_unreadable_and_is_noted_in_an_answer(
    odd: Mapping[str, Any],
) -> None:
    path = "/v1/chat/completions"
    assert read_model_call(passed(path, {"messages": [odd]}, b"{}")) is None
    answer = json.dumps({"choices": [{"message": odd}]}).encode()
    found = whole_call(passed(path, CHAT, answer))
    assert found.error == "HTTP 200: its answer cannot be read"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/embeddings", b'{"input": "x"}'),
        ("/v1/models", b""),
        ("/v1/chat/completions", b"\xff\xfe"),
        ("/v1/chat/completions", b"[1]"),
        ("/v1/chat/completions", b'{"messages": 7}'),
        ("/v1/chat/completions", b"[" * 100_000),
    ],
)
def test_calls_of_other_models_than_chat_models_are_left_out(path: str, body: bytes) -> None:
    call = PassedCall(path=path, request=body, answer=b"", content_type="", status=200, start_ns=0, end_ns=0)
    assert read_model_call(call) is None


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
@pytest.mark.parametrize("path", ["/chat/completions", "/responses", "/messages"])
@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"data: [DONE]\n\n",
        b'{"choices": [7, {"message": "x"}], "output": 7, "content": "x", "usage": [1]}',
        (
            b'data: {"choices": 7, "type": "content_block_delta"}\n\n'
            b'data: {"choices": [{"delta": {"tool_calls": [{}]}}]}\n\n'
        ),
        b'data: {"type": "message_start", "message": {"usage": {"input_tokens": "many"}}}\n\n',
    ],
)
def test_an_answer_that_is_cut_or_odd_is_read_as_far_as_it_goes(path: str, kind: str, answer: bytes) -> None:
    request = {"messages": [{"role": "user", "content": "?"}, 7], "input": "?"}
    found = whole_call(passed(path, request, answer, kind))
    assert found.messages[0]["content"] == "?"


def test_a_refused_call_says_why() -> None:
    body = b'{"error": {"message": "slow down", "type": "rate_limit"}}'
    call = PassedCall(
        path="/v1/chat/completions", request=json.dumps(CHAT).encode(), answer=body,
        content_type="application/json", status=429, start_ns=0, end_ns=0,
    )  # fmt: skip
    found = whole_call(call)
    assert found.error == "HTTP 429: slow down"


def test_a_compressed_answer_is_read() -> None:
    path, request, answer, kind = WHOLE["chat"]
    call = replace(passed(path, request, gzip.compress(answer), kind), encoding="gzip")
    found = whole_call(call)
    assert found.said[0]["content"] == "Let me see."
    broken = whole_call(replace(call, answer=b"\x1f\x8bno gzip"))
    assert broken.said == ()


@pytest.mark.parametrize(("failure", "told"), [("cut", "broke off"), ("client_gone", "did not wait")])
def test_a_cut_answer_is_marked_as_cut(failure: str, told: str) -> None:
    found = whole_call(replace(passed(*WHOLE["chat, streamed"]), failure=failure))
    assert told in found.error
