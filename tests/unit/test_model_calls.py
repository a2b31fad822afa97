"""Logs of calls of a model API: order, failed calls, streams, and what programs keep them in."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Sequence
from itertools import permutations
from random import Random
from typing import Any

import pytest
import yaml

from analyzer.api.local import attribute, read_runs
from analyzer.inquiry.errors import UnreadableInput
from analyzer.recordings.read_files import read_recording
from semconv.model import Status, Trajectory
from tests.message_runs import ANSWER, CALL, ERROR, TASK, USER, run, runs, told, tools
from tests.operations import operations
from tests.security.mutations import mutate_json

BUSY = {"error": {"type": "overloaded_error", "message": "Overloaded"}}
BUSY_TEXT = "overloaded_error: Overloaded"
TABLE = "low 08:05, high 14:20"
Entry = dict[str, Any]


def chat(told: Sequence[Entry], said: Entry | None) -> tuple[Entry, Entry]:
    return {"model": "m", "messages": [*told]}, {"choices": [{"message": said}]} if said else BUSY


def use(call_id: str, name: str) -> Entry:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {}}


def blocks(told: Sequence[Entry], said: Entry | None) -> tuple[Entry, Entry]:
    answer = {"type": "message", "model": "m", "stop_reason": "x", **said} if said else BUSY
    return {"model": "m", "messages": [*told]}, answer


def items(told: Sequence[Entry], said: Entry | None) -> tuple[Entry, Entry]:
    response = {"object": "response", "created_at": len(told), "output": [said]} if said else BUSY
    return {"model": "m", "input": [*told]}, response


def contents(told: Sequence[Entry], said: Entry | None) -> tuple[Entry, Entry]:
    return {"contents": [*told]}, {"candidates": [{"content": said}]} if said else BUSY


def converse(told: Sequence[Entry], said: Entry | None) -> tuple[Entry, Entry]:
    return {"messages": [*told]}, {"output": {"message": said}} if said else BUSY


GIVEN = {"id": "c1", "name": "tide_table"}
USE = {"toolUseId": "c1", "name": "tide_table", "input": {}}
APIS: dict[str, tuple[Callable[..., tuple[Entry, Entry]], list[Entry]]] = {
    "chat": (
        chat,
        [
            USER,
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": TABLE},
            {"role": "assistant", "content": ANSWER},
        ],
    ),
    "anthropic": (
        blocks,
        [
            USER,
            {"role": "assistant", "content": [use("c1", "tide_table")]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": TABLE}]},
            {"role": "assistant", "content": [{"type": "text", "text": ANSWER}]},
        ],
    ),
    "responses": (
        items,
        [
            USER,
            {"type": "function_call", "call_id": "c1", "name": "tide_table", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": TABLE},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": ANSWER}]},
        ],
    ),
    "gemini": (
        contents,
        [
            {"role": "user", "parts": [{"text": TASK}]},
            {"role": "model", "parts": [{"functionCall": {**GIVEN, "args": {}}}]},
            {
                "role": "user",
                "parts": [{"functionResponse": {**GIVEN, "response": {"output": TABLE}}}],
            },
            {"role": "model", "parts": [{"text": ANSWER}]},
        ],
    ),
    "bedrock": (
        converse,
        [
            {"role": "user", "content": [{"text": TASK}]},
            {"role": "assistant", "content": [{"toolUse": USE}]},
            {"role": "user", "content": [{"toolResult": {"toolUseId": "c1", "content": [{"text": TABLE}]}}]},
            {"role": "assistant", "content": [{"text": ANSWER}]},
        ],
    ),
}
each_api = pytest.mark.parametrize("api", APIS)


def log(api: str, *calls: tuple[int, bool]) -> list[Entry]:
    """Return a log of calls, each told so many messages; answered or failed."""
    of, messages = APIS[api]
    pairs = [of(messages[:told], messages[told] if is_answered else None) for told, is_answered in calls]
    return [{"request": request, "response": response} for request, response in pairs]


def kinds(found: Trajectory) -> list[tuple[str, str]]:
    return [(step.kind.value, step.error) for step in found.steps]


@each_api
def test_a_failed_call_that_was_repeated_is_a_step_with_its_error(api: str) -> None:
    found = run(*log(api, (1, True), (3, False), (3, False), (3, True)))
    assert kinds(found) == [("llm", ""), ("tool", ""), ("llm", BUSY_TEXT), ("llm", BUSY_TEXT), ("llm", "")]
    assert (found.task, found.output) == (TASK, ANSWER)
    assert tools(found)[0][1:3] == ("tide_table", TABLE)
    assert attribute_(log(api, (1, True), (3, False), (3, True))).status is Status.NO_FAILURE


@each_api
def test_a_failed_call_that_nobody_repeated_ends_the_run(api: str) -> None:
    found = run(*log(api, (1, True), (3, False)))
    assert kinds(found) == [("llm", ""), ("tool", ""), ("llm", BUSY_TEXT)]
    assert found.output == ""
    verdict = attribute_(log(api, (1, True), (3, False)))
    assert (verdict.status, verdict.step) == (Status.ATTRIBUTED, 2)


@each_api
def test_a_log_whose_only_call_failed_is_a_run(api: str) -> None:
    assert kinds(run(*log(api, (1, False)))) == [("llm", BUSY_TEXT)]


def attribute_(documents: list[Entry]) -> Any:
    return attribute("\n".join(map(json.dumps, documents)).encode())


@each_api
def test_calls_in_any_order_are_one_run(api: str) -> None:
    in_order = told(run(*log(api, (1, True), (3, True))))
    assert told(run(*log(api, (3, True), (1, True)))) == in_order


def test_failed_calls_in_any_order_stand_where_the_answer_would() -> None:
    orders = permutations(log("chat", (1, False), (1, True), (3, False), (3, True)))
    expected = [("llm", BUSY_TEXT), ("llm", ""), ("tool", ""), ("llm", BUSY_TEXT), ("llm", "")]
    assert all(kinds(run(*order)) == expected for order in orders)


def test_dialogues_whose_calls_alternate_are_runs_of_their_own() -> None:
    def ask(*texts: str) -> Entry:
        roles = ("user", "assistant")
        *told_, last = [{"role": roles[place % 2], "content": text} for place, text in enumerate(texts)]
        return {"messages": told_, "response": {"choices": [{"message": last}]}}

    found = runs(ask("A", "a"), ask("B", "b"), ask("A", "a", "more", "a2"), ask("B", "b", "more", "b2"))
    assert [[output for _, _, output in told(one)] for one in found] == [["a", "a2"], ["b", "b2"]]


@pytest.mark.parametrize(
    "failure",
    [
        {"error": "ReadTimeout: 60 s"},
        {"exception": "ReadTimeout: 60 s", "response": None},
        {"response": {}, "status": "failure", "error_str": "ReadTimeout: 60 s", "error": None},
        {
            "response": {"status_code": 504, "body": {"error": {"message": "ReadTimeout: 60 s"}}},
            "error": None,
        },
        {"response": '{"error": {"message": "ReadTimeout: 60 s"}}'},
    ],
    ids=["text", "exception", "status and text", "body", "body as text"],
)
def test_programs_that_log_calls_say_in_many_ways_that_one_failed(failure: Entry) -> None:
    assert kinds(run({"messages": [USER], **failure})) == [("llm", "ReadTimeout: 60 s")]


def test_a_status_alone_says_that_a_call_failed() -> None:
    assert kinds(run({"request": {"messages": [USER]}, "response": {"status": 503}})) == [
        ("llm", "status 503")
    ]


def test_an_error_beside_a_dialogue_that_was_answered_is_no_call() -> None:
    document = {"messages": [USER, {"role": "assistant", "content": ANSWER}], "error": "judged wrong"}
    assert kinds(run(document)) == [("llm", "")]


def test_tasks_of_a_batch_are_runs_whether_they_failed_or_not() -> None:
    answered = {"choices": [{"message": {"role": "assistant", "content": ANSWER}}]}
    bodies = ((200, answered), (500, BUSY))
    lines = [
        {"custom_id": str(code), "response": {"status_code": code, "body": body}, "error": None}
        for code, body in bodies
    ]
    assert [kinds(one) for one in runs(*lines)] == [[("llm", "")], [("llm", BUSY_TEXT)]]


@pytest.mark.parametrize("alone", [BUSY, {"response": BUSY}, {"id": "b", "response": {"status_code": 500}}])
def test_an_error_without_any_dialogue_is_no_run(alone: Entry) -> None:
    with pytest.raises(UnreadableInput, match="unknown format"):
        read_recording(json.dumps(alone).encode())


@each_api
def test_recordings_of_http_hold_bodies_as_texts(api: str) -> None:
    calls = log(api, (1, True), (3, False), (3, True))
    entries = [
        {
            "request": {"method": "POST", "postData": {"text": json.dumps(one["request"])}},
            "response": {"status": 200, "content": {"text": json.dumps(one["response"])}},
        }
        for one in calls
    ]
    taped = [
        {
            "request": {"body": json.dumps(one["request"])},
            "response": {"status": {"code": 200}, "body": {"string": json.dumps(one["response"])}},
        }
        for one in calls
    ]
    expected = told(run(*calls))
    for text in (
        json.dumps({"log": {"version": "1.2", "entries": entries}}),
        yaml.safe_dump({"interactions": taped, "version": 1}),
    ):
        (found,) = read_runs(text.encode())
        assert told(found.trajectory) == expected


@each_api
@pytest.mark.parametrize("place", [0, 1])
def test_what_a_browser_asked_of_others_is_no_call_of_a_model(api: str, place: int) -> None:
    def entry(request: Entry, status: int, response: str) -> Entry:
        asked = {"method": "POST", "url": "https://api.test/", "postData": {"text": json.dumps(request)}}
        return {"request": asked, "response": {"status": status, "content": {"text": response}}}

    calls = log(api, (1, True), (3, True))
    entries = [entry(one["request"], 200, json.dumps(one["response"])) for one in calls]
    vectors = json.dumps({"object": "list", "data": [{"embedding": [0.5]}]})
    entries[place:place] = [
        entry({}, 200, "body {}"),
        entry({}, 404, "not found"),
        entry({}, 200, json.dumps({"object": "list", "data": [{"id": "m"}]})),
        entry({"model": "e", "input": TASK}, 200, vectors),
    ]
    assert told(run({"log": {"version": "1.2", "entries": entries}})) == told(run(*calls))


# --- answers cut off at a limit ---

_CUT = {
    "chat": lambda response: response["choices"][0].update(finish_reason="length"),
    "anthropic": lambda response: response.update(stop_reason="max_tokens"),
    "responses": lambda response: response.update(incomplete_details={"reason": "max_output_tokens"}),
    "gemini": lambda response: response["candidates"][0].update(finishReason="MAX_TOKENS"),
    "bedrock": lambda response: response.update(stopReason="max_tokens"),
}


def cut(api: str, *calls: tuple[int, bool], place: int) -> list[Entry]:
    """Return a log in which the API says of one answer that it was cut off at the output limit."""
    found = json.loads(
        json.dumps(log(api, *calls)).replace(
            ANSWER, f"{ANSWER} Low water is at 08:05, and again a quarter of an hour after the last ferry of"
        )
    )
    _CUT[api](found[place]["response"])
    return list(found)


@each_api
def test_a_last_answer_that_was_cut_off_is_a_failed_call(api: str) -> None:
    found = cut(api, (1, True), (3, True), place=1)
    verdict = attribute_(found)
    assert (verdict.status, verdict.step) == (Status.ATTRIBUTED, 2)
    assert "cut off at the model's output limit" in verdict.reason
    assert attribute_(log(api, (1, True), (3, True))).status is Status.NO_FAILURE


@each_api
def test_an_answer_that_was_cut_off_before_the_run_went_on_accuses_nobody(api: str) -> None:
    assert attribute_(cut(api, (1, True), (3, True), place=0)).status is Status.NO_FAILURE


@each_api
def test_an_answer_that_was_cut_off_and_asked_for_again_accuses_nobody(api: str) -> None:
    found = cut(api, (1, True), (3, True), (3, True), place=1)
    whole = json.loads(json.dumps(log(api, (1, True), (3, True))[-1]).replace('"x"', '"end_turn"'))
    assert attribute_([*found[:2], whole]).status is Status.NO_FAILURE
    in_order = [found[0], whole, found[1]]
    verdicts = [attribute(one) for one in read_runs("\n".join(map(json.dumps, in_order)).encode())]
    assert {one.status for one in verdicts} == {Status.NO_FAILURE, Status.ATTRIBUTED}


# --- streams ---


def chunk(delta: Entry, *, key: str = "c") -> Entry:
    return {"id": key, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta}]}


def piece(number: int, name: str, arguments: str) -> Entry:
    call = {"index": number, "function": {"name": name or None, "arguments": arguments}}
    return chunk({"tool_calls": [{**call, "id": f"t{number}"} if name else call]})


CHUNKS = [
    {"id": "", "object": "chat.completion.chunk", "choices": []},
    chunk({"role": "assistant", "content": "I "}),
    chunk({"content": "look."}),
    piece(0, "tide_table", '{"port": '),
    piece(0, "", '"Dover"}'),
    piece(1, "clock", "{}"),
]
BLOCKS = [
    {"type": "message_start", "message": {"role": "assistant", "content": [], "model": "m"}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "ping"},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "I "}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "look."}},
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": use("t0", "tide_table")},
    *(
        {
            "type": "content_block_delta",
            "index": 1,
            "delta": {"type": "input_json_delta", "partial_json": one},
        }
        for one in ('{"port": ', '"Dover"}')
    ),
    {"type": "content_block_start", "index": 2, "content_block": use("t1", "clock")},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
    {"type": "message_stop"},
]
ITEMS = [
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
    {"type": "function_call", "call_id": "t0", "name": "tide_table", "arguments": '{"port": "Dover"}'},
    {"type": "function_call", "call_id": "t1", "name": "clock", "arguments": "{}"},
]
RESPONSE = {"id": "r", "object": "response", "output": []}
RESPONSES = [
    {"type": "response.created", "response": RESPONSE},
    {"type": "response.output_text.delta", "delta": "I look."},
    *({"type": "response.output_item.done", "item": one} for one in ITEMS),
    {"type": "response.completed", "response": {**RESPONSE, "output": ITEMS}},
]
LONG = {"content": " Low water is at 08:05, high water at 14:20, low water"}
OLLAMA_END = {"message": LONG, "done": True, "done_reason": "length"}
CONVERSE: list[Entry] = [
    {"messageStart": {"role": "assistant"}},
    *({"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": text}}} for text in ("I ", "look.")),
    {"contentBlockDelta": {"contentBlockIndex": 1, "delta": {"reasoningContent": {"text": "Hm."}}}},
    {
        "contentBlockStart": {
            "contentBlockIndex": 2,
            "start": {"toolUse": {"toolUseId": "t0", "name": "tide_table"}},
        }
    },
    *(
        {"contentBlockDelta": {"contentBlockIndex": 2, "delta": {"toolUse": {"input": one}}}}
        for one in ('{"port": ', '"Dover"}')
    ),
    {"contentBlockStop": {"contentBlockIndex": 2}},
    {
        "contentBlockStart": {
            "contentBlockIndex": 3,
            "start": {"toolUse": {"toolUseId": "t1", "name": "clock"}},
        }
    },
    {"contentBlockDelta": {"contentBlockIndex": 3, "delta": {"toolUse": {"input": "{}"}}}},
    {"messageStop": {"stopReason": "tool_use"}},
    {"metadata": {"usage": {"inputTokens": 9, "outputTokens": 9}}},
]
PAGE: list[Entry] = [
    {"type": "start", "messageId": "m1"},
    {"type": "start-step"},
    {"type": "text-start", "id": "0"},
    *({"type": "text-delta", "id": "0", "delta": text} for text in ("I ", "look.")),
    {"type": "text-end", "id": "0"},
    {"type": "tool-input-start", "toolCallId": "t0", "toolName": "tide_table"},
    {"type": "tool-input-delta", "toolCallId": "t0", "inputTextDelta": '{"port": "Dover"}'},
    {
        "type": "tool-input-available",
        "toolCallId": "t0",
        "toolName": "tide_table",
        "input": {"port": "Dover"},
    },
    {"type": "tool-input-available", "toolCallId": "t1", "toolName": "clock", "input": {}},
    {"type": "finish-step"},
    {"type": "finish"},
]
STREAMED = 'I look.\ncall tide_table({"port": "Dover"})\ncall clock({})'
each_stream = pytest.mark.parametrize(
    "events",
    [CHUNKS, BLOCKS, RESPONSES, RESPONSES[:-1], CONVERSE, PAGE],
    ids=["chat", "anthropic", "responses", "cut off", "bedrock", "page"],
)


def sent(events: Sequence[Entry], end: str = "\n\n") -> str:
    named = [f"event: {one['type']}\n" if "type" in one else "" for one in events]
    return "".join(f"{name}data: {json.dumps(one)}{end}" for name, one in zip(named, events, strict=True))


@each_stream
@pytest.mark.parametrize(
    "written",
    [
        lambda events: "\n".join(map(json.dumps, events)),
        json.dumps,
        sent,
        lambda events: ": comment\r\n\r\n" + sent(events, "\r\n\r\n") + "data: [DONE]\r\n\r\n",
        lambda events: "\ufeff" + sent(events, "\n"),
    ],
    ids=["lines", "list", "events", "events of Windows", "lines of data"],
)
def test_a_streamed_answer_is_read_whole(events: list[Entry], written: Callable[..., str]) -> None:
    (found,) = read_runs(written(events).encode())
    assert told(found.trajectory) == [("assistant", "llm", STREAMED)]


@each_stream
def test_a_log_may_hold_the_stream_in_place_of_the_response(events: list[Entry]) -> None:
    key = "input" if events[0].get("type", "").startswith("response.") else "messages"
    asked = {**USER, "content": [{"text": TASK}]} if events is CONVERSE else USER
    request = {"model": "m", key: [asked]}
    for response in (events, sent(events)):
        found = run({"request": request, "response": response})
        assert (found.task, told(found)) == (TASK, [("assistant", "llm", STREAMED)])


@pytest.mark.parametrize(
    "events",
    [
        [*CHUNKS, {**chunk({}), "choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}],
        [*BLOCKS[:-2], {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}}, BLOCKS[-1]],
        [
            *RESPONSES[:-1],
            {
                "type": "response.incomplete",
                "response": {**RESPONSE, "incomplete_details": {"reason": "max_output_tokens"}},
            },
        ],
        [{"message": {"content": f"{'I look at the table. ' * 4}I"}, "done": False}, OLLAMA_END],
        [*CONVERSE[:-2], {"messageStop": {"stopReason": "max_tokens"}}],
        [*PAGE[:-1], {"type": "finish", "finishReason": "length"}],
    ],
    ids=["chat", "anthropic", "responses", "ollama", "bedrock", "page"],
)
def test_a_stream_that_ends_at_the_output_limit_is_a_failed_call(events: list[Entry]) -> None:
    (step,) = run(*events).steps
    assert "cut off at the model's output limit" in step.error


def test_a_page_gets_the_results_of_its_tools_too_and_asks_again_with_them() -> None:
    """Each request of a page repeats the dialogue; texts of two steps may have one id."""
    failed = {"type": "tool-output-error", "toolCallId": "t0", "errorText": ERROR}
    works = {"type": "tool-output-available", "toolCallId": "t1", "output": {"now": "09:00"}}
    said = {"type": "text-delta", "id": "0", "delta": ANSWER}
    events = [*PAGE[:-1], failed, works, PAGE[1], said, PAGE[-1]]
    asked: Entry = {"id": "m0", "role": "user", "parts": [{"type": "text", "text": TASK}]}
    first = {"request": {"messages": [asked]}, "response": sent(events)}
    assert [kind for _, kind, _ in told(run(first))] == ["llm", "tool", "llm", "tool", "llm"]
    assert [each[2:] for each in tools(run(first))] == [(ERROR, ERROR), ('{"now": "09:00"}', "")]
    parts = [{"type": "text", "text": "I look."}, {"type": "text", "text": ANSWER}]
    again = [asked, {"id": "m1", "role": "assistant", "parts": parts}, {**asked, "id": "m2"}]
    second = {"request": {"messages": again}, "response": sent([*PAGE[:5], PAGE[-1]])}
    assert [kind for _, kind, _ in told(run(first, second))] == ["llm", "llm"]


def test_a_call_of_bedrock_that_failed_in_its_stream_says_why() -> None:
    request = {"messages": [{**USER, "content": [{"text": TASK}]}]}
    busy: list[Entry] = [{"throttlingException": {"message": "Too many tokens"}}]
    streams: list[list[Entry]] = [[*CONVERSE[:1], *busy], busy]
    for events in streams:
        (step,) = run({"request": request, "response": events}).steps
        assert step.error == "throttlingException: Too many tokens"


@pytest.mark.parametrize(
    "record",
    [{"type": "start", "at": 1}, {"type": "file", "name": "x"}, {"metadata": {"a": 1}}, {"type": "finish"}],
)
def test_events_of_other_programs_are_no_stream(record: Entry) -> None:
    with pytest.raises(UnreadableInput, match="unknown format"):
        read_recording(json.dumps([record, record]).encode())


def test_events_of_bedrock_are_read_as_they_come_over_http() -> None:
    """Their names are in headers, ``p`` is padding; other models' own events are base64."""
    payloads = [{**told, "p": "abc"} for one in CONVERSE for told in one.values()]
    assert told(run(*payloads)) == told(run(*CONVERSE))
    encoded = [{"chunk": {"bytes": b64encode(json.dumps(one).encode()).decode()}} for one in BLOCKS]
    assert told(run(*encoded)) == told(run(*BLOCKS))


def test_the_data_stream_of_version_4_of_the_ai_sdk_is_read_as_that_of_version_5() -> None:
    lines: list[tuple[str, Any]] = [
        ("f", {"messageId": "m"}),
        ("9", {"toolCallId": "t0", "toolName": "tide_table", "args": {"port": "Dover"}}),
        ("a", {"toolCallId": "t0", "result": ERROR}),
        ("e", {"finishReason": "tool-calls", "isContinued": False}),
        ("f", {"messageId": "m2"}),
        ("0", ANSWER[:9]),
        ("0", ANSWER[9:]),
        ("d", {"finishReason": "stop"}),
    ]
    text = "".join(f"{code}:{json.dumps(value)}\n" for code, value in lines)
    for data in (text, text + '0:"cut of'):
        (found,) = read_runs(data.encode())
        assert [(step.kind.value, step.output) for step in found.trajectory.steps] == [
            ("llm", 'call tide_table({"port": "Dover"})'),
            ("tool", ERROR),
            ("llm", ANSWER),
        ]
    asked = {"request": {"messages": [{"role": "user", "parts": [{"type": "text", "text": TASK}]}]}}
    assert run({**asked, "response": text}).output == ANSWER
    assert run({**asked, "response": '0:"I "\n3:"busy"\n'}).steps[-1].error == "busy"


def test_chunks_of_several_answers_may_be_mixed() -> None:
    parts = [("a", "one "), ("b", "two "), ("a", "three"), ("b", "four")]
    found = runs(*(chunk({"content": text}, key=key) for key, text in parts))
    assert [one.output for one in found] == ["one three", "two four"]


def test_lines_that_ollama_streams_are_one_answer() -> None:
    parts = [
        {"message": {"role": "assistant", "content": text}, "done": not text} for text in ("Hi", " Ann", "")
    ]
    assert told(run(*parts)) == [("assistant", "llm", "Hi Ann")]


@pytest.mark.parametrize(
    "events",
    [
        [CHUNKS[1], {"error": BUSY["error"]}],
        [*BLOCKS[:1], {"type": "error", **BUSY}],
        [RESPONSES[0], {"type": "error", "code": "overloaded_error", "message": "Overloaded"}],
        [*CONVERSE[:3], {"overloaded_error": {}, **BUSY}],
        [*PAGE[:5], {"type": "error", "errorText": BUSY_TEXT}],
    ],
    ids=["chat", "anthropic", "responses", "bedrock", "page"],
)
def test_an_error_in_a_stream_is_the_calls(events: list[Entry]) -> None:
    assert kinds(run(*events))[-1] == ("llm", BUSY_TEXT)


def test_an_event_that_is_cut_short_is_left_out_with_a_warning() -> None:
    found = read_recording((sent(CHUNKS) + 'data: {"id": "c", "obj').encode())
    assert found.warnings == ("the last event is cut short and was left out",)


def test_an_event_that_is_cut_short_before_others_is_refused_by_its_line() -> None:
    lines = sent(CHUNKS).splitlines(keepends=True)
    lines[4] = 'data: {"id": "c", "obj\n'
    for text in ("".join(lines), "".join(filter(str.strip, lines))):
        place = 1 + text.splitlines().index(lines[4].strip())
        with pytest.raises(UnreadableInput, match=f"line {place}: an event that does not end"):
            read_recording(text.encode())
    (found,) = runs({"messages": [USER], "response": CHUNKS[1:3]}, {"messages": [USER], "response": text})
    assert found.output == "I look."


def test_lines_of_data_may_hold_several_streams_each_with_its_end() -> None:
    streams = [sent([chunk({"content": text}, key=text)], "\n") for text in ("one", "two")]
    found = read_runs("".join(f"{each}data: [DONE]\n" for each in streams).encode())
    assert [one.trajectory.output for one in found] == ["one", "two"]


def test_yaml_with_a_key_data_is_no_stream() -> None:
    with pytest.raises(UnreadableInput, match="YAML with the keys data"):
        read_recording(b"data:\n  - a: 1\n")


def unanswered(turns: int) -> str:
    asked = [{"messages": [{"role": "user", "content": f"{turn // 2}"}]} for turn in range(turns)]
    return "\n".join(json.dumps({**one, "response": BUSY}) for one in asked)


@pytest.mark.parametrize(
    "long",
    [unanswered, lambda times: sent(CHUNKS * times), lambda times: sent(BLOCKS * times)],
    ids=["failed calls", "chunks", "blocks"],
)
def test_long_logs_and_streams_are_read_in_linear_time(long: Callable[[int], str]) -> None:
    once, ten_times = long(30).encode(), long(300).encode()
    assert operations(lambda: read_recording(ten_times)) < 12 * operations(lambda: read_recording(once))


@pytest.mark.parametrize("seed", range(3))
def test_damaged_logs_and_streams_are_read_or_refused_in_one_line(seed: int) -> None:
    chance = Random(seed)
    logs = [log(api, (1, True), (3, False), (3, True)) for api in APIS]
    for document in (*logs, CHUNKS, BLOCKS, RESPONSES):
        for _ in range(100):
            try:
                read_recording(mutate_json(json.dumps(document).encode(), chance))
            except UnreadableInput as refusal:
                assert "\n" not in str(refusal)  # noqa: PT017 - most are read


# --- nobody but people ---


@pytest.mark.parametrize(
    "document",
    [
        [USER],
        {"messages": [USER]},
        {"history": [{"role": "human", "content": TASK}, {"role": "human", "content": "Anyone?"}]},
        [{"role": "system", "content": "Be exact."}, USER],
        [{"type": "human", "content": TASK}],
        [{"role": "user", "parts": [{"type": "text", "text": TASK}]}],
    ],
)
def test_a_file_in_which_only_a_person_speaks_accuses_nobody(document: Any) -> None:
    with pytest.raises(UnreadableInput, match="no agent speaks in it"):
        read_recording(json.dumps(document).encode())


def test_a_dialogue_that_was_never_answered_leaves_the_others_what_they_are() -> None:
    answered = {"messages": [USER, {"role": "assistant", "content": ANSWER}]}
    (found,) = runs({"messages": [USER]}, answered)
    assert (found.output, found.is_recorded_conversation) == (ANSWER, False)


def test_conversations_without_agents_are_left_out_with_a_warning() -> None:
    spoken = {"history": [{"role": "Planner", "content": "done"}]}
    found = read_recording(json.dumps([spoken, {"history": [{"role": "human", "content": TASK}]}]).encode())
    assert len(found.conversations) == 1
    (warning,) = found.warnings
    assert warning.startswith("left out 1 of 2 conversations, in which no agent speaks")
